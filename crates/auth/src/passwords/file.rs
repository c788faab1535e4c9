//! The password file: one user a line, `name:hash:uid:gid[,gid…]:role`; `#` begins a comment.
//!
//! It is replaced as a whole, by a rename, so that the server never reads half of it; who changes it holds a lock on its
//! folder. Lines that are not touched stay as they are, comments too.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::Role;
use types::Identity;

use super::hash::{self, Cost};
use crate::mapping;
use crate::watched;

pub const NAME_BYTES_MAX: usize = 64;
/// No letters that look like others.
const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
const GENERATED_GROUPS: usize = 4;
const GENERATED_GROUP_LEN: usize = 5;

#[derive(Debug, Default)]
pub struct Users {
    users: HashMap<String, User>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub identity: Identity,
    pub role: Role,
    pub(crate) hash: Arc<str>,
}

impl Users {
    /// The error begins with the number of the line.
    pub fn parse(text: &str) -> Result<Users, String> {
        let mut users = HashMap::new();
        for (index, line) in text.lines().enumerate() {
            let entry = parse_line(line).map_err(|error| format!("{}: {error}", index + 1))?;
            let Some((name, user)) = entry else { continue };
            if users.insert(name.to_owned(), user).is_some() {
                return Err(format!("{}: user `{name}` is there twice", index + 1));
            }
        }
        Ok(Users { users })
    }

    pub fn find(&self, name: &str) -> Option<&User> {
        self.users.get(name)
    }

    /// By name.
    pub fn list(&self) -> Vec<(&str, &User)> {
        let mut all: Vec<_> = self.users.iter().map(|(name, user)| (name.as_str(), user)).collect();
        all.sort_by_key(|(name, _)| *name);
        all
    }
}

/// `None`: an empty line or a comment.
fn parse_line(line: &str) -> Result<Option<(&str, User)>, String> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let fields: Vec<&str> = line.splitn(6, ':').collect();
    let [name, hash, uid, gids, role] = fields.as_slice() else {
        return Err("expected `name:hash:uid:gid[,gid…]:role`".to_owned());
    };
    check_name(name)?;
    hash::check(hash)?;
    let identity = mapping::parse_identity(uid, gids)?;
    let role = mapping::parse_role(role)?;
    Ok(Some((name, User { identity, role, hash: (*hash).into() })))
}

fn check_name(name: &str) -> Result<(), String> {
    let is_good = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte));
    if is_good {
        Ok(())
    } else {
        Err(format!("`{name}` is no user name: 1 to {NAME_BYTES_MAX} letters, digits, and `._@-`"))
    }
}

#[derive(Clone, Debug)]
pub struct NewUser {
    pub name: String,
    pub identity: Identity,
    pub role: Role,
    /// `None`: one is made up.
    pub password: Option<String>,
}

/// Adds a user and answers the password. A name that is taken is an error.
pub fn add(path: &Path, new: &NewUser) -> Result<String, String> {
    add_at(path, new, Cost::default())
}

fn add_at(path: &Path, new: &NewUser, cost: Cost) -> Result<String, String> {
    check_name(&new.name)?;
    let (password, hash) = choose_password(new.password.as_deref(), cost)?;
    let line = show_line(&new.name, &hash, &new.identity, new.role)?;
    edit(path, |text, users| {
        if users.find(&new.name).is_some() {
            return Err(format!("there is a user `{}` already; remove it first", new.name));
        }
        Ok(with_line(text, &line))
    })?;
    Ok(password)
}

/// A new password for a user that is there; identity and role stay.
pub fn set_password(path: &Path, name: &str, password: Option<&str>) -> Result<String, String> {
    set_password_at(path, name, password, Cost::default())
}

fn set_password_at(path: &Path, name: &str, password: Option<&str>, cost: Cost) -> Result<String, String> {
    let (password, hash) = choose_password(password, cost)?;
    edit(path, |text, users| {
        let user = users.find(name).ok_or_else(|| format!("there is no user `{name}`"))?;
        let line = show_line(name, &hash, &user.identity, user.role)?;
        Ok(with_line(&without_user(text, name), &line))
    })?;
    Ok(password)
}

fn choose_password(wanted: Option<&str>, cost: Cost) -> Result<(String, String), String> {
    let password = match wanted {
        Some(password) if password.is_empty() || password.len() > super::PASSWORD_BYTES_MAX => {
            return Err(format!("a password has 1 to {} bytes", super::PASSWORD_BYTES_MAX));
        }
        Some(password) => password.to_owned(),
        None => generate_password()?,
    };
    let hash = hash::hash(&password, cost)?;
    Ok((password, hash))
}

fn show_line(name: &str, hash: &str, identity: &Identity, role: Role) -> Result<String, String> {
    let role = match role {
        Role::Admin => "admin",
        Role::User => "user",
        Role::Anonymous => return Err("a user with a password is not anonymous".to_owned()),
    };
    Ok(format!("{name}:{hash}:{}:{role}\n", mapping::show_identity(identity, ':')))
}

fn with_line(text: &str, line: &str) -> String {
    let separator = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{text}{separator}{line}")
}

fn without_user(text: &str, name: &str) -> String {
    let is_other = |line: &&str| !matches!(parse_line(line), Ok(Some((found, _))) if found == name);
    text.split_inclusive('\n').filter(is_other).collect()
}

/// Whether there was such a user.
pub fn remove(path: &Path, name: &str) -> Result<bool, String> {
    let mut was_there = false;
    edit(path, |text, users| {
        was_there = users.find(name).is_some();
        Ok(without_user(text, name))
    })?;
    Ok(was_there)
}

/// All users of the file; none if it is not there.
pub fn list(path: &Path) -> Result<Users, String> {
    Users::parse(&read(path)?).map_err(|error| format!("{}:{error}", path.display()))
}

/// A password that nobody has yet.
pub fn generate_password() -> Result<String, String> {
    let mut random = [0; GENERATED_GROUPS * GENERATED_GROUP_LEN];
    aws_lc_rs::rand::fill(&mut random).map_err(|_| "the system gives no random numbers".to_owned())?;
    let groups = random.chunks(GENERATED_GROUP_LEN).map(|group| {
        group.iter().map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()])).collect::<String>()
    });
    Ok(groups.collect::<Vec<_>>().join("-"))
}

fn read(path: &Path) -> Result<String, String> {
    match fs::read(path) {
        Ok(bytes) => watched::text(bytes).map_err(|error| format!("{}:{error}", path.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(format!("cannot read {}: {error}", path.display())),
    }
}

fn edit(path: &Path, change: impl FnOnce(&str, &Users) -> Result<String, String>) -> Result<(), String> {
    let folder = match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_path_buf(),
        _ => PathBuf::from("."),
    };
    let folder_file =
        File::open(&folder).map_err(|error| format!("cannot open {}: {error}", folder.display()))?;
    folder_file.lock().map_err(|error| format!("cannot lock {}: {error}", folder.display()))?;
    let text = read(path)?;
    let users = Users::parse(&text).map_err(|error| format!("{}:{error}", path.display()))?;
    let changed = change(&text, &users)?;
    if changed == text {
        return Ok(());
    }
    replace(path, &folder, &folder_file, &changed)
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn replace(path: &Path, folder: &Path, folder_file: &File, text: &str) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut new_name = name.to_os_string();
    new_name.push(".new");
    let new = folder.join(new_name);
    // A killed process left such a file. We hold the lock, so no other process writes it now.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    // Root may change it for a server that runs as somebody else, who must go on reading it.
    let owner = fs::metadata(path).or_else(|_| folder_file.metadata())?;
    let ours = file.metadata()?;
    if (owner.uid(), owner.gid()) != (ours.uid(), ours.gid()) {
        std::os::unix::fs::fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    folder_file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn new(name: &str) -> NewUser {
        NewUser {
            name: name.to_owned(),
            identity: Identity::new(1001, 1000, &[27]),
            role: Role::Admin,
            password: None,
        }
    }

    #[test]
    fn a_change_by_root_leaves_the_file_to_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        add_at(&path, &new("ann"), Cost::TEST).unwrap();
        // Only root can give files away; others cannot get here.
        if std::os::unix::fs::chown(&path, Some(4321), Some(4321)).is_err() {
            return;
        }
        add_at(&path, &new("bob"), Cost::TEST).unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o777), (4321, 4321, 0o600));
    }

    #[test]
    fn users_are_added_and_removed_and_comments_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("passwords");
        fs::write(&path, "# ours").unwrap();
        let password = add_at(&path, &new("anna"), Cost::TEST).unwrap();
        add_at(&path, &new("bert"), Cost::TEST).unwrap();
        assert!(add_at(&path, &new("anna"), Cost::TEST).unwrap_err().contains("already"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

        let users = list(&path).unwrap();
        let anna = users.find("anna").unwrap();
        assert_eq!((&anna.identity, anna.role), (&new("").identity, Role::Admin));
        assert!(hash::verify(&password, &anna.hash));

        assert_eq!(remove(&path, "anna"), Ok(true));
        assert_eq!(remove(&path, "anna"), Ok(false));
        let users = list(&path).unwrap();
        assert_eq!(users.list().iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["bert"]);
        assert!(fs::read_to_string(&path).unwrap().starts_with("# ours\nbert:"));
    }

    #[test]
    fn a_new_password_keeps_identity_and_role() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("passwords");
        add_at(&path, &new("anna"), Cost::TEST).unwrap();
        assert_eq!(set_password_at(&path, "anna", Some("fresh"), Cost::TEST).unwrap(), "fresh");
        let users = list(&path).unwrap();
        let anna = users.find("anna").unwrap();
        assert_eq!((&anna.identity, anna.role), (&new("").identity, Role::Admin));
        assert!(hash::verify("fresh", &anna.hash));
        assert!(set_password_at(&path, "bert", None, Cost::TEST).is_err());
    }

    #[test]
    fn a_file_that_is_not_there_has_no_users_and_is_made_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("passwords");
        assert_eq!(list(&path).unwrap().list().len(), 0);
        add_at(&path, &new("anna"), Cost::TEST).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_broken_file_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("passwords");
        fs::write(&path, "anna:secret\n").unwrap();
        assert!(add_at(&path, &new("bert"), Cost::TEST).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "anna:secret\n");
    }

    #[test]
    fn generated_passwords_differ_and_are_typed_easily() {
        let password = generate_password().unwrap();
        assert_eq!(password.len(), 23);
        assert!(password.bytes().all(|byte| byte == b'-' || ALPHABET.contains(&byte)));
        assert_ne!(password, generate_password().unwrap());
    }

    #[test]
    fn a_mistake_is_told_with_its_line() {
        let hash = hash::hash("x", Cost::TEST).unwrap();
        for bad in [
            "anna".to_owned(),
            "anna:plain:1:1:user".to_owned(),
            format!("an na:{hash}:1:1:user"),
            format!(":{hash}:1:1:user"),
            format!("anna:{hash}:x:1:user"),
            format!("anna:{hash}:1::user"),
            format!("anna:{hash}:1:1:root"),
            format!("anna:{hash}:1:1:user:more"),
            format!("{}:{hash}:1:1:user", "a".repeat(65)),
            format!("ok:{hash}:1:1:user\nok:{hash}:1:1:user"),
        ] {
            let error = Users::parse(&format!("# head\n{bad}\n")).unwrap_err();
            assert!(error.starts_with("2: ") || error.starts_with("3: "), "{bad}: {error}");
        }
    }

    #[test]
    fn a_name_that_would_break_the_file_is_refused() {
        for bad in ["", "a:b", "a\nb", "#a", "a b"] {
            assert!(add_at(Path::new("unused"), &new(bad), Cost::TEST).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_file_that_is_no_text_is_left_and_told_with_its_line_and_advice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        fs::write(&path, b"# ours\n\xff\n").unwrap();
        let told = format!("{}:2: is not text in UTF-8; correct or remove the line", path.display());
        assert_eq!(add_at(&path, &new("ann"), Cost::TEST).unwrap_err(), told);
        assert_eq!(list(&path).unwrap_err(), told);
        assert_eq!(fs::read(&path).unwrap(), b"# ours\n\xff\n");
    }
}
