//! Findings of a check: what they are about, and how they are told. The first of them are in the report; the list that an
//! administrator asked for has all, each with a path. None is kept in memory for longer than that needs.

use std::fmt::Write;
use std::sync::Arc;

use anyhow::Result;
use api::Paths;
use async_trait::async_trait;
use namespace::{Problem, SqlNamespace};
use pool::LocalPool;
use types::display::is_odd;
use types::{FileId, Name};

use super::compare::{Compared, PoolProblem, compare};
use crate::control::Items;
use crate::progress::Meter;
use crate::report::{Found, FsckReport, Said};

/// Problems, and remarks, that the report has.
const TOLD_MAX: u64 = 1000;
/// Findings whose paths are asked for at once.
const PATHS_MAX: usize = 128;

pub enum Finding {
    OfNamespace(Problem),
    OfPool(PoolProblem),
    /// An entry of a pool that is no intact replica, described for people: no repair of it is known.
    Unreadable(String, Option<FileId>),
    Remark(String, Option<FileId>),
}

/// Takes findings as they come.
#[async_trait]
pub trait Findings: Send {
    /// An error ends the check.
    async fn take(&mut self, finding: Finding) -> Result<()>;
}

impl Finding {
    fn file(&self) -> Option<FileId> {
        match self {
            Finding::OfNamespace(problem) => problem.file(),
            Finding::OfPool(problem) => Some(problem.file()),
            Finding::Unreadable(_, file) | Finding::Remark(_, file) => *file,
        }
    }

    fn said(self) -> Said {
        match self {
            Finding::OfNamespace(problem) => Said::Problem(problem.to_string()),
            Finding::OfPool(problem) => Said::Problem(problem.to_string()),
            Finding::Unreadable(text, _) => Said::Problem(text),
            Finding::Remark(text, _) => Said::Remark(text),
        }
    }
}

/// Makes a report of findings, and sends each of them to the list if there is one.
pub struct Collector {
    namespace: Arc<SqlNamespace>,
    list: Option<Items>,
    report: FsckReport,
    /// They have no paths yet.
    waiting: Vec<(Said, Option<FileId>)>,
}

#[async_trait]
impl Findings for Collector {
    async fn take(&mut self, finding: Finding) -> Result<()> {
        let file = finding.file();
        let said = finding.said();
        let found = match &said {
            Said::Problem(_) => &mut self.report.problems_found,
            Said::Remark(_) => &mut self.report.remarks_found,
        };
        *found += 1;
        if *found > TOLD_MAX && self.list.is_none() {
            return Ok(());
        }
        self.waiting.push((said, file));
        if self.waiting.len() >= PATHS_MAX { self.tell().await } else { Ok(()) }
    }
}

impl Collector {
    pub fn new(namespace: &Arc<SqlNamespace>, list: Option<Items>) -> Collector {
        let namespace = Arc::clone(namespace);
        Collector { namespace, list, report: FsckReport::default(), waiting: Vec::new() }
    }

    /// Compares, and reports what was taken before too.
    pub async fn check(mut self, pools: &[Arc<LocalPool>], meter: &Arc<Meter>) -> Result<FsckReport> {
        let namespace = Arc::clone(&self.namespace);
        let Compared { files, replicas } = compare(&namespace, pools, meter, &mut self).await?;
        self.tell().await?;
        Ok(FsckReport { files, replicas, ..self.report })
    }

    async fn tell(&mut self) -> Result<()> {
        let files: Vec<FileId> = self.waiting.iter().filter_map(|(_, file)| *file).collect();
        // A namespace with problems may be unable to answer: they are told without paths then.
        let paths = self.namespace.paths(&files).await.unwrap_or_default();
        let mut paths = paths.into_iter();
        for (said, file) in self.waiting.drain(..) {
            let path = file.and_then(|_| paths.next().flatten());
            let file = file.map(|file| file.to_string());
            let found = Found { said, file, path: path.as_deref().map(escaped) };
            if let Some(list) = &self.list {
                list.send(&found).await?;
            }
            let told = match &found.said {
                Said::Problem(_) => &mut self.report.problems,
                Said::Remark(_) => &mut self.report.remarks,
            };
            if (told.len() as u64) < TOLD_MAX {
                told.push(found);
            }
        }
        Ok(())
    }
}

/// A path in one line that is still exact and looks like no other: names may have any byte.
fn escaped(path: &[Name]) -> String {
    let mut text = String::new();
    for name in path {
        text.push('/');
        for chunk in name.as_bytes().utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    '\\' => text.push_str("\\\\"),
                    odd if is_odd(odd) => escape(odd.encode_utf8(&mut [0; 4]).as_bytes(), &mut text),
                    plain => text.push(plain),
                }
            }
            escape(chunk.invalid(), &mut text);
        }
    }
    if text.is_empty() { "/".to_owned() } else { text }
}

fn escape(bytes: &[u8], into: &mut String) {
    for byte in bytes {
        write!(into, "\\x{byte:02x}").expect("a string takes all text");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_exact_and_takes_one_line() {
        let path = |names: &[&[u8]]| {
            let names: Vec<Name> = names.iter().map(|name| Name::new(name).unwrap()).collect();
            escaped(&names)
        };
        assert_eq!(path(&[]), "/");
        assert_eq!(path(&[b"run 7", "größe".as_bytes()]), "/run 7/größe");
        assert_eq!(path(&[b"a\nb\\", b"\xff\x80c"]), r"/a\x0ab\\/\xff\x80c");
        assert_eq!(path(&["gpj\u{202e}exe\u{2028}".as_bytes()]), r"/gpj\xe2\x80\xaeexe\xe2\x80\xa8");
    }
}
