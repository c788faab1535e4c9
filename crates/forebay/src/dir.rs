//! `forebay dir`: creates directories, and sets and shows their consistency, on a running instance or a stopped one.

pub mod create;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use api::{Account, Consistency, Cookie, Directories, Namespace, NamespaceError, Quotas};
use namespace::SqlNamespace;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use types::{FileId, Identity, Name};

use crate::cli::{ConsistencyArgument, DirCommand, InstanceArguments, ProgressArguments};
use crate::control::Request;
use crate::instance::ask_or_open;
use crate::output;
use crate::progress::Meter;
use crate::questions::DirectoryQuestion;

/// Directories that are changed at the same time, so that they share a commit.
const CHANGES_MAX: usize = 64;
/// Entries asked for at once.
const PAGE_LEN: usize = 1000;

#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    path: String,
    /// The setting of the directory itself.
    own: Option<String>,
    /// The effective consistency.
    consistency: String,
    /// Directories for which it was set.
    changed: u64,
}

pub fn run(command: &DirCommand) -> Result<ExitCode> {
    match command {
        DirCommand::Create(arguments) => create::run(arguments)?,
        DirCommand::SetConsistency(arguments) => {
            let (path, set, recursive) = (arguments.path.clone(), Some(arguments.mode), arguments.recursive);
            let question = DirectoryQuestion { path, set, recursive };
            let report = ask(&arguments.place, question, arguments.progress)?;
            output::print(arguments.output, &report, Report::text)?;
        }
        DirCommand::Show(arguments) => {
            let question = DirectoryQuestion { path: arguments.path.clone(), set: None, recursive: false };
            let report = ask(&arguments.place, question, ProgressArguments::default())?;
            output::print(arguments.output, &report, Report::text)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Report {
    fn text(&self) -> String {
        let whence = if self.own.is_some() { "set for it" } else { "as namespace.consistency says" };
        let mut text = format!("{}: consistency {} ({whence})\n", self.path, self.consistency);
        if self.changed > 1 {
            text += &format!("set for {} directories\n", self.changed);
        }
        text
    }
}

fn ask(
    place: &InstanceArguments,
    question: DirectoryQuestion,
    progress: ProgressArguments,
) -> Result<Report> {
    let request = Request::Directory(question.clone());
    ask_or_open(place, request, progress, async |namespace, meter| answer(namespace, &question, meter).await)
}

pub async fn answer(
    namespace: &Arc<SqlNamespace>,
    question: &DirectoryQuestion,
    meter: &Meter,
) -> Result<Report> {
    let path = &question.path;
    let dir = find(namespace, path).await.with_context(|| path.clone())?;
    let changed = match question.set {
        None => 0,
        Some(mode) => set(namespace, dir, mode_of(mode), question.recursive, meter).await?,
    };
    let own = namespace.consistency(dir).await.with_context(|| path.clone())?;
    let consistency = own.unwrap_or_else(|| namespace.default_consistency()).name().to_owned();
    Ok(Report { path: path.clone(), own: own.map(|mode| mode.name().to_owned()), consistency, changed })
}

fn mode_of(argument: ConsistencyArgument) -> Option<Consistency> {
    match argument {
        ConsistencyArgument::Strong => Some(Consistency::Strong),
        ConsistencyArgument::Weak => Some(Consistency::Weak),
        ConsistencyArgument::Soft => Some(Consistency::Soft),
        ConsistencyArgument::Auto => Some(Consistency::Auto),
        ConsistencyArgument::Inherit => None,
    }
}

pub async fn find(namespace: &SqlNamespace, path: &str) -> Result<FileId> {
    let mut at = FileId::ROOT;
    for name in names(path)? {
        at = namespace.lookup(&Identity::root(), at, &name).await?.entry.file;
    }
    Ok(at)
}

/// The names in a path from the root of the namespace.
pub fn names(path: &str) -> Result<Vec<Name>> {
    let parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
    let names = parts.map(|part| match part {
        ".." => bail!("path may not have .. in it"),
        part => Ok(Name::new(part.as_bytes())?),
    });
    names.collect()
}

/// How many directories it was set for. One that goes meanwhile is none; one that comes meanwhile inherits it, for each is
/// listed after it was set.
async fn set(
    namespace: &Arc<SqlNamespace>,
    top: FileId,
    mode: Option<Consistency>,
    recursive: bool,
    meter: &Meter,
) -> Result<u64> {
    namespace.set_consistency(top, mode).await?;
    if recursive {
        let below = namespace.counted(Account::tree(top)).await?.directories;
        meter.begin_items("setting directories", u64::try_from(below + 1).ok());
    }
    let (mut changed, mut found, mut changing) = (1, vec![top], JoinSet::new());
    while recursive && !(found.is_empty() && changing.is_empty()) {
        let Some(dir) = found.pop() else {
            found.extend(next(&mut changing, &mut changed).await?);
            continue;
        };
        meter.set(changed);
        let mut after = Cookie::START;
        loop {
            let page = match namespace.list(&Identity::root(), dir, after, PAGE_LEN).await {
                Err(NamespaceError::Stale(_)) => break,
                page => page?,
            };
            for entry in page.entries.iter().filter(|entry| entry.attributes.kind.is_directory()) {
                let (namespace, below) = (Arc::clone(namespace), entry.attributes.file);
                changing.spawn(async move { namespace.set_consistency(below, mode).await.map(|()| below) });
                if changing.len() >= CHANGES_MAX {
                    found.extend(next(&mut changing, &mut changed).await?);
                }
            }
            match page.entries.last() {
                Some(last) if !page.is_last => after = last.cookie,
                _ => break,
            }
        }
    }
    Ok(changed)
}

/// The next directory for which it is set.
async fn next(
    changing: &mut JoinSet<Result<FileId, NamespaceError>>,
    changed: &mut u64,
) -> Result<Option<FileId>> {
    match changing.join_next().await.transpose()?.transpose() {
        Ok(dir) => {
            *changed += u64::from(dir.is_some());
            Ok(dir)
        }
        Err(NamespaceError::Stale(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
