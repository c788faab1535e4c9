//! `forebay dir create`: a directory that belongs to a user, on a running instance or a stopped one.
//!
//! A running instance creates it in the file layer, as a door does, and clients see the directory above it change. A
//! stopped instance has no clients: its namespace creates it. The administrator owns the instance, so permissions are not
//! judged.

use anyhow::{Context, Result, anyhow, bail};
use api::{CreateKind, CreateMode, CreateSpec, Namespace, NamespaceError, SetAttributes};
use door_nfs::{LocalNames, LocalUsers, OwnerKind};
use files::{By, Files, FilesError};
use namespace::SqlNamespace;
use serde::{Deserialize, Serialize};
use types::{FileId, Identity, Name};

use super::names;
use crate::cli::{CreateDirArguments, ProgressArguments};
use crate::control::Request;
use crate::instance::ask_or_open;
use crate::output;
use crate::questions::CreateDirectoryQuestion;
use crate::system_names::{SystemNames, number_of};
use crate::system_users::SystemUsers;

/// Of directories above the one that was asked for.
const PARENT_MODE: u32 = 0o755;

#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    path: String,
    uid: u32,
    gid: u32,
    /// Octal, four digits.
    mode: String,
    /// Directories above `path` that were created, the topmost first.
    parents: Vec<String>,
}

/// The layer that creates the directory.
#[derive(Clone, Copy)]
pub enum Layer<'a> {
    Files(&'a Files),
    Namespace(&'a SqlNamespace),
}

struct Owners {
    uid: u32,
    gid: u32,
    mode: u32,
}

pub fn run(arguments: &CreateDirArguments) -> Result<()> {
    let uid = number_of(OwnerKind::User, &arguments.owner)?;
    let gid = match &arguments.group {
        Some(group) => number_of(OwnerKind::Group, group)?,
        None => primary_group(&arguments.owner, uid)?,
    };
    let CreateDirArguments { mode, parents, .. } = *arguments;
    let question = CreateDirectoryQuestion { path: arguments.path.clone(), uid, gid, mode, parents };
    let request = Request::CreateDirectory(question.clone());
    let report: Report =
        ask_or_open(&arguments.place, request, ProgressArguments::default(), async |namespace, _| {
            answer(namespace, Layer::Namespace(namespace), &question).await
        })?;
    output::print(arguments.output, &report, Report::text)
}

pub async fn answer(
    namespace: &SqlNamespace,
    layer: Layer<'_>,
    question: &CreateDirectoryQuestion,
) -> Result<Report> {
    let cannot = || format!("cannot create {}", question.path);
    let names = names(&question.path).with_context(cannot)?;
    let Some((last, above)) = names.split_last() else {
        bail!("cannot create {}: it is the root, which exists already", question.path);
    };
    let (mut dir, mut parents) = (FileId::ROOT, Vec::new());
    for (depth, name) in above.iter().enumerate() {
        let path = path_of(&names[..=depth]);
        dir = match namespace.lookup(&Identity::root(), dir, name).await {
            Ok(found) if found.entry.kind.is_directory() => found.entry.file,
            Ok(_) => bail!("cannot create {}: {path} is not a directory", question.path),
            Err(NamespaceError::NotFound) if question.parents => {
                let created = parent(namespace, layer, dir, name).await.with_context(cannot)?;
                parents.push(path);
                created
            }
            Err(NamespaceError::NotFound) => bail!(
                "cannot create {}: {path} does not exist (create it first, or add --parents)",
                question.path
            ),
            Err(error) => return Err(error).with_context(cannot),
        };
    }
    let CreateDirectoryQuestion { uid, gid, mode, .. } = *question;
    layer.create(dir, last, &Owners { uid, gid, mode }).await.with_context(cannot)?;
    let path = path_of(&names);
    tracing::info!(path, uid, gid, mode = format!("{mode:04o}"), "an administrator created a directory");
    Ok(Report { path, uid, gid, mode: format!("{mode:04o}"), parents })
}

/// A directory above the one that was asked for: it belongs to the owner of the directory that it is in.
async fn parent(namespace: &SqlNamespace, layer: Layer<'_>, dir: FileId, name: &Name) -> Result<FileId> {
    let above = namespace.attributes(dir).await?;
    layer.create(dir, name, &Owners { uid: above.uid, gid: above.gid, mode: PARENT_MODE }).await
}

impl Layer<'_> {
    async fn create(self, dir: FileId, name: &Name, owners: &Owners) -> Result<FileId> {
        let root = Identity::root();
        let spec = owners.spec();
        let created = match self {
            Layer::Namespace(namespace) => namespace.create(&root, dir, name, &spec).await,
            Layer::Files(files) => {
                let by = By { identity: &root, holder: None, patience: files.recall_time() };
                match files.make(by, dir, name, spec).await {
                    Err(FilesError::Namespace(error)) => Err(error),
                    created => Ok(created?),
                }
            }
        };
        match created {
            Ok(created) => Ok(created.attributes.file),
            Err(NamespaceError::Exists) => Err(anyhow!("it exists already")),
            Err(NamespaceError::Stale(_)) => Err(anyhow!("the directory above it was removed meanwhile")),
            Err(error) => Err(error.into()),
        }
    }
}

impl Owners {
    fn spec(&self) -> CreateSpec {
        // The mode is set as it was given: creation would take set-gid from the directory above.
        let set = SetAttributes {
            uid: Some(self.uid),
            gid: Some(self.gid),
            mode: Some(self.mode),
            ..SetAttributes::default()
        };
        CreateSpec {
            kind: CreateKind::Directory,
            mode: CreateMode::Guarded,
            permissions: self.mode,
            umask: None,
            set,
            location: None,
        }
    }
}

impl Report {
    fn text(&self) -> String {
        let created = self.parents.iter().map(|path| format!("created {path}\n"));
        let Report { path, uid, gid, mode, .. } = self;
        created.collect::<String>() + &format!("created {path}: owner {uid}, group {gid}, mode {mode}\n")
    }
}

fn path_of(names: &[Name]) -> String {
    let names = names.iter().map(|name| format!("/{}", String::from_utf8_lossy(name.as_bytes())));
    names.collect()
}

fn primary_group(owner: &str, uid: u32) -> Result<u32> {
    let name = SystemNames.name_of(OwnerKind::User, uid).ok().flatten();
    let identity = name.and_then(|name| SystemUsers.identity(&name).ok().flatten());
    let group = identity.map(|identity| identity.gid);
    group.ok_or_else(|| anyhow!("this host knows no primary group of user {owner:?}; add --group"))
}
