//! `forebay namespace`: the database of names as a whole, moved, saved, restored and migrated.

pub mod location;
pub mod places;
mod progress;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use ::namespace::Problem;
use ::namespace::bulk::{self, Begin, NamespaceLocation, Order};
use anyhow::{Result, bail};

use crate::cli::{BackupArguments, CopyArguments, MigrateArguments, NamespaceCommand, RestoreArguments};
use crate::data_dir::SQLITE;
use crate::data_dir::{DataDir, complaint};
use crate::system::SystemClock;
use progress::Teller;
use tokio::signal::unix::{SignalKind, signal};
use types::display::Size;

/// More are not told: the check is there for that.
const PROBLEMS_TOLD: usize = 10;

pub fn run(command: &NamespaceCommand) -> Result<ExitCode> {
    match command {
        NamespaceCommand::Copy(arguments) => copy(arguments),
        NamespaceCommand::Backup(arguments) => backup(arguments),
        NamespaceCommand::Restore(arguments) => restore(arguments),
        NamespaceCommand::Migrate(arguments) => migrate(arguments),
        NamespaceCommand::Import(arguments) => crate::import::import(arguments),
        NamespaceCommand::Adopt(arguments) => crate::import::adopt(arguments),
        NamespaceCommand::Rebuild(arguments) => crate::rebuild::run(arguments),
        NamespaceCommand::Describe { place } => crate::naming::describe(place),
    }
}

fn begin(start_over: bool) -> Begin {
    if start_over { Begin::Afresh } else { Begin::Resume }
}

fn copy(arguments: &CopyArguments) -> Result<ExitCode> {
    if let Some(place @ NamespaceLocation::File(_)) = location::parse(&arguments.from) {
        // A copy goes on where the backup ends, with numbers that were given since.
        bail!(
            "{place} is a backup; use `forebay namespace restore --from FILE`, which goes on above what came after it"
        );
    }
    let (from, to) = (places::open(&arguments.from)?, places::open(&arguments.to)?);
    refuse_elsewhere(from.data.as_ref(), "--from")?;
    let opened = match &arguments.switch {
        Some(path) if !is_of(path, from.data.as_ref()) && !is_of(path, to.data.as_ref()) => {
            Some(places::open_data(path)?)
        }
        _ => None,
    };
    let known = [&opened, &from.data, &to.data].into_iter().flatten();
    let switched =
        arguments.switch.as_ref().and_then(|path| known.clone().find(|data| is_of(path, Some(*data))));
    if let (Some(data), NamespaceLocation::Sqlite(dir)) = (switched, &to.place)
        && *dir != data.namespace()
    {
        bail!("{} has its namespace in {}: copy it there", data.path().display(), data.namespace().display());
    }
    let instance = known.clone().next().map(|data| data.instance);
    if let Some(other) = known.clone().find(|data| Some(data.instance) != instance) {
        bail!(
            "{} is another instance: the files of this namespace are not in its pools",
            other.path().display()
        );
    }
    let order = Order { begin: begin(arguments.start_over), instance };
    let mut teller = Teller::new();
    let copied = bulk::copy(&from.place, &to.place, &order, &mut |progress| teller.tell(progress))?;
    drop(teller);
    println!("{} rows are in {}, the same as in {}", copied.rows, to.place, from.place);
    if copied.resumed > 0 {
        println!("{} of them were there from an earlier attempt", copied.resumed);
    }
    tell_problems(&copied.problems);
    if let Some(data) = switched {
        switch(data, &to.place)?;
    }
    Ok(exit(&copied.problems))
}

/// A data directory is named whose namespace is in PostgreSQL.
fn refuse_elsewhere(data: Option<&DataDir>, option: &str) -> Result<()> {
    let Some(data) = data else { return Ok(()) };
    match data.noted_database()? {
        Some(noted) => {
            bail!("the namespace of {} is in {noted}: give its URL with {option}", data.path().display())
        }
        None => Ok(()),
    }
}

fn is_of(path: &Path, data: Option<&DataDir>) -> bool {
    data.is_some_and(|data| path.canonicalize().is_ok_and(|path| path == data.path()))
}

/// Keeps the old database under another name. The note is written first, so that a head always finds a database.
fn switch(data: &DataDir, to: &NamespaceLocation) -> Result<()> {
    match to {
        NamespaceLocation::Postgres(url) => {
            data.note_database(url)?;
            let (old, kept) = (data.namespace(), data.path().join("namespace.moved"));
            if old.exists() {
                fs::rename(&old, &kept).map_err(|error| complaint(&kept, "make", &error))?;
                println!("what {} had is in {}", data.path().display(), kept.display());
            }
            println!(
                "start it with that URL as --namespace, or as namespace.database in its configuration file"
            );
        }
        NamespaceLocation::Sqlite(_) | NamespaceLocation::File(_) => {
            data.note_database(SQLITE)?;
            println!(
                "{} has its namespace in its own SQLite: start it without --namespace",
                data.path().display()
            );
        }
    }
    Ok(())
}

fn backup(arguments: &BackupArguments) -> Result<ExitCode> {
    let (from, instance) = match arguments.from.as_deref() {
        None => {
            places::of_data(&arguments.place.config()?).map(|(place, instance)| (place, Some(instance)))?
        }
        Some(text) => match location::parse(text) {
            Some(place) => (place, None),
            None => bail!(
                "{text} is neither sqlite:DIR nor postgres://user@host/database; a data directory is given with --data"
            ),
        },
    };
    discard_when_stopped(&arguments.to)?;
    let mut teller = Teller::new();
    let saved = bulk::backup(&from, &arguments.to, instance, &mut |progress| teller.tell(progress))?;
    drop(teller);
    println!("{} is saved in {}, {}", from, arguments.to.display(), Size(saved.bytes));
    tell_problems(&saved.problems);
    Ok(exit(&saved.problems))
}

/// Removes an unfinished file when the process is told to stop, or its terminal is closed.
fn discard_when_stopped(to: &Path) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _in_runtime = runtime.enter();
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut hangup = if outlives_terminal() { None } else { Some(signal(SignalKind::hangup())?) };
    drop(_in_runtime);
    let to = to.to_owned();
    std::thread::Builder::new().name("backup-stop".to_owned()).spawn(move || {
        runtime.block_on(async {
            let closed = async {
                match &mut hangup {
                    Some(hangup) => hangup.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = closed => {}
            }
        });
        if let Err(error) = bulk::discard_unfinished_backup(&to) {
            eprintln!("forebay: {error}");
        }
        std::process::exit(1);
    })?;
    Ok(())
}

/// Somebody said so before it was started (nohup): bit 0 of `SigIgn` is SIGHUP.
fn outlives_terminal() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 != 0)
}

fn restore(arguments: &RestoreArguments) -> Result<ExitCode> {
    let to = places::open(&arguments.to)?;
    refuse_elsewhere(to.data.as_ref(), "--to")?;
    let Some(from) = &arguments.from else {
        let taken = bulk::retake(&to.place, &SystemClock::new())?;
        println!("the namespace in {} is taken as it is; file ids go on above {}", to.place, taken.files);
        println!("what it lacks is lost; `forebay fsck` compares it with the pools");
        return Ok(ExitCode::SUCCESS);
    };
    let instance = to.data.as_ref().map(|data| data.instance);
    let mut teller = Teller::new();
    let begin = begin(arguments.start_over);
    let restored = bulk::restore(from, &to.place, instance, begin, &SystemClock::new(), &mut |progress| {
        teller.tell(progress)
    })?;
    drop(teller);
    if !restored.is_verified {
        eprintln!(
            "warning: {} has no digest, as backups of older programs: whether it is what was saved is not known",
            from.display()
        );
    }
    println!("{} rows are in {}, as {} has them", restored.rows, to.place, from.display());
    println!("what happened after the backup is not in it; `forebay fsck` compares it with the pools");
    tell_problems(&restored.problems);
    Ok(exit(&restored.problems))
}

fn migrate(arguments: &MigrateArguments) -> Result<ExitCode> {
    let place = match arguments.at.as_deref() {
        None => places::of_data(&arguments.place.config()?)?.0,
        Some(text) => match location::parse(text) {
            Some(place) => place,
            None => bail!(
                "{text} is none of sqlite:DIR, file:FILE, postgres://user@host/database; a data directory is given with --data"
            ),
        },
    };
    let plan = bulk::plan(&place)?;
    println!("{place} has schema version {}, this program knows {}", plan.found, plan.known);
    for step in &plan.steps {
        println!("{}: {} ({} rows are read or written)", step.version, step.what, step.rows);
    }
    if plan.steps.is_empty() {
        println!("nothing is to be done");
    } else if arguments.dry_run {
        println!("nothing was changed");
    } else {
        let done = bulk::migrate(&place)?;
        println!("schema version {} is in place", done.known);
    }
    Ok(ExitCode::SUCCESS)
}

fn tell_problems(problems: &[Problem]) {
    if problems.is_empty() {
        println!("the check finds nothing wrong");
        return;
    }
    println!("the check finds {} problems, see `forebay fsck`:", problems.len());
    for problem in problems.iter().take(PROBLEMS_TOLD) {
        println!("  {problem}");
    }
}

fn exit(problems: &[Problem]) -> ExitCode {
    if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_is_restored_and_not_copied() {
        let arguments = CopyArguments {
            from: "file:/backup".to_owned(),
            to: "sqlite:/nowhere".to_owned(),
            switch: None,
            start_over: false,
        };
        let error = copy(&arguments).unwrap_err().to_string();
        assert!(error.contains("forebay namespace restore"), "{error}");
    }
}
