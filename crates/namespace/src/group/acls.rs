//! ACLs in a group. The inode says whether there is one, so files without pay nothing.

use std::collections::HashMap;

use types::{Acl, Attributes, FileId};

use super::error::OpResult;
use super::rows::Rows;
use super::source::Source;
use crate::cache::Changes;
use crate::counts::Question;
use crate::inode::Inode;
use crate::store::Batch;

/// As they were before the group. Each create in a directory asks for its ACL.
#[derive(Default)]
pub struct AskedAcls {
    by_file: HashMap<FileId, AskedAcl>,
}

struct AskedAcl {
    acl: Acl,
    /// The database had it and the cache had not.
    is_news: bool,
}

impl AskedAcls {
    /// For the cache: what was found, and then what changed since.
    pub fn tell(self, batch: &mut Batch, changes: &mut Changes) {
        let asked = self.by_file.into_iter();
        let news = asked.filter(|(file, asked)| asked.is_news && !batch.acls.contains_key(file));
        changes.learned.acls = news.map(|(file, asked)| (file, asked.acl)).collect();
        changes.acls = std::mem::take(&mut batch.acls).into_iter().collect();
    }
}

pub struct Acls<'g, 'a> {
    pub asked: &'g mut AskedAcls,
    pub source: &'g mut Source<'a>,
    pub rows: &'g mut Rows,
}

impl Acls<'_, '_> {
    pub fn of(&mut self, attributes: &Attributes) -> OpResult<Option<Acl>> {
        if !attributes.has_acl {
            return Ok(None);
        }
        let file = attributes.file;
        if let Some(changed) = self.rows.batch.acls.get(&file) {
            return Ok(changed.clone());
        }
        if let Some(asked) = self.asked.by_file.get(&file) {
            return Ok(Some(asked.acl.clone()));
        }
        let kept = self.source.cache.acl(file);
        let is_kept = kept.is_some();
        let found = if is_kept { kept } else { self.source.ask(Question::Acl).acl(file)? };
        let is_news = !is_kept && found.is_some();
        // One that is missing is damage: nobody but the owner is let in by it.
        let acl = found.unwrap_or_default();
        self.asked.by_file.insert(file, AskedAcl { acl: acl.clone(), is_news });
        Ok(Some(acl))
    }

    /// The caller puts or inserts the inode.
    pub fn set(&mut self, inode: &mut Inode, acl: Option<Acl>) {
        if inode.attributes.has_acl || acl.is_some() {
            inode.attributes.has_acl = acl.is_some();
            self.rows.change().acls.insert(inode.id(), acl);
        }
    }

    /// Of an inode that was just inserted.
    pub fn begin(&mut self, file: FileId, acl: Option<Acl>) {
        if acl.is_some() {
            self.rows.change().acls.insert(file, acl);
        }
    }
}

#[cfg(test)]
mod tests {
    use api::{CreateKind, CreateSpec, Namespace, SetAttributes};
    use types::{Access, Ace, AceFlags, AceWho, Acl, FileId, Identity};

    use crate::ops::create;
    use crate::scratch::{name, open, regular};

    #[tokio::test]
    async fn a_group_asks_once_for_the_acl_of_a_directory_however_much_is_made_in_it() {
        let scratch = tempfile::tempdir().unwrap();
        let namespace = open(&scratch);
        let root = Identity::root();
        let all = Ace::allow(AceWho::Everyone, Access::OF_MODE).inherited_by(AceFlags::FILE_INHERIT);
        let set = SetAttributes { acl: Acl::new(vec![all]).ok(), ..SetAttributes::default() };
        let folder = CreateSpec { kind: CreateKind::Directory, set, ..regular() };
        let dir = namespace.create(&root, FileId::ROOT, &name("d"), &folder).await.unwrap().attributes.file;
        namespace.close().await;
        drop(namespace);

        let namespace = open(&scratch);
        let counts = || {
            let figures = namespace.figures();
            let asked = figures.questions.iter().filter(|figures| figures.kind == "acl").map(|acl| acl.count);
            let looked = figures.cache.iter().filter(|figures| figures.kind == "acl");
            (asked.sum::<u64>(), looked.map(|acl| acl.hits + acl.misses).sum::<u64>())
        };
        let make = |names: [&'static str; 2]| {
            namespace.shared.submit(move |group| {
                for made in names {
                    create::create(group, &Identity::root(), dir, &name(made), &regular())?;
                }
                Ok(())
            })
        };
        make(["a", "b"]).await.unwrap();
        assert_eq!(counts(), (1, 1), "the cache knew of none");
        make(["c", "d"]).await.unwrap();
        assert_eq!(counts(), (1, 2), "and now it does");
        namespace.close().await;
    }
}
