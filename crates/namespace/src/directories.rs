//! The seam of directories, answered.

use api::{Consistency, Directories, NamespaceError};
use async_trait::async_trait;
use types::{FileId, IoMode};

use crate::ops::writes::require_regular;
use crate::service::SqlNamespace;
use crate::store::Wanted;

impl SqlNamespace {
    /// Of directories for which none is set. Takes effect with the next group.
    pub fn set_default_consistency(&self, mode: Consistency) {
        self.shared.cache.pending.modes.set_default(mode);
    }
}

#[async_trait]
impl Directories for SqlNamespace {
    async fn consistency(&self, dir: FileId) -> Result<Option<Consistency>, NamespaceError> {
        let inode = self.lookups.inode(dir).await?;
        if inode.is_directory() { Ok(inode.extras.consistency) } else { Err(NamespaceError::NotDirectory) }
    }

    async fn set_consistency(&self, dir: FileId, mode: Option<Consistency>) -> Result<(), NamespaceError> {
        self.shared
            .submit_for(self.lookups.turn_of(dir), [Wanted::Inode(dir)], move |group| {
                let mut inode = group.directory(dir)?;
                if inode.extras.consistency != mode {
                    inode.extras.consistency = mode;
                    inode.touch(group.now(), group.instance);
                    group.put(inode);
                }
                Ok(())
            })
            .await
    }

    fn default_consistency(&self) -> Consistency {
        self.shared.cache.pending.modes.default_mode()
    }

    async fn set_io(&self, file: FileId, mode: IoMode) -> Result<(), NamespaceError> {
        self.shared
            .submit_for(self.lookups.turn_of(file), [Wanted::Inode(file)], move |group| {
                let mut inode = group.inode(file)?;
                if !inode.is_directory() {
                    require_regular(&inode)?;
                }
                if inode.attributes.io != mode {
                    inode.attributes.io = mode;
                    // Data and visible attributes of a file stay, so that no client drops what it has of it.
                    if inode.is_directory() {
                        inode.touch(group.now(), group.instance);
                    }
                    group.put(inode);
                }
                Ok(())
            })
            .await
    }
}

#[cfg(test)]
mod tests {
    use api::{CreateKind, CreateSpec, Namespace, Stability, Unnamed, Uploads, Written};
    use types::{Identity, PoolId};

    use super::*;
    use crate::scratch::{Engine, name, regular};

    async fn made(namespace: &SqlNamespace, dir: FileId, text: &str, kind: CreateKind) -> FileId {
        let spec = CreateSpec { kind, ..regular() };
        namespace.create(&Identity::root(), dir, &name(text), &spec).await.unwrap().attributes.file
    }

    async fn io(namespace: &SqlNamespace, file: FileId) -> IoMode {
        namespace.attributes(file).await.unwrap().io
    }

    #[tokio::test]
    async fn a_mode_of_io_is_inherited_by_what_is_made_later_and_kept() {
        for engine in Engine::all() {
            let namespace = engine.open();
            let dir = made(&namespace, FileId::ROOT, "dir", CreateKind::Directory).await;
            let before = made(&namespace, dir, "before", CreateKind::Regular).await;
            namespace.set_io(dir, IoMode::Direct).await.unwrap();
            let sub = made(&namespace, dir, "sub", CreateKind::Directory).await;
            let file = made(&namespace, sub, "file", CreateKind::Regular).await;
            let fifo = made(&namespace, sub, "fifo", CreateKind::Fifo).await;
            let new = Unnamed { permissions: 0o644, location: PoolId(1) };
            let upload = namespace.create_unnamed(&Identity::root(), sub, &new).await.unwrap();
            assert_eq!(upload.io, IoMode::Direct);
            namespace.set_io(sub, IoMode::Auto).await.unwrap();
            namespace.close().await;
            drop(namespace);

            let namespace = engine.open();
            let told = [io(&namespace, dir).await, io(&namespace, sub).await, io(&namespace, file).await];
            assert_eq!(told, [IoMode::Direct, IoMode::Auto, IoMode::Direct]);
            for without in [FileId::ROOT, before, fifo] {
                assert_eq!(io(&namespace, without).await, IoMode::Auto);
            }
            let refused = namespace.set_io(fifo, IoMode::Direct).await;
            assert!(matches!(refused, Err(NamespaceError::NotRegular)), "{refused:?}");
            namespace.close().await;
        }
    }

    /// Clients that hold a file keep its data.
    #[tokio::test]
    async fn a_mode_of_io_of_a_file_that_is_written_moves_nothing_else() {
        for engine in Engine::all() {
            let namespace = engine.open();
            let file = made(&namespace, FileId::ROOT, "file", CreateKind::Regular).await;
            let written = Written {
                size_at_least: Some(10),
                mtime: None,
                space_used: None,
                stability: Stability::Unstable,
            };
            namespace.record_write(file, &written).await.unwrap();
            let before = namespace.attributes(file).await.unwrap();
            for mode in [IoMode::Uncached, IoMode::Buffered, IoMode::Auto, IoMode::Direct] {
                namespace.set_io(file, mode).await.unwrap();
                let now = namespace.attributes(file).await.unwrap();
                assert_eq!(now, types::Attributes { io: mode, ..before });
            }
            namespace.close().await;
            drop(namespace);
            assert_eq!(io(&engine.open(), file).await, IoMode::Direct);
        }
    }
}
