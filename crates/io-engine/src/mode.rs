//! Which way a request goes to the disk, and why. One pure function.
//!
//! There is one way so far: through the page cache. Uncached (`RWF_DONTCACHE`) and direct I/O come with calibrated
//! thresholds per pool; they will take more facts here and change nobody else.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Buffered,
}

/// Counted per request, so that an operator sees what the engine does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The pool has no calibration, so nothing is known that would speak for another mode.
    NotCalibrated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub kind: Kind,
    pub offset: u64,
    pub length: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
}

pub fn choose(_request: Request) -> (Mode, Reason) {
    (Mode::Buffered, Reason::NotCalibrated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_calibration_everything_is_buffered() {
        for kind in [Kind::Read, Kind::Write] {
            let request = Request { kind, offset: 0, length: 8 << 20 };
            assert_eq!(choose(request), (Mode::Buffered, Reason::NotCalibrated));
        }
    }
}
