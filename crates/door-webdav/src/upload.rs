//! The door's own rules when an upload gets its name: WebDAV locks, by path.

use std::sync::Arc;

use api::Published;
use file_state::Change;
use files::{Complete, NameToGive, Naming, NamingGuard, Upload, UploadTarget, UploadTerms};
use types::FileId;

use crate::call::Call;
use crate::conditions::PathChangeGuard;
use crate::front::Front;
use crate::lock::Carried;
use crate::locks::{LockOwner, PathChange};
use crate::refusal::Refusal;

pub(crate) struct LockNaming {
    front: Arc<Front>,
    owner: LockOwner,
}

/// Until this is dropped no lock is given that would have forbidden the name.
pub(crate) struct LockNamingGuard {
    // Settled before other changes may begin.
    carried: Carried,
    _changing: PathChangeGuard,
}

impl Naming for LockNaming {
    type Guard = LockNamingGuard;
    type Refused = Refusal;

    async fn begin(&self, name: NameToGive<'_>) -> Result<LockNamingGuard, Refusal> {
        let NameToGive { path, file, is_new, patience } = name;
        let change = if is_new { PathChange::of_member(path) } else { PathChange::of_resource(path) };
        let LockOwner { principal, tokens } = &self.owner;
        let changing = self.front.begin_changes_of(principal, tokens, vec![change], patience).await?;
        Ok(LockNamingGuard { carried: self.front.carry_locks(path, file)?, _changing: changing })
    }

    fn may_pass(refused: &Refusal) -> bool {
        refused.may_pass()
    }
}

impl NamingGuard for LockNamingGuard {
    fn given(&mut self, published: &Published) {
        self.carried.given(published.replaced.map(|replaced| replaced.file));
    }
}

impl Front {
    pub(crate) async fn begin_upload(
        &self,
        call: &Call,
        target: UploadTarget,
        mut terms: UploadTerms,
    ) -> Result<Upload, Refusal> {
        terms.kinds.extend(&self.config.checksums);
        Ok(self.services.files.begin_upload(self.requests, &call.caller, target, terms).await?)
    }

    pub(crate) async fn publish(
        self: &Arc<Self>,
        complete: Complete,
        owner: LockOwner,
    ) -> Result<Published, Refusal> {
        Ok(complete.publish(&self.naming(owner)).await?)
    }

    pub(crate) fn naming(self: &Arc<Self>, owner: LockOwner) -> LockNaming {
        LockNaming { front: Arc::clone(self), owner }
    }

    /// Recalls the grants of NFS clients on a file that is about to be changed; none of them is granted anew until the
    /// returned guard is dropped.
    pub(crate) async fn make_way(
        &self,
        file: FileId,
        change: Change,
    ) -> Result<files::FileChangeGuard, Refusal> {
        let patience = self.config.recall_patience;
        Ok(self.services.files.before_change(file, Some(self.requests), change, patience).await?)
    }
}
