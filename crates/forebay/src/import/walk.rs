//! A tree as it lies on a local file system, entry by entry, each directory before what is in it.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use ::namespace::import::{Entry, Facts, SameFile, What};
use anyhow::{Context, Result, bail};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Statx, StatxFlags, openat, readlinkat, statx};
use rustix::io::Errno;
use types::{Device, FileKind, SymlinkTarget, Timestamp};

/// Goes from directory to directory as they are open, so that a link put in the place of one leads nowhere.
pub struct Walk {
    top: PathBuf,
    device: u64,
    /// Directories that are passed over, by device and inode.
    except: Vec<(u64, u64)>,
    is_begun: bool,
    reading: Vec<Reading>,
}

/// An entry, and where it lies.
pub struct Step {
    pub path: PathBuf,
    /// Device and inode.
    pub seen: (u64, u64),
    pub entry: Entry,
}

struct Reading {
    path: PathBuf,
    names: Dir,
}

impl Walk {
    pub fn new(top: &Path, except: &[(u64, u64)]) -> Result<Walk> {
        let about = look(CWD, top.as_os_str(), top)?;
        if FileType::from_raw_mode(about.stx_mode.into()) != FileType::Directory {
            bail!("{} is no directory", top.display());
        }
        Ok(Walk {
            top: top.to_owned(),
            device: place(&about).0,
            except: except.to_vec(),
            is_begun: false,
            reading: Vec::new(),
        })
    }

    pub fn step(&mut self) -> Result<Option<Step>> {
        if !std::mem::replace(&mut self.is_begun, true) {
            let top = self.top.clone();
            let about = look(CWD, top.as_os_str(), &top)?;
            return self.entry(top.clone().into_os_string(), top, &about).map(Some);
        }
        while let Some(reading) = self.reading.last_mut() {
            let Some(found) = reading.names.read() else {
                self.reading.pop();
                continue;
            };
            let found = found.with_context(|| cannot_read(&reading.path))?;
            let name = OsString::from_vec(found.file_name().to_bytes().to_vec());
            if name == "." || name == ".." {
                continue;
            }
            let path = reading.path.join(&name);
            let about = look(reading.names.fd().with_context(|| cannot_read(&path))?, &name, &path)?;
            if self.except.contains(&place(&about)) {
                continue;
            }
            return self.entry(name, path, &about).map(Some);
        }
        Ok(None)
    }

    /// `name`: in the directory that is being read.
    fn entry(&mut self, name: OsString, path: PathBuf, about: &Statx) -> Result<Step> {
        let seen = place(about);
        if seen.0 != self.device {
            bail!(
                "{} is on another file system and cannot be linked; unmount it, or adopt it separately",
                path.display()
            );
        }
        let above = self.reading.last().map_or(Ok(CWD), |reading| reading.names.fd());
        let above = above.with_context(|| cannot_read(&path))?;
        let what = what(above, &name, &path, about)?;
        if what == What::Directory {
            let reading = begin(above, &name, &path, seen)?;
            self.reading.push(reading);
        }
        let below = path.strip_prefix(&self.top).unwrap_or(&path).as_os_str().as_bytes().to_vec();
        let is_one_of_many = about.stx_nlink > 1 && what != What::Directory;
        let same = is_one_of_many.then_some(SameFile { device: seen.0, inode: seen.1 });
        Ok(Step { path, seen, entry: Entry { path: below, what, facts: facts(about), same } })
    }
}

fn cannot_read(path: &Path) -> String {
    format!("cannot read {}", path.display())
}

fn look(above: impl AsFd, name: &OsStr, path: &Path) -> Result<Statx> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    statx(above, name, AtFlags::SYMLINK_NOFOLLOW, wanted).with_context(|| cannot_read(path))
}

fn place(about: &Statx) -> (u64, u64) {
    (rustix::fs::makedev(about.stx_dev_major, about.stx_dev_minor), about.stx_ino)
}

fn begin(above: impl AsFd, name: &OsStr, path: &Path, seen: (u64, u64)) -> Result<Reading> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = openat(above, name, flags, Mode::empty()).with_context(|| cannot_read(path))?;
    let opened = rustix::fs::fstat(&dir).with_context(|| cannot_read(path))?;
    if (opened.st_dev, opened.st_ino) != seen {
        bail!(
            "{} was replaced by another directory; do not change the tree while the command runs",
            path.display()
        );
    }
    let names = Dir::new(dir).with_context(|| cannot_read(path))?;
    Ok(Reading { path: path.to_owned(), names })
}

fn what(above: impl AsFd, name: &OsStr, path: &Path, about: &Statx) -> Result<What> {
    let device = || Device { major: about.stx_rdev_major, minor: about.stx_rdev_minor };
    Ok(match FileType::from_raw_mode(about.stx_mode.into()) {
        FileType::RegularFile => What::Regular { size: about.stx_size, space_used: about.stx_blocks * 512 },
        FileType::Directory => What::Directory,
        FileType::Symlink => {
            let target = readlinkat(above, name, Vec::new()).with_context(|| cannot_read(path))?;
            let target = SymlinkTarget::new(target.as_bytes());
            What::Symlink(
                target.with_context(|| format!("cannot adopt the symbolic link {}", path.display()))?,
            )
        }
        FileType::Fifo => What::Special(FileKind::Fifo),
        FileType::Socket => What::Special(FileKind::Socket),
        FileType::BlockDevice => What::Special(FileKind::BlockDevice(device())),
        FileType::CharacterDevice => What::Special(FileKind::CharacterDevice(device())),
        FileType::Unknown => return Err(Errno::INVAL).with_context(|| cannot_read(path)),
    })
}

fn facts(about: &Statx) -> Facts {
    let time = |time: &rustix::fs::StatxTimestamp| Timestamp::new(time.tv_sec, time.tv_nsec);
    let has_birth = about.stx_mask & StatxFlags::BTIME.bits() != 0;
    Facts {
        mode: u32::from(about.stx_mode) & 0o7777,
        uid: about.stx_uid,
        gid: about.stx_gid,
        mtime: time(&about.stx_mtime),
        atime: time(&about.stx_atime),
        ctime: time(&about.stx_ctime),
        birth: time(&about.stx_btime).filter(|_| has_birth),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_directory_that_becomes_a_link_while_it_is_read_does_not_lead_outside() {
        let scratch = tempfile::tempdir().unwrap();
        let (tree, outside) = (scratch.path().join("tree"), scratch.path().join("outside"));
        fs::create_dir_all(tree.join("d")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(tree.join("d/a"), "inside").unwrap();
        fs::write(outside.join("a"), "lies outside").unwrap();
        let mut walk = Walk::new(&tree, &[]).unwrap();
        walk.step().unwrap().unwrap();
        assert_eq!(walk.step().unwrap().unwrap().entry.path, b"d");
        fs::rename(tree.join("d"), tree.join("e")).unwrap();
        symlink(&outside, tree.join("d")).unwrap();
        let found = walk.step().unwrap().unwrap();
        assert_eq!(found.entry.path, b"d/a");
        assert!(matches!(found.entry.what, What::Regular { size: 6, .. }), "{:?}", found.entry);
    }
}
