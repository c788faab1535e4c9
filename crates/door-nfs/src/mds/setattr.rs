//! SETATTR, and the reading of settable attributes for OPEN and CREATE too.

use access::{Change, Changing};
use api::{SetAttributes, SetTime};
use nfs4::attr::{Principal4, number};
use nfs4::{Bitmap4, Fattr4, FileAttributes, NfsStat4, SetAttr4Args, SetTime4, StateId4};
use nfs4_state::stateid::holder;
use types::{Access, Attributes, FileId, FileKind, Timestamp, permission};

use super::attributes::{SETTABLE, SETTABLE_AT_CREATION, supported};
use super::{Head, recall, stateids};
use crate::context::Compound;
use crate::status;

const MODE_BITS: u32 = 0o7777;

pub(super) async fn set(
    compound: &mut Compound<'_>,
    head: &Head,
    args: &SetAttr4Args,
) -> Result<Bitmap4, NfsStat4> {
    let file = compound.file()?;
    let requested = parse(compound.minorversion, &args.obj_attributes, SETTABLE)?;
    let before = head.attributes(file).await?;
    let mut change = requested.into_change(before.mode)?;
    let _changing = match change.size {
        Some(size) => {
            let stateid = compound.resolve(args.stateid)?;
            change.size_is_authorized = authorize_size(compound, head, stateid, &before).await?;
            let (space_used, changing) = truncate(compound, head, &before, size).await?;
            change.space_used = Some(space_used);
            Some(changing)
        }
        None => before_setting_of(compound, head, &before).await?,
    };
    head.namespace.set_attributes(&compound.identity, file, &change).await.map_err(status::of_namespace)?;
    Ok(args.obj_attributes.attrmask)
}

/// Before attributes of a file are set, or extended ones: delegations of others come home.
pub(super) async fn before_setting(
    compound: &Compound<'_>,
    head: &Head,
    file: FileId,
) -> Result<Option<Changing>, NfsStat4> {
    before_setting_of(compound, head, &head.attributes(file).await?).await
}

async fn before_setting_of(
    compound: &Compound<'_>,
    head: &Head,
    file: &Attributes,
) -> Result<Option<Changing>, NfsStat4> {
    let who = &compound.identity;
    // Nobody gives anything back for a change that is refused anyway.
    if !permission::is_owner(who, file) && !permission::allows(who, file, Access::WRITE) {
        return Ok(None);
    }
    let changing = recall::before_change(compound, head, file.file, Change::SetAttributes).await;
    changing.map(Some).map_err(status::of_access)
}

/// Whether the caller may change the size because it has the file open for writing; else its permission counts.
async fn authorize_size(
    compound: &Compound<'_>,
    head: &Head,
    stateid: StateId4,
    file: &Attributes,
) -> Result<bool, NfsStat4> {
    match file.kind {
        FileKind::Regular => {}
        FileKind::Directory => return Err(NfsStat4::IsDir),
        _ => return Err(NfsStat4::Inval),
    }
    let is_open = !stateid.is_special();
    if !is_open && !permission::allows(&compound.identity, file, Access::WRITE) {
        return Err(NfsStat4::Access);
    }
    stateids::check_io(compound, head, stateid, file.file, Access::WRITE).await?;
    Ok(is_open)
}

/// Sets the length of the replicas and returns the space used, and what keeps others off until the namespace knows.
pub(super) async fn truncate(
    compound: &Compound<'_>,
    head: &Head,
    file: &Attributes,
    size: u64,
) -> Result<(u64, Changing), NfsStat4> {
    if size > file.size {
        // Before the replica grows: what it has counts as written.
        let grown = head.access.require_room(&compound.identity, file.file, size - file.size, 0);
        grown.await.map_err(status::of_access)?;
    }
    let by = compound.client.map(holder);
    head.access
        .truncate(file, size, by, recall::WAIT, head.access.recall_time())
        .await
        .map_err(status::of_access)
}

/// Settable attributes as they came, parsed and judged.
#[derive(Debug, Default)]
pub(super) struct Requested {
    pub mode: Option<u32>,
    masked_mode: Option<(u32, u32)>,
    change: SetAttributes,
}

impl Requested {
    /// The permission bits for a new object.
    pub fn permissions(&self, default: u32) -> u32 {
        self.mode.unwrap_or(match self.masked_mode {
            Some((value, mask)) => (default & !mask) | (value & mask),
            None => default,
        })
    }

    /// Everything but the mode, for creation.
    pub fn beside_mode(&self) -> SetAttributes {
        self.change.clone()
    }

    pub fn size(&self) -> Option<u64> {
        self.change.size
    }

    fn into_change(self, mode_before: u32) -> Result<SetAttributes, NfsStat4> {
        let masked = self.masked_mode.map(|(value, mask)| (mode_before & !mask) | (value & mask));
        Ok(SetAttributes { mode: self.mode.or(masked), ..self.change })
    }
}

/// Attributes for OPEN and CREATE.
pub(super) fn parse_for_creation(minorversion: u32, given: &Fattr4) -> Result<Requested, NfsStat4> {
    parse(minorversion, given, SETTABLE_AT_CREATION)
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
        masked_mode: attributes.mode_set_masked.map(|masked| (masked.value_to_set, masked.mask_bits)),
        change: SetAttributes {
            uid: attributes.owner.as_ref().map(principal).transpose()?,
            gid: attributes.owner_group.as_ref().map(principal).transpose()?,
            size: attributes.size,
            atime: attributes.time_access_set.map(set_time).transpose()?,
            mtime: attributes.time_modify_set.map(set_time).transpose()?,
            ..SetAttributes::default()
        },
    };
    if let Some(umasked) = attributes.mode_umask {
        // RFC 8275 §3: not together with mode, and without inheritable ACEs the umask applies.
        if requested.mode.is_some() || requested.masked_mode.is_some() {
            return Err(NfsStat4::Inval);
        }
        requested.mode = Some(umasked.mode & !umasked.umask);
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

/// Ids travel as decimal numbers with AUTH_SYS (RFC 8881 §5.9); names come with Kerberos.
fn principal(principal: &Principal4) -> Result<u32, NfsStat4> {
    principal.as_numeric().ok_or(NfsStat4::BadOwner)
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
        assert_eq!(parsed(1, attributes).unwrap().into_change(0o4755).unwrap().mode, Some(0o4707));
    }

    #[test]
    fn the_umask_of_a_creation_applies() {
        let umasked = ModeUmask4 { mode: 0o666, umask: 0o027 };
        let attributes = FileAttributes { mode_umask: Some(umasked), ..FileAttributes::default() };
        assert_eq!(parsed(2, attributes.clone()).unwrap().permissions(0), 0o640);
        assert_eq!(parsed(1, attributes).err(), Some(NfsStat4::AttrNotSupp));
    }

    #[test]
    fn a_time_with_too_many_nanoseconds_is_invalid() {
        let time = NfsTime4 { seconds: 1, nseconds: 1_000_000_000 };
        let attributes =
            FileAttributes { time_modify_set: Some(SetTime4::ClientTime(time)), ..FileAttributes::default() };
        assert_eq!(parsed(1, attributes).err(), Some(NfsStat4::Inval));
    }

    #[test]
    fn an_owner_that_is_no_number_is_a_bad_owner() {
        let owner = Principal4(xdr::Opaque(bytes::Bytes::from_static(b"ann@example.org")));
        let attributes = FileAttributes { owner: Some(owner), ..FileAttributes::default() };
        assert_eq!(parsed(1, attributes).err(), Some(NfsStat4::BadOwner));
    }
}
