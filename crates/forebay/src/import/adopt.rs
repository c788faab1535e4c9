//! `forebay namespace adopt`: files that are there get a second name in a pool, and the tree becomes a namespace.
//!
//! First everything is looked at, so that what cannot be adopted is told before anything is done. Then files are linked,
//! all of that is synced, the namespace appears, and last, if asked for, the old names go. Killed before the namespace is
//! there, it is begun again with the same command; killed later, the same command takes away the names that are left.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::namespace::import::{Import, ImportError, Made, Placed, What};
use anyhow::{Context, Result, bail};
use pool::{Adoption, Identity};
use types::PoolId;

use super::ticker::Ticker;
use super::walk::{Step, Walk};
use super::{AdoptArguments, Target, place_of, require_new, tell};
use crate::data_dir::SQLITE;
use crate::data_dir::{DataDir, complaint};
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
        bail!("{} is the data directory or the pool itself", tree.display());
    }
    let total = survey(&tree, &except)?;

    let adoption = Adoption::begin(&pool, &Identity { pool: PoolId(POOL), instance: data.instance })?;
    if is_done && !data.is_recorded(POOL) {
        data.record_pools()?;
        println!(
            "{place} has the tree from an attempt that was broken off while it was checked: look at it with \
             `forebay fsck`; no name was taken away, which the same command with --move does"
        );
        return Ok(ExitCode::SUCCESS);
    }
    if is_done {
        println!("{place} has the tree from before");
    } else {
        make(Target { place, data: Some(data) }, arguments, &adoption, &tree, &except, total)?;
    }
    if arguments.takes_names {
        let gone = take_names(&adoption, &tree, &except, total)?;
        println!("{gone} names were taken away in {}; its directories and links are left", tree.display());
    } else {
        println!(
            "the names in {} lead to the same files: whoever writes there changes them past Forebay",
            tree.display()
        );
    }
    println!(
        "start it with: forebay up --data {}{}",
        arguments.data.display(),
        on(arguments.namespace.as_deref())
    );
    Ok(ExitCode::SUCCESS)
}

/// Links all files and makes the namespace.
fn make(
    target: Target,
    arguments: &AdoptArguments,
    adoption: &Adoption,
    tree: &Path,
    except: &[(u64, u64)],
    total: u64,
) -> Result<()> {
    // Files that an earlier attempt has linked keep their numbers.
    let options = target.options(&arguments.under, adoption.highest().0 + 1);
    let mut import = Import::begin(&target.place, &options)?;
    let made = link_all(&mut import, adoption, tree, except, total)?;
    adoption.sync()?;
    let mut ticker = Ticker::new("files");
    ticker.say("indexing and checking");
    import.finish()?;
    drop(ticker);
    target.record()?;
    if let Some(data) = &target.data {
        data.record_pools()?;
    }
    tell(&made, &target.place);
    Ok(())
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
        Err(error) => Err(complaint(&usual, "make", &error)),
    }
}

fn make_private(dir: &Path) -> Result<()> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| complaint(dir, "make", &error))
}

fn place_on_disk(path: &Path) -> Result<(u64, u64)> {
    let facts = fs::metadata(path).map_err(|error| complaint(path, "read", &error))?;
    Ok((facts.dev(), facts.ino()))
}

fn require_one_file_system(tree: &Path, pool: &Path) -> Result<()> {
    if place_on_disk(tree)?.0 != place_on_disk(pool)?.0 {
        bail!(
            "the pool in {} is on another file system than {}, and a hard link does not reach over: give --pool a new \
             directory on the file system of the tree",
            pool.display(),
            tree.display()
        );
    }
    Ok(())
}

/// How many regular files' names there are.
fn survey(tree: &Path, except: &[(u64, u64)]) -> Result<u64> {
    let (mut walk, mut files) = (Walk::new(tree, except)?, 0);
    let mut ticker = Ticker::new("files found");
    while let Some(Step { entry, .. }) = walk.step()? {
        files += u64::from(matches!(entry.what, What::Regular { .. }));
        ticker.tell(files, None);
    }
    Ok(files)
}

fn link_all(
    import: &mut Import,
    adoption: &Adoption,
    tree: &Path,
    except: &[(u64, u64)],
    total: u64,
) -> Result<Made> {
    let mut walk = Walk::new(tree, except)?;
    let mut ticker = Ticker::new("files linked");
    let mut done = 0;
    while let Some(Step { path, seen, entry }) = walk.step()? {
        let place = &mut |file| match adoption.take(&path, seen, file) {
            Ok(file) => Ok(Placed { file, pool: Some(PoolId(POOL)) }),
            Err(error) => Err(error.to_string()),
        };
        import.add(&entry, place).map_err(|error| match error {
            ImportError::Refused(reason) => {
                anyhow::anyhow!(
                    "in {}: {reason}; no namespace was made, begin again when that is mended",
                    tree.display()
                )
            }
            other => other.into(),
        })?;
        done += u64::from(matches!(entry.what, What::Regular { .. }));
        ticker.tell(done, Some(total));
    }
    Ok(import.made())
}

fn take_names(adoption: &Adoption, tree: &Path, except: &[(u64, u64)], total: u64) -> Result<u64> {
    let mut walk = Walk::new(tree, except)?;
    let mut ticker = Ticker::new("names taken away");
    let mut gone = 0;
    while let Some(Step { path, seen, entry }) = walk.step()? {
        if matches!(entry.what, What::Regular { .. }) {
            let is_gone = adoption.release(&path, seen);
            let is_gone = is_gone.with_context(|| format!("{} keeps its name", path.display()))?;
            gone += u64::from(is_gone);
            ticker.tell(gone, Some(total));
        }
    }
    Ok(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

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
