//! A namespace taken as it is, though what was noted beside it says that it lacks something: as if it had been saved and
//! restored.

use types::Clock;

use super::postgres::{Seat, require_known as require_known_postgres};
use super::restore::{EPOCHS, raise};
use super::sqlite::{lock_stopped, open_unchanged, require_known};
use super::{BulkError, BulkResult, Marks, NamespaceLocation};
use crate::ids::FIRST;
use crate::inode::Extras;
use crate::repair::{meta, set_meta};
use crate::session::{Purpose, Session, note_placement};
use crate::sqlite::open::DATABASE;
use crate::sqlite::schema::found_version;
use crate::store::StoreResult;
use crate::timeline::RESTORED;

/// Raised numbers, for people.
#[derive(Clone, Copy, Debug)]
pub struct Retaken {
    /// File ids go on from here, or above.
    pub files: u64,
}

const KEYS: [&str; 3] = ["starts", "next_file", "next_cookie"];

/// Of a namespace that no head has open. All of it or nothing.
pub fn retake(place: &NamespaceLocation, clock: &dyn Clock) -> BulkResult<Retaken> {
    let now = clock.now().seconds;
    match place {
        NamespaceLocation::Sqlite(dir) => {
            let path = dir.join(DATABASE);
            if !path.exists() {
                return Err(BulkError::Nothing(dir.display().to_string()));
            }
            let _lock = lock_stopped(dir)?;
            let version = found_version(&open_unchanged(&path)?);
            require_known(version.map_err(|error| BulkError::failed(path.display(), error))?, &path)?;
            let session = crate::sqlite::check::session(&path, Purpose::Change);
            let mut session = session.map_err(|error| BulkError::failed(path.display(), error))?;
            retake_in(&mut *session, now, None).map_err(|reason| BulkError::failed(place, reason))
        }
        NamespaceLocation::File(path) => {
            Err(BulkError::failed(path.display(), "it is a backup; give it with --from"))
        }
        NamespaceLocation::Postgres(url) => {
            let seat = Seat::take(url)?;
            require_known_postgres(seat.version()?, seat.place())?;
            let session = crate::postgres::check::session(seat.target(), Purpose::Change);
            let mut session = session.map_err(|error| BulkError::failed(place, error))?;
            let head = "UPDATE progress SET epoch = (SELECT value FROM meta WHERE key = 'starts')";
            retake_in(&mut *session, now, Some(head)).map_err(|reason| BulkError::failed(place, reason))
        }
    }
}

/// `head`: the statement that keeps away a head that was paused.
fn retake_in(session: &mut dyn Session, now: i64, head: Option<&str>) -> Result<Retaken, String> {
    session.begin().map_err(|error| error.to_string())?;
    let mut work = || -> Result<Retaken, String> {
        let failed = |error: crate::store::StoreError| error.to_string();
        let mut marks = Marks::default();
        for key in KEYS {
            let first = if key == "starts" { 0 } else { FIRST.cast_signed() };
            marks.meta.insert(key.to_owned(), meta(session, key).map_err(failed)?.unwrap_or(first));
        }
        raise(&mut marks, now)?;
        for key in KEYS.into_iter().chain(["clean_end", "deferred", RESTORED]) {
            set_meta(session, key, marks.number(key)).map_err(failed)?;
        }
        distrust(session).map_err(failed)?;
        if let Some(head) = head {
            session.run(head).map_err(failed)?;
        }
        session.commit().map_err(failed)?;
        Ok(Retaken { files: marks.number("next_file").cast_unsigned() })
    };
    let done = work();
    if done.is_err() {
        session.end();
    }
    done
}

/// Drops facts that may be outdated, and raises epochs, as `restore` does with the rows that it copies.
fn distrust(session: &mut dyn Session) -> StoreResult<()> {
    let unnamed = Extras { is_unnamed: true, ..Extras::default() }.bits();
    let is_unnamed = format!("nlink = 0 AND (extras & {unnamed}) != 0");
    session
        .run(&format!("DELETE FROM locations WHERE inode IN (SELECT id FROM inodes WHERE {is_unnamed})"))?;
    note_placement(session, &is_unnamed)?;
    for table in ["checksums", "clients"] {
        session.run(&format!("DELETE FROM {table}"))?;
    }
    // As a number without sign, which not every engine has.
    let (sum, all) = (format!("((epoch & 4294967295) + {EPOCHS})"), session.narrow(u32::MAX));
    let signed = if all < 0 {
        format!("CASE WHEN {sum} > 2147483647 THEN {sum} - 4294967296 ELSE {sum} END")
    } else {
        sum.clone()
    };
    session.run(&format!(
        "UPDATE inodes SET epoch = CASE WHEN {sum} > 4294967295 THEN {all} ELSE {signed} END, \
         extras = extras & ~{}",
        Extras::CHECKSUMS
    ))?;
    Ok(())
}
