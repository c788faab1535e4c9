//! Uploads that outlive a request: those whose bytes come in several requests, and those whose bytes come in at a pool.
//! Both are bounded, all together and for each caller, and given up when nothing is heard of them.

mod at_pools;
mod in_parts;
mod places;

pub use at_pools::UploadsAtPools;
pub use in_parts::{UploadKey, UploadsInParts};
pub use places::UploadPlace;

#[derive(Clone, Copy, Debug)]
pub struct UploadBounds {
    pub all_max: usize,
    pub per_caller_max: usize,
}
