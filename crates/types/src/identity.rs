//! On whose behalf something is done.

use std::sync::Arc;

/// User, primary group and supplementary groups, after squashing and mapping.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    pub uid: u32,
    pub gid: u32,
    pub groups: Arc<[u32]>,
}

impl Identity {
    /// `nobody`, as Linux and NFS servers squash to.
    pub const NOBODY_ID: u32 = 65534;

    pub fn new(uid: u32, gid: u32, groups: &[u32]) -> Identity {
        Identity { uid, gid, groups: groups.into() }
    }

    pub fn root() -> Identity {
        Identity::new(0, 0, &[])
    }

    pub fn nobody() -> Identity {
        Identity::new(Identity::NOBODY_ID, Identity::NOBODY_ID, &[])
    }

    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    pub fn is_member_of(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}
