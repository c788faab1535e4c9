//! Attributes: order, presence, and what is refused.

use proptest::prelude::*;

use super::*;

#[test]
fn values_stand_in_the_order_of_their_numbers() {
    let attributes = FileAttributes {
        mode: Some(0o644),
        file_type: Some(NfsFtype4::Reg),
        size: Some(5),
        owner: Some(Principal4::numeric(1000)),
        time_modify: Some(NfsTime4 { seconds: -1, nseconds: 7 }),
        ..FileAttributes::default()
    };
    let fattr = attributes.encode_all();
    assert_eq!(fattr.attrmask.words(), [1 << 1 | 1 << 4, 1 << 1 | 1 << 4 | 1 << 21]);
    #[rustfmt::skip]
    assert_eq!(&fattr.attr_vals[..], [
        0, 0, 0, 1,
        0, 0, 0, 0, 0, 0, 0, 5,
        0, 0, 1, 0xa4,
        0, 0, 0, 4, b'1', b'0', b'0', b'0',
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 7,
    ]);
    assert_eq!(xdr::to_bytes(&fattr).len(), fattr.encoded_len());
    assert_eq!(FileAttributes::decode(&fattr), Ok(attributes));
}

#[test]
fn open_arguments_are_five_bitmaps() {
    let understood = OpenArguments4 {
        share_access: Bitmap4::of(&[1, 2, 3]),
        share_deny: Bitmap4::of(&[0]),
        share_access_want: Bitmap4::of(&[3, 20, 21]),
        open_claim: Bitmap4::of(&[0, 4]),
        create_mode: Bitmap4::EMPTY,
    };
    let attributes =
        FileAttributes { open_arguments: Some(Box::new(understood)), ..FileAttributes::default() };
    let fattr = attributes.encode_all();
    assert_eq!(fattr.attrmask.words(), [0, 0, 1 << 22]);
    #[rustfmt::skip]
    assert_eq!(&fattr.attr_vals[..], [
        0, 0, 0, 1, 0, 0, 0, 0b1110,
        0, 0, 0, 1, 0, 0, 0, 1,
        0, 0, 0, 1, 0, 0x30, 0, 0b1000,
        0, 0, 0, 1, 0, 0, 0, 0b1_0001,
        0, 0, 0, 0,
    ]);
    assert_eq!(FileAttributes::decode(&fattr), Ok(attributes));
}

#[test]
fn a_requested_attribute_without_a_value_is_not_in_the_mask() {
    let attributes = FileAttributes { size: Some(1), change: Some(2), ..FileAttributes::default() };
    let fattr = attributes.encode(&Bitmap4::of(&[number::SIZE, number::MODE, number::DACL]));
    assert_eq!(fattr.attrmask, Bitmap4::of(&[number::SIZE]));
    assert_eq!(fattr.attr_vals.len(), 8);
}

#[test]
fn an_attribute_that_is_not_known_is_not_supported() {
    for n in [number::DACL, number::SEC_LABEL, number::OFFLINE, 255] {
        let fattr = Fattr4 { attrmask: Bitmap4::of(&[number::SIZE, n]), attr_vals: Opaque::default() };
        let error = FileAttributes::decode(&fattr).unwrap_err();
        assert_eq!(error, AttrError::NotSupported(n));
        assert_eq!(error.status(), NfsStat4::AttrNotSupp);
    }
}

#[test]
fn too_few_and_too_many_values_are_bad_xdr() {
    let mask = Bitmap4::of(&[number::SIZE]);
    for len in [0, 4, 12, 16] {
        let fattr = Fattr4 { attrmask: mask, attr_vals: Opaque(vec![0; len].into()) };
        assert_eq!(FileAttributes::decode(&fattr).unwrap_err().status(), NfsStat4::BadXdr, "{len} bytes");
    }
}

#[test]
fn a_list_that_announces_more_than_there_is_is_refused() {
    let attrmask = Bitmap4::of(&[number::FS_LAYOUT_TYPES]);
    let attr_vals = Opaque(vec![0xff, 0xff, 0xff, 0xff, 0, 0, 0, 4].into());
    assert!(FileAttributes::decode(&Fattr4 { attrmask, attr_vals }).is_err());
}

#[test]
fn numeric_principals_have_no_sign_and_no_leading_zero() {
    let numeric = |text: &'static str| Principal4(Opaque::from_static(text.as_bytes())).as_numeric();
    assert_eq!(numeric("0"), Some(0));
    assert_eq!(numeric("4294967295"), Some(u32::MAX));
    for name in ["", "-1", "+1", "007", "4294967296", "root", "root@example.org", "1 "] {
        assert_eq!(numeric(name), None, "{name:?}");
    }
}

#[test]
fn required_attributes_are_known_and_write_only_ones_are_writable() {
    for n in (0..=11).chain([number::FILEHANDLE, number::SUPPATTR_EXCLCREAT]) {
        assert!(FileAttributes::KNOWN.contains(n), "{n}");
    }
    assert!(FileAttributes::WRITE_ONLY.difference(&FileAttributes::WRITABLE).is_empty());
    assert!(FileAttributes::WRITABLE.difference(&FileAttributes::KNOWN).is_empty());
}

/// Every attribute present, with values that differ by `seed`.
fn full(seed: u64) -> FileAttributes {
    let time = NfsTime4 { seconds: seed as i64, nseconds: (seed % 1_000_000_000) as u32 };
    let mut all = FileAttributes::default();
    let numbers = xdr::to_bytes(&seed);
    for n in FileAttributes::KNOWN.iter() {
        // Words that every type takes: one element, one byte, TRUE, or the first arm of an enum.
        let mut words = [0, 0, 0, 1].repeat(8);
        words[4..12].copy_from_slice(&numbers);
        let mut d = Decoder::new(words.into());
        if all.decode_value(n, &mut d).is_err() {
            all.decode_value(n, &mut Decoder::new([0, 0, 0, 1].repeat(16).into()))
                .expect("ones suit every type");
        }
    }
    all.time_modify = Some(time);
    all.filehandle = Some(NfsFh4::from(vec![seed as u8; (seed % 129) as usize]));
    all.owner = Some(Principal4::numeric(seed as u32));
    all.open_arguments = Some(Box::new(OpenArguments4 {
        share_access: Bitmap4::of(&[1, 2, 3]),
        share_access_want: Bitmap4::of(&[3, 20]),
        ..OpenArguments4::default()
    }));
    all.mdsthreshold = Some(MdsThreshold4 { hints: vec![] });
    all
}

proptest! {
    #[test]
    fn any_subset_comes_back(seed: u64, numbers in proptest::collection::vec(0u32..90, 0..90)) {
        let requested: Bitmap4 = numbers.into_iter().collect();
        let all = full(seed);
        prop_assert_eq!(all.mask(), FileAttributes::KNOWN);
        let fattr = all.encode(&requested);
        prop_assert_eq!(fattr.attrmask, requested.intersect(&FileAttributes::KNOWN));
        let back = FileAttributes::decode(&fattr).unwrap();
        prop_assert_eq!(back.encode_all(), fattr);
    }

    #[test]
    fn no_bytes_make_it_panic(mask: [u32; 3], values in proptest::collection::vec(any::<u8>(), 0..200)) {
        let attrmask = (0..96).filter(|n| mask[*n as usize / 32] & (1 << (n % 32)) != 0).collect();
        let _ = FileAttributes::decode(&Fattr4 { attrmask, attr_vals: Opaque(values.into()) });
    }
}
