//! Join tokens: what a new member needs to find the head, to know it, and to be let in once.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV6};
use std::str::FromStr;

use aws_lc_rs::rand;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use types::PoolId;

use super::{Fingerprint, TrustError, secret_hash, sha256};

const PREFIX: &str = "fb1.";
const ADDRESSES_MAX: usize = 8;
const TOKEN_BYTES_MAX: usize = 2048;
/// The longest name that DNS has.
const HOST_BYTES_MAX: usize = 253;
const SECRET_LEN: usize = 16;
const CHECKSUM_LEN: usize = 4;
const NUMBER_LEN: usize = 4;
/// With the number of a pool, which most tokens have not.
const PAYLOAD_LEN_MAX: usize = 32 + SECRET_LEN + NUMBER_LEN + CHECKSUM_LEN;

/// A join token: `fb1.HOST:PORT[,HOST:PORT].BASE64URL`.
///
/// The last part holds the fingerprint of the cluster's authority, the secret, the number of the pool if it is for one, and a
/// checksum of all that is before it. The checksum tells a mistyped token from one that the head does not know; it protects
/// nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// `HOST:PORT`, in the order in which they are to be tried. IPv6 addresses are in brackets.
    pub addresses: Vec<String>,
    pub authority: Fingerprint,
    /// The head lets in the bearer. Show it to the head only after TLS has verified it by `authority`.
    pub secret: [u8; SECRET_LEN],
    /// The host of this pool may join again by it, and no other host may join.
    pub pool: Option<PoolId>,
}

/// Why a text is no token.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("cannot read the join token: it does not begin with `fb1.`")]
    Prefix,
    #[error("cannot read the join token: it is longer than {TOKEN_BYTES_MAX} characters")]
    TooLong,
    #[error("cannot read the join token: a part is missing; copy all of it")]
    Incomplete,
    #[error("cannot read the join token: it was mistyped or is incomplete; copy it again")]
    Mistyped,
    #[error("cannot use a join token without an address of a head")]
    NoAddress,
    #[error("cannot use a join token with more than {ADDRESSES_MAX} addresses")]
    ManyAddresses,
    #[error("cannot use the address {0:?} in a join token: write HOST:PORT, and IPv6 as [ADDRESS]:PORT")]
    Address(String),
}

impl Token {
    /// A new token, with a secret from the random generator.
    pub fn make(
        addresses: Vec<String>,
        authority: Fingerprint,
        pool: Option<PoolId>,
    ) -> Result<Token, TrustError> {
        let what = "a join token";
        check_addresses(addresses.iter().map(String::as_str))
            .map_err(|error| TrustError::Make { what, reason: error.to_string() })?;
        let mut secret = [0; SECRET_LEN];
        rand::fill(&mut secret)
            .map_err(|_| TrustError::Make { what, reason: "no random bytes".to_owned() })?;
        Ok(Token { addresses, authority, secret, pool })
    }

    /// The head keeps this instead of the secret.
    pub fn secret_hash(&self) -> [u8; 32] {
        secret_hash(&self.secret)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses = self.addresses.join(",");
        let mut payload = [&self.authority.0[..], &self.secret].concat();
        payload.extend(self.pool.iter().flat_map(|pool| pool.0.to_be_bytes()));
        payload.extend(checksum(&addresses, &payload));
        write!(f, "{PREFIX}{addresses}.{}", BASE64_URL_SAFE_NO_PAD.encode(payload))
    }
}

/// Without the secret: a token in a log must not let in its reader.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("addresses", &self.addresses)
            .field("authority", &self.authority)
            .finish_non_exhaustive()
    }
}

impl FromStr for Token {
    type Err = TokenError;

    /// White space around the token is ignored.
    fn from_str(text: &str) -> Result<Token, TokenError> {
        let text = text.trim();
        let rest = text.strip_prefix(PREFIX).ok_or(TokenError::Prefix)?;
        if text.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::TooLong);
        }
        // Addresses may contain dots, the last part cannot.
        let (addresses, payload) = rest.rsplit_once('.').ok_or(TokenError::Incomplete)?;
        let payload = BASE64_URL_SAFE_NO_PAD.decode(payload).map_err(|_| TokenError::Mistyped)?;
        let (body, sum) = payload.split_last_chunk::<CHECKSUM_LEN>().ok_or(TokenError::Mistyped)?;
        if *sum != checksum(addresses, body) {
            return Err(TokenError::Mistyped);
        }
        let (authority, rest) = body.split_first_chunk().ok_or(TokenError::Mistyped)?;
        let (secret, number) = rest.split_first_chunk().ok_or(TokenError::Mistyped)?;
        let pool = match number {
            [] => None,
            number => {
                let number: [u8; NUMBER_LEN] = number.try_into().map_err(|_| TokenError::Mistyped)?;
                Some(PoolId(u32::from_be_bytes(number)))
            }
        };
        if addresses.is_empty() {
            return Err(TokenError::NoAddress);
        }
        check_addresses(addresses.split(','))?;
        Ok(Token {
            addresses: addresses.split(',').map(str::to_owned).collect(),
            authority: Fingerprint(*authority),
            secret: *secret,
            pool,
        })
    }
}

fn checksum(addresses: &str, body: &[u8]) -> [u8; CHECKSUM_LEN] {
    let hash = sha256(&[PREFIX.as_bytes(), addresses.as_bytes(), b".", body]);
    [hash[0], hash[1], hash[2], hash[3]]
}

fn check_addresses<'a>(addresses: impl Iterator<Item = &'a str>) -> Result<(), TokenError> {
    let mut count = 0;
    let mut bytes = 0;
    for address in addresses {
        count += 1;
        bytes += address.len() + 1;
        if count > ADDRESSES_MAX {
            return Err(TokenError::ManyAddresses);
        }
        if !is_address(address) {
            return Err(TokenError::Address(address.chars().take(HOST_BYTES_MAX).collect()));
        }
    }
    match count {
        0 => Err(TokenError::NoAddress),
        _ if PREFIX.len() + bytes + PAYLOAD_LEN_MAX * 4 / 3 + 1 > TOKEN_BYTES_MAX => Err(TokenError::TooLong),
        _ => Ok(()),
    }
}

fn is_address(address: &str) -> bool {
    if address.starts_with('[') {
        return address.parse::<SocketAddrV6>().is_ok_and(|address| address.port() != 0);
    }
    let Some((host, port)) = address.rsplit_once(':') else { return false };
    let is_port =
        port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port != 0);
    is_port && is_host(host)
}

fn is_host(host: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    // A last label of digits only makes it an IPv4 address, as in URLs. So `10.0.0.300` is no name.
    let is_numeric =
        host.rsplit('.').next().is_some_and(|label| label.bytes().all(|byte| byte.is_ascii_digit()));
    host.len() <= HOST_BYTES_MAX
        && host.split('.').all(is_label)
        && (!is_numeric || host.parse::<Ipv4Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn token(addresses: &[&str]) -> Token {
        Token {
            addresses: addresses.iter().map(|&address| address.to_owned()).collect(),
            authority: Fingerprint([7; 32]),
            secret: [9; SECRET_LEN],
            pool: None,
        }
    }

    fn address() -> impl Strategy<Value = String> {
        let host = prop_oneof![
            "[a-z]([a-z0-9-]{0,20}[a-z0-9])?(\\.[a-z]{1,10}){0,3}",
            any::<std::net::Ipv4Addr>().prop_map(|address| address.to_string()),
            any::<std::net::Ipv6Addr>().prop_map(|address| format!("[{address}]")),
        ];
        (host, 1..=u16::MAX).prop_map(|(host, port)| format!("{host}:{port}"))
    }

    proptest! {
        #[test]
        fn a_token_survives_its_text(
            addresses in proptest::collection::vec(address(), 1..=ADDRESSES_MAX),
            authority: [u8; 32],
            secret: [u8; SECRET_LEN],
            pool: Option<u32>,
        ) {
            let pool = pool.map(PoolId);
            let token = Token { addresses, authority: Fingerprint(authority), secret, pool };
            prop_assert_eq!(token.to_string().parse(), Ok(token));
        }

        #[test]
        fn any_text_is_parsed_without_a_panic(text in ".{0,300}") {
            let _ = text.parse::<Token>();
            let _ = format!("fb1.{text}").parse::<Token>();
        }
    }

    #[test]
    fn the_text_of_a_token_stays_the_same() {
        let text = token(&["head1:7413", "[2001:db8::1]:7413"]).to_string();
        assert!(text.starts_with("fb1.head1:7413,[2001:db8::1]:7413.BwcH"), "{text}");
        assert_eq!(text.rsplit('.').next().unwrap().len(), 70);
        assert_eq!(format!(" {text}\n").parse(), Ok(token(&["head1:7413", "[2001:db8::1]:7413"])));
    }

    #[test]
    fn each_mistyped_character_is_noticed() {
        let text = token(&["head1.example.org:7413"]).to_string();
        for position in PREFIX.len()..text.len() {
            for wrong in ["x", "7", "-", ".", ""] {
                let mut mistyped = text.clone();
                mistyped.replace_range(position..=position, wrong);
                if mistyped != text {
                    assert_eq!(mistyped.parse::<Token>(), Err(TokenError::Mistyped), "{mistyped}");
                }
            }
        }
        for len in text.find('.').unwrap() + 1..text.len() {
            let error = text[..len].parse::<Token>().unwrap_err();
            assert!(matches!(error, TokenError::Mistyped | TokenError::Incomplete), "{error}");
        }
        assert_eq!("forebay".parse::<Token>(), Err(TokenError::Prefix));
        assert_eq!(text.replace("fb1", "fb2").parse::<Token>(), Err(TokenError::Prefix));
        assert_eq!("fb1.head".parse::<Token>(), Err(TokenError::Incomplete));
    }

    #[test]
    fn a_token_has_a_bound_on_its_addresses() {
        let nine = ["head:7413"; ADDRESSES_MAX + 1];
        assert_eq!(token(&nine).to_string().parse::<Token>(), Err(TokenError::ManyAddresses));
        assert_eq!(token(&[]).to_string().parse::<Token>(), Err(TokenError::NoAddress));
        let long = format!("fb1.{}", "a".repeat(TOKEN_BYTES_MAX));
        assert_eq!(long.parse::<Token>(), Err(TokenError::TooLong));
        let longest = vec![format!("{}:65535", ["a".repeat(62).as_str(); 4].join(".")); ADDRESSES_MAX];
        assert!(Token::make(longest, Fingerprint([0; 32]), None).is_err());
        assert!(Token::make(Vec::new(), Fingerprint([0; 32]), None).is_err());
    }

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for good in ["h:1", "10.0.0.1:7413", "[::1]:7413", "[fe80::1%2]:7413", "a-b.example_x:65535", "1a:7"]
        {
            assert_eq!(token(&[good]).to_string().parse(), Ok(token(&[good])));
        }
        let bad = [
            "",
            "h",
            ":7",
            "h:",
            "h:0",
            "h:+7",
            "h:65536",
            "::1:7413",
            "[::1]",
            "[::1]:0",
            "10.0.0.300:7413",
        ];
        for bad in bad.into_iter().chain(["h.:7", "a b:7", "h/:7", "1:7", "[h]:7", "user@h:7", "h:7:8"]) {
            let error = token(&["h:1", bad]).to_string().parse::<Token>().unwrap_err();
            assert_eq!(error, TokenError::Address(bad.to_owned()));
            assert_eq!(error.to_string().lines().count(), 1);
        }
    }

    #[test]
    fn each_token_has_its_own_secret_and_does_not_log_it() {
        let make = || Token::make(vec!["head:7413".to_owned()], Fingerprint([0; 32]), None).unwrap();
        let (one, other) = (make(), make());
        assert_ne!(one.secret, other.secret);
        assert_ne!(one.secret_hash(), other.secret_hash());
        let same_secret = Token { addresses: vec!["other:1".to_owned()], ..one.clone() };
        assert_eq!(one.secret_hash(), same_secret.secret_hash());
        assert!(!format!("{one:?}").contains("secret"));
    }
}
