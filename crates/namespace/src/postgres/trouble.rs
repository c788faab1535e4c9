//! Meaning of a connection's errors, and how to handle them.

use std::io;

use postgres_types::WrongType;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::store::StoreError;

/// How to handle an error.
#[derive(Debug)]
pub enum Trouble {
    /// A transaction did not begin, and what was sent behind its BEGIN may have been done by itself.
    Torn(String),
    /// The database goes away, or came to an end by itself: the same may do on another connection.
    Passing(String),
    /// A guard of ours did not hold: the database is not as the last group left it.
    Moved,
    Lasting(StoreError),
}

impl Trouble {
    pub fn reason(&self) -> String {
        match self {
            Trouble::Torn(reason) | Trouble::Passing(reason) => reason.clone(),
            Trouble::Moved => "database was changed by somebody else".to_owned(),
            Trouble::Lasting(error) => error.to_string(),
        }
    }

    pub fn is_of(&self, code: &SqlState) -> bool {
        is_of(&self.reason(), code)
    }
}

/// As `describe` puts it.
pub fn is_of(reason: &str, code: &SqlState) -> bool {
    reason.contains(&format!("({})", code.code()))
}

pub fn slow() -> Trouble {
    Trouble::Passing("no answer in time".to_owned())
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        let reason = describe(&error);
        let Some(code) = error.code() else {
            // Nothing reached the server, or nothing came back; but a value of the wrong type is a mistake of ours.
            let is_ours = std::error::Error::source(&error).is_some_and(|cause| cause.is::<WrongType>());
            return if is_ours {
                Trouble::Lasting(StoreError::Failed(reason))
            } else {
                Trouble::Passing(reason)
            };
        };
        if *code == SqlState::DIVISION_BY_ZERO {
            return Trouble::Moved;
        }
        if is_passing(code) {
            return Trouble::Passing(reason);
        }
        Trouble::Lasting(match *code {
            SqlState::DISK_FULL => StoreError::NoSpace(reason),
            SqlState::INSUFFICIENT_PRIVILEGE => StoreError::ReadOnly(reason),
            _ => StoreError::Failed(reason),
        })
    }
}

fn is_passing(code: &SqlState) -> bool {
    const PASSING: [SqlState; 8] = [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
        // A standby that is not promoted yet.
        SqlState::READ_ONLY_SQL_TRANSACTION,
        SqlState::QUERY_CANCELED,
    ];
    // Connections, resources, timeouts of sessions and transactions.
    let is_of_class = |class: &str| code.code().starts_with(class);
    let is_full = *code == SqlState::DISK_FULL;
    is_of_class("08")
        || (is_of_class("53") && !is_full)
        || is_of_class("57P")
        || ["25P03", "25P04"].contains(&code.code())
        || PASSING.contains(code)
}

/// With what lies behind it: the driver's own text is "db error".
pub fn describe(error: &Error) -> String {
    let cause = std::error::Error::source(error);
    match (error.as_db_error(), cause) {
        (Some(told), _) if *told.code() == SqlState::TOO_MANY_CONNECTIONS => {
            format!("{} (53300): {TOO_FEW}", told.message())
        }
        // PostgreSQL itself takes all that is asked for at login.
        (Some(told), _) if told.message().starts_with("unsupported startup parameter") => {
            format!("{} ({}): {POOLER}", told.message(), told.code().code())
        }
        // A statement that was prepared in one session and asked for in another.
        (Some(told), _) if [STATEMENT_MISSING, STATEMENT_KNOWN].contains(&told.code().code()) => {
            format!("{} ({}): {POOLED}", told.message(), told.code().code())
        }
        (Some(told), _) => format!("{} ({})", told.message(), told.code().code()),
        (None, Some(cause)) if is_standby(cause) => STANDBY.to_owned(),
        (None, Some(cause)) if is_of_system(cause) => {
            format!("{error}: {cause}; does PostgreSQL run there?")
        }
        (None, Some(cause)) => format!("{error}: {cause}"),
        (None, None) => error.to_string(),
    }
}

const TOO_FEW: &str =
    "forebay uses five connections; raise max_connections, or the CONNECTION LIMIT of user or database";
const POOLER: &str = "a pooler such as pgbouncer answers there; name the PostgreSQL server itself";
/// Message about a pooler that gives a session to other connections between two transactions.
pub const POOLED: &str = "a pooler such as pgbouncer shares one session among several connections; name the PostgreSQL server \
    itself, or let the pooler keep a session for each connection (pool_mode = session)";
const STATEMENT_MISSING: &str = "26000";
const STATEMENT_KNOWN: &str = "42P05";
const STANDBY: &str = "it takes no writes: it is a standby, or read-only for this user; name the primary, or all servers \
    (postgres://user@a,b/database)";

/// It has a number, unlike what the driver makes of it.
fn is_of_system(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.downcast_ref::<io::Error>().is_some_and(|error| error.raw_os_error().is_some())
}

/// The driver's own error for a session that is to write and may not.
fn is_standby(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.downcast_ref::<io::Error>().is_some_and(|error| {
        error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none()
    })
}
