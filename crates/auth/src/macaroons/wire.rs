//! How macaroons look: packets (format 1), which we write, and the binary format 2, which we also read.
//!
//! Both in base64, with either alphabet, since clients have sent both. Third-party caveats are refused: whoever appended
//! one expects a discharge that nobody here can check.

use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use types::hex;

pub const TOKEN_BYTES_MAX: usize = 16 << 10;
pub const CAVEATS_MAX: usize = 64;

const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Nothing in it has been verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    pub location: Vec<u8>,
    pub identifier: Vec<u8>,
    pub caveats: Vec<Vec<u8>>,
    pub signature: [u8; 32],
}

impl Parts {
    pub fn decode(token: &str) -> Result<Parts, String> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(format!("the macaroon is longer than {TOKEN_BYTES_MAX} bytes"));
        }
        let url_safe = token.replace('+', "-").replace('/', "_");
        let bytes = LENIENT.decode(url_safe).map_err(|_| "the macaroon is not base64".to_owned())?;
        let parts = match bytes.first() {
            Some(2) => decode_fields(&bytes[1..]),
            Some(_) => decode_packets(&bytes),
            None => None,
        };
        let parts = parts.ok_or("the credential is neither a JWT nor a macaroon that makes sense")?;
        if parts.caveats.len() > CAVEATS_MAX {
            return Err(format!("the macaroon has more than {CAVEATS_MAX} caveats"));
        }
        Ok(parts)
    }

    pub fn encode_packets(&self) -> Result<String, String> {
        let mut bytes = Vec::new();
        let caveats = self.caveats.iter().map(|caveat| ("cid", caveat.as_slice()));
        let head = [("location", self.location.as_slice()), ("identifier", self.identifier.as_slice())];
        for (key, value) in head.into_iter().chain(caveats).chain([("signature", self.signature.as_slice())])
        {
            let length = PACKET_HEAD_LEN + key.len() + 1 + value.len() + 1;
            if length > PACKET_LEN_MAX {
                return Err(format!("the macaroon's {key} is too long"));
            }
            bytes.extend_from_slice(format!("{length:04x}{key} ").as_bytes());
            bytes.extend_from_slice(value);
            bytes.push(b'\n');
        }
        let token = URL_SAFE_NO_PAD.encode(bytes);
        if token.len() > TOKEN_BYTES_MAX || self.caveats.len() > CAVEATS_MAX {
            return Err("the macaroon would be too long".to_owned());
        }
        Ok(token)
    }
}

/// Four hexadecimal digits.
const PACKET_HEAD_LEN: usize = 4;
const PACKET_LEN_MAX: usize = 0xffff;

/// `location`, `identifier`, any number of `cid`, `signature`, in this order and nothing after.
fn decode_packets(bytes: &[u8]) -> Option<Parts> {
    let mut rest = bytes;
    let location = packet(&mut rest, b"location")?.to_vec();
    let identifier = packet(&mut rest, b"identifier")?.to_vec();
    let mut caveats = Vec::new();
    while let Some(caveat) = packet(&mut rest, b"cid") {
        caveats.push(caveat.to_vec());
    }
    let signature = packet(&mut rest, b"signature")?.try_into().ok()?;
    rest.is_empty().then_some(Parts { location, identifier, caveats, signature })
}

/// The value of the next packet if it has this key; `rest` moves only then.
fn packet<'a>(rest: &mut &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let (head, _) = rest.split_at_checked(PACKET_HEAD_LEN)?;
    let mut length = 0;
    for digit in head {
        length = length * 16 + usize::from(hex::value(*digit)?);
    }
    let (packet, after) = rest.split_at_checked(length)?;
    let body = packet.get(PACKET_HEAD_LEN..)?.strip_suffix(b"\n")?;
    let value = body.strip_prefix(key)?.strip_prefix(b" ")?;
    *rest = after;
    Some(value)
}

const FIELD_END: u8 = 0;
const FIELD_LOCATION: u8 = 1;
const FIELD_IDENTIFIER: u8 = 2;
const FIELD_SIGNATURE: u8 = 6;

/// After the version: a section with an optional location and the identifier; one section for each caveat; an empty
/// one; the signature. A field is its kind, its length as a varint, and its bytes.
fn decode_fields(bytes: &[u8]) -> Option<Parts> {
    let mut rest = bytes;
    let location = field(&mut rest, FIELD_LOCATION).unwrap_or_default().to_vec();
    let identifier = field(&mut rest, FIELD_IDENTIFIER)?.to_vec();
    end(&mut rest)?;
    let mut caveats = Vec::new();
    while end(&mut rest).is_none() {
        // A caveat with a location is a third party's, and so is one with a verification id: neither fits here.
        caveats.push(field(&mut rest, FIELD_IDENTIFIER)?.to_vec());
        end(&mut rest)?;
    }
    let signature = field(&mut rest, FIELD_SIGNATURE)?.try_into().ok()?;
    rest.is_empty().then_some(Parts { location, identifier, caveats, signature })
}

fn end(rest: &mut &[u8]) -> Option<()> {
    *rest = rest.strip_prefix(&[FIELD_END])?;
    Some(())
}

fn field<'a>(rest: &mut &'a [u8], kind: u8) -> Option<&'a [u8]> {
    let mut after = rest.strip_prefix(&[kind])?;
    let length = varint(&mut after)?;
    let (value, after) = after.split_at_checked(length)?;
    *rest = after;
    Some(value)
}

/// At most three bytes: more than any token holds.
fn varint(rest: &mut &[u8]) -> Option<usize> {
    let mut value = 0;
    for shift in [0, 7, 14] {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
