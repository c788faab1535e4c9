//! SETATTR, and the reading of settable attributes for OPEN and CREATE too.

use api::{SetAttributes, SetTime};
use files::{SetAttributesError, SetProgress};
use nfs4::attr::{Principal4, number};
use nfs4::{
    Bitmap4, Fattr4, FileAttributes, NfsAce4, NfsStat4, SetAttr4Args, SetAttr4Res, SetTime4, StateId4,
};
use types::{Access, Attributes, FileKind, Timestamp, permission};

use super::attributes::{DELEGATED_TIMES, SETTABLE_AT_CREATION, SETTABLE_BY_SETATTR, supported};
use super::clients::Clients;
use super::file_system::FileSystem;
use super::permit::check_io;
use super::{acl, delegated_times, owners};
use crate::context::Compound;
use crate::status;

const MODE_BITS: u32 = 0o7777;

/// A SETATTR that fails half way also answers with the attributes that it has set (RFC 8881 §18.30.3).
pub(super) async fn set(compound: &mut Compound, clients: &Clients, args: &SetAttr4Args) -> SetAttr4Res {
    let mut attrsset = Bitmap4::EMPTY;
    let outcome = try_set(compound, clients, args, &mut attrsset).await;
    SetAttr4Res { status: outcome.err().unwrap_or(NfsStat4::Ok), attrsset }
}

async fn try_set(
    compound: &mut Compound,
    clients: &Clients,
    args: &SetAttr4Args,
    done: &mut Bitmap4,
) -> Result<(), NfsStat4> {
    let (fs, file) = (&*clients.fs, compound.file()?);
    let requested =
        parse(compound.minorversion, &args.obj_attributes, SETTABLE_BY_SETATTR)?.owned(fs).await?;
    let asked = args.obj_attributes.attrmask;
    if !requested.delegated.is_empty() {
        delegated_times::set(compound, clients, args.stateid, requested.delegated).await?;
        // Of the times that were delegated to others nothing changes.
        *done = asked.intersect(&DELEGATED_TIMES);
        if *done == asked {
            return Ok(());
        }
    }
    let before = fs.attributes(file).await?;
    let mut change = requested.into_change(before.mode, compound.identity.is_root())?;
    if let Some(acl) = &change.acl {
        acl::judge_place(acl, before.kind)?;
    }
    if change.size.is_some() {
        let stateid = compound.resolve(args.stateid)?;
        authorize_size(compound, clients, stateid, &before).await?;
        change.size_is_authorized = true;
    }
    let set = fs.files.set_attributes(fs.by(compound), &before, change).await;
    let SetAttributesError { progress, error } = match set {
        Ok(_) => {
            *done = asked;
            return Ok(());
        }
        Err(failed) => failed,
    };
    if let Some(unset) = unset(progress) {
        *done = asked;
        done.remove(unset);
    }
    Err(status::of_files(error))
}

/// The attribute that was not set. `None`: none was.
fn unset(progress: SetProgress) -> Option<u32> {
    match progress {
        SetProgress::Nothing => None,
        SetProgress::AllButSize => Some(number::SIZE),
        SetProgress::AllButModifyTime => Some(number::TIME_MODIFY_SET),
    }
}

/// ACCESS: the caller neither has the file open for writing nor may write it.
async fn authorize_size(
    compound: &Compound,
    clients: &Clients,
    stateid: StateId4,
    file: &Attributes,
) -> Result<(), NfsStat4> {
    match file.kind {
        FileKind::Regular => {}
        FileKind::Directory => return Err(NfsStat4::IsDir),
        _ => return Err(NfsStat4::Inval),
    }
    if stateid.is_special() && !clients.fs.allows(&compound.identity, file, Access::WRITE).await? {
        return Err(NfsStat4::Access);
    }
    check_io(compound, clients, stateid, file.file, Access::WRITE).await.map(drop)
}

/// Settable attributes as they came, parsed and judged.
#[derive(Debug, Default)]
pub(super) struct Requested {
    mode: Option<u32>,
    /// With `mode`: what to take from it, unless an ACL is inherited (RFC 8275 §3).
    umask: Option<u32>,
    masked_mode: Option<(u32, u32)>,
    owner: Option<Principal4>,
    owner_group: Option<Principal4>,
    acl: Option<Vec<NfsAce4>>,
    change: SetAttributes,
    delegated: delegated_times::Given,
}

impl Requested {
    /// The permission bits for a new object, and the umask that is to be taken from them. Where nobody gave a mode an
    /// inherited ACL stands as it is.
    pub fn permissions(&self, default: u32) -> (u32, Option<u32>) {
        match (self.mode, self.masked_mode) {
            (Some(mode), _) => (mode, self.umask),
            (None, Some((value, mask))) => ((default & !mask) | (value & mask), None),
            // A file that is not executable by default stays so.
            (None, None) => (if default & 0o111 == 0 { 0o666 } else { 0o777 }, Some(!default)),
        }
    }

    /// INVAL, ATTRNOTSUPP: such an object has no such ACL.
    pub fn judge_kind(&self, kind: FileKind) -> Result<(), NfsStat4> {
        self.change.acl.as_ref().map_or(Ok(()), |acl| acl::judge_place(acl, kind))
    }

    /// Everything but the mode, for creation.
    pub fn beside_mode(&self) -> SetAttributes {
        self.change.clone()
    }

    pub fn size(&self) -> Option<u64> {
        self.change.size
    }

    /// Looks up the ids of owner and group, and of those that an ACL names.
    async fn owned(mut self, fs: &FileSystem) -> Result<Requested, NfsStat4> {
        let ids = owners::ids(fs, self.owner.as_ref(), self.owner_group.as_ref()).await?;
        (self.change.uid, self.change.gid) = ids;
        if let Some(given) = &self.acl {
            self.change.acl = Some(acl::of_wire(given, fs.owners.as_ref()).await?);
        }
        Ok(self)
    }

    fn into_change(self, mode_before: u32, is_root: bool) -> Result<SetAttributes, NfsStat4> {
        // A new length takes away the set-id bits that were there, not those that are named with it.
        let takes_set_id = self.change.size.is_some() && !is_root;
        let kept = if takes_set_id { permission::without_privileges(mode_before) } else { mode_before };
        let masked = self.masked_mode.map(|(value, mask)| (kept & !mask) | (value & mask));
        let mode = self.mode.or(masked);
        Ok(SetAttributes { mode, keeps_set_id: mode.is_some(), ..self.change })
    }
}

/// The attributes that a creation reports as set: for a mode with a umask, the mode (RFC 8275 §3).
pub(super) fn set_at_creation(asked: Bitmap4) -> Bitmap4 {
    let mut set = asked;
    if set.contains(number::MODE_UMASK) {
        set.remove(number::MODE_UMASK);
        set.insert(number::MODE);
    }
    set
}

/// Attributes for OPEN and CREATE.
pub(super) async fn parse_for_creation(
    compound: &Compound,
    fs: &FileSystem,
    given: &Fattr4,
) -> Result<Requested, NfsStat4> {
    parse(compound.minorversion, given, SETTABLE_AT_CREATION)?.owned(fs).await
}

fn parse(minorversion: u32, given: &Fattr4, settable: Bitmap4) -> Result<Requested, NfsStat4> {
    if !given.attrmask.difference(&supported(minorversion)).is_empty() {
        return Err(NfsStat4::AttrNotSupp);
    }
    // Known but read-only (RFC 8881 §18.30.3).
    if !given.attrmask.difference(&settable).is_empty() {
        return Err(NfsStat4::Inval);
    }
    let attributes = FileAttributes::decode(given).map_err(|error| error.status())?;
    let mut requested = Requested {
        mode: attributes.mode,
        delegated: delegated_times::Given::parse(attributes.time_deleg_access, attributes.time_deleg_modify)?,
        umask: None,
        masked_mode: attributes.mode_set_masked.map(|masked| (masked.value_to_set, masked.mask_bits)),
        owner: attributes.owner,
        owner_group: attributes.owner_group,
        acl: attributes.acl,
        change: SetAttributes {
            size: attributes.size,
            atime: attributes.time_access_set.map(set_time).transpose()?,
            mtime: attributes.time_modify_set.map(set_time).transpose()?,
            ..SetAttributes::default()
        },
    };
    if let Some(umasked) = attributes.mode_umask {
        // RFC 8275 §3: not together with mode.
        if requested.mode.is_some() || requested.masked_mode.is_some() {
            return Err(NfsStat4::Inval);
        }
        (requested.mode, requested.umask) = (Some(umasked.mode), Some(umasked.umask));
    }
    let (value, mask) = requested.masked_mode.unwrap_or_default();
    if (requested.mode.unwrap_or_default() | value | mask) & !MODE_BITS != 0 {
        return Err(NfsStat4::Inval);
    }
    if requested.mode.is_some() && given.attrmask.contains(number::MODE_SET_MASKED) {
        return Err(NfsStat4::Inval);
    }
    Ok(requested)
}

fn set_time(set: SetTime4) -> Result<SetTime, NfsStat4> {
    Ok(match set {
        SetTime4::ServerTime => SetTime::Now,
        SetTime4::ClientTime(time) => {
            SetTime::To(Timestamp::new(time.seconds, time.nseconds).ok_or(NfsStat4::Inval)?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs4::attr::{ModeMasked4, ModeUmask4};
    use nfs4::{NfsFtype4, NfsTime4};

    fn parsed(minorversion: u32, attributes: FileAttributes) -> Result<Requested, NfsStat4> {
        parse(minorversion, &attributes.encode_all(), SETTABLE_AT_CREATION)
    }

    #[test]
    fn a_read_only_attribute_cannot_be_set() {
        let attributes = FileAttributes { file_type: Some(NfsFtype4::Reg), ..FileAttributes::default() };
        assert_eq!(parsed(2, attributes).err(), Some(NfsStat4::Inval));
    }

    #[test]
    fn a_masked_mode_changes_only_its_bits() {
        let masked = ModeMasked4 { value_to_set: 0o7, mask_bits: 0o77 };
        let attributes = FileAttributes { mode_set_masked: Some(masked), ..FileAttributes::default() };
        assert_eq!(parsed(1, attributes).unwrap().into_change(0o4755, false).unwrap().mode, Some(0o4707));
    }

    #[test]
    fn a_masked_mode_with_a_length_keeps_the_set_id_bit_that_it_names_and_no_other() {
        let mode = |mode_before, (value_to_set, mask_bits), is_root| {
            let masked = ModeMasked4 { value_to_set, mask_bits };
            let attributes = FileAttributes { mode_set_masked: Some(masked), ..FileAttributes::default() };
            let with_length = FileAttributes { size: Some(3), ..attributes };
            let change = parsed(1, with_length).unwrap().into_change(mode_before, is_root).unwrap();
            assert!(change.keeps_set_id);
            change.mode.unwrap()
        };
        assert_eq!(mode(0o6755, (0o4000, 0o4000), false), 0o4755);
        assert_eq!(mode(0o6755, (0o2000, 0o2000), false), 0o2755);
        assert_eq!(mode(0o0755, (0o4000, 0o4000), false), 0o4755);
        assert_eq!(mode(0o6755, (0, 0o4000), false), 0o755);
        assert_eq!(mode(0o6755, (0o011, 0o011), false), 0o755);
        assert_eq!(mode(0o6755, (0o4000, 0o4000), true), 0o6755, "nothing is taken from root");
    }

    #[test]
    fn the_umask_of_a_creation_is_told_apart() {
        let umasked = ModeUmask4 { mode: 0o666, umask: 0o027 };
        let attributes = FileAttributes { mode_umask: Some(umasked), ..FileAttributes::default() };
        assert_eq!(parsed(2, attributes.clone()).unwrap().permissions(0), (0o666, Some(0o027)));
        assert_eq!(parsed(1, attributes).err(), Some(NfsStat4::AttrNotSupp));
    }

    #[test]
    fn a_time_with_too_many_nanoseconds_is_invalid() {
        let time = NfsTime4 { seconds: 1, nseconds: 1_000_000_000 };
        let attributes =
            FileAttributes { time_modify_set: Some(SetTime4::ClientTime(time)), ..FileAttributes::default() };
        assert_eq!(parsed(1, attributes).err(), Some(NfsStat4::Inval));
    }
}
