//! Values on the wire: as they come back, and bytes that are none.

use api::{Birth, Description, PoolStatus, Presence, ReplicaFacts, ReplicaRef, ReplicaState, TicketMode};
use proptest::prelude::*;
use types::{ByteRange, Device, Epoch, FileId, FileKind, IoMode, Name, SymlinkTarget, Timestamp};
use xdr::{XdrError, from_bytes, to_bytes};

use super::*;

const POOL: PoolId = PoolId(3);

fn ticket(mode: TicketMode, presence: Presence, io: IoMode) -> api::Ticket {
    api::Ticket { file: FileId(1 << 60), birth: Birth(5), pool: POOL, mode, epoch: Epoch(9), presence, io }
}

/// The text is the protocol: other versions of the program read and write it.
#[test]
fn numbers_on_the_wire_stay_as_they_are() {
    let ticket = ticket(TicketMode::ReadWrite, Presence::Written, IoMode::Direct);
    let wire = b"\x10\0\0\0\0\0\0\0\0\0\0\x05\0\0\0\x03\0\0\0\x01\0\0\0\x09\0\0\0\x02\0\0\0\x03";
    assert_eq!(to_bytes(&Ticket(ticket)), wire[..]);
    let write = Write {
        offset: 1,
        stability: Stability(api::Stability::FileSync),
        data: Opaque::from_static(b"abcd"),
    };
    assert_eq!(to_bytes(&write), b"\0\0\0\0\0\0\0\x01\0\0\0\x02\0\0\0\x04abcd"[..]);
    let fenced = Reply::<()>::of(Err(PoolError::Fenced));
    assert_eq!(to_bytes(&fenced), b"\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0\0"[..]);
    assert_eq!((procedure::OPEN, procedure::FENCE, procedure::DESCRIBE), (10, 25, 28));
    let name = |number: u32| procedure::NAMES[(number - procedure::OPEN) as usize];
    assert_eq!(
        (name(10), name(11), name(21), name(25), name(28)),
        ("OPEN", "READ", "MAKE", "FENCE", "DESCRIBE")
    );
}

#[test]
fn tickets_come_back() {
    for io in IoMode::ALL {
        for presence in [Presence::Unmade, Presence::Made, Presence::Written] {
            for mode in [TicketMode::Read, TicketMode::ReadWrite] {
                let ticket = Ticket(ticket(mode, presence, io));
                assert_eq!(from_bytes(to_bytes(&ticket)), Ok(ticket));
            }
        }
    }
}

#[test]
fn errors_come_back_with_texts_that_have_a_bound() {
    let io = |reason: &str| PoolError::Io { pool: POOL, operation: "write data", reason: reason.to_owned() };
    for error in [
        PoolError::NoReplica(POOL),
        PoolError::Fenced,
        PoolError::ReadOnlyTicket,
        PoolError::NoSpace(POOL),
        PoolError::TooLarge,
        PoolError::Unsupported(POOL),
        PoolError::Offline(POOL),
        PoolError::Unknown(POOL),
        PoolError::Busy(POOL),
        io("EIO"),
    ] {
        let back: Reply<u32> = from_bytes(to_bytes(&Reply::<u32>::of(Err(error.clone())))).unwrap();
        assert_eq!(back.into_result(POOL).unwrap_err().to_string(), error.to_string());
    }
    let long = to_bytes(&Reply::<()>::of(Err(io(&"\u{e9}".repeat(9999)))));
    assert!(long.len() < 1200 && from_bytes::<Reply<()>>(long).is_ok());
    let of_later = Failure { kind: 77, operation: String::new(), reason: "too hot".to_owned() };
    assert!(of_later.into_error(POOL).to_string().contains("error 77 of a later version: too hot"));
}

#[test]
fn names_of_operations_are_kept_in_a_bounded_list() {
    for number in 0..1000 {
        known(&format!("operation {number}"));
    }
    assert_eq!(known("operation 999"), "do what it was asked");
}

#[test]
fn values_that_cannot_be_are_refused() {
    assert!(from_bytes::<Range>(to_bytes(&(5u64, 5u64))).is_err(), "an empty range");
    assert!(
        from_bytes::<Time>(to_bytes(&(5i64, 1_000_000_000u32))).is_err(),
        "a whole second of nanoseconds"
    );
    let stretch = Stretch(api::Stretch { from: 1, to: u64::MAX, length: 5 });
    assert!(from_bytes::<Stretch>(to_bytes(&stretch)).is_err());
    for name in ["", ".", "..", "a/b", "a\0b"] {
        assert!(from_bytes::<described::WireName>(to_bytes(&Opaque::from(name))).is_err(), "{name:?}");
    }
    assert!(from_bytes::<described::WireTarget>(to_bytes(&Opaque::new())).is_err());
}

#[test]
fn a_later_version_may_say_more() {
    let mut longer = to_bytes(&Read { offset: 1, length: 2 }).to_vec();
    longer.extend_from_slice(b"more");
    let read = Read::decode(&mut xdr::Decoder::new(longer.into())).unwrap();
    assert_eq!((read.offset, read.length), (1, 2));
}

#[test]
fn lists_beyond_their_bound_are_refused() {
    let batch = Batch { files: vec![1u64; BATCH_LEN_MAX + 1], within_ms: 0 };
    let too_long = XdrError::LengthOverLimit { length: 1025, limit: 1024 };
    assert_eq!(from_bytes::<Batch<u64>>(to_bytes(&batch)).unwrap_err(), too_long);
    for count in [1u32, 1000, u32::MAX] {
        let claimed = xdr::Bytes::copy_from_slice(&count.to_be_bytes());
        assert!(from_bytes::<Listed>(claimed.clone()).is_err());
        assert!(from_bytes::<Replies<Option<Facts>>>(claimed).is_err());
    }
}

#[test]
fn a_status_comes_back() {
    let status = PoolStatus {
        id: POOL,
        offline: Some("disk".to_owned()),
        is_away: false,
        read_only: Some("\u{20ac}".repeat(1000)),
        total_bytes: 1,
        free_bytes: 2,
        total_files: 3,
        free_files: 4,
        replicas: 5,
        read_bytes: 6,
        written_bytes: 7,
        reads: 8,
        writes: 9,
        syncs: 10,
        contended: vec![FileId(11)],
        made_through: Some(FileId(6)),
    };
    let back: Status = from_bytes(to_bytes(&Status::of(&status))).unwrap();
    let read_only = Some("\u{20ac}".repeat(341));
    assert_eq!(back.into_status(POOL), PoolStatus { read_only, ..status });
}

#[test]
fn descriptions_come_back() {
    let time = Timestamp::new(-5, 9).unwrap();
    let state = |(pool, state)| ReplicaRef { pool: PoolId(pool), state, since: time };
    let of_kind = |kind| Description {
        file: FileId(7),
        kind,
        mode: 0o755,
        uid: 1,
        gid: 2,
        size: 3,
        mtime: time,
        change: 4,
        epoch: Epoch(5),
        names: vec![(FileId(1), Name::new(b"a").unwrap()), (FileId(2), Name::new(b"\xff").unwrap())],
        target: Some(SymlinkTarget::new(b"../x").unwrap()),
        replicas: (1..).zip(ReplicaState::ALL).map(state).collect(),
    };
    for kind in [
        FileKind::Regular,
        FileKind::Directory,
        FileKind::Symlink,
        FileKind::BlockDevice(Device { major: 1, minor: 2 }),
        FileKind::CharacterDevice(Device { major: 3, minor: 4 }),
        FileKind::Fifo,
        FileKind::Socket,
    ] {
        let back: Described = from_bytes(to_bytes(&Described::of(&of_kind(kind)))).unwrap();
        assert_eq!(back.into_description(), of_kind(kind));
    }
}

/// Words as they stand in messages: mostly small ones, which are lengths and numbers of arms that can be.
fn message() -> impl Strategy<Value = xdr::Bytes> {
    let word = prop_oneof![4 => 0..5u32, 1 => any::<u32>(), 1 => Just(u32::MAX)];
    let tail = prop::collection::vec(any::<u8>(), 0..4);
    (prop::collection::vec(word, 0..80), tail).prop_map(|(words, tail)| {
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        bytes.extend(tail);
        bytes.into()
    })
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in message()) {
        fn read<T: Xdr>(bytes: &xdr::Bytes) {
            let mut d = xdr::Decoder::new(bytes.clone());
            if let Ok(value) = T::decode(&mut d) {
                // It is written as a message of that length.
                assert!(to_bytes(&value).len() <= bytes.len() + 3);
            }
        }
        read::<On<Read>>(&bytes);
        read::<On<Write>>(&bytes);
        read::<On<Seek>>(&bytes);
        read::<On<Copy>>(&bytes);
        read::<On<Advise>>(&bytes);
        read::<Batch<(u64, u32)>>(&bytes);
        read::<Batch<u64>>(&bytes);
        read::<List>(&bytes);
        read::<Describe>(&bytes);
        read::<Reply<Opened>>(&bytes);
        read::<Reply<Bytes>>(&bytes);
        read::<Replies<Option<Facts>>>(&bytes);
        read::<Reply<Listed>>(&bytes);
        read::<(Option<u32>, Status)>(&bytes);
    }

    #[test]
    fn ranges_and_facts_come_back(offset: u64, end: u64, size: u64, seconds: i64, nanoseconds in 0..1_000_000_000u32) {
        if let Some(range) = ByteRange::from_bounds(offset, end) {
            prop_assert_eq!(from_bytes(to_bytes(&Range(range))), Ok(Range(range)));
        }
        let modified = Timestamp::new(seconds, nanoseconds);
        let facts = ReplicaFacts { file: FileId(offset), birth: Birth(3), size, space_used: end, modified };
        prop_assert_eq!(from_bytes(to_bytes(&Facts(facts))), Ok(Facts(facts)));
    }
}
