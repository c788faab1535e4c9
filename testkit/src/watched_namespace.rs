//! A namespace that lets a test act between two questions of one request.

use std::sync::Arc;

use api::{
    Cookie, CreateSpec, Created, Linked, Namespace, NamespaceError, Page, Renamed, Replace, SetAttributes,
    Unlinked, Usage, Written,
};
use async_trait::async_trait;
use types::{Attributes, FileId, Identity, Name, SymlinkTarget};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    Lookup,
    Parent,
    Attributes,
    SetAttributes,
    Create,
    Link,
    Unlink,
    Rename,
    List,
    ReadLink,
    RecordWrite,
    Usage,
}

#[async_trait]
pub trait Watch: Send + Sync {
    /// Called when the namespace has answered and before the caller hears of it.
    async fn answered(&self, question: Question);
}

/// Passes every question on, and calls the watch behind each answer.
pub struct WatchedNamespace {
    inner: Arc<dyn Namespace>,
    watch: Arc<dyn Watch>,
}

impl WatchedNamespace {
    pub fn new(inner: Arc<dyn Namespace>, watch: Arc<dyn Watch>) -> WatchedNamespace {
        WatchedNamespace { inner, watch }
    }

    async fn pass<T: Send>(&self, question: Question, answer: impl Future<Output = T> + Send) -> T {
        let answer = answer.await;
        self.watch.answered(question).await;
        answer
    }
}

#[async_trait]
impl Namespace for WatchedNamespace {
    async fn lookup(&self, who: &Identity, dir: FileId, name: &Name) -> Result<Attributes, NamespaceError> {
        self.pass(Question::Lookup, self.inner.lookup(who, dir, name)).await
    }

    async fn parent(&self, who: &Identity, dir: FileId) -> Result<Attributes, NamespaceError> {
        self.pass(Question::Parent, self.inner.parent(who, dir)).await
    }

    async fn attributes(&self, file: FileId) -> Result<Attributes, NamespaceError> {
        self.pass(Question::Attributes, self.inner.attributes(file)).await
    }

    async fn set_attributes(
        &self,
        who: &Identity,
        file: FileId,
        set: &SetAttributes,
    ) -> Result<Attributes, NamespaceError> {
        self.pass(Question::SetAttributes, self.inner.set_attributes(who, file, set)).await
    }

    async fn create(
        &self,
        who: &Identity,
        dir: FileId,
        name: &Name,
        spec: &CreateSpec,
    ) -> Result<Created, NamespaceError> {
        self.pass(Question::Create, self.inner.create(who, dir, name, spec)).await
    }

    async fn link(
        &self,
        who: &Identity,
        file: FileId,
        dir: FileId,
        name: &Name,
    ) -> Result<Linked, NamespaceError> {
        self.pass(Question::Link, self.inner.link(who, file, dir, name)).await
    }

    async fn unlink(&self, who: &Identity, dir: FileId, name: &Name) -> Result<Unlinked, NamespaceError> {
        self.pass(Question::Unlink, self.inner.unlink(who, dir, name)).await
    }

    async fn rename(
        &self,
        who: &Identity,
        from: (FileId, &Name),
        to: (FileId, &Name),
        replace: Replace,
    ) -> Result<Renamed, NamespaceError> {
        self.pass(Question::Rename, self.inner.rename(who, from, to, replace)).await
    }

    async fn list(
        &self,
        who: &Identity,
        dir: FileId,
        after: Cookie,
        limit: usize,
    ) -> Result<Page, NamespaceError> {
        self.pass(Question::List, self.inner.list(who, dir, after, limit)).await
    }

    async fn read_link(&self, file: FileId) -> Result<SymlinkTarget, NamespaceError> {
        self.pass(Question::ReadLink, self.inner.read_link(file)).await
    }

    async fn record_write(&self, file: FileId, written: &Written) -> Result<Attributes, NamespaceError> {
        self.pass(Question::RecordWrite, self.inner.record_write(file, written)).await
    }

    async fn usage(&self) -> Result<Usage, NamespaceError> {
        self.pass(Question::Usage, self.inner.usage()).await
    }
}
