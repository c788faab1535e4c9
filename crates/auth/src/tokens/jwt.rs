//! A JWT taken apart (RFC 7515 compact form, RFC 7519 claims). Nothing that is read here has been verified.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Deserializer};

use super::keys::Algorithm;

/// As much as any server takes in one header line.
pub const TOKEN_BYTES_MAX: usize = 16 << 10;
const GROUPS_MAX: usize = 256;
const AUDIENCES_MAX: usize = 64;
const SUBJECT_BYTES_MAX: usize = 1024;

#[derive(Debug)]
pub struct Token<'a> {
    pub header: Header,
    pub claims: Claims,
    /// The text that is signed.
    pub signed: &'a str,
    pub signature: Vec<u8>,
}

#[derive(Debug)]
pub struct Header {
    pub algorithm: Algorithm,
    pub kid: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct Claims {
    pub iss: String,
    #[serde(default)]
    pub sub: String,
    #[serde(default, rename = "aud", deserialize_with = "one_or_many")]
    pub audiences: Vec<String>,
    #[serde(default, rename = "exp", deserialize_with = "seconds")]
    pub exp_s: Option<u64>,
    #[serde(default, rename = "nbf", deserialize_with = "seconds")]
    pub nbf_s: Option<u64>,
    #[serde(default, rename = "iat", deserialize_with = "seconds")]
    pub iat_s: Option<u64>,
    #[serde(default)]
    pub scope: String,
    #[serde(default, rename = "wlcg.groups")]
    pub groups: Vec<String>,
    #[serde(default, rename = "wlcg.ver")]
    pub wlcg_version: Option<String>,
    #[serde(default, rename = "ver")]
    pub scitokens_version: Option<String>,
}

#[derive(Deserialize)]
struct RawHeader {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
    /// Extensions that must be understood (RFC 7515 §4.1.11); none is.
    #[serde(default)]
    crit: Option<serde_json::Value>,
}

impl<'a> Token<'a> {
    pub fn parse(text: &'a str) -> Result<Token<'a>, String> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(format!("the token is longer than {TOKEN_BYTES_MAX} bytes"));
        }
        let (signed, signature) = text.rsplit_once('.').ok_or("the token has not three parts")?;
        let (header, claims) = signed.split_once('.').ok_or("the token has not three parts")?;
        if claims.contains('.') {
            return Err("the token has not three parts".to_owned());
        }
        let header = Header::parse(&part(header, "header")?)?;
        let claims: Claims = serde_json::from_slice(&part(claims, "body")?)
            .map_err(|error| format!("the token's claims make no sense: {error}"))?;
        claims.check_bounds()?;
        Ok(Token { header, claims, signed, signature: part(signature, "signature")? })
    }
}

/// Whether a bearer's credential has the shape of a JWT; macaroons have no dots.
pub fn is_jwt(text: &str) -> bool {
    text.contains('.')
}

fn part(text: &str, what: &str) -> Result<Vec<u8>, String> {
    URL_SAFE_NO_PAD.decode(text).map_err(|_| format!("the token's {what} is not base64url"))
}

impl Header {
    fn parse(json: &[u8]) -> Result<Header, String> {
        let raw: RawHeader = serde_json::from_slice(json)
            .map_err(|error| format!("the token's header makes no sense: {error}"))?;
        if raw.crit.is_some() {
            return Err("the token's header asks for extensions that are not known here".to_owned());
        }
        let algorithm = Algorithm::parse(&raw.alg)
            .ok_or_else(|| format!("the token is signed by {:?}, which is not accepted", raw.alg))?;
        Ok(Header { algorithm, kid: raw.kid })
    }
}

impl Claims {
    fn check_bounds(&self) -> Result<(), String> {
        if self.groups.len() > GROUPS_MAX || self.audiences.len() > AUDIENCES_MAX {
            return Err("the token has too many groups or audiences".to_owned());
        }
        // The subject becomes a name in logs and locks.
        if self.sub.len() > SUBJECT_BYTES_MAX || self.sub.chars().any(char::is_control) {
            return Err("the token's subject is too long or has control characters".to_owned());
        }
        Ok(())
    }
}

/// A NumericDate, which may have a fraction (RFC 7519 §2).
fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let number = f64::deserialize(deserializer)?;
    // Up to the year 9999; more is a mistake of units.
    if (0.0..=253_402_300_799.0).contains(&number) {
        Ok(Some(number as u64))
    } else {
        Err(serde::de::Error::custom("a time is out of range"))
    }
}

fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }
    Ok(match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(one) => vec![one],
        OneOrMany::Many(many) => many,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(header: &str, claims: &str) -> String {
        format!("{}.{}.AAAA", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims))
    }

    const HEADER: &str = r#"{"alg":"ES256","kid":"k"}"#;

    #[test]
    fn claims_are_read_in_each_form_that_issuers_use() {
        let one = text(
            HEADER,
            r#"{"iss":"i","sub":"s","aud":"a","exp":12.9,"nbf":1,"scope":"x y","wlcg.ver":"1.0"}"#,
        );
        let token = Token::parse(&one).unwrap();
        assert_eq!(token.claims.audiences, ["a"]);
        assert_eq!(token.claims.exp_s, Some(12));
        assert_eq!(token.header.kid.as_deref(), Some("k"));
        assert_eq!(token.signed.len() + 5, one.len());
        let many = text(HEADER, r#"{"iss":"i","aud":["a","b"],"unknown":{"deep":[1]}}"#);
        assert_eq!(Token::parse(&many).unwrap().claims.audiences, ["a", "b"]);
    }

    #[test]
    fn a_token_without_an_asymmetric_signature_is_refused() {
        for alg in ["none", "None", "HS256", "HS512", "EdDSA", "rs256", ""] {
            let text = text(&format!(r#"{{"alg":"{alg}"}}"#), r#"{"iss":"i"}"#);
            assert!(Token::parse(&text).is_err(), "{alg}");
        }
    }

    #[test]
    fn an_extension_that_must_be_understood_is_refused() {
        assert!(
            Token::parse(&text(r#"{"alg":"ES256","crit":["b64"],"b64":false}"#, r#"{"iss":"i"}"#)).is_err()
        );
    }

    #[test]
    fn text_that_is_no_token_is_refused() {
        let many = format!(r#"{{"iss":"i","wlcg.groups":[{}"/g"]}}"#, r#""/g","#.repeat(GROUPS_MAX));
        let claims = [
            r#"{"iss":1}"#,
            r#"{"sub":"s"}"#,
            r#"{"iss":"i","iss":"j"}"#,
            r#"{"iss":"i","exp":"soon"}"#,
            r#"{"iss":"i","exp":-1}"#,
            r#"{"iss":"i","exp":1e300}"#,
            r#"{"iss":"i","sub":"a\nb"}"#,
            "[]",
            &many,
        ];
        for claims in claims {
            assert!(Token::parse(&text(HEADER, claims)).is_err(), "{claims}");
        }
        let good = text(HEADER, r#"{"iss":"i"}"#);
        assert!(Token::parse(&good).is_ok());
        for bad in ["", "..", "a.b", "a.b.c.d", &format!("{good}="), &format!("{good}.")] {
            assert!(Token::parse(bad).is_err(), "{bad}");
        }
        assert!(Token::parse(&"x".repeat(TOKEN_BYTES_MAX + 1)).is_err());
    }
}
