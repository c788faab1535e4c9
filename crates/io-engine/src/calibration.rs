//! Measures the costs of the three modes on a pool's device, and derives the thresholds.
//!
//! `load` gives the calibration of an earlier start; without one, a pool runs with `Thresholds::uncalibrated` and calls
//! `calibrate` in a thread of its own at a quiet time. Parts: `platform` (the machine that a calibration holds for), `measure`
//! (the order and the bounds), `probe` (the requests), `fit` (the rule), `record` (the file).
//!
//! Invariants: a calibration never keeps a pool from its start; a measurement that stops early leaves no file and changes
//! none; its data has no name.

mod cost;
mod fit;
mod measure;
mod platform;
mod priority;
mod probe;
mod record;

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::fstatvfs;

pub use cost::{Access, Cost, Costs, SIZES};
pub use measure::{DISK_BYTES_MAX, TIME_MAX};
pub use platform::{Device, Platform};
pub use priority::IdlePriority;
pub use record::{Calibration, FILE_NAME};

use crate::system_files::SystemFiles;
use measure::{Plan, measure};
use probe::FileProbe;

/// Asks a measurement to stop. Clones are one flag.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Ends a measurement early.
#[derive(Clone, Copy)]
pub struct Control<'a> {
    /// Looked at before each request.
    pub cancel: &'a Cancel,
    /// Whether the pool has requests of others. Asked before each series of requests.
    pub is_busy: &'a dyn Fn() -> bool,
}

/// Why there is no calibration. The pool goes on with the thresholds that it has.
#[derive(Debug)]
pub enum Stopped {
    Cancelled,
    /// The pool has other work; a later attempt may succeed.
    Busy,
    /// 1 % of the free space is too little for the files.
    NoSpace,
    /// The device is so slow that the time was not enough for a result.
    OutOfTime,
    /// The pool's files are in memory: there is no device.
    InMemory,
    Io(io::Error),
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stopped::Cancelled => f.write_str("calibration was cancelled"),
            Stopped::Busy => f.write_str("the pool has other work"),
            Stopped::NoSpace => f.write_str("the pool has too little free space for a calibration"),
            Stopped::OutOfTime => f.write_str("the device is too slow to calibrate it in time"),
            Stopped::InMemory => f.write_str("the files of the pool are in memory"),
            Stopped::Io(error) => write!(f, "calibration failed: {error}"),
        }
    }
}

impl std::error::Error for Stopped {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Stopped::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// The calibration in a pool's directory. `None`: the pool has to be measured; if there is a file, a warning says why it
/// is void. Blocks.
pub fn load(dir: &Path, files: &SystemFiles) -> Option<Calibration> {
    let read = || {
        let platform = platform_of(dir, files).map_err(|error| error.to_string())?;
        Calibration::read(dir, &platform)
    };
    read().unwrap_or_else(|reason| {
        tracing::warn!(dir = %dir.display(), reason, "calibration is void, the pool has to be measured again");
        None
    })
}

/// Measures the device of a pool's directory and keeps the result there. Blocks for about `TIME_MAX` at most; at the
/// idle priority of I/O.
pub fn calibrate(
    dir: &Path,
    files: &SystemFiles,
    control: &Control<'_>,
    now: SystemTime,
) -> Result<Calibration, Stopped> {
    let platform = platform_of(dir, files).map_err(Stopped::Io)?;
    if platform.is_in_memory() {
        return Err(Stopped::InMemory);
    }
    let open = File::open(dir).map_err(Stopped::Io)?;
    let space = fstatvfs(&open).map_err(|errno| Stopped::Io(errno.into()))?;
    let plan = Plan::within(space.f_bavail.saturating_mul(space.f_frsize)).ok_or(Stopped::NoSpace)?;
    let costs = {
        let _idle = IdlePriority::take();
        let mut probe = FileProbe::new(&open).map_err(|errno| Stopped::Io(errno.into()))?;
        measure(&mut probe, control, plan)?
    };
    if control.cancel.is_cancelled() {
        return Err(Stopped::Cancelled);
    }
    let at_s = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let calibration = Calibration::new(at_s, platform, costs);
    calibration.write(dir).map_err(Stopped::Io)?;
    Ok(calibration)
}

fn platform_of(dir: &Path, files: &SystemFiles) -> io::Result<Platform> {
    Ok(Platform::of(files, File::open(dir)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_without_a_calibration_or_with_a_void_one_has_to_be_measured() {
        let dir = tempfile::tempdir().unwrap();
        let files = SystemFiles::default();
        assert_eq!(load(dir.path(), &files), None);
        std::fs::write(dir.path().join(FILE_NAME), "{}").unwrap();
        assert_eq!(load(dir.path(), &files), None);
        assert_eq!(load(&dir.path().join("none"), &files), None);
    }

    #[test]
    fn a_measurement_that_is_cancelled_or_meets_work_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let cancelled = Cancel::default();
        cancelled.clone().cancel();
        for (cancel, is_busy) in [(cancelled, false), (Cancel::default(), true)] {
            let control = Control { cancel: &cancel, is_busy: &|| is_busy };
            let stopped = calibrate(dir.path(), &SystemFiles::default(), &control, UNIX_EPOCH).unwrap_err();
            // A machine may have its temporary files in memory, or a full disk.
            assert!(
                matches!(stopped, Stopped::Cancelled | Stopped::Busy | Stopped::InMemory | Stopped::NoSpace),
                "{stopped}"
            );
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }
}
