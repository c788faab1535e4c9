//! The users of the system that this server runs on, by its name service (files, LDAP, SSSD…): who a Kerberos name is.

use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;

use door_nfs::LocalUsers;
use types::Identity;

/// Room for the strings of an entry, grown to the second where the first is not enough.
const ENTRY_BYTES: [usize; 2] = [4 << 10, 1 << 20];
/// The most groups of one user.
const GROUPS_MAX: usize = 65_536;

pub struct SystemUsers;

impl LocalUsers for SystemUsers {
    fn identity(&self, user: &str) -> Option<Identity> {
        let user = CString::new(user).ok()?;
        let found = match ids(&user, ENTRY_BYTES[0]) {
            Err(libc::ERANGE) => ids(&user, ENTRY_BYTES[1]),
            found => found,
        };
        let (uid, gid) = found.ok()??;
        Some(Identity::new(uid, gid, &groups(&user, gid)))
    }
}

/// Uid and primary gid; ERANGE if the entry is longer than `entry_bytes`.
fn ids(user: &CString, entry_bytes: usize) -> Result<Option<(u32, u32)>, i32> {
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let mut strings = vec![0 as c_char; entry_bytes];
    let mut found = std::ptr::null_mut();
    // SAFETY: `user` ends in a zero; entry and strings are ours and as long as said. The call keeps none of them.
    #[allow(unsafe_code)]
    let error = unsafe {
        libc::getpwnam_r(user.as_ptr(), entry.as_mut_ptr(), strings.as_mut_ptr(), strings.len(), &mut found)
    };
    if error != 0 {
        return Err(error);
    }
    if found.is_null() {
        return Ok(None);
    }
    // SAFETY: the call said that it found an entry, and then `found` is `entry`, filled in.
    #[allow(unsafe_code)]
    let entry = unsafe { entry.assume_init() };
    Ok(Some((entry.pw_uid, entry.pw_gid)))
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
        let root = SystemUsers.identity("root").unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(!root.groups.contains(&0), "the primary group is not named twice");
        assert_eq!(SystemUsers.identity("nobody-has-this-name"), None);
        assert_eq!(SystemUsers.identity("ro\0ot"), None);
    }
}
