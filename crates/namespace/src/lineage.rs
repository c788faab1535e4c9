//! The way up: from the cache where one directory is enough, by a question to the database where all are wanted.

use std::sync::Arc;

use api::{Lineage, NamespaceError};
use async_trait::async_trait;
use types::FileId;

use crate::inode::NO_PARENT;
use crate::service::SqlNamespace;
use crate::session::Purpose;

#[async_trait]
impl Lineage for SqlNamespace {
    async fn home(&self, file: FileId) -> Result<Option<FileId>, NamespaceError> {
        let parent = self.lookups.inode(file).await?.parent;
        Ok((parent != NO_PARENT).then_some(parent))
    }

    /// An answered change is committed, and a session that begins now sees it.
    async fn homes(&self, file: FileId, limit: usize) -> Result<Vec<FileId>, NamespaceError> {
        let reads = Arc::clone(&self.reads);
        let asked = tokio::task::spawn_blocking(move || {
            let mut session = reads.session(Purpose::Look)?;
            let id = file.0.cast_signed();
            let sql = format!(
                "SELECT DISTINCT parent FROM dentries WHERE inode = {id} ORDER BY parent LIMIT {limit}"
            );
            session.rows(&sql, |row| row.id(0)).map_err(|error| NamespaceError::from(&error))
        });
        asked.await.map_err(|_| NamespaceError::Busy)?
    }
}

#[cfg(test)]
mod tests {
    use api::{CreateKind, CreateSpec, Namespace};
    use types::Identity;

    use super::*;
    use crate::scratch::{name, open, regular};

    #[tokio::test]
    async fn a_file_of_several_names_has_one_home_and_all_its_homes_are_told() {
        let (dir, root) = (tempfile::tempdir().unwrap(), Identity::root());
        let namespace = open(&dir);
        let folder = CreateSpec { kind: CreateKind::Directory, ..regular() };
        let a = namespace.create(&root, FileId::ROOT, &name("a"), &folder).await.unwrap().attributes.file;
        let b = namespace.create(&root, a, &name("b"), &folder).await.unwrap().attributes.file;
        let file = namespace.create(&root, b, &name("file"), &regular()).await.unwrap().attributes.file;
        assert_eq!(namespace.home(FileId::ROOT).await.unwrap(), None);
        assert_eq!(namespace.home(b).await.unwrap(), Some(a));
        assert_eq!(namespace.home(file).await.unwrap(), Some(b));

        namespace.link(&root, file, a, &name("link")).await.unwrap();
        namespace.link(&root, file, a, &name("again")).await.unwrap();
        assert_eq!(namespace.home(file).await.unwrap(), Some(b));
        assert_eq!(namespace.homes(file, 10).await.unwrap(), [a, b]);
        assert_eq!(namespace.homes(file, 1).await.unwrap(), [a]);
        assert_eq!(namespace.homes(b, 10).await.unwrap(), [a]);

        namespace.unlink(&root, b, &name("file"), api::ExpectedFile::Any).await.unwrap();
        assert_eq!(namespace.home(file).await.unwrap(), Some(a), "it moves with the names");
        namespace.unlink(&root, a, &name("link"), api::ExpectedFile::Any).await.unwrap();
        namespace.unlink(&root, a, &name("again"), api::ExpectedFile::Any).await.unwrap();
        assert_eq!(namespace.home(file).await.unwrap(), None);
        assert_eq!(namespace.homes(file, 10).await.unwrap(), []);
    }
}
