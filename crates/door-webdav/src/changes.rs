//! Requests that change names or properties. Each runs as a task of its own, to its end.

use std::sync::Arc;

use http_server::{RequestBody, Response};

use crate::call::Call;
use crate::collections::{Collections, refuse_body};
use crate::deletes::Deletes;
use crate::proppatch::{PropertyPatches, patch_in};
use crate::refusal::Refusal;
use crate::relocate::moves::Moves;
use crate::tasks::Tasks;

pub(crate) struct Changes {
    pub tasks: Arc<Tasks>,
    pub collections: Arc<Collections>,
    pub deletes: Arc<Deletes>,
    pub moves: Arc<Moves>,
    pub patches: Arc<PropertyPatches>,
}

impl Changes {
    /// MKCOL. The body is read before the task: its client may be slow.
    pub async fn make_collection(&self, call: &Arc<Call>, body: RequestBody) -> Result<Response, Refusal> {
        refuse_body(body).await?;
        let (collections, call) = (Arc::clone(&self.collections), Arc::clone(call));
        self.run(async move { collections.make(&call).await }).await
    }

    pub async fn delete(&self, call: &Arc<Call>) -> Result<Response, Refusal> {
        let (deletes, call) = (Arc::clone(&self.deletes), Arc::clone(call));
        self.run(async move { deletes.delete(&call).await }).await
    }

    /// MOVE.
    pub async fn relocate(&self, call: &Arc<Call>) -> Result<Response, Refusal> {
        let (moves, call) = (Arc::clone(&self.moves), Arc::clone(call));
        self.run(async move { moves.relocate(&call).await }).await
    }

    /// PROPPATCH. The body is read before the task.
    pub async fn patch_properties(&self, call: &Arc<Call>, body: RequestBody) -> Result<Response, Refusal> {
        let patch = patch_in(body).await?;
        let (patches, call) = (Arc::clone(&self.patches), Arc::clone(call));
        self.run(async move { patches.patch(&call, patch).await }).await
    }

    /// The change keeps the tasks: without its client, and while the process stops, it is the last that does.
    fn run<F>(&self, change: F) -> impl Future<Output = Result<Response, Refusal>> + Send + use<F>
    where
        F: Future<Output = Result<Response, Refusal>> + Send + 'static,
    {
        let tasks = Arc::clone(&self.tasks);
        // Large, and handed on several times before it is a task.
        let change = Box::pin(change);
        self.tasks.run(async move {
            let _tasks = tasks;
            change.await
        })
    }
}
