//! Test vectors: appendix A of RFC 8009, and of RFC 3962's types those that MIT Kerberos and others agree on.

use bytes::BytesMut;

use super::*;

/// Bytes from hexadecimal digits.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    types::hex::decode(text.as_bytes()).expect("hexadecimal digits")
}

fn key(enctype: i32, text: &str) -> Key {
    Key::new(enctype, &hex(text)).unwrap()
}

#[test]
fn messages_of_rfc_3962_are_opened_and_written_again() {
    let cases = [
        (
            17,
            "",
            0,
            "5a5c0f0ba54f3828b2195e66ca24a289",
            "49ff8e11c173d9583a3254fbe7b1f1df36c538e8416784a1672e6676",
        ),
        (
            17,
            "1",
            1,
            "98450e3f3baa13f5c99beb936981b06f",
            "f86742f537b35dc2174a4dbaa920faf9042090b065e1ebb1cad9a65394",
        ),
        (
            17,
            "9 bytesss",
            2,
            "9062430c8cda3388922e6d6a509f5b7a",
            "68fb9679601f45c78857b2bf820fd6e53eca8d42fd4b1d7024a09205abb7cd2ec26c355d2f",
        ),
        (
            17,
            "13 bytes byte",
            3,
            "033ee6502c54fd23e27791e987983827",
            "ec366d0327a933bf49330e650e49bc6b974637fe80bf532fe51795b4809718e6194724db948d1fd637",
        ),
        (
            17,
            "30 bytes bytes bytes bytes byt",
            4,
            "dceeb70b3de76562e689226c76429148",
            "c96081032d5d8eeb7e32b4089f789d0faa481dea74c0f97cbf3146ddfcf8e800156ecb532fc203e30ff600b63b350939\
             fece510f02d7ff1e7bac",
        ),
        (
            18,
            "",
            0,
            "17f275f2954f2ed1f90c377ba7f4d6a369aa0136e0bf0c927ad6133c693759a9",
            "e5094c55ee7b38262e2b044280b069379a95bf95bd8376fb3281b435",
        ),
        (
            18,
            "1",
            1,
            "b9477e1ff0329c0050e20ce6c72d2dff27e8fe541ab0954429a9cb5b4f7b1e2a",
            "406150b97aeb76d43b36b62cc1ecdfbe6f40e95755e0beb5c27825f3a4",
        ),
        (
            18,
            "9 bytesss",
            2,
            "b1ae4cd8462aff1677053cc9279aac30b796fb81ce21474dd3ddbcfea4ec76d7",
            "09957aa25fcaf88f7b39e4406e633012d5fea21853f6478da7065caef41fd454a40824eec5",
        ),
        (
            18,
            "13 bytes byte",
            3,
            "e5a72be9b7926c1225bafef9c1872e7ba4cdb2b17893d84abd90acdd8764d966",
            "d8f1aafeec84587cc3e700a774e56651a6d693e174ec4473b5e6d96f80297a653fb818ad893e719f96",
        ),
        (
            18,
            "30 bytes bytes bytes bytes byt",
            4,
            "f1c795e9248a09338d82c3f8d5b567040b0110736845041347235b1404231398",
            "d1137a4d634cfece924dbc3bf6790648bd5cff7de0e7b99460211d0daef3d79a295c688858f3b34b9cbd6eebae81daf6\
             b734d4d498b6714f1c1d",
        ),
    ];
    for (enctype, plain, usage, base, sealed) in cases {
        let (sealing, sealed) = (Sealing::new(&key(enctype, base), Usage(usage)), hex(sealed));
        let opened = sealing.open(BytesMut::from(&sealed[..])).unwrap();
        assert_eq!(opened, plain, "{enctype} {plain:?}");
        // The confounder is not printed with the vectors; it is what decrypting brings to light.
        let mut text = sealed[..sealed.len() - 12].to_vec();
        sealing.cipher.decrypt(&mut text);
        let confounder = text[..CONFOUNDER_LEN].try_into().unwrap();
        assert_eq!(sealing.seal(&confounder, plain.as_bytes()), sealed, "{enctype} {plain:?}");
    }
}

#[test]
fn messages_of_rfc_8009_are_written_and_opened_again() {
    let (short, long) = (
        "3705d96080c17728a0e800eab6e0d23c",
        "6d404d37faf79f9df0d33568d320669800eb4836472ea8a026d16b7182460c52",
    );
    let cases = [
        (
            19,
            short,
            "",
            "7e5895eaf2672435bad817f545a37148",
            "ef85fb890bb8472f4dab20394dca781dad877eda39d50c870c0d5a0a8e48c718",
        ),
        (
            19,
            short,
            "000102030405",
            "7bca285e2fd4130fb55b1a5c83bc5b24",
            "84d7f30754ed987bab0bf3506beb09cfb55402cef7e6877ce99e247e52d16ed4421dfdf8976c",
        ),
        (
            19,
            short,
            "000102030405060708090a0b0c0d0e0f",
            "56ab21713ff62c0a1457200f6fa9948f",
            "3517d640f50ddc8ad3628722b3569d2ae07493fa8263254080ea65c1008e8fc295fb4852e7d83e1e7c48c37eebe6b0d3",
        ),
        (
            19,
            short,
            "000102030405060708090a0b0c0d0e0f1011121314",
            "a7a4e29a4728ce10664fb64e49ad3fac",
            "720f73b18d9859cd6ccb4346115cd336c70f58edc0c4437c5573544c31c813bce1e6d072c186b39a413c2f92ca9b8334\
             a287ffcbfc",
        ),
        (
            20,
            long,
            "",
            "f764e9fa15c276478b2c7d0c4e5f58e4",
            "41f53fa5bfe7026d91faf9be959195a058707273a96a40f0a01960621ac612748b9bbfbe7eb4ce3c",
        ),
        (
            20,
            long,
            "000102030405",
            "b80d3251c1f6471494256ffe712d0b9a",
            "4ed7b37c2bcac8f74f23c1cf07e62bc7b75fb3f637b9f559c7f664f69eab7b6092237526ea0d1f61cb20d69d10f2",
        ),
        (
            20,
            long,
            "000102030405060708090a0b0c0d0e0f",
            "53bf8a0d105265d4e276428624ce5e63",
            "bc47ffec7998eb91e8115cf8d19dac4bbbe2e163e87dd37f49beca92027764f68cf51f14d798c2273f35df574d1f932e\
             40c4ff255b36a266",
        ),
        (
            20,
            long,
            "000102030405060708090a0b0c0d0e0f1011121314",
            "763e65367e864f02f55153c7e3b58af1",
            "40013e2df58e8751957d2878bcd2d6fe101ccfd556cb1eae79db3c3ee86429f2b2a602ac86fef6ecb647d6295fae077a\
             1feb517508d2c16b4192e01f62",
        ),
    ];
    for (enctype, base, plain, confounder, sealed) in cases {
        let (sealing, plain) = (Sealing::new(&key(enctype, base), Usage(2)), hex(plain));
        let confounder = hex(confounder).try_into().unwrap();
        assert_eq!(sealing.seal(&confounder, &plain), hex(sealed), "{enctype}, {} bytes", plain.len());
        assert_eq!(sealing.open(BytesMut::from(&hex(sealed)[..])).unwrap(), plain);
    }
}

#[test]
fn checksums_are_those_of_the_rfcs() {
    let counting = hex("000102030405060708090a0b0c0d0e0f1011121314");
    let cases = [
        (
            17,
            "9062430c8cda3388922e6d6a509f5b7a",
            3,
            &b"eight nine ten eleven twelve thirteen"[..],
            "01a4b088d45628f6946614e3",
        ),
        (
            18,
            "b1ae4cd8462aff1677053cc9279aac30b796fb81ce21474dd3ddbcfea4ec76d7",
            4,
            b"fourteen",
            "e08739e3279e2903ec8e3836",
        ),
        (19, "3705d96080c17728a0e800eab6e0d23c", 2, &counting, "d78367186643d67b411cba9139fc1dee"),
        (
            20,
            "6d404d37faf79f9df0d33568d320669800eb4836472ea8a026d16b7182460c52",
            2,
            &counting,
            "45ee791567eefca37f4ac1e0222de80d43c3bfa06699672a",
        ),
    ];
    for (enctype, base, usage, message, checksum) in cases {
        let signing = Signing::new(&key(enctype, base), Usage(usage));
        let mut made = Vec::new();
        signing.sign_onto(&mut made, &[&message[..5], &message[5..]]);
        assert_eq!(made, hex(checksum), "{enctype}");
        assert_eq!(signing.verify(&[message], &made), Ok(()));
        assert_eq!(signing.verify(&[message], &made[..made.len() - 1]), Err(BadIntegrity));
        assert_eq!(signing.verify(&[&message[1..]], &made), Err(BadIntegrity));
    }
}

#[test]
fn a_changed_ciphertext_does_not_open() {
    for enctype in 17..=20 {
        let len = Enctype::from_number(enctype).unwrap().key_len();
        let base = Key::new(enctype, &[9; 32][..len]).unwrap();
        let sealing = Sealing::new(&base, Usage::TICKET);
        for plain in [&b""[..], b"x", b"exactly sixteen!", b"a ticket of some forty-odd bytes, say"] {
            let sealed = sealing.seal(&[3; CONFOUNDER_LEN], plain);
            assert_eq!(sealing.open(BytesMut::from(&sealed[..])).unwrap(), plain);
            for at in 0..sealed.len() {
                let mut spoiled = BytesMut::from(&sealed[..]);
                spoiled[at] ^= 1;
                assert_eq!(sealing.open(spoiled), Err(BadIntegrity), "{enctype}, byte {at}");
                assert_eq!(sealing.open(BytesMut::from(&sealed[..at])), Err(BadIntegrity));
            }
            let otherwise = Sealing::new(&base, Usage::AP_REP);
            assert_eq!(otherwise.open(BytesMut::from(&sealed[..])), Err(BadIntegrity), "a usage is bound");
        }
    }
}

#[test]
fn a_key_has_the_length_of_its_type_and_does_not_print() {
    assert_eq!(Key::new(23, &[0; 16]), Err(KeyError::Enctype(23)));
    assert_eq!(Key::new(18, &[0; 16]), Err(KeyError::Length { enctype: 18, len: 16 }));
    assert!(!format!("{:?}", Key::new(17, &[0x5a; 16]).unwrap()).contains("90"));
}
