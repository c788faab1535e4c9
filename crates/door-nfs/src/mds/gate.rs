//! The gate before the handlers: operations that a client's view permits on the current file handle. Read-only exports
//! refuse all changes, from any caller; pseudo directories are read-only, too.

use nfs4::attr::number;
use nfs4::{
    CreateHow4, LayoutIomode4, NfsArgop4, NfsResop4, NfsStat4, OPEN4_SHARE_ACCESS_WRITE, OpProperties,
    Open4Args, OpenClaim4, OpenFlag4, op,
};

use super::component::name;
use super::file_system::FileSystem;
use super::names;
use crate::context::Compound;
use crate::exports::ViewPlace;

/// Whether an operation goes on to its handler.
pub(super) enum Gate {
    Open(NfsArgop4),
    Closed(NfsResop4),
}

pub(super) async fn judge(compound: &Compound, fs: &FileSystem, operation: NfsArgop4) -> Gate {
    let number = operation.opnum();
    let refuse = |status| Gate::Closed(NfsResop4::error(number, status));
    if let (ViewPlace::Pseudo, NfsArgop4::Open(args)) = (compound.current.place, &operation)
        && let Some(status) = open_in_pseudo(compound, fs, args).await
    {
        return refuse(status);
    }
    if compound.is_read_only() {
        return match operation {
            NfsArgop4::Open(args) => match open_to_read(compound, fs, args).await {
                Ok(args) => Gate::Open(NfsArgop4::Open(args)),
                Err(status) => refuse(status),
            },
            NfsArgop4::LayoutGet(args) if args.iomode != LayoutIomode4::Read => {
                refuse(NfsStat4::LayoutUnavailable)
            }
            _ if OpProperties::of(number).is_some_and(|properties| properties.modifies) => {
                refuse(NfsStat4::RoFs)
            }
            operation => Gate::Open(operation),
        };
    }
    // As between mounts: permission for a name in one export does not extend to another.
    if matches!(number, op::RENAME | op::LINK) && compound.saved.place != compound.current.place {
        return refuse(NfsStat4::XDev);
    }
    Gate::Open(operation)
}

/// OPEN in a read-only export: of what is there, to read. O_CREAT of what is there is no more than that.
async fn open_to_read(
    compound: &Compound,
    fs: &FileSystem,
    mut args: Open4Args,
) -> Result<Open4Args, NfsStat4> {
    if args.share_access & OPEN4_SHARE_ACCESS_WRITE != 0 {
        return Err(NfsStat4::RoFs);
    }
    match (&args.openhow, &args.claim) {
        (OpenFlag4::NoCreate, _) => {}
        (OpenFlag4::Create(CreateHow4::Unchecked(given)), OpenClaim4::Null(component))
            if !given.attrmask.contains(number::SIZE) =>
        {
            let (dir, name) = (compound.file()?, name(component)?);
            if let Err(NfsStat4::NoEnt) = names::lookup(compound, fs, dir, &name).await {
                return Err(NfsStat4::RoFs);
            }
            args.openhow = OpenFlag4::NoCreate;
        }
        (OpenFlag4::Create(_), _) => return Err(NfsStat4::RoFs),
    }
    Ok(args)
}

/// OPEN by name in a pseudo directory, which has directories only, and in which nothing is made.
async fn open_in_pseudo(compound: &Compound, fs: &FileSystem, args: &Open4Args) -> Option<NfsStat4> {
    let (Ok(dir), OpenClaim4::Null(component)) = (compound.file(), &args.claim) else { return None };
    let found = match name(component) {
        Ok(name) => names::lookup(compound, fs, dir, &name).await,
        Err(status) => Err(status),
    };
    Some(match (found, &args.openhow) {
        (Ok(_), _) => NfsStat4::IsDir,
        (Err(NfsStat4::NoEnt), OpenFlag4::Create(_)) => NfsStat4::RoFs,
        (Err(status), _) => status,
    })
}
