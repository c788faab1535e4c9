//! Reports of `forebay namespace`, for people and for programs. Places are told without the passwords of URLs.

use std::path::{Path, PathBuf};

use ::namespace::Problem;
use ::namespace::bulk::{NamespaceLocation, Plan};
use serde::Serialize;
use types::display::Size;

use crate::output::counted;
use crate::table::{Column, Table};

/// More are not told: `forebay fsck` is there for that.
const PROBLEMS_TOLD: usize = 10;

#[derive(Serialize)]
pub struct CopyReport {
    pub from: String,
    pub to: String,
    pub rows: u64,
    /// Of them, the rows of an earlier attempt.
    pub resumed: u64,
    pub problems: Problems,
    pub switched: Option<Switched>,
}

/// A data directory that uses the copy from now on.
#[derive(Serialize)]
pub struct Switched {
    pub data: PathBuf,
    /// The former namespace, if there is one.
    pub kept: Option<PathBuf>,
    #[serde(skip)]
    pub is_postgres: bool,
}

#[derive(Serialize)]
pub struct BackupReport {
    pub from: String,
    pub to: PathBuf,
    pub bytes: u64,
    pub problems: Problems,
}

#[derive(Serialize)]
pub struct RestoreReport {
    pub from: PathBuf,
    pub to: String,
    pub rows: u64,
    pub resumed: u64,
    /// The digest of the backup was compared.
    pub verified: bool,
    pub problems: Problems,
}

#[derive(Serialize)]
pub struct RetakeReport {
    pub to: String,
    /// Ids of new files are above it.
    pub last_file: u64,
}

#[derive(Serialize)]
pub struct MigrateReport {
    pub at: String,
    /// Versions of the schema.
    pub found: u32,
    pub known: u32,
    pub steps: Vec<StepReport>,
    pub migrated: bool,
}

#[derive(Serialize)]
pub struct StepReport {
    pub version: u32,
    pub rows: u64,
    pub what: &'static str,
}

/// Problems that the check of a namespace found.
#[derive(Serialize)]
#[serde(transparent)]
pub struct Problems(Vec<String>);

impl Problems {
    pub fn of(found: &[Problem]) -> Problems {
        Problems(found.iter().map(ToString::to_string).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn text(&self) -> String {
        if self.is_empty() {
            return "the check found no problems\n".to_owned();
        }
        let problems = counted(self.0.len() as u64, "problem", "problems");
        let mut text = format!("the check found {problems} (`forebay fsck` lists all of them):\n");
        for problem in self.0.iter().take(PROBLEMS_TOLD) {
            text += &format!("  {problem}\n");
        }
        text
    }
}

impl CopyReport {
    pub fn text(&self) -> String {
        let CopyReport { from, to, rows, resumed, problems, switched } = self;
        let mut text = format!("copied {from} to {to}: {rows} rows, which are the same in both\n");
        if *resumed > 0 {
            text += &format!("{resumed} of them are from an earlier attempt\n");
        }
        text += &problems.text();
        text + &switched.as_ref().map(Switched::text).unwrap_or_default()
    }
}

impl Switched {
    fn text(&self) -> String {
        let data = self.data.display();
        if !self.is_postgres {
            return format!("{data} uses its own SQLite now; start the server without --namespace\n");
        }
        let kept = self.kept.as_deref().map(Path::display);
        let kept =
            kept.map(|kept| format!("the former namespace of {data} is in {kept}\n")).unwrap_or_default();
        kept + "start the server with that URL as --namespace, or as namespace.database in its configuration\n"
    }
}

impl BackupReport {
    pub fn text(&self) -> String {
        let BackupReport { from, to, bytes, problems } = self;
        format!("saved {from} in {}, {}\n", to.display(), Size(*bytes)) + &problems.text()
    }
}

impl RestoreReport {
    pub fn text(&self) -> String {
        let from = self.from.display();
        format!("restored {from} to {}: {} rows\n", self.to, self.rows)
            + "it lacks the changes after the backup; `forebay fsck` compares it with the pools\n"
            + &self.problems.text()
    }
}

impl RetakeReport {
    pub fn text(&self) -> String {
        let RetakeReport { to, last_file } = self;
        format!("the namespace in {to} is accepted as it is; new files get numbers above {last_file}\n")
            + "the changes that it lacks are lost; `forebay fsck` compares it with the pools\n"
    }
}

impl MigrateReport {
    pub fn of(place: &NamespaceLocation, plan: &Plan) -> MigrateReport {
        let Plan { found, known, steps } = plan;
        let step = |step: &::namespace::bulk::Step| {
            let ::namespace::bulk::Step { version, what, rows } = *step;
            StepReport { version, rows, what }
        };
        let (found, known, steps) = (*found, *known, steps.iter().map(step).collect());
        MigrateReport { at: place.to_string(), found, known, steps, migrated: false }
    }

    /// Before anything is changed.
    pub fn plan(&self) -> String {
        let MigrateReport { at, found, known, steps, .. } = self;
        let told = format!("{at} has schema version {found}; this program has version {known}\n");
        if steps.is_empty() {
            return told;
        }
        let mut table = Table::new([Column::Number("version"), Column::Number("rows"), Column::Text("step")]);
        for StepReport { version, rows, what } in steps {
            table.row([version.to_string(), rows.to_string(), (*what).to_owned()]);
        }
        told + &table.to_string()
    }

    pub fn outcome(&self) -> String {
        match (self.steps.is_empty(), self.migrated) {
            (true, _) => "nothing to do\n".to_owned(),
            (_, false) => "nothing was changed\n".to_owned(),
            (_, true) => format!("the schema has version {} now\n", self.known),
        }
    }
}
