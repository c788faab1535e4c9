//! Files that have a replica on one pool, which is to be given up.

use api::NamespaceError;
use types::{FileId, PoolId};

use crate::service::SqlNamespace;
use crate::session::{Purpose, Session};
use crate::store::StoreResult;

/// The files of a pool, whatever the state of their replicas there.
pub struct Residents {
    session: Box<dyn Session>,
    pool: PoolId,
}

impl SqlNamespace {
    /// Blocks. Beside the readers, so that it takes no turn of theirs. Changes that wait for the disk are not seen: settle the
    /// namespace before.
    pub fn residents(&self, pool: PoolId) -> Result<Residents, NamespaceError> {
        Ok(Residents { session: self.reads.session(Purpose::Look)?, pool })
    }
}

impl Residents {
    /// Files that have a name. Reads all locations. Blocks.
    pub fn count(&mut self) -> Result<u64, NamespaceError> {
        let sql = format!("SELECT COUNT(*) FROM {} AND i.nlink > 0", self.joined());
        let count = self.look(|session| session.number(&sql))?;
        Ok(count.unwrap_or(0).cast_unsigned())
    }

    /// Those with a name by their numbers behind `after`. Blocks.
    pub fn page(&mut self, after: FileId, limit: usize) -> Result<Vec<FileId>, NamespaceError> {
        self.files(after, "i.nlink > 0", limit)
    }

    /// Those without a name: uploads under way, and files that were removed while somebody has them open, or whose replica is
    /// still to be removed. Blocks.
    pub fn unnamed(&mut self, after: FileId, limit: usize) -> Result<Vec<FileId>, NamespaceError> {
        self.files(after, "i.nlink = 0", limit)
    }

    fn files(&mut self, after: FileId, which: &str, limit: usize) -> Result<Vec<FileId>, NamespaceError> {
        let start = after.0.cast_signed();
        let sql = format!(
            "SELECT l.inode FROM {} AND {which} AND l.inode > {start} ORDER BY l.inode LIMIT {limit}",
            self.joined()
        );
        self.look(|session| session.rows(&sql, |row| row.id(0)))
    }

    fn joined(&self) -> String {
        let pool = self.session.narrow(self.pool.0);
        format!("locations l JOIN inodes i ON i.id = l.inode WHERE l.pool = {pool}")
    }

    fn look<T>(
        &mut self,
        question: impl FnOnce(&mut dyn Session) -> StoreResult<T>,
    ) -> Result<T, NamespaceError> {
        let session = &mut *self.session;
        let answer = session.begin().and_then(|()| question(session));
        session.end();
        answer.map_err(|error| (&error).into())
    }
}

#[cfg(test)]
mod tests {
    //! On both engines, where there is PostgreSQL.

    use api::{CreateKind, CreateSpec, ExpectedFile, Locations, Namespace};
    use types::Identity;

    use super::*;
    use crate::scratch::{Engine, name, regular};

    #[tokio::test]
    async fn files_with_a_replica_on_a_pool_are_counted_and_listed_page_by_page() {
        const POOL: PoolId = PoolId(3);
        for engine in Engine::all() {
            let (root, namespace) = (Identity::root(), engine.open());
            let create = async |text, pool| {
                let spec = CreateSpec { kind: CreateKind::Regular, location: Some(pool), ..regular() };
                namespace.create(&root, FileId::ROOT, &name(text), &spec).await.unwrap().attributes.file
            };
            let (one, two, three) =
                (create("1", POOL).await, create("2", POOL).await, create("3", POOL).await);
            create("elsewhere", PoolId(0)).await;
            namespace.link(&root, one, FileId::ROOT, &name("second name")).await.unwrap();
            namespace.unlink(&root, FileId::ROOT, &name("2"), ExpectedFile::Any).await.unwrap();
            namespace.settle().await.unwrap();
            let mut residents = namespace.residents(POOL).unwrap();
            assert_eq!(residents.count().unwrap(), 2);
            assert_eq!(residents.page(FileId(0), 1).unwrap(), [one]);
            assert_eq!(residents.page(one, 9).unwrap(), [three]);
            assert_eq!(residents.unnamed(FileId(0), 9).unwrap(), [two]);
            assert_eq!(namespace.residents(PoolId(4)).unwrap().count().unwrap(), 0);
            namespace.close().await;
        }
    }
}
