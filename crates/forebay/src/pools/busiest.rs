//! `forebay pool iostat --by-file`: the open files with the most bytes, on a running instance.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use admin::instance::BusyFileView;
use anyhow::{Result, bail};
use api::{Paths, Pool};
use pool::{FileCounts, LocalPool};
use serde::{Deserialize, Serialize};
use types::display::Size;
use types::{FileId, Name, PoolId};

use super::number;
use crate::cli::IostatArguments;
use crate::control::{self, Request};
use crate::fsck::escaped;
use crate::output;
use crate::table::{Column, Table};

const TOP: u16 = 20;
/// How long the web page waits for names.
const NAMES_TIME: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FileStatistics {
    /// `pool-0`.
    pub pool: String,
    /// The number of the file, 16 digits, as its replica is named.
    pub file: String,
    /// `None`: it has no name, or the namespace gave no answer.
    pub path: Option<String>,
    pub counts: Vec<Counted>,
    /// Writes that waited for another one of the same pages.
    pub waits: u64,
    pub contended: bool,
}

/// Requests of one kind in one mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    pub kind: String,
    pub mode: String,
    pub operations: u64,
    pub bytes: u64,
}

#[derive(Serialize)]
struct Busiest {
    files: Vec<FileStatistics>,
}

pub fn run(arguments: &IostatArguments) -> Result<ExitCode> {
    let wanted = arguments.pool.as_deref().map(number).transpose()?.map(|id| PoolId(id).to_string());
    let top = arguments.top.unwrap_or(TOP);
    let data = arguments.place.config_of_any()?.data;
    let Some(mut files) = control::ask::<Vec<FileStatistics>>(&data, Request::BusiestFiles(top))? else {
        bail!("no instance runs on {}: the counts begin anew with each start", data.display());
    };
    files.retain(|file| wanted.as_ref().is_none_or(|wanted| file.pool == *wanted));
    files.sort_by_key(|file| std::cmp::Reverse(file.bytes()));
    files.truncate(usize::from(top));
    output::print(arguments.output, &Busiest { files }, Busiest::text)?;
    Ok(ExitCode::SUCCESS)
}

/// The `top` files of all pools, as the web page has them. The rest of the page is in memory, so it waits for names
/// only shortly.
pub async fn views(names: &dyn Paths, pools: &[Arc<LocalPool>], top: usize) -> Vec<BusyFileView> {
    let mut found = found(pools, top);
    found.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.bytes()));
    found.truncate(top);
    let files = tokio::time::timeout(NAMES_TIME, named(names, &found)).await;
    let files = files.unwrap_or_else(|_| with_paths(&found, vec![None; found.len()]));
    files.into_iter().map(FileStatistics::view).collect()
}

/// The `top` files of each pool.
pub async fn answer(names: &dyn Paths, pools: &[Arc<LocalPool>], top: usize) -> Vec<FileStatistics> {
    named(names, &found(pools, top)).await
}

fn found(pools: &[Arc<LocalPool>], top: usize) -> Vec<(PoolId, FileCounts)> {
    pools.iter().flat_map(|pool| pool.busiest(top).into_iter().map(|counts| (pool.id(), counts))).collect()
}

async fn named(names: &dyn Paths, found: &[(PoolId, FileCounts)]) -> Vec<FileStatistics> {
    let files: Vec<FileId> = found.iter().map(|(_, counts)| counts.file).collect();
    let paths = names.paths(&files).await.unwrap_or_else(|error| {
        tracing::info!(%error, "cannot look up the paths of open files");
        vec![None; files.len()]
    });
    with_paths(found, paths)
}

fn with_paths(found: &[(PoolId, FileCounts)], paths: Vec<Option<Vec<Name>>>) -> Vec<FileStatistics> {
    found.iter().zip(paths).map(|((pool, counts), path)| FileStatistics::new(*pool, counts, path)).collect()
}

impl FileStatistics {
    fn new(pool: PoolId, counts: &FileCounts, path: Option<Vec<Name>>) -> FileStatistics {
        let counted = counts.counts.iter().map(|count| Counted {
            kind: count.kind.label().to_owned(),
            mode: count.mode.label().to_owned(),
            operations: count.operations,
            bytes: count.bytes,
        });
        let path = path.map(|names| escaped(&names));
        FileStatistics {
            pool: pool.to_string(),
            file: counts.file.to_string(),
            path,
            counts: counted.collect(),
            waits: counts.waits,
            contended: counts.is_contended,
        }
    }

    fn view(self) -> BusyFileView {
        let ((reads, read_bytes), (writes, written_bytes)) = (self.sum("read"), self.sum("write"));
        BusyFileView {
            modes: self.modes(),
            pool: self.pool,
            file: self.file,
            path: self.path,
            reads,
            read_bytes,
            writes,
            written_bytes,
            waits: self.waits,
            contended: self.contended,
        }
    }

    fn bytes(&self) -> u64 {
        self.counts.iter().map(|counted| counted.bytes).sum()
    }

    /// Operations and bytes.
    fn sum(&self, kind: &str) -> (u64, u64) {
        let of_kind = self.counts.iter().filter(|counted| counted.kind == kind);
        of_kind.fold((0, 0), |(operations, bytes), counted| {
            (operations + counted.operations, bytes + counted.bytes)
        })
    }

    /// `buffered 75 %, direct 25 %` of the bytes.
    fn modes(&self) -> String {
        let all = self.bytes().max(1);
        let mut modes: Vec<(&str, u64)> = Vec::new();
        for counted in &self.counts {
            match modes.iter_mut().find(|(mode, _)| *mode == counted.mode) {
                Some((_, bytes)) => *bytes += counted.bytes,
                None => modes.push((&counted.mode, counted.bytes)),
            }
        }
        modes.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let shares = modes.iter().map(|(mode, bytes)| {
            let percent = 100.0 * *bytes as f64 / all as f64;
            format!("{mode} {percent:.0} %")
        });
        shares.collect::<Vec<_>>().join(", ")
    }
}

impl Busiest {
    fn text(&self) -> String {
        let mut table = Table::new([
            Column::Text("pool"),
            Column::Number("reads"),
            Column::Number("read"),
            Column::Number("writes"),
            Column::Number("written"),
            Column::Text("modes"),
            Column::Number("waits"),
            Column::Text("file"),
        ]);
        for file in &self.files {
            let ((reads, read), (writes, written)) = (file.sum("read"), file.sum("write"));
            let contended = if file.contended { " (contended)" } else { "" };
            table.row([
                file.pool.clone(),
                reads.to_string(),
                Size(read).to_string(),
                writes.to_string(),
                Size(written).to_string(),
                file.modes(),
                format!("{}{contended}", file.waits),
                file.path.clone().unwrap_or_else(|| format!("file {}", file.file)),
            ]);
        }
        if self.files.is_empty() { "no file was read or written\n".to_owned() } else { table.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(kind: &str, mode: &str, operations: u64, bytes: u64) -> Counted {
        Counted { kind: kind.to_owned(), mode: mode.to_owned(), operations, bytes }
    }

    #[test]
    fn a_row_has_sums_shares_of_modes_and_the_name() {
        let file = FileStatistics {
            pool: "pool-0".to_owned(),
            file: "0000000000000007".to_owned(),
            path: None,
            counts: vec![
                counted("read", "buffered", 2, 1024),
                counted("write", "buffered", 1, 1024),
                counted("write", "direct", 3, 6 << 10),
            ],
            waits: 9,
            contended: true,
        };
        let named = FileStatistics { path: Some("/a/b".to_owned()), ..file.clone() };
        let text = Busiest { files: vec![file, named.clone()] }.text();
        let rows: Vec<&str> = text.lines().collect();
        assert!(
            rows[1].contains("direct 75 %, buffered 25 %  9 (contended)  file 0000000000000007"),
            "{text}"
        );
        let cells: Vec<&str> = rows[2].split_whitespace().collect();
        assert_eq!(cells[..8], ["pool-0", "2", "1.0", "KiB", "4", "7.0", "KiB", "direct"], "{text}");
        assert!(rows[2].ends_with("/a/b"), "{text}");
        let view = named.view();
        assert_eq!((view.reads, view.read_bytes, view.writes, view.written_bytes), (2, 1024, 4, 7 << 10));
        assert_eq!((view.path.as_deref(), view.modes.as_str()), (Some("/a/b"), "direct 75 %, buffered 25 %"));
        assert_eq!(Busiest { files: Vec::new() }.text(), "no file was read or written\n");
    }
}
