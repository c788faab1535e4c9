//! The small files of `/proc` and `/sys`, below a directory that tests choose.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// More than any file that is read here has.
const FILE_BYTES_MAX: u64 = 64 << 10;

#[derive(Clone, Debug)]
pub struct SystemFiles {
    root: PathBuf,
}

impl Default for SystemFiles {
    fn default() -> SystemFiles {
        SystemFiles::below(Path::new("/"))
    }
}

impl SystemFiles {
    /// `root` stands for `/`.
    pub fn below(root: &Path) -> SystemFiles {
        SystemFiles { root: root.to_owned() }
    }

    /// `path` begins with `proc/` or `sys/`. `None`: no such file here, or not one that can be read. May block for as
    /// long as the kernel takes to make up the content.
    pub(crate) fn read(&self, path: &str) -> Option<String> {
        let mut text = String::new();
        File::open(self.root.join(path)).ok()?.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
        Some(text)
    }

    pub(crate) fn number(&self, path: &str) -> Option<u64> {
        self.read(path)?.trim().parse().ok()
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }
}

/// The number behind `key` in a file of lines `key value`.
pub(crate) fn value_of(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next() == Some(key)).then(|| words.next()?.parse().ok()).flatten()
    })
}

/// A file system of its own for the tests of this crate.
#[cfg(test)]
pub(crate) mod invented {
    use super::*;

    pub struct InventedFiles {
        dir: tempfile::TempDir,
    }

    impl InventedFiles {
        pub fn new() -> InventedFiles {
            InventedFiles { dir: tempfile::tempdir().unwrap() }
        }

        pub fn with(self, path: &str, text: &str) -> InventedFiles {
            self.write(path, text);
            self
        }

        pub fn write(&self, path: &str, text: &str) {
            let path = self.dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        pub fn files(&self) -> SystemFiles {
            SystemFiles::below(self.dir.path())
        }

        pub fn path(&self) -> &Path {
            self.dir.path()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::invented::InventedFiles;
    use super::*;

    #[test]
    fn an_absent_or_odd_file_is_none() {
        let invented = InventedFiles::new().with("proc/number", "17\n").with("proc/word", "max\n");
        std::fs::write(invented.path().join("proc/binary"), [0xff, 0xfe]).unwrap();
        let files = invented.files();
        assert_eq!(files.number("proc/number"), Some(17));
        assert_eq!(files.number("proc/word"), None);
        assert_eq!(files.number("proc/none"), None);
        assert_eq!(files.read("proc/binary"), None);
        assert_eq!(files.read("proc"), None, "a directory");
    }

    #[test]
    fn a_key_is_matched_as_a_whole() {
        let text = "file 1\nfile_dirty 2\nno_number x\nMemFree:   3 kB\n";
        assert_eq!(value_of(text, "file_dirty"), Some(2));
        assert_eq!(value_of(text, "file"), Some(1));
        assert_eq!(value_of(text, "MemFree:"), Some(3));
        assert_eq!(value_of(text, "no_number"), None);
        assert_eq!(value_of(text, "dirty"), None);
    }
}
