//! `forebay namespace`: the database of names as a whole, moved, saved, restored and migrated.

pub mod location;
pub mod places;
mod report;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use ::namespace::bulk::{self, Begin, NamespaceLocation, Order, Phase, Progress};
use anyhow::{Context, Result, bail};

use crate::cli::{BackupArguments, CopyArguments, MigrateArguments, NamespaceCommand, RestoreArguments};
use crate::data_dir::SQLITE;
use crate::data_dir::{DataDir, complaint};
use crate::output;
use crate::progress::{Meter, Shown, Unit};
use crate::system::SystemClock;
use report::{BackupReport, CopyReport, MigrateReport, Problems, RestoreReport, RetakeReport, Switched};
use tokio::signal::unix::{SignalKind, signal};

pub fn run(command: &NamespaceCommand) -> Result<ExitCode> {
    match command {
        NamespaceCommand::Copy(arguments) => copy(arguments),
        NamespaceCommand::Backup(arguments) => backup(arguments),
        NamespaceCommand::Restore(arguments) => restore(arguments),
        NamespaceCommand::Migrate(arguments) => migrate(arguments),
        NamespaceCommand::Import(arguments) => crate::import::import(arguments),
        NamespaceCommand::Adopt(arguments) => crate::import::adopt(arguments),
        NamespaceCommand::Rebuild(arguments) => crate::rebuild::run(arguments),
        NamespaceCommand::Describe { place, output, progress } => {
            crate::naming::describe(place, *output, *progress)
        }
    }
}

/// Raises a meter as a bulk operation says.
struct Follower<'a> {
    meter: &'a Meter,
    phase: Option<Phase>,
}

impl Follower<'_> {
    fn new(meter: &Meter) -> Follower<'_> {
        Follower { meter, phase: None }
    }

    fn follow(&mut self, progress: Progress) {
        let Progress { phase, done, total, .. } = progress;
        if self.phase != Some(phase) {
            self.phase = Some(phase);
            match phase {
                Phase::Counting => self.meter.begin("counting rows"),
                Phase::Indexing => self.meter.begin("making indexes"),
                Phase::Checking => self.meter.begin("checking"),
                Phase::Copying => self.meter.resume("copying rows", Unit::Items, total, done),
                Phase::Migrating => self.meter.resume("migrating rows", Unit::Items, total, done),
                Phase::Verifying => self.meter.resume("comparing rows", Unit::Items, total, done),
                Phase::Saving => self.meter.resume("saving", Unit::Bytes, total, done),
                Phase::Reading => self.meter.resume("reading the backup", Unit::Bytes, total, done),
            }
        }
        self.meter.set(done);
    }
}

fn begin(start_over: bool) -> Begin {
    if start_over { Begin::Afresh } else { Begin::Resume }
}

fn copy(arguments: &CopyArguments) -> Result<ExitCode> {
    if let Some(place @ NamespaceLocation::File(_)) = location::parse(&arguments.from) {
        // A copy goes on where the backup ends, with numbers that were given since.
        bail!("{place} is a backup; use `forebay namespace restore --from FILE`");
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
        bail!(
            "--switch {}: its namespace must be in {}; give the data directory as --to",
            data.path().display(),
            data.namespace().display()
        );
    }
    let instance = known.clone().next().map(|data| data.instance);
    if let Some(other) = known.clone().find(|data| Some(data.instance) != instance) {
        bail!(
            "{} belongs to another instance; the files of this namespace are not in its pools",
            other.path().display()
        );
    }
    let order = Order { begin: begin(arguments.start_over), instance };
    let meter = Meter::new();
    let shown = Shown::of(&meter, arguments.progress);
    let mut follower = Follower::new(&meter);
    let copied = bulk::copy(&from.place, &to.place, &order, &mut |progress| follower.follow(progress))?;
    drop(shown);
    let report = CopyReport {
        from: from.place.to_string(),
        to: to.place.to_string(),
        rows: copied.rows,
        resumed: copied.resumed,
        problems: Problems::of(&copied.problems),
        switched: switched
            .map(|data| switch(data, &to.place))
            .transpose()
            .context("the copy is complete, but it is not in use")?,
    };
    output::print(arguments.output, &report, CopyReport::text)?;
    Ok(exit(&report.problems))
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
fn switch(data: &DataDir, to: &NamespaceLocation) -> Result<Switched> {
    let mut switched = Switched { data: data.path().to_owned(), kept: None, is_postgres: false };
    match to {
        NamespaceLocation::Postgres(url) => {
            data.note_database(url)?;
            switched.is_postgres = true;
            let (old, kept) = (data.namespace(), data.path().join("namespace.moved"));
            if old.exists() {
                fs::rename(&old, &kept).map_err(|error| complaint(&kept, "create", &error))?;
                switched.kept = Some(kept);
            }
        }
        NamespaceLocation::Sqlite(_) | NamespaceLocation::File(_) => data.note_database(SQLITE)?,
    }
    Ok(switched)
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
    let meter = Meter::new();
    let shown = Shown::of(&meter, arguments.progress);
    let mut follower = Follower::new(&meter);
    let saved = bulk::backup(&from, &arguments.to, instance, &mut |progress| follower.follow(progress))?;
    drop(shown);
    let problems = Problems::of(&saved.problems);
    let report =
        BackupReport { from: from.to_string(), to: arguments.to.clone(), bytes: saved.bytes, problems };
    output::print(arguments.output, &report, BackupReport::text)?;
    Ok(exit(&report.problems))
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
        let report = RetakeReport { to: to.place.to_string(), last_file: taken.files };
        output::print(arguments.output, &report, RetakeReport::text)?;
        return Ok(ExitCode::SUCCESS);
    };
    let instance = to.data.as_ref().map(|data| data.instance);
    let meter = Meter::new();
    let shown = Shown::of(&meter, arguments.progress);
    let mut follower = Follower::new(&meter);
    let begin = begin(arguments.start_over);
    let restored = bulk::restore(from, &to.place, instance, begin, &SystemClock::new(), &mut |progress| {
        follower.follow(progress)
    })?;
    drop(shown);
    if !restored.is_verified {
        eprintln!(
            "warning: {} has no digest, like backups of older versions; it cannot be verified",
            from.display()
        );
    }
    let report = RestoreReport {
        from: from.clone(),
        to: to.place.to_string(),
        rows: restored.rows,
        resumed: restored.resumed,
        verified: restored.is_verified,
        problems: Problems::of(&restored.problems),
    };
    output::print(arguments.output, &report, RestoreReport::text)?;
    Ok(exit(&report.problems))
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
    let mut report = MigrateReport::of(&place, &bulk::plan(&place)?);
    if !arguments.output.json {
        output::print_text(&report.plan())?;
    }
    if !report.steps.is_empty() && !arguments.dry_run {
        let meter = Meter::new();
        let _shown = Shown::of(&meter, arguments.progress);
        let mut follower = Follower::new(&meter);
        report.known = bulk::migrate(&place, &mut |progress| follower.follow(progress))?.known;
        report.migrated = true;
    }
    output::print(arguments.output, &report, MigrateReport::outcome)?;
    Ok(ExitCode::SUCCESS)
}

fn exit(problems: &Problems) -> ExitCode {
    if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{OutputArguments, ProgressArguments};

    #[test]
    fn a_backup_is_restored_and_not_copied() {
        let arguments = CopyArguments {
            from: "file:/backup".to_owned(),
            to: "sqlite:/nowhere".to_owned(),
            switch: None,
            start_over: false,
            output: OutputArguments::default(),
            progress: ProgressArguments::default(),
        };
        let error = copy(&arguments).unwrap_err().to_string();
        assert!(error.contains("forebay namespace restore"), "{error}");
    }
}
