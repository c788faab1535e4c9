//! Archives byte by byte, and what is read out of them.

use proptest::prelude::*;

use super::*;

/// A header of ustar with what a test asks for, and the checksum that it needs.
fn header(name: &str, kind: u8, size: u64, more: impl Fn(&mut Block)) -> Vec<u8> {
    let mut block = [0; BLOCK];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..107].copy_from_slice(b"0100644");
    block[108..115].copy_from_slice(b"0000012");
    block[116..123].copy_from_slice(b"0000024");
    block[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
    block[136..147].copy_from_slice(b"00000000005");
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    more(&mut block);
    block[148..156].copy_from_slice(b"        ");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block.to_vec()
}

fn plain(name: &str, kind: u8, size: u64) -> Vec<u8> {
    header(name, kind, size, |_| {})
}

fn padded(data: &[u8]) -> Vec<u8> {
    let mut out = data.to_vec();
    out.resize(data.len().next_multiple_of(BLOCK), 0);
    out
}

fn extended(kind: u8, records: &[(&str, &str)]) -> Vec<u8> {
    let mut text = String::new();
    for (key, value) in records {
        let rest = format!(" {key}={value}\n");
        let length = (rest.len()..).find(|length| length.to_string().len() + rest.len() == *length).unwrap();
        text += &format!("{length}{rest}");
    }
    [plain("pax", kind, text.len() as u64), padded(text.as_bytes())].concat()
}

fn all(archive: &[u8]) -> Result<Vec<Entry>, String> {
    let mut tar = Tar::new(archive);
    let mut entries = Vec::new();
    loop {
        match tar.next() {
            Ok(Some(entry)) => entries.push(entry),
            Ok(None) => return Ok(entries),
            Err(error) => return Err(format!("{}: {error}", tar.place())),
        }
    }
}

fn archive(parts: &[Vec<u8>]) -> Vec<u8> {
    [parts.concat(), vec![0; 2 * BLOCK]].concat()
}

/// Empty members: name, type, and what they link to.
pub fn archive_of(members: &[(&str, u8, &str)]) -> Vec<u8> {
    let member = |(name, kind, link): &(&str, u8, &str)| {
        header(name, *kind, 0, |block| block[157..157 + link.len()].copy_from_slice(link.as_bytes()))
    };
    archive(&members.iter().map(member).collect::<Vec<_>>())
}

#[test]
fn members_are_told_and_their_data_skipped() {
    let link = header("also", b'1', 0, |block| block[157..163].copy_from_slice(b"./d/f\0"));
    let symlink = header("sym", b'2', 0, |block| block[157..160].copy_from_slice(b"d/f"));
    let long = header("end", b'0', 1, |block| block[345..348].copy_from_slice(b"pre"));
    let device = header("null", b'3', 0, |block| {
        block[329..336].copy_from_slice(b"0000001");
        block[337..344].copy_from_slice(b"0000003");
    });
    let entries = all(&archive(&[
        plain("./d/", b'5', 0),
        plain("./d/f", b'0', 700),
        padded(&[1; 700]),
        link,
        symlink,
        long,
        padded(b"x"),
        device,
        plain("old/", 0, 0),
    ]))
    .unwrap();
    let paths: Vec<_> = entries.iter().map(|entry| shown(&entry.path)).collect();
    assert_eq!(paths, ["./d/", "./d/f", "also", "sym", "pre/end", "null", "old/"]);
    assert_eq!(entries[1].what, What::Regular { size: 700, space_used: 1024 });
    let facts = entries[1].facts;
    assert_eq!((facts.mode, facts.uid, facts.gid, facts.mtime), (0o644, 10, 20, Timestamp::new(5, 0)));
    assert_eq!(entries[2].what, What::LinkTo(b"./d/f".to_vec()));
    assert_eq!(entries[3].what, What::Symlink(SymlinkTarget::new(b"d/f").unwrap()));
    assert_eq!(entries[5].what, What::Special(FileKind::CharacterDevice(Device { major: 1, minor: 3 })));
    assert_eq!((&entries[0].what, &entries[6].what), (&What::Directory, &What::Directory));
}

#[test]
fn extensions_of_pax_win_over_the_header_and_hold_for_one_member() {
    let name = "long/".repeat(60) + "name";
    let records = [
        ("path", name.as_str()),
        ("size", "3"),
        ("uid", "4000000000"),
        ("mtime", "-1.25"),
        ("atime", "7.5"),
        ("SCHILY.xattr.user.a", "b=c"),
    ];
    let sparse = [("GNU.sparse.name", "sparse"), ("GNU.sparse.realsize", "1000000")];
    let entries = all(&archive(&[
        extended(b'g', &[("gid", "77")]),
        extended(b'x', &records),
        plain("short", b'0', 0),
        padded(b"abc"),
        extended(b'x', &sparse),
        plain("GNUSparseFile.1/sparse", b'0', 4),
        padded(b"abcd"),
        plain("last", b'0', 0),
    ]))
    .unwrap();
    assert_eq!(shown(&entries[0].path), name);
    assert_eq!(entries[0].what, What::Regular { size: 3, space_used: 512 });
    assert_eq!((entries[0].facts.uid, entries[0].facts.gid), (4_000_000_000, 77));
    assert_eq!(entries[0].facts.mtime, Timestamp::new(-2, 750_000_000));
    assert_eq!(entries[0].facts.atime, Timestamp::new(7, 500_000_000));
    assert_eq!(shown(&entries[1].path), "sparse");
    assert_eq!(entries[1].what, What::Regular { size: 1_000_000, space_used: 512 });
    assert_eq!((entries[2].facts.uid, entries[2].facts.atime), (10, None));
}

#[test]
fn long_names_large_numbers_and_sparse_files_of_gnu_are_read() {
    let name = "n".repeat(300);
    let mut named = name.clone().into_bytes();
    named.push(0);
    let large = header("cut", b'0', 0, |block| {
        block[124] = 0x80;
        block[125..136].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1]);
        block[136..148].fill(0xff);
    });
    let sparse = header("hole", b'S', 10, |block| {
        block[482] = 1;
        block[483..494].copy_from_slice(b"00000010000");
    });
    let entries = all(&archive(&[
        plain("././@LongLink", b'L', named.len() as u64),
        padded(&named),
        large,
        vec![0; 1024],
        sparse,
        vec![0; BLOCK],
        padded(&[1; 10]),
    ]))
    .unwrap();
    assert_eq!(shown(&entries[0].path), name);
    assert_eq!(entries[0].what, What::Regular { size: 513, space_used: 1024 });
    assert_eq!(entries[0].facts.mtime, Timestamp::new(-1, 0));
    assert_eq!(entries[1].what, What::Regular { size: 4096, space_used: 512 });
}

#[test]
fn a_damaged_or_truncated_member_is_reported_with_its_number() {
    let first = [plain("a", b'0', 3), padded(b"abc")].concat();
    let cut = all(&first).unwrap_err();
    assert!(cut.starts_with("member 2: ") && cut.contains("cut off"), "{cut}");
    let second = |part: Vec<u8>| all(&archive(&[first.clone(), part])).unwrap_err();
    assert!(second(vec![7; BLOCK]).contains("checksum"));
    assert!(second(plain("x", b'L', 2 << 20)).contains("more than"));
    assert!(second(plain("x", b'Q', 0)).contains("type Q"));
    assert!(second(extended(b'x', &[("path", "x")])).contains("not followed by its member"));
    assert!(second([plain("pax", b'x', 5), padded(b"99 a=")].concat()).contains("not understood"));
    assert!(second(plain("m", b'M', 0)).contains("another volume"));
    assert!(second(plain("s", b'2', 0)).contains("its target"));
    assert!(all(b"this is no archive").unwrap_err().contains("cut off"));
}

proptest! {
    #[test]
    fn any_header_is_an_answer_and_no_panic(
        kind: u8, size in 0..u64::MAX / 2048, at in 0..BLOCK - 8, bytes: [u8; 8], rest in proptest::collection::vec(any::<u8>(), 0..2000)
    ) {
        let size = size % (1 << 33);
        let header = header("name", kind, size, |block| block[at..at + 8].copy_from_slice(&bytes));
        let _ = all(&[header, rest].concat());
    }
}
