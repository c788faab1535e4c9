//! A namespace that notes which questions it is asked, so that a test can say what an operation costs, and that lets
//! something happen between an answer and the caller.

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::{
    Cookie, CreateSpec, Created, ExpectedEnds, ExpectedFile, Found, Linked, Namespace, NamespaceError, Page,
    Renamed, Replace, SetAttributes, Unlinked, Usage, Written,
};
use async_trait::async_trait;
use parking_lot::Mutex;
use types::{Attributes, FileId, Identity, Name, SymlinkTarget};

pub struct WatchedNamespace {
    namespace: Arc<dyn Namespace>,
    /// Methods of the trait, in the order of the calls.
    asked: Mutex<Vec<&'static str>>,
    planned: Mutex<Option<Planned>>,
    is_slow: AtomicBool,
    busy: Mutex<Busy>,
}

/// Questions that are refused.
#[derive(Default)]
struct Busy {
    question: &'static str,
    left: usize,
}

/// Happens once, when a question is answered and before the caller hears the answer.
struct Planned {
    /// `None`: any.
    question: Option<&'static str>,
    /// Such questions before that one.
    before: usize,
    event: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl WatchedNamespace {
    pub fn new(namespace: Arc<dyn Namespace>) -> WatchedNamespace {
        WatchedNamespace {
            namespace,
            asked: Mutex::default(),
            planned: Mutex::default(),
            is_slow: AtomicBool::new(false),
            busy: Mutex::default(),
        }
    }

    /// From now on each question and each answer is under way for at least one poll.
    pub fn slow_down(&self) {
        self.is_slow.store(true, Ordering::Relaxed);
    }

    /// The way of a question or an answer.
    pub async fn travel(&self) {
        if self.is_slow.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
    }

    /// The questions since this was last called.
    pub fn take_asked(&self) -> Vec<&'static str> {
        mem::take(&mut self.asked.lock())
    }

    /// Plans an event for the answer to the next question of this name.
    pub fn behind_next(&self, question: &'static str, event: impl Future<Output = ()> + Send + 'static) {
        let event = Box::pin(event);
        *self.planned.lock() = Some(Planned { question: Some(question), before: 0, event });
    }

    /// Plans an event for the answer to a question, whichever it is, when so many others were answered before.
    pub fn behind(&self, before: usize, event: impl Future<Output = ()> + Send + 'static) {
        *self.planned.lock() = Some(Planned { question: None, before, event: Box::pin(event) });
    }

    /// The next so many questions of this name are answered with `Busy`, and nothing is done for them.
    pub fn be_busy(&self, question: &'static str, times: usize) {
        *self.busy.lock() = Busy { question, left: times };
    }

    /// Whether the event has not happened, and now will not.
    pub fn cancel(&self) -> bool {
        self.planned.lock().take().is_some()
    }

    async fn ask<T: Send>(
        &self,
        question: &'static str,
        answer: impl Future<Output = Result<T, NamespaceError>> + Send,
    ) -> Result<T, NamespaceError> {
        self.asked.lock().push(question);
        self.travel().await;
        let answer = if self.is_busy(question) { Err(NamespaceError::Busy) } else { answer.await };
        self.travel().await;
        if let Some(planned) = self.take_planned(question) {
            planned.event.await;
        }
        answer
    }

    /// In a slow namespace a change waits in its queue, and is made also for a caller that is gone.
    async fn queued(
        &self,
        change: impl Future<Output = Result<Attributes, NamespaceError>> + Send + 'static,
    ) -> Result<Attributes, NamespaceError> {
        if !self.is_slow.load(Ordering::Relaxed) {
            return change.await;
        }
        let waiting = async move {
            tokio::task::yield_now().await;
            change.await
        };
        tokio::spawn(waiting).await.expect("it does not panic")
    }

    fn is_busy(&self, question: &'static str) -> bool {
        let mut busy = self.busy.lock();
        let is_busy = busy.question == question && busy.left > 0;
        busy.left -= usize::from(is_busy);
        is_busy
    }

    fn take_planned(&self, question: &'static str) -> Option<Planned> {
        let mut planned = self.planned.lock();
        let next = planned.as_mut().filter(|next| next.question.is_none_or(|awaited| awaited == question))?;
        match next.before {
            0 => planned.take(),
            _ => {
                next.before -= 1;
                None
            }
        }
    }
}

#[async_trait]
impl Namespace for WatchedNamespace {
    async fn lookup(&self, who: &Identity, dir: FileId, name: &Name) -> Result<Found, NamespaceError> {
        self.ask("lookup", self.namespace.lookup(who, dir, name)).await
    }

    async fn parent(&self, who: &Identity, dir: FileId) -> Result<Attributes, NamespaceError> {
        self.ask("parent", self.namespace.parent(who, dir)).await
    }

    async fn attributes(&self, file: FileId) -> Result<Attributes, NamespaceError> {
        self.ask("attributes", self.namespace.attributes(file)).await
    }

    async fn set_attributes(
        &self,
        who: &Identity,
        file: FileId,
        set: &SetAttributes,
    ) -> Result<Attributes, NamespaceError> {
        let (namespace, who, set) = (Arc::clone(&self.namespace), who.clone(), set.clone());
        let change = async move { namespace.set_attributes(&who, file, &set).await };
        self.ask("set_attributes", self.queued(change)).await
    }

    async fn create(
        &self,
        who: &Identity,
        dir: FileId,
        name: &Name,
        spec: &CreateSpec,
    ) -> Result<Created, NamespaceError> {
        self.ask("create", self.namespace.create(who, dir, name, spec)).await
    }

    async fn link(
        &self,
        who: &Identity,
        file: FileId,
        dir: FileId,
        name: &Name,
    ) -> Result<Linked, NamespaceError> {
        self.ask("link", self.namespace.link(who, file, dir, name)).await
    }

    async fn unlink(
        &self,
        who: &Identity,
        dir: FileId,
        name: &Name,
        expected: ExpectedFile,
    ) -> Result<Unlinked, NamespaceError> {
        self.ask("unlink", self.namespace.unlink(who, dir, name, expected)).await
    }

    async fn rename(
        &self,
        who: &Identity,
        from: (FileId, &Name),
        to: (FileId, &Name),
        replace: Replace,
        expected: ExpectedEnds,
    ) -> Result<Renamed, NamespaceError> {
        self.ask("rename", self.namespace.rename(who, from, to, replace, expected)).await
    }

    async fn list(
        &self,
        who: &Identity,
        dir: FileId,
        after: Cookie,
        limit: usize,
    ) -> Result<Page, NamespaceError> {
        self.ask("list", self.namespace.list(who, dir, after, limit)).await
    }

    async fn read_link(&self, file: FileId) -> Result<SymlinkTarget, NamespaceError> {
        self.ask("read_link", self.namespace.read_link(file)).await
    }

    async fn record_write(&self, file: FileId, written: &Written) -> Result<Attributes, NamespaceError> {
        let (namespace, written) = (Arc::clone(&self.namespace), *written);
        let change = async move { namespace.record_write(file, &written).await };
        self.ask("record_write", self.queued(change)).await
    }

    async fn usage(&self) -> Result<Usage, NamespaceError> {
        self.ask("usage", self.namespace.usage()).await
    }
}
