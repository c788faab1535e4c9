//! Headers as davix, gfal2, curl and dCache send them.

use proptest::prelude::*;

use super::*;

fn headers(lines: &[(HeaderName, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(name.clone(), HeaderValue::from_str(value).unwrap());
    }
    headers
}

fn sum(kind: ChecksumKind, value: &[u8]) -> Checksum {
    Checksum::new(kind, value).unwrap()
}

fn adler(value: u32) -> Checksum {
    sum(ChecksumKind::Adler32, &value.to_be_bytes())
}

/// MD5 of nothing.
const MD5: [u8; 16] = [0xd4, 0x1d, 0x8c, 0xd9, 0x8f, 0, 0xb2, 4, 0xe9, 0x80, 9, 0x98, 0xec, 0xf8, 0x42, 0x7e];

#[test]
fn want_digest_is_ordered_by_weight() {
    use ChecksumKind::{Adler32, Crc32c, Md5, Sha256};
    for (value, expected) in [
        ("adler32", &[Adler32][..]),
        ("ADLER32;q=1, md5;q=0.5", &[Adler32, Md5]),
        ("md5;q=0.3, sha-256;q=0.9,UNIXsum, crc32c ; q=1", &[Crc32c, Sha256, Md5]),
        ("md5,adler32", &[Md5, Adler32]),
        ("md5;q=0, adler32", &[Adler32]),
        ("md5;q=0, md5", &[]),
        ("md5;q=2", &[]),
        ("sha-512", &[]),
        ("", &[]),
    ] {
        assert_eq!(want_digest(&headers(&[(WANT_DIGEST, value)])), expected, "{value}");
    }
    let two = headers(&[(WANT_DIGEST, "md5;q=0.1"), (WANT_DIGEST, "adler32")]);
    assert_eq!(want_digest(&two), [Adler32, Md5]);
}

#[test]
fn want_repr_digest_has_weights_up_to_ten() {
    use ChecksumKind::{Adler32, Crc32c, Sha256};
    for (value, expected) in [
        ("sha-256=3, adler=10", &[Adler32, Sha256][..]),
        ("sha-256=3;x=y, adler32=10, md5=0, crc32c=11, sha-512=5", &[Adler32, Sha256]),
        ("crc32c=1, sha-256", &[Crc32c]),
        ("sha-256=-1, adler=?1", &[]),
    ] {
        assert_eq!(want_repr_digest(&headers(&[(WANT_REPR_DIGEST, value)])), expected, "{value}");
    }
}

#[test]
fn adler32_is_written_in_eight_hexadecimal_digits_and_the_others_in_base64() {
    let sums =
        [adler(0x00a1_b2c3), sum(ChecksumKind::Md5, &MD5), sum(ChecksumKind::Crc32c, &[0, 1, 2, 0xff])];
    assert_eq!(digest_text(&sums), "adler32=00a1b2c3,md5=1B2M2Y8AsgTpgAmY7PhCfg==,crc32c=AAEC/w==");
    assert_eq!(digest_header(&sums[..1]).unwrap(), "adler32=00a1b2c3");
    assert_eq!(repr_digest_header(&sums[..2]).unwrap(), "adler=:AKGyww==:, md5=:1B2M2Y8AsgTpgAmY7PhCfg==:");
    assert_eq!((digest_header(&[]), repr_digest_header(&[])), (None, None));
}

#[test]
fn a_digest_is_read_in_either_form() {
    let md5 = sum(ChecksumKind::Md5, &MD5);
    for (value, expected) in [
        ("adler32=00a1b2c3", &[adler(0x00a1_b2c3)][..]),
        ("Adler32=A1B2C3", &[adler(0x00a1_b2c3)]),
        ("adler32=AKGyww==", &[adler(0x00a1_b2c3)]),
        ("adler32=1", &[adler(1)]),
        ("md5=1B2M2Y8AsgTpgAmY7PhCfg==", &[md5]),
        ("md5=d41d8cd98f00b204e9800998ecf8427e", &[md5]),
        ("unixsum=30637, md5=1B2M2Y8AsgTpgAmY7PhCfg== , adler32=00000001", &[md5, adler(1)]),
        ("adler32=1,adler32=00000001", &[adler(1)]),
        ("sha-512=garbage, nothing", &[]),
    ] {
        assert_eq!(parse_digest(value.as_bytes()).unwrap(), expected, "{value}");
    }
}

#[test]
fn a_digest_that_would_be_compared_is_not_guessed() {
    for value in [
        "adler32=",
        "adler32=000000001",
        "adler32=xyz",
        "adler32=+1",
        "adler32=00a1b2c",
        "md5=AKGyww==",
        "md5=1",
        "crc32c=1",
        "sha-256=d41d8cd98f00b204e9800998ecf8427e",
        "md5=1B2M2Y8AsgTpgAmY7PhCfg",
    ] {
        let expected = value == "adler32=00a1b2c";
        assert_eq!(parse_digest(value.as_bytes()).is_ok(), expected, "{value}");
    }
    let twice = parse_digest(b"adler32=1,adler32=2");
    assert_eq!(twice, Err(DigestError::Contradiction(ChecksumKind::Adler32)));
}

#[test]
fn a_repr_digest_is_a_dictionary_of_byte_sequences() {
    let md5 = sum(ChecksumKind::Md5, &MD5);
    let read = |value: &str| parse_repr_digest(value.as_bytes());
    assert_eq!(
        read("md5=:1B2M2Y8AsgTpgAmY7PhCfg==:;x=1, adler=:AKGyww==:, z=1"),
        Ok(vec![md5, adler(0x00a1_b2c3)])
    );
    for bad in ["md5=1B2M2Y8AsgTpgAmY7PhCfg==", "md5=:x:", "md5=::", "md5=:", "md5"] {
        assert_eq!(read(bad), Err(DigestError::Value(ChecksumKind::Md5)), "{bad}");
    }
}

#[test]
fn all_headers_that_announce_a_checksum_are_heard() {
    let lines = [
        (CONTENT_MD5, "1B2M2Y8AsgTpgAmY7PhCfg=="),
        (DIGEST, "adler32=1"),
        (REPR_DIGEST, "adler=:AAAAAQ==:"),
        (CONTENT_DIGEST, "md5=:1B2M2Y8AsgTpgAmY7PhCfg==:"),
    ];
    assert_eq!(announced(&headers(&lines)), Ok(vec![sum(ChecksumKind::Md5, &MD5), adler(1)]));
    let lines = [(DIGEST, "adler32=1"), (REPR_DIGEST, "adler=:AAAAAg==:")];
    assert_eq!(announced(&headers(&lines)), Err(DigestError::Contradiction(ChecksumKind::Adler32)));
    assert_eq!(announced(&headers(&[(CONTENT_MD5, "")])), Err(DigestError::Value(ChecksumKind::Md5)));
    assert_eq!(announced(&HeaderMap::new()), Ok(vec![]));
}

proptest! {
    #[test]
    fn a_checksum_survives_being_written(index in 0_usize..4, value in prop::array::uniform32(any::<u8>())) {
        let kind = ChecksumKind::ALL[index];
        let sum = sum(kind, &value[..kind.value_bytes()]);
        prop_assert_eq!(parse_digest(digest_text(&[sum]).as_bytes()), Ok(vec![sum]));
        let repr = repr_digest_header(&[sum]).unwrap();
        prop_assert_eq!(parse_repr_digest(repr.as_bytes()), Ok(vec![sum]));
        let in_hex = format!("{}={}", kind.name(), Hex(sum.value()));
        prop_assert_eq!(parse_digest(in_hex.as_bytes()), Ok(vec![sum]));
    }
}
