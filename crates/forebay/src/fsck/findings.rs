//! Findings of a check: what they are about, and how they are told. The first of them are in the report; the list that an
//! administrator asked for has all, each with a path. None is kept in memory for longer than that needs.

use std::fmt::Write;
use std::sync::Arc;

use anyhow::Result;
use api::Paths;
use async_trait::async_trait;
use namespace::{Problem, SqlNamespace};
use types::display::is_odd;
use types::{FileId, Name};

use super::compare::{CheckedPools, Compared, PoolProblem, compare};
use super::paths::PathFinder;
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
    paths: PathFinder,
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
    pub fn new(namespace: Arc<dyn Paths>, list: Option<Items>) -> Collector {
        let paths = PathFinder::new(namespace);
        Collector { paths, list, report: FsckReport::default(), waiting: Vec::new() }
    }

    /// Compares, and reports what was taken before too.
    pub async fn check(
        mut self,
        namespace: &Arc<SqlNamespace>,
        pools: &CheckedPools,
        meter: &Arc<Meter>,
    ) -> Result<FsckReport> {
        let Compared { files, replicas } = compare(namespace, pools, meter, &mut self).await?;
        Ok(FsckReport { files, replicas, ..self.finish().await? })
    }

    async fn finish(mut self) -> Result<FsckReport> {
        self.tell().await?;
        if let Some(remark) = self.paths.remark() {
            self.take(Finding::Remark(remark, None)).await?;
            self.tell().await?;
        }
        Ok(self.report)
    }

    async fn tell(&mut self) -> Result<()> {
        let files: Vec<FileId> = self.waiting.iter().filter_map(|(_, file)| *file).collect();
        let paths = self.paths.find(&files).await;
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
pub fn escaped(path: &[Name]) -> String {
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
    use std::sync::atomic::{AtomicU32, Ordering};

    use api::NamespaceError;

    use super::*;

    const DAMAGED: FileId = FileId(140);

    /// Each file is named after its number. The first questions are refused, and all with a damaged file.
    struct Failing {
        refusals: AtomicU32,
    }

    #[async_trait]
    impl Paths for Failing {
        async fn paths(&self, files: &[FileId]) -> Result<Vec<Option<Vec<Name>>>, NamespaceError> {
            let one_less = |left: u32| left.checked_sub(1);
            if self.refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
                return Err(NamespaceError::Busy);
            }
            if files.contains(&DAMAGED) {
                return Err(NamespaceError::Database("a row is damaged".to_owned()));
            }
            let path = |file: &FileId| Some(vec![Name::new(file.0.to_string().as_bytes()).unwrap()]);
            Ok(files.iter().map(path).collect())
        }
    }

    /// Of a problem of each file.
    async fn report(files: std::ops::Range<u64>, refusals: u32) -> FsckReport {
        let namespace = Failing { refusals: refusals.into() };
        let mut collector = Collector::new(Arc::new(namespace), None);
        for file in files {
            let problem = Finding::Unreadable("damaged".to_owned(), Some(FileId(file)));
            collector.take(problem).await.unwrap();
        }
        collector.finish().await.unwrap()
    }

    /// One question that failed took the paths of 128 problems, and nothing was said.
    #[tokio::test(start_paused = true)]
    async fn a_question_that_fails_takes_no_path_or_is_told() {
        let shown = |report: &FsckReport| -> Vec<Option<String>> {
            report.problems.iter().map(|found| found.path.clone()).collect()
        };
        let all: Vec<_> = (0..130).map(|file| Some(format!("/{file}"))).collect();
        let repeated = report(0..130, 1).await;
        assert_eq!((shown(&repeated), repeated.remarks_found), (all, 0));
        let damaged = report(130..150, 1).await;
        let path = |file| (file != DAMAGED.0).then(|| format!("/{file}"));
        assert_eq!(shown(&damaged), (130..150).map(path).collect::<Vec<_>>());
        let remarks: Vec<String> = damaged.remarks.iter().map(Found::line).collect();
        assert_eq!(remarks, ["remark: 1 path is missing: namespace database failed: a row is damaged"]);
        let busy = report(0..20, u32::MAX).await;
        assert_eq!(shown(&busy), vec![None; 20]);
        assert_eq!(busy.remarks[0].line(), "remark: 20 paths are missing: namespace is busy");
        assert_eq!((busy.problems_found, busy.remarks_found), (20, 1));
    }

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
