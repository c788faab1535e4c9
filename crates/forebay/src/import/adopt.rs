//! `forebay namespace adopt`: files that are there get a second name in a pool, and the tree becomes a namespace.
//!
//! First everything is looked at, so that what cannot be adopted is told before anything is done. Then files are linked,
//! all of that is synced, and the namespace appears. Then, since it has the modes, owners get the right to read and write
//! their files, as the server will. Last, if asked for, the old names go. Killed before the namespace is there, it is begun
//! again with the same command; killed later, the same command takes away the names that are left.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::namespace::import::{Import, ImportError, Made, Placed, What};
use anyhow::{Context, Result, bail};
use pool::{Adoption, Identity};
use serde::Serialize;
use types::PoolId;

use super::walk::{Step, Walk};
use super::{AdoptArguments, Report, Target, place_of, require_new};
use crate::data_dir::SQLITE;
use crate::data_dir::{DataDir, complaint};
use crate::output::{self, counted};
use crate::progress::{Meter, Shown};
use crate::system::SystemRandom;

const POOL: u32 = 0;

pub fn adopt(arguments: &AdoptArguments) -> Result<ExitCode> {
    let tree = arguments.tree.canonicalize().map_err(|error| complaint(&arguments.tree, "open", &error))?;
    let data = DataDir::open(&arguments.data, None, &SystemRandom)?;
    let is_done = is_done(&data)?;
    if is_done {
        data.database(arguments.namespace.as_deref().unwrap_or(SQLITE))?;
    } else {
        require_new(&data)?;
    }
    if data.is_recorded(POOL) && !(is_done && arguments.takes_names) {
        bail!("{} has pools already; a tree is adopted into a new data directory", data.path().display());
    }
    let place = place_of(&data, arguments.namespace.as_deref())?;
    let pool = prepare_pool(&data, arguments.pool.as_deref())?;
    require_one_file_system(&tree, &pool)?;
    let except = [place_on_disk(&pool)?, place_on_disk(data.path())?];
    if except.contains(&place_on_disk(&tree)?) {
        bail!("--tree {} is the data directory or the pool", tree.display());
    }
    let meter = Meter::new();
    let shown = Shown::of(&meter, arguments.progress);
    let total = survey(&tree, &except, &meter)?;

    let adoption = Adoption::begin(&pool, &Identity { pool: PoolId(POOL), instance: data.instance })?;
    let mut report = AdoptReport { to: place.to_string(), tree: tree.clone(), ..AdoptReport::default() };
    let is_recorded = data.is_recorded(POOL);
    let target = Target { place, data: Some(data) };
    if !is_done {
        report.made = Some(make(&target, arguments, &adoption, &tree, &except, (total, &meter))?);
    }
    if !is_recorded {
        report.access_given = give_access(&adoption, &tree, &except, (total, &meter))?;
        target.record_pools()?;
    }
    report.is_unchecked = is_done && !is_recorded;
    if arguments.takes_names && !report.is_unchecked {
        report.names_removed = Some(take_names(&adoption, &tree, &except, (total, &meter))?);
    }
    drop(shown);
    output::print(arguments.output, &report, |report| report.text(arguments))?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Default, Serialize)]
struct AdoptReport {
    /// Without the password of a URL.
    to: String,
    tree: PathBuf,
    /// `None`: an earlier attempt made the namespace.
    made: Option<Report>,
    /// An earlier attempt was broken off before its check.
    #[serde(rename = "unchecked")]
    is_unchecked: bool,
    /// Files whose owner may read and write them since, as the server has to.
    access_given: u64,
    /// Names of files that were removed in the tree; `None`: they stay.
    names_removed: Option<u64>,
}

impl AdoptReport {
    fn text(&self, arguments: &AdoptArguments) -> String {
        let (to, tree) = (&self.to, self.tree.display());
        if self.is_unchecked {
            return format!(
                "{to} has the tree from an attempt that was interrupted during its check; `forebay fsck` checks it. No \
                 name was removed in the tree; the same command with --move does that\n"
            );
        }
        let mut text = match &self.made {
            None => format!("{to} has the tree from an earlier run\n"),
            Some(made) => made.text(),
        };
        if self.access_given > 0 {
            let files = counted(self.access_given, "file", "files");
            text += &format!(
                "the owner of {files} may read and write them now; the namespace has their former modes\n"
            );
        }
        text += &match self.names_removed {
            Some(gone) => {
                let removed = counted(gone, "name was", "names were");
                format!("{removed} removed in {tree}; its directories and symbolic links are left\n")
            }
            None => format!(
                "the names in {tree} lead to the same files; programs that write there bypass Forebay\n"
            ),
        };
        let on = on(arguments.namespace.as_deref());
        text + &format!("start it with: forebay up --data {}{on}\n", arguments.data.display())
    }
}

/// Links all files and makes the namespace.
fn make(
    target: &Target,
    arguments: &AdoptArguments,
    adoption: &Adoption,
    tree: &Path,
    except: &[(u64, u64)],
    (total, meter): (u64, &Meter),
) -> Result<Report> {
    // Files that an earlier attempt has linked keep their numbers.
    let options = target.options(&arguments.under, adoption.highest().0 + 1);
    let mut import = Import::begin(&target.place, &options)?;
    let made = link_all(&mut import, adoption, tree, except, (total, meter))?;
    meter.begin("syncing the pool");
    adoption.sync()?;
    meter.begin("indexing and checking");
    import.finish()?;
    target.record()?;
    Ok(Report::of(&made, &target.place))
}

/// The namespace is in place, and the pool is this instance's: an earlier attempt came to the names.
fn is_done(data: &DataDir) -> Result<bool> {
    let is_in_place = data.namespace().join("namespace.db").exists() || data.noted_database()?.is_some();
    let ours = Identity { pool: PoolId(POOL), instance: data.instance };
    Ok(is_in_place && Identity::read(&data.pool(POOL))? == Some(ours))
}

/// Without the URL, which may hold a password.
fn on(namespace: Option<&str>) -> &'static str {
    match namespace {
        None | Some(SQLITE) => "",
        Some(_) => " --namespace URL",
    }
}

/// The directory that a pool is made in. One that is elsewhere is reached by a link in the place of the first pool.
fn prepare_pool(data: &DataDir, elsewhere: Option<&Path>) -> Result<PathBuf> {
    let usual = data.pool(POOL);
    let Some(elsewhere) = elsewhere else {
        make_private(&usual)?;
        return Ok(usual);
    };
    make_private(elsewhere)?;
    let elsewhere = elsewhere.canonicalize().map_err(|error| complaint(elsewhere, "open", &error))?;
    let pools = usual.parent().unwrap_or(&usual);
    make_private(pools)?;
    match symlink(&elsewhere, &usual) {
        Ok(()) => Ok(elsewhere),
        Err(_) if usual.canonicalize().is_ok_and(|there| there == elsewhere) => Ok(elsewhere),
        Err(error) => Err(complaint(&usual, "create", &error)),
    }
}

fn make_private(dir: &Path) -> Result<()> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| complaint(dir, "create", &error))
}

fn place_on_disk(path: &Path) -> Result<(u64, u64)> {
    let facts = fs::metadata(path).map_err(|error| complaint(path, "read", &error))?;
    Ok((facts.dev(), facts.ino()))
}

fn require_one_file_system(tree: &Path, pool: &Path) -> Result<()> {
    if place_on_disk(tree)?.0 != place_on_disk(pool)?.0 {
        bail!(
            "the pool {} and the tree {} are on different file systems, and files cannot be linked between them; give \
             --pool a new directory on the file system of the tree",
            pool.display(),
            tree.display()
        );
    }
    Ok(())
}

/// How many regular files' names there are.
fn survey(tree: &Path, except: &[(u64, u64)], meter: &Meter) -> Result<u64> {
    let (mut walk, mut files) = (Walk::new(tree, except)?, 0);
    meter.begin_items("finding files", None);
    while let Some(Step { entry, .. }) = walk.step()? {
        files += u64::from(matches!(entry.what, What::Regular { .. }));
        meter.set(files);
    }
    Ok(files)
}

fn link_all(
    import: &mut Import,
    adoption: &Adoption,
    tree: &Path,
    except: &[(u64, u64)],
    (total, meter): (u64, &Meter),
) -> Result<Made> {
    let mut walk = Walk::new(tree, except)?;
    meter.begin_items("linking files", Some(total));
    while let Some(Step { path, seen, entry }) = walk.step()? {
        let place = &mut |file| match adoption.take(&path, seen, file) {
            Ok(file) => Ok(Placed { file, pool: Some(PoolId(POOL)) }),
            Err(error) => Err(error.to_string()),
        };
        import.add(&entry, place).map_err(|error| match error {
            ImportError::Refused(reason) => {
                anyhow::anyhow!(
                    "cannot adopt {}: {reason}. No namespace was created; correct this and run the command again",
                    tree.display()
                )
            }
            other => other.into(),
        })?;
        meter.add(u64::from(matches!(entry.what, What::Regular { .. })));
    }
    Ok(import.made())
}

/// Lets owners read and write their files, as the server will. How many could not.
fn give_access(
    adoption: &Adoption,
    tree: &Path,
    except: &[(u64, u64)],
    (total, meter): (u64, &Meter),
) -> Result<u64> {
    let mut walk = Walk::new(tree, except)?;
    meter.begin_items("looking at permissions", Some(total));
    let mut given = 0;
    while let Some(Step { path, seen, entry }) = walk.step()? {
        if matches!(entry.what, What::Regular { .. }) {
            let is_given = adoption.give_access(&path, seen);
            let is_given = is_given
                .with_context(|| format!("cannot let the owner read and write {}", path.display()))?;
            given += u64::from(is_given);
            meter.add(1);
        }
    }
    if given > 0 {
        adoption.sync()?;
    }
    Ok(given)
}

fn take_names(
    adoption: &Adoption,
    tree: &Path,
    except: &[(u64, u64)],
    (total, meter): (u64, &Meter),
) -> Result<u64> {
    let mut walk = Walk::new(tree, except)?;
    meter.begin_items("removing names", Some(total));
    let mut gone = 0;
    while let Some(Step { path, seen, entry }) = walk.step()? {
        if matches!(entry.what, What::Regular { .. }) {
            let is_gone = adoption.release(&path, seen);
            let is_gone = is_gone.with_context(|| format!("cannot remove the name {}", path.display()))?;
            gone += u64::from(is_gone);
            meter.set(gone);
        }
    }
    Ok(gone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{OutputArguments, ProgressArguments};

    #[test]
    fn an_adoption_that_was_killed_after_the_namespace_is_finished_by_the_same_command() {
        let scratch = tempfile::tempdir().unwrap();
        let (tree, data) = (scratch.path().join("tree"), scratch.path().join("data"));
        fs::create_dir_all(tree.join("d")).unwrap();
        for name in ["a", "d/b"] {
            fs::write(tree.join(name), name).unwrap();
        }
        let arguments = |takes_names| AdoptArguments {
            tree: tree.clone(),
            data: data.clone(),
            pool: None,
            namespace: None,
            under: "/".to_owned(),
            takes_names,
            output: OutputArguments::default(),
            progress: ProgressArguments::default(),
        };
        adopt(&arguments(false)).unwrap();
        assert!(adopt(&arguments(false)).unwrap_err().to_string().contains("has pools already"));
        // Killed before the pool was recorded: nobody knows whether the namespace is sound.
        let instance = data.join("instance.json");
        let text = fs::read_to_string(&instance).unwrap();
        fs::write(&instance, text.replace("\"pools\": 1", "\"pools\": 0")).unwrap();
        adopt(&arguments(true)).unwrap();
        assert!(tree.join("a").exists());
        // Killed among the names.
        fs::remove_file(tree.join("a")).unwrap();
        fs::write(tree.join("new"), "is in no pool").unwrap();
        adopt(&arguments(true)).unwrap();
        assert!(!tree.join("d/b").exists() && tree.join("new").exists());
    }
}
