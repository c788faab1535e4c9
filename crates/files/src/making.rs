//! New entries of directories: files in place, directories, symbolic links and special files. A file whose bytes come before
//! its name is an upload.
//!
//! Nobody has a grant of what does not exist, and no client caches the contents of a directory under one: nothing is
//! recalled. The namespace judges the caller and makes the entry in one transaction, so a dropped caller leaves all of it
//! or nothing.

use api::{CreateKind, CreateMode, CreateSpec, Created, Purpose, Selection, SetAttributes};
use types::{FileId, Name, SymlinkTarget};

use crate::{By, Files, FilesError};

impl Files {
    /// As `Namespace::create`. A regular file gets its place, unless `spec` has one; `Select`: there is none for it, and
    /// the name was not looked up.
    pub async fn make(
        &self,
        by: By<'_>,
        dir: FileId,
        name: &Name,
        spec: CreateSpec,
    ) -> Result<Created, FilesError> {
        let location = match (&spec.kind, spec.location) {
            (CreateKind::Regular, None) => Some(self.choose(&Selection {
                directory: Some(dir),
                name: Some(name),
                owner: Some((by.identity.uid, by.identity.gid)),
                client: by.holder.map(|holder| holder.number),
                ..Selection::new(Purpose::Create)
            })?),
            (_, location) => location,
        };
        let spec = CreateSpec { location, ..spec };
        Ok(self.services.namespace.create(by.identity, dir, name, &spec).await?)
    }

    /// `Exists`: the name is taken. `umask` is taken from the permissions where no ACL is inherited.
    pub async fn make_directory(
        &self,
        by: By<'_>,
        dir: FileId,
        name: &Name,
        (permissions, umask): (u32, u32),
    ) -> Result<Created, FilesError> {
        let umask = Some(umask);
        self.make(by, dir, name, CreateSpec { umask, ..guarded(CreateKind::Directory, permissions) }).await
    }

    /// `Exists`: the name is taken.
    pub async fn make_symlink(
        &self,
        by: By<'_>,
        dir: FileId,
        name: &Name,
        target: SymlinkTarget,
    ) -> Result<Created, FilesError> {
        self.make(by, dir, name, guarded(CreateKind::Symlink(target), 0o777)).await
    }
}

fn guarded(kind: CreateKind, permissions: u32) -> CreateSpec {
    let (mode, set) = (CreateMode::Guarded, SetAttributes::default());
    CreateSpec { kind, mode, permissions, umask: None, set, location: None }
}
