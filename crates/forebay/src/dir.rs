//! `forebay dir`: creates directories, and sets and shows their consistency and mode of I/O, on a running instance or a
//! stopped one.

pub mod create;
mod set;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use api::{Directories, Namespace};
use namespace::SqlNamespace;
use serde::{Deserialize, Serialize};
use types::{FileId, Identity, IoMode, Name};

use crate::cli::{DirCommand, InstanceArguments, ProgressArguments};
use crate::control::Request;
use crate::instance::ask_or_open;
use crate::output;
use crate::progress::Meter;
use crate::questions::{DirectoryQuestion, DirectorySetting};
use set::Setting;

#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    path: String,
    /// The setting of the directory itself.
    own: Option<String>,
    /// The effective consistency.
    consistency: String,
    /// The mode of I/O of what is created in it.
    io: String,
    /// Directories and files for which it was set.
    changed: u64,
}

pub fn run(command: &DirCommand) -> Result<ExitCode> {
    match command {
        DirCommand::Create(arguments) => create::run(arguments)?,
        DirCommand::SetConsistency(arguments) => {
            let set = Some(DirectorySetting::Consistency(arguments.mode));
            let (path, recursive) = (arguments.path.clone(), arguments.recursive);
            let question = DirectoryQuestion { path, set, recursive };
            let report = ask(&arguments.place, question, arguments.progress)?;
            output::print(arguments.output, &report, Report::text_of_consistency)?;
        }
        DirCommand::SetIo(arguments) => {
            let set = Some(DirectorySetting::Io(arguments.mode));
            let (path, recursive) = (arguments.path.clone(), arguments.recursive);
            let question = DirectoryQuestion { path, set, recursive };
            let report = ask(&arguments.place, question, arguments.progress)?;
            output::print(arguments.output, &report, Report::text_of_io)?;
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
        self.text_of_consistency() + &self.text_of_io()
    }

    fn text_of_consistency(&self) -> String {
        let whence = if self.own.is_some() { "set for it" } else { "as namespace.consistency says" };
        let mut text = format!("{}: consistency {} ({whence})\n", self.path, self.consistency);
        if self.changed > 1 {
            text += &format!("set for {} directories\n", self.changed);
        }
        text
    }

    fn text_of_io(&self) -> String {
        let whence = if self.io == IoMode::Auto.name() { "as pools.io says" } else { "set for it" };
        let mut text = format!("{}: I/O {} ({whence})\n", self.path, self.io);
        if self.changed > 1 {
            text += &format!("set for {} directories and files\n", self.changed);
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
    // Of what is no directory nothing is set.
    namespace.consistency(dir).await.with_context(|| path.clone())?;
    let changed = match question.set.map(Setting::from) {
        None => 0,
        Some(setting) => setting.apply_to_tree(namespace, dir, question.recursive, meter).await?,
    };
    let own = namespace.consistency(dir).await.with_context(|| path.clone())?;
    let consistency = own.unwrap_or_else(|| namespace.default_consistency()).name().to_owned();
    let io = namespace.attributes(dir).await.with_context(|| path.clone())?.io.name().to_owned();
    let own = own.map(|mode| mode.name().to_owned());
    Ok(Report { path: path.clone(), own, consistency, io, changed })
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
