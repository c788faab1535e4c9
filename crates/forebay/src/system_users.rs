//! The users of the system that this server runs on, by its name service (files, LDAP, SSSD…): who a Kerberos name is.

use std::ffi::CString;

use door_nfs::{LocalUsers, NamesUnavailable};
use types::Identity;

use crate::system_names::entry;

/// The most groups of one user.
const GROUPS_MAX: usize = 65_536;

pub struct SystemUsers;

impl LocalUsers for SystemUsers {
    fn identity(&self, user: &str) -> Result<Option<Identity>, NamesUnavailable> {
        let Ok(user) = CString::new(user) else { return Ok(None) };
        // SAFETY: `user` ends in a zero, and what `entry` hands over is valid for the call, which keeps none of it.
        #[allow(unsafe_code)]
        let found = entry(
            |found, strings, len, result| unsafe {
                libc::getpwnam_r(user.as_ptr(), found, strings, len, result)
            },
            |found: &libc::passwd| (found.pw_uid, found.pw_gid),
        )?;
        Ok(found.map(|(uid, gid)| Identity::new(uid, gid, &groups(&user, gid))))
    }
}

/// Supplementary groups, without the primary one.
fn groups(user: &CString, gid: u32) -> Vec<u32> {
    let mut groups = vec![0u32; 64];
    loop {
        let mut count = i32::try_from(groups.len()).expect("groups are bounded");
        // SAFETY: `user` ends in a zero, and `count` says how many groups there is room for.
        #[allow(unsafe_code)]
        let result = unsafe { libc::getgrouplist(user.as_ptr(), gid, groups.as_mut_ptr(), &mut count) };
        let wanted = usize::try_from(count).unwrap_or(0);
        if result >= 0 {
            groups.truncate(wanted);
            groups.retain(|group| *group != gid);
            return groups;
        }
        if wanted <= groups.len() || wanted > GROUPS_MAX {
            return Vec::new();
        }
        groups.resize(wanted, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_in_every_system_and_strangers_are_in_none() {
        let root = SystemUsers.identity("root").unwrap().unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(!root.groups.contains(&0), "the primary group is not named twice");
        assert_eq!(SystemUsers.identity("nobody-has-this-name"), Ok(None));
        assert_eq!(SystemUsers.identity("ro\0ot"), Ok(None));
    }
}
