//! SECINFO and SECINFO_NO_NAME, and where a flavor that an export does not take is refused (RFC 8881 §2.6.3.1.1).
//!
//! The operation that sets the file handle answers WRONGSEC, or LOOKUP, LOOKUPP and OPEN by name for themselves: the
//! file they find may lie in another export than its directory. The SECINFOs consume the current file handle
//! (§18.29.3).

use nfs4::{
    NfsArgop4, NfsResop4, NfsStat4, OpProperties, SecInfo4Args, SecInfo4ResOk, SecInfoNoName4Args,
    SecInfoStyle4, op,
};

use super::component::name;
use super::exports::Exports;
use super::file_system::FileSystem;
use super::names;
use crate::context::{Compound, judges_flavor};
use crate::exports::ViewPlace;
use crate::status;

/// Before an operation that uses file handles runs.
pub(super) fn before(compound: &Compound, operation: &NfsArgop4) -> Result<(), NfsStat4> {
    let number = operation.opnum();
    // Judged by what they find, or they do nothing with the file; OPEN by name is judged here too.
    if number != op::OPEN && judges_flavor(number) {
        return Ok(());
    }
    let uses = OpProperties::of(number).map(|known| (known.needs_current_fh, known.needs_saved_fh));
    let (uses_current, uses_saved) = uses.unwrap_or_default();
    // OPEN by name: a file that is no directory lies where its directory does. Also judges the operation after a handle
    // that PUTFH let pass.
    if uses_current && !compound.is_admitted(compound.current.place) {
        return Err(NfsStat4::WrongSec);
    }
    if uses_saved && !compound.is_admitted(compound.saved.place) {
        // §2.6.3.1.2 has it so for LINK and RENAME; copies may not say it (RFC 7862 §11.2).
        let is_name = matches!(number, op::LINK | op::RENAME);
        return Err(if is_name { NfsStat4::WrongSec } else { NfsStat4::Access });
    }
    Ok(())
}

/// After an operation: whether the handle that it set is one for this caller. `from`: where the one before lay.
pub(super) fn after(compound: &Compound, from: ViewPlace, result: NfsResop4) -> NfsResop4 {
    let (number, is_done) = (result.opnum(), result.status() == NfsStat4::Ok);
    let is_right = match number {
        op::PUTFH | op::PUTROOTFH | op::PUTPUBFH | op::RESTOREFH if is_done => {
            !compound.is_judged_here() || compound.is_admitted(compound.current.place)
        }
        op::LOOKUP | op::LOOKUPP if is_done => compound.is_admitted(compound.current.place),
        // A caller that is not admitted may not learn which names exist either.
        op::LOOKUP => compound.is_admitted(from),
        _ => true,
    };
    if is_right { result } else { NfsResop4::error(number, NfsStat4::WrongSec) }
}

pub(super) async fn by_name(
    compound: &mut Compound,
    fs: &FileSystem,
    args: &SecInfo4Args,
) -> Result<SecInfo4ResOk, NfsStat4> {
    let dir = names::plain_directory(fs, compound.file()?).await?;
    let (name, at) = (name(&args.name)?, compound.current.place);
    // A caller that is not admitted may not learn which names are missing. On the way to exports it may.
    let is_hidden = at != ViewPlace::Pseudo && !compound.is_admitted(at);
    let place = match names::lookup(compound, fs, dir, &name).await {
        Ok(found) => compound.caller.view.step(at, found.entry.file),
        Err(NfsStat4::NoEnt | NfsStat4::Access) if is_hidden => at,
        Err(status) => return Err(status),
    };
    Ok(consume(compound, place))
}

pub(super) async fn no_name(
    compound: &mut Compound,
    exports: &Exports,
    args: &SecInfoNoName4Args,
) -> Result<SecInfo4ResOk, NfsStat4> {
    let (fs, file) = (&*exports.clients.fs, compound.file()?);
    let mut place = compound.current.place;
    if args.style == SecInfoStyle4::Parent {
        let dir = names::plain_directory(fs, file).await?;
        let found = fs.namespace.parent(&compound.climber(), dir).await.map_err(status::of_namespace)?;
        place = exports.place_of(compound, &found).await?;
    }
    Ok(consume(compound, place))
}

fn consume(compound: &mut Compound, place: ViewPlace) -> SecInfo4ResOk {
    compound.current.handle = None;
    compound.current.stateid = None;
    SecInfo4ResOk { flavors: compound.caller.view.rules(place).flavors.infos() }
}
