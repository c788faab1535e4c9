//! The calibration of a pool as a file in its directory. If the file is void, the pool starts all the same and
//! is measured again.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::cost::Costs;
use super::fit;
use super::platform::Platform;
use crate::mode::Thresholds;

pub const FILE_NAME: &str = "calibration.json";
const FORMAT: &str = "forebay-calibration";
/// Also counts changes of the measurement and of the fit: thresholds of another version do not follow from the costs.
const VERSION: u32 = 1;
/// More than all costs need.
const FILE_BYTES_MAX: u64 = 256 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calibration {
    /// Seconds since 1970.
    pub calibrated_at_s: u64,
    pub platform: Platform,
    pub costs: Costs,
    /// Those that `fit` makes of the costs.
    pub thresholds: Thresholds,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: String,
    version: u32,
    calibrated_at_s: u64,
    platform: Platform,
    thresholds: Thresholds,
    costs: Costs,
}

/// Read before the rest: another version may have another shape.
#[derive(Deserialize)]
struct Head {
    format: String,
    version: u32,
}

impl Calibration {
    pub fn new(calibrated_at_s: u64, platform: Platform, costs: Costs) -> Calibration {
        let thresholds = fit::thresholds(&costs);
        Calibration { calibrated_at_s, platform, costs, thresholds }
    }

    /// `Ok(None)`: there is no file. The error says in a few words why the file is void.
    pub fn read(dir: &Path, platform: &Platform) -> Result<Option<Calibration>, String> {
        let file = match File::open(dir.join(FILE_NAME)) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let mut text = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).map_err(|error| error.to_string())?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(format!("it is longer than {FILE_BYTES_MAX} bytes"));
        }
        parse(&text, platform).map(Some)
    }

    /// Durable when it returns; a crash leaves the old file or the new one. Blocks.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        let document = Document {
            format: FORMAT.to_owned(),
            version: VERSION,
            calibrated_at_s: self.calibrated_at_s,
            platform: self.platform.clone(),
            thresholds: self.thresholds,
            costs: self.costs.clone(),
        };
        let mut text =
            serde_json::to_vec_pretty(&document).expect("a document of strings and numbers is always JSON");
        text.push(b'\n');
        durable::replace(&dir.join(FILE_NAME), &text).inspect_err(|_| {
            // Only clutter, if this fails too.
            let _ = std::fs::remove_file(temporary(dir));
        })
    }
}

/// The name that `durable::replace` writes under.
fn temporary(dir: &Path) -> PathBuf {
    dir.join(format!("{FILE_NAME}.new"))
}

fn parse(text: &[u8], platform: &Platform) -> Result<Calibration, String> {
    let damaged = |error: serde_json::Error| format!("it is damaged: {error}");
    let head: Head = serde_json::from_slice(text).map_err(damaged)?;
    if head.format != FORMAT || head.version != VERSION {
        return Err(format!("it is {} {}, not {FORMAT} {VERSION}", head.format.escape_debug(), head.version));
    }
    let document: Document = serde_json::from_slice(text).map_err(damaged)?;
    if document.platform != *platform {
        return Err("it is of another kernel, file system or device".to_owned());
    }
    let calibration = Calibration::new(document.calibrated_at_s, document.platform, document.costs);
    if calibration.thresholds != document.thresholds {
        return Err("its thresholds do not follow from its costs".to_owned());
    }
    Ok(calibration)
}

#[cfg(test)]
mod tests {
    use super::super::cost::{Access, Cost, SIZES};
    use super::*;
    use crate::mode::Mode;

    fn platform() -> Platform {
        Platform { kernel: "6.18.0".to_owned(), file_system: "ext".to_owned(), device: None }
    }

    fn calibration() -> Calibration {
        let mut costs = Vec::new();
        for access in Access::ALL {
            for (mode, factor) in [(Mode::Buffered, 2), (Mode::Direct, 1)] {
                costs.extend(SIZES.map(|request_bytes| Cost {
                    access,
                    mode,
                    request_bytes,
                    wall_ns: request_bytes * factor,
                    cpu_ns: 1,
                }));
            }
        }
        Calibration::new(1_795_000_000, platform(), Costs::try_from(costs).unwrap())
    }

    fn written() -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().unwrap();
        calibration().write(dir.path()).unwrap();
        let text = std::fs::read_to_string(dir.path().join(FILE_NAME)).unwrap();
        (dir, text)
    }

    #[test]
    fn a_calibration_reads_back_and_leaves_nothing_beside_it() {
        let (dir, text) = written();
        assert!((text.len() as u64) < FILE_BYTES_MAX / 4, "{}", text.len());
        assert_eq!(Calibration::read(dir.path(), &platform()), Ok(Some(calibration())));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(calibration().thresholds.write.direct_bytes_min, Some(4096));
    }

    #[test]
    fn an_absent_file_is_no_fault() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Calibration::read(dir.path(), &platform()), Ok(None));
    }

    #[test]
    fn a_calibration_of_another_platform_is_void() {
        let (dir, _) = written();
        let others = [
            Platform { kernel: "6.19.0".to_owned(), ..platform() },
            Platform { file_system: "xfs".to_owned(), ..platform() },
        ];
        for other in others {
            assert!(Calibration::read(dir.path(), &other).unwrap_err().contains("another kernel"));
        }
    }

    #[test]
    fn damaged_and_lying_files_are_void() {
        let (dir, text) = written();
        let path = dir.path().join(FILE_NAME);
        let changed = [
            (String::new(), "damaged"),
            (text[..text.len() / 2].to_owned(), "damaged"),
            ("[]".to_owned(), "damaged"),
            (text.replace("\"version\": 1", "\"version\": 2"), "not forebay-calibration 1"),
            (text.replace(FORMAT, "other\\u001b"), "other\\u{1b}"),
            (text.replace("\"wall_ns\": 4096,", "\"wall_ns\": 0,"), "zero or absurd"),
            (text.replace("\"wall_ns\": 4096,", "\"wall_ns\": -1,"), "damaged"),
            (text.replace("\"hot_percent\": 50", "\"hot_percent\": 51"), "do not follow"),
            (text.replacen("\"direct_bytes_min\": 4096", "\"direct_bytes_min\": 1", 1), "do not follow"),
            (format!("{text}{}", " ".repeat(FILE_BYTES_MAX as usize)), "longer"),
        ];
        for (changed, reason) in changed {
            assert_ne!(changed, text, "{reason}");
            std::fs::write(&path, &changed).unwrap();
            let void = Calibration::read(dir.path(), &platform()).unwrap_err();
            assert!(void.contains(reason), "{void}");
        }
        std::fs::write(&path, [0xff; 64]).unwrap();
        assert!(Calibration::read(dir.path(), &platform()).is_err());
    }

    #[test]
    fn a_directory_in_the_place_of_the_file_is_void_and_a_failed_write_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join(FILE_NAME)).unwrap();
        assert!(Calibration::read(dir.path(), &platform()).is_err());
        assert!(calibration().write(dir.path()).is_err());
        assert!(!temporary(dir.path()).exists());
    }
}
