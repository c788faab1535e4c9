//! READ, WRITE, COMMIT: the data path. `data` is shared with the record it came in, in both directions.

use xdr::{Opaque, Xdr};

use crate::{StateId4, Verifier4};

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Read4Args {
    pub stateid: StateId4,
    pub offset: u64,
    pub count: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Read4ResOk {
    pub eof: bool,
    pub data: Opaque,
}

/// How durable a write is wanted, or was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Xdr)]
#[repr(u32)]
pub enum StableHow4 {
    Unstable = 0,
    DataSync = 1,
    FileSync = 2,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Write4Args {
    pub stateid: StateId4,
    pub offset: u64,
    pub stable: StableHow4,
    pub data: Opaque,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Write4ResOk {
    pub count: u32,
    pub committed: StableHow4,
    pub writeverf: Verifier4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Commit4Args {
    pub offset: u64,
    pub count: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Commit4ResOk {
    pub writeverf: Verifier4,
}
