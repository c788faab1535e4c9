//! How stable a write is, between the protocol and the pools, for I/O at the pools and through the head.

use api::Stability;
use nfs4::StableHow4;

pub(crate) fn stability(how: StableHow4) -> Stability {
    match how {
        StableHow4::Unstable => Stability::Unstable,
        StableHow4::DataSync => Stability::DataSync,
        StableHow4::FileSync => Stability::FileSync,
    }
}

pub(crate) fn stable_how(stability: Stability) -> StableHow4 {
    match stability {
        Stability::Unstable => StableHow4::Unstable,
        Stability::DataSync => StableHow4::DataSync,
        Stability::FileSync => StableHow4::FileSync,
    }
}
