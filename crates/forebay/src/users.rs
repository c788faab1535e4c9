//! `forebay user …`: the password file of the HTTP door. A running instance accepts a new password at once, and refuses the
//! previous one within seconds.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use api::Role;
use auth::passwords::file;
use serde::Serialize;
use types::Identity;

use crate::cli::{AddUserArguments, InstanceArguments, OutputArguments, SetPasswordArguments, UserCommand};
use crate::config::Config;
use crate::output;
use crate::table::{Column, Table};
use crate::terminal;

/// The login of a new instance.
const FIRST_USER: &str = "admin";
/// Beside the password file: the first login, until its password is changed.
const FIRST_LOGIN: &str = "first-login";

pub fn run(command: &UserCommand) -> Result<ExitCode> {
    match command {
        UserCommand::Add(arguments) => add(arguments),
        UserCommand::SetPassword(arguments) => set_password(arguments),
        UserCommand::Remove { place, name } => remove(place, name),
        UserCommand::List { place, output } => list(place, *output),
    }
}

/// The file that the configuration names, or the one in the data directory.
pub fn password_file(config: &Config) -> PathBuf {
    config.auth.passwords.clone().unwrap_or_else(|| config.data.join("users"))
}

/// The first login of a new instance.
pub enum FirstLogin {
    /// To be shown once.
    Shown { user: String, password: String },
    /// In a file as `user:password`: what is printed goes to a log that others may read.
    Kept { user: String, file: PathBuf },
}

/// Whether a person sees what this process prints, and no log keeps it.
///
/// A container may have a terminal whose output is its log.
pub fn is_seen() -> bool {
    let is_at_terminal =
        std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
    is_at_terminal && terminal::is_job()
}

/// Makes the first login of an instance that has none. `is_seen`: by a person.
pub fn first_login(file: &Path, is_seen: bool) -> Result<Option<FirstLogin>> {
    if file.exists() {
        return Ok(None);
    }
    let password = file::generate_password().map_err(|error| anyhow!(error))?;
    let kept = file.with_file_name(FIRST_LOGIN);
    if is_seen {
        // A start that was killed may have left a login that is none.
        forget_first_login(file, FIRST_USER)?;
    } else {
        // First: a kill before the login is there makes the next start begin anew. After it nobody would ever learn it.
        durable::replace(&kept, format!("{FIRST_USER}:{password}\n").as_bytes())
            .with_context(|| format!("cannot write {}", kept.display()))?;
    }
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let new = file::NewUser {
        name: FIRST_USER.to_owned(),
        identity: Identity::new(uid, gid, &[]),
        role: Role::Admin,
        password: Some(password),
    };
    let password = file::add(file, &new).map_err(|error| anyhow!(error))?;
    let user = new.name;
    Ok(Some(if is_seen {
        FirstLogin::Shown { user, password }
    } else {
        FirstLogin::Kept { user, file: kept.canonicalize().unwrap_or(kept) }
    }))
}

/// Removes the file of the first login, which is of no use any more.
fn forget_first_login(file: &Path, user: &str) -> Result<()> {
    let kept = file.with_file_name(FIRST_LOGIN);
    if user != FIRST_USER || !kept.exists() {
        return Ok(());
    }
    std::fs::remove_file(&kept).with_context(|| format!("cannot remove {}", kept.display()))
}

fn add(arguments: &AddUserArguments) -> Result<ExitCode> {
    let new = file::NewUser {
        name: arguments.name.clone(),
        identity: Identity::new(arguments.uid, arguments.gid, &arguments.groups),
        role: if arguments.admin { Role::Admin } else { Role::User },
        password: given_password(arguments.password_stdin)?,
    };
    let file = existing(&arguments.place)?;
    // Beside a password file that is not there yet, a start that was killed has left a login that is none.
    let is_first = !file.exists();
    let password = file::add(&file, &new).map_err(|error| anyhow!(error))?;
    if is_first {
        forget_first_login(&file, FIRST_USER)?;
    }
    let password = (!arguments.password_stdin).then_some(password);
    LoginReport { name: new.name, password }.print(arguments.output)
}

fn set_password(arguments: &SetPasswordArguments) -> Result<ExitCode> {
    let given = given_password(arguments.password_stdin)?;
    let file = existing(&arguments.place)?;
    let password =
        file::set_password(&file, &arguments.name, given.as_deref()).map_err(|error| anyhow!(error))?;
    forget_first_login(&file, &arguments.name)?;
    let password = (!arguments.password_stdin).then_some(password);
    LoginReport { name: arguments.name.clone(), password }.print(arguments.output)
}

fn remove(place: &InstanceArguments, name: &str) -> Result<ExitCode> {
    let file = existing(place)?;
    if !file::remove(&file, name).map_err(|error| anyhow!(error))? {
        bail!("there is no user {name:?} in {}", file.display());
    }
    forget_first_login(&file, name)?;
    Ok(ExitCode::SUCCESS)
}

fn list(place: &InstanceArguments, output: OutputArguments) -> Result<ExitCode> {
    let users = file::list(&existing(place)?).map_err(|error| anyhow!(error))?;
    let report = |(name, user): (&str, &file::User)| UserReport {
        name: name.to_owned(),
        uid: user.identity.uid,
        gid: user.identity.gid,
        groups: user.identity.groups.to_vec(),
        role: if user.role == Role::Admin { "admin" } else { "user" },
    };
    let users = users.list().into_iter().map(report).collect();
    output::print(output, &UserList { users }, UserList::text)?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct LoginReport {
    name: String,
    /// `None`: it was given.
    password: Option<String>,
}

impl LoginReport {
    fn print(&self, output: OutputArguments) -> Result<ExitCode> {
        output::print(output, self, |report| {
            report.password.as_ref().map(|made| format!("{made}\n")).unwrap_or_default()
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Serialize)]
struct UserList {
    users: Vec<UserReport>,
}

#[derive(Serialize)]
struct UserReport {
    name: String,
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    role: &'static str,
}

impl UserList {
    fn text(&self) -> String {
        use Column::{Number, Text};
        let mut table =
            Table::new([Text("user"), Number("uid"), Number("gid"), Text("role"), Text("groups")]);
        for UserReport { name, uid, gid, groups, role } in &self.users {
            let groups: Vec<String> = groups.iter().map(u32::to_string).collect();
            table.row([name.clone(), uid.to_string(), gid.to_string(), (*role).to_owned(), groups.join(",")]);
        }
        table.to_string()
    }
}

/// In the place of an instance that is there: a new folder would be a mistyped name.
fn existing(place: &InstanceArguments) -> Result<PathBuf> {
    let config = place.config()?;
    let file = password_file(&config);
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        bail!("{} does not exist (name the instance with --data)", folder.display());
    }
    Ok(file)
}

fn given_password(from_stdin: bool) -> Result<Option<String>> {
    if !from_stdin {
        return Ok(None);
    }
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).context("cannot read the password from standard input")?;
    Ok(Some(line.trim_end_matches(['\r', '\n']).to_owned()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;

    use auth::passwords::Passwords;

    use super::*;
    use crate::system::SystemClock;

    /// A kill after the password file was written, and before `first-login`, left a login that nobody knew.
    #[tokio::test]
    async fn the_first_login_is_kept_before_it_is_in_force_and_begun_anew_after_a_kill() {
        let folder = tempfile::tempdir().unwrap();
        let (file, kept) = (folder.path().join("users"), folder.path().join(FIRST_LOGIN));
        // In the way of the password file, as a kill would be.
        let in_the_way = folder.path().join("users.new");
        fs::create_dir(&in_the_way).unwrap();
        assert!(first_login(&file, false).is_err());
        assert!(!file.exists());
        let of_kill = fs::read_to_string(&kept).unwrap();

        fs::remove_dir(&in_the_way).unwrap();
        let made = first_login(&file, false).unwrap();
        assert!(matches!(made, Some(FirstLogin::Kept { user, .. }) if user == FIRST_USER));
        let login = fs::read_to_string(&kept).unwrap();
        assert_ne!(login, of_kill);
        let passwords = Passwords::open(Some(&file), Arc::new(SystemClock::new())).unwrap();
        let (user, password) = login.trim_end().split_once(':').unwrap();
        assert!(passwords.check(user, password, IpAddr::V4(Ipv4Addr::LOCALHOST)).await.is_ok());
        assert!(first_login(&file, false).unwrap().is_none(), "it is made once");
    }

    #[test]
    fn a_login_that_a_person_sees_is_kept_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let made = first_login(&folder.path().join("users"), true).unwrap();
        assert!(matches!(made, Some(FirstLogin::Shown { .. })));
        assert!(!folder.path().join(FIRST_LOGIN).exists());
    }
}
