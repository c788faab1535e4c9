//! Operation numbers, and what is known of every operation without looking at its arguments.

pub const ACCESS: u32 = 3;
pub const CLOSE: u32 = 4;
pub const COMMIT: u32 = 5;
pub const CREATE: u32 = 6;
pub const DELEGPURGE: u32 = 7;
pub const DELEGRETURN: u32 = 8;
pub const GETATTR: u32 = 9;
pub const GETFH: u32 = 10;
pub const LINK: u32 = 11;
pub const LOCK: u32 = 12;
pub const LOCKT: u32 = 13;
pub const LOCKU: u32 = 14;
pub const LOOKUP: u32 = 15;
pub const LOOKUPP: u32 = 16;
pub const NVERIFY: u32 = 17;
pub const OPEN: u32 = 18;
pub const OPENATTR: u32 = 19;
pub const OPEN_CONFIRM: u32 = 20;
pub const OPEN_DOWNGRADE: u32 = 21;
pub const PUTFH: u32 = 22;
pub const PUTPUBFH: u32 = 23;
pub const PUTROOTFH: u32 = 24;
pub const READ: u32 = 25;
pub const READDIR: u32 = 26;
pub const READLINK: u32 = 27;
pub const REMOVE: u32 = 28;
pub const RENAME: u32 = 29;
pub const RENEW: u32 = 30;
pub const RESTOREFH: u32 = 31;
pub const SAVEFH: u32 = 32;
pub const SECINFO: u32 = 33;
pub const SETATTR: u32 = 34;
pub const SETCLIENTID: u32 = 35;
pub const SETCLIENTID_CONFIRM: u32 = 36;
pub const VERIFY: u32 = 37;
pub const WRITE: u32 = 38;
pub const RELEASE_LOCKOWNER: u32 = 39;
pub const BACKCHANNEL_CTL: u32 = 40;
pub const BIND_CONN_TO_SESSION: u32 = 41;
pub const EXCHANGE_ID: u32 = 42;
pub const CREATE_SESSION: u32 = 43;
pub const DESTROY_SESSION: u32 = 44;
pub const FREE_STATEID: u32 = 45;
pub const GET_DIR_DELEGATION: u32 = 46;
pub const GETDEVICEINFO: u32 = 47;
pub const GETDEVICELIST: u32 = 48;
pub const LAYOUTCOMMIT: u32 = 49;
pub const LAYOUTGET: u32 = 50;
pub const LAYOUTRETURN: u32 = 51;
pub const SECINFO_NO_NAME: u32 = 52;
pub const SEQUENCE: u32 = 53;
pub const SET_SSV: u32 = 54;
pub const TEST_STATEID: u32 = 55;
pub const WANT_DELEGATION: u32 = 56;
pub const DESTROY_CLIENTID: u32 = 57;
pub const RECLAIM_COMPLETE: u32 = 58;
pub const ALLOCATE: u32 = 59;
pub const COPY: u32 = 60;
pub const COPY_NOTIFY: u32 = 61;
pub const DEALLOCATE: u32 = 62;
pub const IO_ADVISE: u32 = 63;
pub const LAYOUTERROR: u32 = 64;
pub const LAYOUTSTATS: u32 = 65;
pub const OFFLOAD_CANCEL: u32 = 66;
pub const OFFLOAD_STATUS: u32 = 67;
pub const READ_PLUS: u32 = 68;
pub const SEEK: u32 = 69;
pub const WRITE_SAME: u32 = 70;
pub const CLONE: u32 = 71;
pub const GETXATTR: u32 = 72;
pub const SETXATTR: u32 = 73;
pub const LISTXATTRS: u32 = 74;
pub const REMOVEXATTR: u32 = 75;
/// The number under which an unknown operation is answered (RFC 8881 §15.2).
pub const ILLEGAL: u32 = 10_044;

/// Lowest and highest number of an operation, ILLEGAL aside.
pub const FIRST: u32 = ACCESS;
pub const LAST: u32 = REMOVEXATTR;

/// Properties of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpProperties {
    pub number: u32,
    /// The RFC's name, without `OP_`.
    pub name: &'static str,
    /// NOFILEHANDLE without a current file handle. (LAYOUTRETURN needs one in its FILE and FSID forms only.)
    pub needs_current_fh: bool,
    /// NOFILEHANDLE without a saved one (RESTOREFH has a status of its own: see RFC 8881 §18.27).
    pub needs_saved_fh: bool,
    /// Changes names, attributes or data: what a read-only export refuses. (OPEN: only when it creates or truncates; COMMIT:
    /// the time of a change, and where the bytes are.)
    pub modifies: bool,
    /// Run twice it would answer, or do, something else: its reply is worth keeping though the client did not ask.
    pub non_idempotent: bool,
    /// May stand first, and then alone, in a COMPOUND without SEQUENCE (RFC 8881 §2.10.6 and §18.46.3).
    pub allowed_without_sequence: bool,
    /// Minor versions that have it: before is OP_ILLEGAL, after is NOTSUPP.
    pub minor_min: u32,
    pub minor_max: u32,
}

impl OpProperties {
    /// The properties of an operation; none for a number that names no operation in any version.
    pub const fn of(number: u32) -> Option<&'static Self> {
        if number < FIRST || number > LAST { None } else { Some(&TABLE[(number - FIRST) as usize]) }
    }

    /// Whether COMPOUNDs of a minor version know the number at all: if not, the answer is OP_ILLEGAL.
    pub const fn is_defined_in(&self, minor: u32) -> bool {
        self.minor_min <= minor
    }

    /// Of NFSv4.0 only; 4.1 and up answer NOTSUPP.
    pub const fn is_obsolete(&self) -> bool {
        self.minor_max == 0
    }
}

/// Name of an operation for logs; "ILLEGAL" for what is none.
pub const fn name(number: u32) -> &'static str {
    match OpProperties::of(number) {
        Some(properties) => properties.name,
        None => "ILLEGAL",
    }
}

/// Letters of the table below.
const NONE: u32 = 0;
const CURRENT: u32 = 1;
const SAVED: u32 = 2;
const MODIFIES: u32 = 4;
const ONCE: u32 = 8;
const NO_SEQUENCE: u32 = 16;
const OBSOLETE: u32 = 32;

const fn row(number: u32, name: &'static str, minor_min: u32, is: u32) -> OpProperties {
    OpProperties {
        number,
        name,
        needs_current_fh: is & CURRENT != 0,
        needs_saved_fh: is & SAVED != 0,
        modifies: is & MODIFIES != 0,
        non_idempotent: is & ONCE != 0,
        allowed_without_sequence: is & NO_SEQUENCE != 0,
        minor_min,
        minor_max: if is & OBSOLETE != 0 { 0 } else { 2 },
    }
}

/// Every operation in the order of its number, without a gap.
const TABLE: [OpProperties; (LAST - FIRST + 1) as usize] = [
    row(ACCESS, "ACCESS", 0, CURRENT),
    row(CLOSE, "CLOSE", 0, CURRENT | ONCE),
    row(COMMIT, "COMMIT", 0, CURRENT | MODIFIES),
    row(CREATE, "CREATE", 0, CURRENT | MODIFIES | ONCE),
    row(DELEGPURGE, "DELEGPURGE", 0, NONE),
    row(DELEGRETURN, "DELEGRETURN", 0, CURRENT | ONCE),
    row(GETATTR, "GETATTR", 0, CURRENT),
    row(GETFH, "GETFH", 0, CURRENT),
    row(LINK, "LINK", 0, CURRENT | SAVED | MODIFIES | ONCE),
    row(LOCK, "LOCK", 0, CURRENT | ONCE),
    row(LOCKT, "LOCKT", 0, CURRENT),
    row(LOCKU, "LOCKU", 0, CURRENT | ONCE),
    row(LOOKUP, "LOOKUP", 0, CURRENT),
    row(LOOKUPP, "LOOKUPP", 0, CURRENT),
    row(NVERIFY, "NVERIFY", 0, CURRENT),
    row(OPEN, "OPEN", 0, CURRENT | MODIFIES | ONCE),
    row(OPENATTR, "OPENATTR", 0, CURRENT | MODIFIES),
    row(OPEN_CONFIRM, "OPEN_CONFIRM", 0, CURRENT | OBSOLETE),
    row(OPEN_DOWNGRADE, "OPEN_DOWNGRADE", 0, CURRENT | ONCE),
    row(PUTFH, "PUTFH", 0, NONE),
    row(PUTPUBFH, "PUTPUBFH", 0, NONE),
    row(PUTROOTFH, "PUTROOTFH", 0, NONE),
    row(READ, "READ", 0, CURRENT),
    row(READDIR, "READDIR", 0, CURRENT),
    row(READLINK, "READLINK", 0, CURRENT),
    row(REMOVE, "REMOVE", 0, CURRENT | MODIFIES | ONCE),
    row(RENAME, "RENAME", 0, CURRENT | SAVED | MODIFIES | ONCE),
    row(RENEW, "RENEW", 0, OBSOLETE),
    row(RESTOREFH, "RESTOREFH", 0, SAVED),
    row(SAVEFH, "SAVEFH", 0, CURRENT),
    row(SECINFO, "SECINFO", 0, CURRENT),
    row(SETATTR, "SETATTR", 0, CURRENT | MODIFIES | ONCE),
    row(SETCLIENTID, "SETCLIENTID", 0, OBSOLETE),
    row(SETCLIENTID_CONFIRM, "SETCLIENTID_CONFIRM", 0, OBSOLETE),
    row(VERIFY, "VERIFY", 0, CURRENT),
    row(WRITE, "WRITE", 0, CURRENT | MODIFIES),
    row(RELEASE_LOCKOWNER, "RELEASE_LOCKOWNER", 0, OBSOLETE),
    row(BACKCHANNEL_CTL, "BACKCHANNEL_CTL", 1, NONE),
    row(BIND_CONN_TO_SESSION, "BIND_CONN_TO_SESSION", 1, NO_SEQUENCE),
    row(EXCHANGE_ID, "EXCHANGE_ID", 1, NO_SEQUENCE),
    row(CREATE_SESSION, "CREATE_SESSION", 1, NO_SEQUENCE | ONCE),
    row(DESTROY_SESSION, "DESTROY_SESSION", 1, NO_SEQUENCE),
    row(FREE_STATEID, "FREE_STATEID", 1, ONCE),
    row(GET_DIR_DELEGATION, "GET_DIR_DELEGATION", 1, CURRENT | ONCE),
    row(GETDEVICEINFO, "GETDEVICEINFO", 1, NONE),
    row(GETDEVICELIST, "GETDEVICELIST", 1, CURRENT),
    row(LAYOUTCOMMIT, "LAYOUTCOMMIT", 1, CURRENT | MODIFIES | ONCE),
    row(LAYOUTGET, "LAYOUTGET", 1, CURRENT | ONCE),
    row(LAYOUTRETURN, "LAYOUTRETURN", 1, ONCE),
    row(SECINFO_NO_NAME, "SECINFO_NO_NAME", 1, CURRENT),
    row(SEQUENCE, "SEQUENCE", 1, NONE),
    row(SET_SSV, "SET_SSV", 1, ONCE),
    row(TEST_STATEID, "TEST_STATEID", 1, NONE),
    row(WANT_DELEGATION, "WANT_DELEGATION", 1, CURRENT | ONCE),
    row(DESTROY_CLIENTID, "DESTROY_CLIENTID", 1, NO_SEQUENCE),
    row(RECLAIM_COMPLETE, "RECLAIM_COMPLETE", 1, ONCE),
    row(ALLOCATE, "ALLOCATE", 2, CURRENT | MODIFIES),
    row(COPY, "COPY", 2, CURRENT | SAVED | MODIFIES | ONCE),
    row(COPY_NOTIFY, "COPY_NOTIFY", 2, CURRENT | ONCE),
    row(DEALLOCATE, "DEALLOCATE", 2, CURRENT | MODIFIES),
    row(IO_ADVISE, "IO_ADVISE", 2, CURRENT),
    row(LAYOUTERROR, "LAYOUTERROR", 2, CURRENT | ONCE),
    row(LAYOUTSTATS, "LAYOUTSTATS", 2, CURRENT | ONCE),
    row(OFFLOAD_CANCEL, "OFFLOAD_CANCEL", 2, CURRENT | ONCE),
    row(OFFLOAD_STATUS, "OFFLOAD_STATUS", 2, CURRENT),
    row(READ_PLUS, "READ_PLUS", 2, CURRENT),
    row(SEEK, "SEEK", 2, CURRENT),
    row(WRITE_SAME, "WRITE_SAME", 2, CURRENT | MODIFIES),
    row(CLONE, "CLONE", 2, CURRENT | SAVED | MODIFIES),
    row(GETXATTR, "GETXATTR", 2, CURRENT),
    row(SETXATTR, "SETXATTR", 2, CURRENT | MODIFIES | ONCE),
    row(LISTXATTRS, "LISTXATTRS", 2, CURRENT),
    row(REMOVEXATTR, "REMOVEXATTR", 2, CURRENT | MODIFIES | ONCE),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_numbers() {
        for number in FIRST..=LAST {
            assert_eq!(OpProperties::of(number).unwrap().number, number);
        }
        for number in [0, 1, 2, LAST + 1, ILLEGAL, u32::MAX] {
            assert!(OpProperties::of(number).is_none());
            assert_eq!(name(number), "ILLEGAL");
        }
    }

    #[test]
    fn operations_of_4_2_are_illegal_in_4_1_and_those_of_4_0_are_obsolete() {
        assert!(!OpProperties::of(SEEK).unwrap().is_defined_in(1));
        assert!(OpProperties::of(SEEK).unwrap().is_defined_in(2));
        assert!(OpProperties::of(SETCLIENTID).unwrap().is_obsolete());
        assert_eq!((FIRST..=LAST).filter(|n| OpProperties::of(*n).unwrap().is_obsolete()).count(), 5);
    }
}
