//! The gate before the handlers: operations that a client's view permits on the current file handle, and pseudo
//! directories. Read-only exports refuse all changes, from any caller.

use api::{Cookie, DirEntry, NamespaceError};
use nfs4::attr::number;
use nfs4::{
    Component4, CreateHow4, LayoutIomode4, NfsArgop4, NfsResop4, NfsStat4, OPEN4_SHARE_ACCESS_WRITE,
    OpProperties, Open4Args, OpenClaim4, OpenFlag4, ReadDir4Args, ReadDir4ResOk, Res, op,
};
use types::FileId;

use super::component::name;
use super::file_system::FileSystem;
use super::readdir::{self, COOKIE_VERIFIER, Lister, Room};
use super::security;
use crate::context::{Compound, as_pseudo};
use crate::exports::ViewPlace;
use crate::status;

/// Cookies 0 to 2 are reserved (RFC 8881 §18.23.3).
const COOKIE_FIRST: u64 = 3;

/// Whether an operation goes on to its handler.
pub(super) enum Gate {
    Open(NfsArgop4),
    Closed(NfsResop4),
}

pub(super) async fn judge(compound: &mut Compound, fs: &FileSystem, operation: NfsArgop4) -> Gate {
    let number = operation.opnum();
    if compound.current.place == ViewPlace::Pseudo
        && let Ok(dir) = compound.file()
        && let Some(result) = in_pseudo(compound, fs, dir, &operation).await
    {
        return Gate::Closed(result);
    }
    let refuse = |status| Gate::Closed(NfsResop4::error(number, status));
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
            if let Err(NamespaceError::NotFound) = fs.namespace.lookup(&compound.identity, dir, &name).await {
                return Err(NfsStat4::RoFs);
            }
            args.openhow = OpenFlag4::NoCreate;
        }
        (OpenFlag4::Create(_), _) => return Err(NfsStat4::RoFs),
    }
    Ok(args)
}

/// Runs operations that a pseudo directory answers differently from a real one; others run as anywhere, or are refused
/// as in a read-only export.
async fn in_pseudo(
    compound: &mut Compound,
    fs: &FileSystem,
    dir: FileId,
    operation: &NfsArgop4,
) -> Option<NfsResop4> {
    Some(match operation {
        NfsArgop4::Lookup(args) => match child(compound, fs, dir, &args.objname).await {
            Ok(child) => {
                compound.set_file(child);
                NfsResop4::Lookup(NfsStat4::Ok)
            }
            Err(status) => NfsResop4::Lookup(status),
        },
        NfsArgop4::SecInfo(args) => match child(compound, fs, dir, &args.name).await {
            Ok(child) => {
                let place = compound.caller.view.step(ViewPlace::Pseudo, child);
                NfsResop4::SecInfo(Res::Ok(security::consume(compound, place)))
            }
            Err(status) => NfsResop4::SecInfo(Res::Err(status)),
        },
        NfsArgop4::Open(Open4Args { claim: OpenClaim4::Null(component), openhow, .. }) => {
            let status = match (child(compound, fs, dir, component).await, openhow) {
                (Ok(_), _) => NfsStat4::IsDir,
                (Err(NfsStat4::NoEnt), OpenFlag4::Create(_)) => NfsStat4::RoFs,
                (Err(status), _) => status,
            };
            NfsResop4::error(op::OPEN, status)
        }
        NfsArgop4::ReadDir(args) => NfsResop4::ReadDir(list(compound, fs, dir, args).await.into()),
        _ => return None,
    })
}

/// A directory that leads to an export, if it still has its name.
async fn child(
    compound: &Compound,
    fs: &FileSystem,
    dir: FileId,
    component: &Component4,
) -> Result<FileId, NfsStat4> {
    let name = name(component)?;
    let child = compound.caller.view.child(dir, &name).ok_or(NfsStat4::NoEnt)?;
    let found = fs.namespace.lookup(&compound.climber(), dir, &name).await.map_err(status::of_namespace)?;
    if found.file == child { Ok(child) } else { Err(NfsStat4::NoEnt) }
}

async fn list(
    compound: &Compound,
    fs: &FileSystem,
    dir: FileId,
    args: &ReadDir4Args,
) -> Result<ReadDir4ResOk, NfsStat4> {
    readdir::judge_cookie(args)?;
    let mut room = Room::new(args, compound.reply_room);
    let lister = Lister::new(compound, fs, args);
    let mut entries = Vec::new();
    for ((name, child), cookie) in compound.caller.view.names(dir).zip(COOKIE_FIRST..) {
        if cookie <= args.cookie {
            continue;
        }
        let attributes = match fs.attributes(child).await {
            Ok(attributes) => attributes,
            // It was removed since the start.
            Err(NfsStat4::Stale) => continue,
            Err(status) => return Err(status),
        };
        let place = compound.caller.view.step(ViewPlace::Pseudo, child);
        let attributes = if place == ViewPlace::Pseudo { as_pseudo(attributes) } else { attributes };
        let entry = DirEntry { name: name.clone(), cookie: Cookie(cookie), attributes };
        let owners = lister.owners(&[attributes]).await;
        let encoded = lister.encode(&entry, &attributes, &owners).await?;
        if !room.take(&encoded) {
            if entries.is_empty() {
                return Err(NfsStat4::TooSmall);
            }
            return Ok(ReadDir4ResOk { cookieverf: COOKIE_VERIFIER, entries, eof: false });
        }
        entries.push(encoded);
    }
    Ok(ReadDir4ResOk { cookieverf: COOKIE_VERIFIER, entries, eof: true })
}
