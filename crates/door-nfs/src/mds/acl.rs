//! ACLs on the wire (RFC 8881 §6), and what the caller may do by them.

use std::sync::Arc;
use std::time::Duration;

use nfs4::attr::{Principal4, number};
use nfs4::{
    ACE4_ACCESS_ALLOWED_ACE_TYPE, ACE4_ACCESS_DENIED_ACE_TYPE, ACE4_FAILED_ACCESS_ACE_FLAG,
    ACE4_IDENTIFIER_GROUP, ACE4_INHERITED_ACE, ACE4_SUCCESSFUL_ACCESS_ACE_FLAG, ACE4_SYSTEM_ALARM_ACE_TYPE,
    ACE4_SYSTEM_AUDIT_ACE_TYPE, Bitmap4, FileAttributes, NfsAce4, NfsStat4,
};
use types::{Access, Ace, AceFlags, AceKind, AceWho, Acl, Attributes, FileKind, permission};
use xdr::Opaque;

use super::file_system::FileSystem;
use super::owners;
use crate::context::Compound;
use crate::owners::{GivenIds, Named, OwnerKind, OwnerNames};

const OWNER: &[u8] = b"OWNER@";
const GROUP: &[u8] = b"GROUP@";
const EVERYONE: &[u8] = b"EVERYONE@";

/// Which say nothing of entries that allow or deny; INHERITED_ACE is for `dacl` and to be cleared here (RFC 8881
/// §6.2.1.4.1).
const IDLE_FLAGS: u32 = ACE4_SUCCESSFUL_ACCESS_ACE_FLAG | ACE4_FAILED_ACCESS_ACE_FLAG | ACE4_INHERITED_ACE;

/// Adds the ACL, if it is asked for. ACCESS: the ACL does not let the caller read it. A user or group whose name is not
/// found by `until` is shown by number.
pub(super) async fn add(
    out: &mut FileAttributes,
    compound: &Compound,
    fs: &FileSystem,
    file: &Attributes,
    (mask, until): (&Bitmap4, Duration),
) -> Result<(), NfsStat4> {
    if !mask.contains(number::ACL) {
        return Ok(());
    }
    let acl = readable(compound, fs, file).await?;
    let named = owners::of_acl(compound, fs, &acl, until).await;
    out.acl = Some(to_wire(&acl, &named));
    Ok(())
}

/// For VERIFY: the file's ACL in the form that it was given in, if it is the same. DELAY: that is not known now.
pub(super) async fn as_given(
    out: &mut FileAttributes,
    compound: &Compound,
    fs: &FileSystem,
    file: &Attributes,
    given: Option<Vec<NfsAce4>>,
) -> Result<(), NfsStat4> {
    let Some(given) = given else { return Ok(()) };
    let acl = readable(compound, fs, file).await?;
    out.acl = Some(match of_wire(&given, fs.owners.as_ref()).await {
        Ok(same) if same == acl => given,
        Err(NfsStat4::Delay) => return Err(NfsStat4::Delay),
        // An ACL that cannot be set is no file's ACL.
        Ok(_) | Err(_) => to_wire(&acl, &Named::default()),
    });
    Ok(())
}

/// A file without an ACL shows its mode as one (RFC 8881 §6.4.2).
async fn readable(compound: &Compound, fs: &FileSystem, file: &Attributes) -> Result<Acl, NfsStat4> {
    let found = fs.acl(file).await?;
    if !permission::allows(&compound.identity, file, found.as_ref(), Access::READ_ACL) {
        return Err(NfsStat4::Access);
    }
    Ok(found.unwrap_or_else(|| Acl::of_mode(file.mode)))
}

fn to_wire(acl: &Acl, named: &Named) -> Vec<NfsAce4> {
    acl.aces().iter().map(|ace| ace_to_wire(ace, named)).collect()
}

fn ace_to_wire(ace: &Ace, named: &Named) -> NfsAce4 {
    let (who, of_group) = match ace.who {
        AceWho::Owner => (Opaque::from_static(OWNER), 0),
        AceWho::Group => (Opaque::from_static(GROUP), 0),
        AceWho::Everyone => (Opaque::from_static(EVERYONE), 0),
        AceWho::User(uid) => (named.principal(OwnerKind::User, uid).0, 0),
        AceWho::NamedGroup(gid) => (named.principal(OwnerKind::Group, gid).0, ACE4_IDENTIFIER_GROUP),
    };
    NfsAce4 {
        ace_type: match ace.kind {
            AceKind::Allow => ACE4_ACCESS_ALLOWED_ACE_TYPE,
            AceKind::Deny => ACE4_ACCESS_DENIED_ACE_TYPE,
        },
        flag: ace.flags.bits() | of_group,
        access_mask: ace.mask.bits(),
        who,
    }
}

/// ATTRNOTSUPP: entries that audit or ring an alarm, which are not kept (RFC 8881 §6.2.1.2). INVAL: types, flags and
/// accesses that are not defined. BADOWNER: an unknown user or group; DELAY: it cannot be looked up now. NOSPC: more
/// entries than a file may have.
pub(super) async fn of_wire(given: &[NfsAce4], names: Option<&Arc<OwnerNames>>) -> Result<Acl, NfsStat4> {
    if given.len() > Acl::ACES_MAX {
        return Err(NfsStat4::NoSpc);
    }
    let (mut aces, mut ids) = (Vec::with_capacity(given.len()), GivenIds::new(names));
    for given in given {
        aces.push(ace_of_wire(given, &mut ids).await?);
    }
    Acl::new(aces).map_err(|_| NfsStat4::NoSpc)
}

async fn ace_of_wire(given: &NfsAce4, ids: &mut GivenIds<'_>) -> Result<Ace, NfsStat4> {
    let kind = match given.ace_type {
        ACE4_ACCESS_ALLOWED_ACE_TYPE => AceKind::Allow,
        ACE4_ACCESS_DENIED_ACE_TYPE => AceKind::Deny,
        ACE4_SYSTEM_AUDIT_ACE_TYPE | ACE4_SYSTEM_ALARM_ACE_TYPE => return Err(NfsStat4::AttrNotSupp),
        _ => return Err(NfsStat4::Inval),
    };
    let is_group = given.flag & ACE4_IDENTIFIER_GROUP != 0;
    let flags = given.flag & !(ACE4_IDENTIFIER_GROUP | IDLE_FLAGS);
    Ok(Ace {
        kind,
        flags: AceFlags::from_bits(flags).ok_or(NfsStat4::Inval)?,
        mask: Access::from_bits(given.access_mask).ok_or(NfsStat4::Inval)?,
        who: subject_of_wire(&given.who, is_group, ids).await?,
    })
}

/// The flag for groups is ignored with the special ones (RFC 8881 §6.2.1.5).
async fn subject_of_wire(who: &Opaque, is_group: bool, ids: &mut GivenIds<'_>) -> Result<AceWho, NfsStat4> {
    match &who[..] {
        OWNER => return Ok(AceWho::Owner),
        GROUP => return Ok(AceWho::Group),
        EVERYONE => return Ok(AceWho::Everyone),
        _ => {}
    }
    let given = Principal4(who.clone());
    Ok(if is_group {
        AceWho::NamedGroup(ids.id_of(OwnerKind::Group, given).await?)
    } else {
        AceWho::User(ids.id_of(OwnerKind::User, given).await?)
    })
}

/// INVAL: only directories have entries to inherit. ATTRNOTSUPP: a symbolic link has no ACL.
pub(super) fn judge_place(acl: &Acl, kind: FileKind) -> Result<(), NfsStat4> {
    match kind {
        FileKind::Directory => Ok(()),
        FileKind::Symlink => Err(NfsStat4::AttrNotSupp),
        _ if acl.aces().iter().any(|ace| ace.flags != AceFlags::NONE) => Err(NfsStat4::Inval),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owners::names_for_tests;

    fn ace(ace_type: u32, flag: u32, access_mask: u32, who: &'static str) -> NfsAce4 {
        NfsAce4 { ace_type, flag, access_mask, who: Opaque::from_static(who.as_bytes()) }
    }

    async fn parsed(given: &[NfsAce4]) -> Result<Acl, NfsStat4> {
        of_wire(given, None).await
    }

    fn told(acl: &Acl) -> Vec<NfsAce4> {
        to_wire(acl, &Named::default())
    }

    #[tokio::test]
    async fn entries_come_back_as_they_were_given_but_for_flags_that_mean_nothing() {
        let given = [
            ace(1, 0x40, 0x1, "1000"),
            ace(0, 0x3, 0x1f_07ff, "OWNER@"),
            ace(0, 0x40 | 0x80 | 0x10, 0x20, "GROUP@"),
            ace(0, 0xb, 0, "0"),
        ];
        let back = told(&parsed(&given).await.unwrap());
        assert_eq!(back[..2], given[..2]);
        assert_eq!(back[2], ace(0, 0, 0x20, "GROUP@"));
        assert_eq!(back[3], given[3]);
        assert_eq!(told(&parsed(&[]).await.unwrap()), []);
    }

    #[tokio::test]
    async fn an_acl_that_cannot_be_kept_is_refused_with_the_status_of_the_rfc() {
        let refused = async |ace| parsed(&[ace]).await.unwrap_err();
        for audit in [2, 3] {
            assert_eq!(refused(ace(audit, 0, 1, "EVERYONE@")).await, NfsStat4::AttrNotSupp);
        }
        assert_eq!(refused(ace(4, 0, 1, "EVERYONE@")).await, NfsStat4::Inval);
        assert_eq!(refused(ace(0, 0x100, 1, "EVERYONE@")).await, NfsStat4::Inval);
        assert_eq!(refused(ace(0, 0, 0x8000_0000, "EVERYONE@")).await, NfsStat4::Inval);
        for nobody in ["", "ann", "ann@example.org", "ANONYMOUS@", "OWNER", "01"] {
            assert_eq!(refused(ace(0, 0, 1, nobody)).await, NfsStat4::BadOwner, "{nobody:?}");
        }
        for (flag, max) in [(0, 2 * Acl::HANDED_ON_MAX), (1, Acl::HANDED_ON_MAX)] {
            let many = vec![ace(0, flag, 1, "1000"); max + 1];
            assert_eq!(parsed(&many).await, Err(NfsStat4::NoSpc));
            assert!(parsed(&many[1..]).await.is_ok());
        }
    }

    #[tokio::test]
    async fn entries_name_users_and_groups_where_there_is_a_domain() {
        let names = names_for_tests();
        let given = [
            ace(0, 0, 1, "ann@example.org"),
            ace(1, 0x40, 1, "staff@EXAMPLE.ORG"),
            ace(0, 0, 1, "5"),
            ace(0, 0x40, 1, "GROUP@"),
        ];
        let acl = of_wire(&given, Some(&names)).await.unwrap();
        let who: Vec<_> = acl.aces().iter().map(|ace| ace.who).collect();
        assert_eq!(who, [AceWho::User(1000), AceWho::NamedGroup(50), AceWho::User(5), AceWho::Group]);
        let ids = [(OwnerKind::User, 1000), (OwnerKind::User, 5), (OwnerKind::Group, 50)];
        let named = names.name(ids.into(), names.deadline()).await;
        let whom: Vec<_> = to_wire(&acl, &named).into_iter().map(|ace| ace.who).collect();
        let expected = ["ann@example.org", "staff@example.org", "5", "GROUP@"];
        assert_eq!(whom, expected.map(|text| Opaque::from_static(text.as_bytes())));
        // A group is no user, and a name that cannot be looked up now is not unknown.
        let refused = async |ace| of_wire(&[ace], Some(&names)).await.unwrap_err();
        assert_eq!(refused(ace(0, 0x40, 1, "ann@example.org")).await, NfsStat4::BadOwner);
        assert_eq!(refused(ace(0, 0, 1, "ann@elsewhere.org")).await, NfsStat4::BadOwner);
        assert_eq!(refused(ace(0, 0, 1, "broken@example.org")).await, NfsStat4::Delay);
    }

    #[tokio::test]
    async fn only_directories_have_entries_to_inherit() {
        let inherited = parsed(&[ace(0, 0x1, 1, "EVERYONE@")]).await.unwrap();
        assert_eq!(judge_place(&inherited, FileKind::Directory), Ok(()));
        assert_eq!(judge_place(&inherited, FileKind::Regular), Err(NfsStat4::Inval));
        let plain = parsed(&[ace(0, 0, 1, "EVERYONE@")]).await.unwrap();
        assert_eq!(judge_place(&plain, FileKind::Regular), Ok(()));
        assert_eq!(judge_place(&plain, FileKind::Symlink), Err(NfsStat4::AttrNotSupp));
    }
}
