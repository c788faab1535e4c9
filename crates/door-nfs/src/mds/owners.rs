//! Owners by name or by number: if a domain is configured, clients that use RPCSEC_GSS get names.
//!
//! As Linux has it on both sides (`nfs4_disable_idmapping`): with AUTH_SYS ids are numbers for the client's kernel
//! already, and names could only get lost; with Kerberos host and server need not agree on numbers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use nfs4::Bitmap4;
use nfs4::attr::{Principal4, number};
use nfs4::{FileAttributes, NfsStat4};
use types::{AceWho, Acl, Attributes};

use super::file_system::FileSystem;
use crate::context::Compound;
use crate::owners::{Named, OwnerKind, OwnerNames, id_of};
use crate::security::Flavor;

/// The names of these files' owners and groups, if they are wanted. One not known by `until` is shown by number.
pub(super) async fn named(
    compound: &Compound,
    fs: &FileSystem,
    files: &[Attributes],
    (wanted, until): (&Bitmap4, Duration),
) -> Named {
    let (of_user, of_group) = (wanted.contains(number::OWNER), wanted.contains(number::OWNER_GROUP));
    let users = files.iter().filter(|_| of_user).map(|file| (OwnerKind::User, file.uid));
    let groups = files.iter().filter(|_| of_group).map(|file| (OwnerKind::Group, file.gid));
    name(compound, fs, users.chain(groups), until).await
}

/// As [`named`], of the users and groups in an ACL.
pub(super) async fn of_acl(compound: &Compound, fs: &FileSystem, acl: &Acl, until: Duration) -> Named {
    let named = acl.aces().iter().filter_map(|ace| match ace.who {
        AceWho::User(uid) => Some((OwnerKind::User, uid)),
        AceWho::NamedGroup(gid) => Some((OwnerKind::Group, gid)),
        AceWho::Owner | AceWho::Group | AceWho::Everyone => None,
    });
    name(compound, fs, named, until).await
}

async fn name(
    compound: &Compound,
    fs: &FileSystem,
    ids: impl Iterator<Item = (OwnerKind, u32)>,
    until: Duration,
) -> Named {
    match &fs.owners {
        Some(names) if compound.caller.flavor.is_some_and(Flavor::is_kerberos) => {
            names.name(ids.collect::<BTreeSet<_>>(), until).await
        }
        _ => Named::default(),
    }
}

/// Until when names are looked up for a request that begins now.
pub(super) fn deadline(fs: &FileSystem) -> Duration {
    fs.owners.as_ref().map_or(Duration::ZERO, |names| names.deadline())
}

/// The ids of the owner and group that a client gives, by number or by name.
pub(super) async fn ids(
    fs: &FileSystem,
    owner: Option<&Principal4>,
    group: Option<&Principal4>,
) -> Result<(Option<u32>, Option<u32>), NfsStat4> {
    let names = fs.owners.as_ref();
    let uid = match owner {
        Some(owner) => Some(id_of(names, OwnerKind::User, owner).await?),
        None => None,
    };
    let gid = match group {
        Some(group) => Some(id_of(names, OwnerKind::Group, group).await?),
        None => None,
    };
    Ok((uid, gid))
}

/// For VERIFY: the file's owners in the form that they were given in, if they are the same. DELAY: that is not known now.
pub(super) async fn as_given(
    fs: &FileSystem,
    file: &Attributes,
    given: (Option<Principal4>, Option<Principal4>),
    found: &mut FileAttributes,
) -> Result<(), NfsStat4> {
    let names = fs.owners.as_ref();
    if let Some(owner) = given.0
        && is_same(names, OwnerKind::User, &owner, file.uid).await?
    {
        found.owner = Some(owner);
    }
    if let Some(group) = given.1
        && is_same(names, OwnerKind::Group, &group, file.gid).await?
    {
        found.owner_group = Some(group);
    }
    Ok(())
}

async fn is_same(
    names: Option<&Arc<OwnerNames>>,
    kind: OwnerKind,
    given: &Principal4,
    id: u32,
) -> Result<bool, NfsStat4> {
    match id_of(names, kind, given).await {
        Ok(given) => Ok(given == id),
        // An unknown name owns no file.
        Err(NfsStat4::BadOwner) => Ok(false),
        Err(status) => Err(status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owners::names_for_tests;
    use xdr::Opaque;

    #[tokio::test]
    async fn an_owner_that_cannot_be_looked_up_now_is_neither_the_same_nor_another() {
        let names = names_for_tests();
        let same = async |text: &'static str| {
            is_same(Some(&names), OwnerKind::User, &Principal4(Opaque::from(text)), 1000).await
        };
        assert_eq!(same("1000").await, Ok(true));
        assert_eq!(same("ann@example.org").await, Ok(true));
        assert_eq!((same("7").await, same("nobody@example.org").await), (Ok(false), Ok(false)));
        assert_eq!(same("broken@example.org").await, Err(NfsStat4::Delay));
    }
}
