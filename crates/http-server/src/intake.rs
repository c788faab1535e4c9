//! The parts of a listener's state that the bodies of requests need while they come in.

use std::sync::Arc;

use crate::Limits;
use crate::buffers::Buffers;

pub(crate) struct Intake {
    pub limits: Limits,
    pub buffers: Buffers,
}

impl Intake {
    pub fn new(limits: Limits) -> Arc<Intake> {
        Arc::new(Intake { limits, buffers: Buffers::new(limits.buffers_bytes_max) })
    }
}
