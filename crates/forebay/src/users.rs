//! `forebay user …`: the password file of the HTTP door. A running instance sees the change within seconds.

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

/// Makes the first login of an instance that has none. `is_seen`: by a person, at a terminal.
pub fn first_login(file: &Path, is_seen: bool) -> Result<Option<FirstLogin>> {
    if file.exists() {
        return Ok(None);
    }
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let new = file::NewUser {
        name: FIRST_USER.to_owned(),
        identity: Identity::new(uid, gid, &[]),
        role: Role::Admin,
        password: None,
    };
    let password = file::add(file, &new).map_err(|error| anyhow!(error))?;
    let user = new.name;
    if is_seen {
        return Ok(Some(FirstLogin::Shown { user, password }));
    }
    let kept = file.with_file_name(FIRST_LOGIN);
    if let Err(error) = durable::replace(&kept, format!("{user}:{password}\n").as_bytes()) {
        // The next start makes another: nobody would ever learn this one.
        file::remove(file, &user).map_err(|error| anyhow!(error))?;
        std::fs::remove_file(file)?;
        return Err(error).with_context(|| format!("cannot write {}", kept.display()));
    }
    let file = kept.canonicalize().unwrap_or(kept);
    Ok(Some(FirstLogin::Kept { user, file }))
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
    let password = file::add(&existing(&arguments.place)?, &new).map_err(|error| anyhow!(error))?;
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
