//! The calibration of a pool's disk: on demand, and by itself once the pool has been idle for a while and none holds.
//!
//! One runs at a time. A stop of the pool ends it and waits for that.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::SystemTime;

use io_engine::SystemFiles;
use io_engine::calibration::{Calibration, Cancel, Control, Stopped, calibrate, load};
use io_engine::mode::Policy;
use parking_lot::Mutex;

use crate::parts::PoolParts;

/// Seconds without a request before a pool measures its disk by itself.
const IDLE_S: u32 = 300;

pub struct Calibrating {
    dir: PathBuf,
    files: SystemFiles,
    /// Of the pool's end.
    cancel: Cancel,
    /// Held while a calibration runs.
    running: Mutex<()>,
    own: Mutex<Own>,
}

/// The calibration that the pool begins by itself.
#[derive(Default)]
struct Own {
    /// None is needed, or one was tried that cannot succeed.
    is_settled: bool,
    idle_s: u32,
    /// Requests so far, at the last look.
    requests: u64,
    thread: Option<JoinHandle<()>>,
}

impl Calibrating {
    pub fn new(dir: PathBuf) -> Calibrating {
        Calibrating {
            dir,
            files: SystemFiles::default(),
            cancel: Cancel::default(),
            running: Mutex::new(()),
            own: Mutex::default(),
        }
    }

    /// Takes the calibration of an earlier start.
    pub fn load(&self, shared: &PoolParts) {
        let path = shared.engine.path();
        let found = load(&self.dir, &self.files);
        let capabilities = path.capabilities();
        // Only the rule of all facts has thresholds of the disk, and a disk with one way needs none.
        let is_needed =
            path.policy() == Policy::Auto && (capabilities.uncached || capabilities.direct.is_some());
        self.own.lock().is_settled = found.is_some() || !is_needed;
        if let Some(calibration) = found {
            path.set_thresholds(calibration.thresholds);
        }
    }

    /// Measures the disk and takes the thresholds. Blocks, for about 20 s. `cancel`: of the one who asked.
    pub fn run(
        &self,
        shared: &PoolParts,
        cancel: &Cancel,
        is_busy: &dyn Fn() -> bool,
    ) -> Result<Calibration, Stopped> {
        let _running = self.running.lock();
        if self.cancel.is_cancelled() {
            return Err(Stopped::Cancelled);
        }
        // The pool's end is looked at between requests, the caller's within.
        let is_ending = || {
            if self.cancel.is_cancelled() {
                cancel.cancel();
            }
            is_busy()
        };
        let control = Control { cancel, is_busy: &is_ending };
        let calibration = calibrate(&self.dir, &self.files, &control, SystemTime::now())?;
        shared.engine.path().set_thresholds(calibration.thresholds);
        self.own.lock().is_settled = true;
        Ok(calibration)
    }

    /// Once a second. Begins a calibration in a thread of its own if one is due.
    pub fn look(self: &Arc<Calibrating>, shared: &Arc<PoolParts>) {
        let requests = shared.requests();
        let mut own = self.own.lock();
        if own.is_settled {
            return;
        }
        own.idle_s = if requests == own.requests { own.idle_s + 1 } else { 0 };
        own.requests = requests;
        if own.idle_s < IDLE_S || own.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        own.idle_s = 0;
        let (this, shared) = (Arc::clone(self), Arc::clone(shared));
        let name = format!("{}-calibrate", shared.id());
        match std::thread::Builder::new().name(name).spawn(move || this.run_by_itself(&shared, requests)) {
            Ok(thread) => own.thread = Some(thread),
            Err(error) => tracing::debug!(%error, "cannot start a thread to calibrate in"),
        }
    }

    fn run_by_itself(&self, shared: &PoolParts, requests: u64) {
        let pool = shared.id();
        let is_busy = || shared.requests() != requests;
        match self.run(shared, &self.cancel, &is_busy) {
            Ok(_) => tracing::info!(%pool, "pool's disk is calibrated"),
            Err(stopped @ (Stopped::Busy | Stopped::Cancelled)) => {
                tracing::debug!(%pool, %stopped, "pool's disk is not calibrated yet");
            }
            Err(stopped @ (Stopped::NoSpace | Stopped::Io(_))) => {
                tracing::debug!(%pool, %stopped, "pool's disk is not calibrated, and will be tried again");
            }
            Err(stopped @ (Stopped::OutOfTime | Stopped::InMemory)) => {
                tracing::info!(%pool, reason = %stopped, "pool's disk cannot be calibrated, large requests stay buffered");
                self.own.lock().is_settled = true;
            }
        }
    }

    /// Ends what runs, and waits for it.
    pub fn stop(&self) {
        self.cancel.cancel();
        let thread = self.own.lock().thread.take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("calibration panicked");
        }
        drop(self.running.lock());
    }
}
