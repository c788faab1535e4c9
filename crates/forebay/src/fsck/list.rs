//! The list of all problems and remarks of a check, for `forebay fsck --list FILE`.
//!
//! FILE appears when the list is complete. Until then it is a part beside it, which each command has for itself:
//! `FILE.part-` and digits.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tokio::sync::mpsc::Receiver;
use types::Random;

use crate::cli::OutputArguments;
use crate::report::Found;
use crate::system::SystemRandom;

pub struct List {
    path: PathBuf,
    part: PathBuf,
    file: BufWriter<File>,
    is_json: bool,
}

impl List {
    /// For its owner only: paths are nobody else's business.
    pub fn create(path: &Path, output: OutputArguments) -> Result<List> {
        if path.symlink_metadata().is_ok_and(|there| !there.is_file()) {
            bail!("{} is not a regular file; give another --list", path.display());
        }
        let mut part = path.as_os_str().to_owned();
        part.push(format!(".part-{:016x}", (&SystemRandom as &dyn Random).u64()));
        let part = PathBuf::from(part);
        // Nothing that is there is opened: in `/tmp` a name may lead to a file of somebody else.
        let made = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&part);
        let file = made.with_context(|| format!("cannot create {}", part.display()))?;
        Ok(List { path: path.to_owned(), part, file: BufWriter::new(file), is_json: output.json })
    }

    /// A line: text, or an object.
    pub fn add(&mut self, item: serde_json::Value) -> Result<()> {
        let line = if self.is_json {
            item.to_string()
        } else {
            serde_json::from_value::<Found>(item).context("the list has a line that is no problem")?.line()
        };
        writeln!(self.file, "{line}").with_context(|| self.failed())
    }

    /// Adds all that comes.
    pub async fn add_all(&mut self, mut items: Receiver<serde_json::Value>) -> Result<()> {
        while let Some(item) = items.recv().await {
            self.add(item)?;
        }
        Ok(())
    }

    /// It is on disk when this returns. Blocks.
    pub fn finish(mut self) -> Result<PathBuf> {
        self.file.flush().with_context(|| self.failed())?;
        if !self.has_part().with_context(|| self.failed())? {
            bail!("{}: another file has taken the place of {}", self.failed(), self.part.display());
        }
        durable::rename(&self.part, &self.path).with_context(|| self.failed())?;
        Ok(std::mem::take(&mut self.path))
    }

    /// Whether the part's name still leads to what this has written.
    fn has_part(&self) -> io::Result<bool> {
        let (ours, there) = (self.file.get_ref().metadata()?, self.part.symlink_metadata()?);
        Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino()))
    }

    fn failed(&self) -> String {
        format!("cannot write the list {}", self.path.display())
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // A list that is complete has no part any more.
        if self.has_part().unwrap_or(false) {
            let _ = fs::remove_file(&self.part);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_that_is_not_complete_leaves_the_former_one_and_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lost");
        let begin = |json| List::create(&path, OutputArguments { json }).unwrap();
        let item = json!({"problem": "file 7 is lost", "file": "7", "path": "/a"});
        let mut list = begin(false);
        list.add(item.clone()).unwrap();
        assert_eq!(list.finish().unwrap(), path);
        let mut broken_off = begin(true);
        broken_off.add(item.clone()).unwrap();
        drop(broken_off);
        assert_eq!(fs::read_to_string(&path).unwrap(), "problem: file 7 is lost: /a\n");
        let mut list = begin(true);
        list.add(item.clone()).unwrap();
        list.finish().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), item);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    /// The first to finish put the empty part of the other in the place of its list.
    #[test]
    fn two_lists_with_one_name_are_each_complete_when_they_appear() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lost");
        let begin = || List::create(&path, OutputArguments::default()).unwrap();
        let [mut first, mut second, broken_off] = [begin(), begin(), begin()];
        first.add(json!({"problem": "file 7 is lost"})).unwrap();
        drop(broken_off);
        first.finish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "problem: file 7 is lost\n");
        second.add(json!({"problem": "file 8 is lost"})).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "problem: file 7 is lost\n");
        second.finish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "problem: file 8 is lost\n");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_took_the_place_of_a_part_is_neither_the_list_nor_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lost");
        let list = List::create(&path, OutputArguments::default()).unwrap();
        let part = list.part.clone();
        fs::remove_file(&part).unwrap();
        fs::write(&part, "another's").unwrap();
        let refused = list.finish().unwrap_err().to_string();
        assert!(refused.contains("another file has taken the place of"), "{refused}");
        assert!(!path.exists());
        assert_eq!(fs::read_to_string(&part).unwrap(), "another's");
    }

    /// Root would have replaced `/dev/stdout`.
    #[test]
    fn a_list_replaces_regular_files_only() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("elsewhere", &link).unwrap();
        for path in [dir.path(), &link] {
            let refused = List::create(path, OutputArguments::default()).err().unwrap().to_string();
            assert!(refused.contains("is not a regular file"), "{refused}");
        }
    }
}
