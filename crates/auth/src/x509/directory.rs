//! Reading the administrator's directories: which files there are, whether they changed, and what is in them.
//!
//! They are written by people and by `fetch-crl`, so nothing here fails as a whole: what cannot be read is said in the
//! log and left out.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use durable::Stamp;
use tracing::warn;
use x509_parser::pem::Pem;

/// The federations publish some hundred authorities with four files and two links each.
const FILES_MAX: usize = 20_000;
const PEM_BLOCKS_MAX: usize = 1_000;

/// A file as it was when it was listed; another one means that it has to be read again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    pub path: PathBuf,
    stamp: Stamp,
}

impl Listed {
    /// The name up to the last dot, and what follows.
    pub fn stem_and_extension(&self) -> Option<(&str, &str)> {
        self.path.file_name()?.to_str()?.rsplit_once('.')
    }

    /// `None`: not readable or larger than `bytes_max`, and the log says so.
    pub fn read(&self, bytes_max: u64) -> Option<Vec<u8>> {
        let mut content = Vec::new();
        let read = File::open(&self.path).and_then(|file| file.take(bytes_max + 1).read_to_end(&mut content));
        match read {
            Err(error) => {
                warn!(path = %self.path.display(), %error, "cannot read a file of the certificate directories");
                None
            }
            Ok(_) if content.len() as u64 > bytes_max => {
                warn!(path = %self.path.display(), bytes_max, "a file of the certificate directories is too large");
                None
            }
            Ok(_) => Some(content),
        }
    }
}

/// The files in `dir`, links followed, and in directories in it when `depth` is 1; sorted. A directory that is not there
/// has none.
pub fn list(dir: &Path, depth: u32) -> Vec<Listed> {
    let mut files = Vec::new();
    collect(dir, depth, &mut files);
    files.sort_unstable();
    files
}

fn collect(dir: &Path, depth: u32, files: &mut Vec<Listed>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        if files.len() == FILES_MAX {
            warn!(path = %dir.display(), files_max = FILES_MAX, "too many files in the certificate directories; the rest is ignored");
            return;
        }
        let path = entry.path();
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() => {
                files.push(Listed { path, stamp: Stamp::of(&metadata) });
            }
            Ok(metadata) if metadata.is_dir() && depth > 0 => collect(&path, depth - 1, files),
            Ok(_) | Err(_) => {}
        }
    }
}

/// The DER of every PEM block with this label, or the content itself if it is DER.
pub fn blocks(content: Vec<u8>, label: &str) -> Vec<Bytes> {
    if content.first() == Some(&0x30) {
        return vec![content.into()];
    }
    let blocks = Pem::iter_from_buffer(&content).take(PEM_BLOCKS_MAX).map_while(Result::ok);
    blocks.filter(|block| block.label == label).map(|block| block.contents.into()).collect()
}
