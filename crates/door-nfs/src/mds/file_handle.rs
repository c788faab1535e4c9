//! PUTROOTFH, PUTPUBFH, PUTFH, GETFH, SAVEFH, RESTOREFH. The public file handle is the root (RFC 8881 §4.1.2).

use nfs4::{GetFh4ResOk, NfsStat4, PutFh4Args};
use types::FileId;

use super::exports::Exports;
use super::file_system::FileSystem;
use crate::context::Compound;
use crate::fh;

pub(super) fn put_root(compound: &mut Compound) -> NfsStat4 {
    compound.set_file(FileId::ROOT);
    NfsStat4::Ok
}

pub(super) async fn put(compound: &mut Compound, exports: &Exports, args: &PutFh4Args) -> NfsStat4 {
    let fs = &*exports.clients.fs;
    let file = match fh::decode(&fs.handle_key, &args.object) {
        Ok(file) => file,
        Err(status) => return status,
    };
    let attributes = match fs.attributes(file).await {
        Ok(attributes) => attributes,
        Err(status) => return status,
    };
    match exports.place_of(compound, &attributes).await {
        Ok(place) => {
            compound.enter(file, place);
            NfsStat4::Ok
        }
        Err(status) => status,
    }
}

pub(super) fn get(compound: &Compound, fs: &FileSystem) -> Result<GetFh4ResOk, NfsStat4> {
    Ok(GetFh4ResOk { object: fs.handle(compound.file()?) })
}

pub(super) fn save(compound: &mut Compound) -> NfsStat4 {
    compound.saved = compound.current;
    NfsStat4::Ok
}

pub(super) fn restore(compound: &mut Compound) -> NfsStat4 {
    compound.move_to(compound.saved.place);
    compound.current = compound.saved;
    NfsStat4::Ok
}
