//! A tree as it lies on a local file system, entry by entry, each directory before what is in it.

use std::fs::{self, Metadata, ReadDir};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ::namespace::import::{Entry, Facts, SameFile, What};
use anyhow::{Context, Result, bail};
use types::{Device, FileKind, SymlinkTarget, Timestamp};

pub struct Walk {
    top: PathBuf,
    device: u64,
    /// Directories that are passed over, by device and inode.
    except: Vec<(u64, u64)>,
    is_begun: bool,
    reading: Vec<ReadDir>,
}

impl Walk {
    pub fn new(top: &Path, except: &[(u64, u64)]) -> Result<Walk> {
        let facts = fs::metadata(top).with_context(|| format!("cannot read {}", top.display()))?;
        if !facts.is_dir() {
            bail!("{} is no directory", top.display());
        }
        Ok(Walk {
            top: top.to_owned(),
            device: facts.dev(),
            except: except.to_vec(),
            is_begun: false,
            reading: Vec::new(),
        })
    }

    /// With the path at which it lies.
    pub fn step(&mut self) -> Result<Option<(PathBuf, Entry)>> {
        if !std::mem::replace(&mut self.is_begun, true) {
            let top = self.top.clone();
            let facts = fs::metadata(&top).with_context(|| format!("cannot read {}", top.display()))?;
            return self.entry(top, &facts).map(Some);
        }
        while let Some(reading) = self.reading.last_mut() {
            let Some(found) = reading.next() else {
                self.reading.pop();
                continue;
            };
            let path = found
                .with_context(|| format!("cannot read a directory below {}", self.top.display()))?
                .path();
            let facts =
                fs::symlink_metadata(&path).with_context(|| format!("cannot read {}", path.display()))?;
            if self.except.contains(&(facts.dev(), facts.ino())) {
                continue;
            }
            return self.entry(path, &facts).map(Some);
        }
        Ok(None)
    }

    fn entry(&mut self, path: PathBuf, about: &Metadata) -> Result<(PathBuf, Entry)> {
        if about.dev() != self.device {
            bail!(
                "{} is another file system, and what is in it cannot be linked: unmount it, or adopt it by itself",
                path.display()
            );
        }
        if about.is_dir() {
            let reading = fs::read_dir(&path).with_context(|| format!("cannot read {}", path.display()))?;
            self.reading.push(reading);
        }
        let below = path.strip_prefix(&self.top).unwrap_or(&path).as_os_str().as_bytes().to_vec();
        let what = what(&path, about)?;
        let is_one_of_many = about.nlink() > 1 && what != What::Directory;
        let same = is_one_of_many.then(|| SameFile { device: about.dev(), inode: about.ino() });
        Ok((path, Entry { path: below, what, facts: facts(about), same }))
    }
}

fn what(path: &Path, about: &Metadata) -> Result<What> {
    let kind = about.file_type();
    let device = || Device { major: rustix::fs::major(about.rdev()), minor: rustix::fs::minor(about.rdev()) };
    Ok(if kind.is_file() {
        What::Regular { size: about.len(), space_used: about.blocks() * 512 }
    } else if kind.is_dir() {
        What::Directory
    } else if kind.is_symlink() {
        let target = fs::read_link(path).with_context(|| format!("cannot read {}", path.display()))?;
        let target = SymlinkTarget::new(&target.into_os_string().into_vec());
        What::Symlink(target.with_context(|| format!("cannot take {} in", path.display()))?)
    } else if kind.is_fifo() {
        What::Special(FileKind::Fifo)
    } else if kind.is_socket() {
        What::Special(FileKind::Socket)
    } else if kind.is_block_device() {
        What::Special(FileKind::BlockDevice(device()))
    } else {
        What::Special(FileKind::CharacterDevice(device()))
    })
}

fn facts(about: &Metadata) -> Facts {
    // Nanoseconds of a file are always below a second.
    let time =
        |seconds, nanoseconds| u32::try_from(nanoseconds).ok().and_then(|ns| Timestamp::new(seconds, ns));
    let birth = about.created().ok().and_then(|birth: SystemTime| birth.duration_since(UNIX_EPOCH).ok());
    Facts {
        mode: about.mode() & 0o7777,
        uid: about.uid(),
        gid: about.gid(),
        mtime: time(about.mtime(), about.mtime_nsec()),
        atime: time(about.atime(), about.atime_nsec()),
        ctime: time(about.ctime(), about.ctime_nsec()),
        birth: birth.map(Timestamp::from_unix),
    }
}
