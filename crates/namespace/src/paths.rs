//! From files back to their paths.

use api::{NamespaceError, Paths};
use async_trait::async_trait;
use types::{FileId, Name};

use crate::counts::Question;
use crate::service::SqlNamespace;

#[async_trait]
impl Paths for SqlNamespace {
    async fn paths(&self, files: &[FileId]) -> Result<Vec<Option<Vec<Name>>>, NamespaceError> {
        if files.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.lookups.cold(Question::Paths, self.reads.paths(files)).await?.value)
    }
}

#[cfg(test)]
mod tests {
    use api::{CreateKind, CreateSpec, Namespace};
    use types::Identity;

    use super::*;
    use crate::scratch::{name, open, regular};

    fn path(text: &str) -> Option<Vec<Name>> {
        Some(text.split('/').map(name).collect())
    }

    #[tokio::test]
    async fn a_file_leads_back_to_its_path_as_it_is_now() {
        let (dir, root) = (tempfile::tempdir().unwrap(), Identity::root());
        let namespace = open(&dir);
        let folder = CreateSpec { kind: CreateKind::Directory, ..regular() };
        let a = namespace.create(&root, FileId::ROOT, &name("a"), &folder).await.unwrap().attributes.file;
        let b = namespace.create(&root, a, &name("b"), &folder).await.unwrap().attributes.file;
        let file = namespace.create(&root, b, &name("c"), &regular()).await.unwrap().attributes.file;
        let asked = [file, FileId::ROOT, FileId(u64::MAX / 4), b];
        let found = namespace.paths(&asked).await.unwrap();
        assert_eq!(found, [path("a/b/c"), Some(Vec::new()), None, path("a/b")]);

        namespace
            .rename(
                &root,
                (FileId::ROOT, &name("a")),
                (FileId::ROOT, &name("z")),
                api::Replace::Any,
                api::ExpectedEnds::ANY,
            )
            .await
            .unwrap();
        assert_eq!(namespace.paths(&[file]).await.unwrap(), [path("z/b/c")]);
        namespace.link(&root, file, FileId::ROOT, &name("link")).await.unwrap();
        namespace.unlink(&root, b, &name("c"), api::ExpectedFile::Any).await.unwrap();
        assert_eq!(namespace.paths(&[file]).await.unwrap(), [path("link")]);
        namespace.unlink(&root, FileId::ROOT, &name("link"), api::ExpectedFile::Any).await.unwrap();
        assert_eq!(namespace.paths(&[file]).await.unwrap(), [None]);
    }

    /// A user who nests long names must not make an administrator's page grow by a megabyte for each open file.
    #[tokio::test]
    async fn a_path_of_more_than_4096_bytes_is_not_told() {
        let (dir, root) = (tempfile::tempdir().unwrap(), Identity::root());
        let namespace = open(&dir);
        let folder = CreateSpec { kind: CreateKind::Directory, ..regular() };
        let long = "n".repeat(255);
        let mut here = FileId::ROOT;
        for depth in 1..=17 {
            here = namespace.create(&root, here, &name(&long), &folder).await.unwrap().attributes.file;
            let found = namespace.paths(&[here]).await.unwrap();
            assert_eq!(found[0].is_some(), depth <= 16, "{depth}");
        }
    }

    #[tokio::test]
    async fn files_of_an_earlier_version_have_paths_once_it_was_opened() {
        let dir = tempfile::tempdir().unwrap();
        crate::sqlite::schema::make_first_version(&dir.path().join("namespace.db"));
        assert_eq!(open(&dir).paths(&[FileId(7)]).await.unwrap(), [path("old")]);
    }
}
