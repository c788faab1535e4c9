//! A calibration of the real directory of the build, on whatever disk that lies.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use forebay_io_engine::SystemFiles;
use forebay_io_engine::calibration::{Cancel, Control, FILE_NAME, Stopped, TIME_MAX, calibrate, load};

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_calibration_ends_in_time_and_leaves_its_record_alone() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (cancel, files) = (Cancel::default(), SystemFiles::default());
    let control = Control { cancel: &cancel, is_busy: &|| false };
    let started = Instant::now();
    let outcome = calibrate(dir.path(), &files, &control, SystemTime::now());
    // One request of a device with other work may be late.
    assert!(started.elapsed() < TIME_MAX + Duration::from_secs(20), "{:?}", started.elapsed());
    match outcome {
        Ok(calibration) => {
            assert_eq!(names(dir.path()), [FILE_NAME]);
            assert_eq!(load(dir.path(), &files), Some(calibration));
        }
        Err(stopped @ (Stopped::InMemory | Stopped::NoSpace | Stopped::OutOfTime)) => {
            eprintln!("skipped: {stopped}");
            assert_eq!(names(dir.path()), [""; 0]);
        }
        Err(stopped) => panic!("{stopped}"),
    }
}
