//! NFSv4.1/4.2 requests and replies of both directions, attributes, and flex-files bodies. The first byte of the
//! input says which.

#![no_main]

use bytes::Bytes;
use forebay_fuzz::{bounded, survives};
use libfuzzer_sys::fuzz_target;
use nfs4::{
    CbCompound4Args, CbCompound4Res, Compound4Args, Compound4Res, CompoundArgs, Fattr4, FfDeviceAddr4,
    FfLayout4, FfLayoutReturn4, FfLayoutUpdate4, FileAttributes, NfsArgop4, NfsResop4, NfsStat4,
};
use xdr::{Decoder, to_bytes};

fuzz_target!(|input: &[u8]| {
    let Some((family, message)) = input.split_first() else { return };
    let message = Bytes::copy_from_slice(message);
    match family % 9 {
        0 => request(&message),
        1 => {
            if let Some(reply) = survives::<Compound4Res>(&message) {
                reply.resarray.iter().for_each(result);
            }
        }
        2 => drop(survives::<CbCompound4Args>(&message)),
        3 => drop(survives::<CbCompound4Res>(&message)),
        4 => attributes(&message),
        5 => drop(survives::<FfLayout4>(&message)),
        6 => drop(survives::<FfDeviceAddr4>(&message)),
        7 => drop(survives::<FfLayoutReturn4>(&message)),
        _ => drop(survives::<FfLayoutUpdate4>(&message)),
    }
});

/// A request taken operation by operation, as the server does, says the same as the whole: up to an operation
/// that the minor version does not have, where the server stops and the whole may make something of the number.
fn request(message: &Bytes) {
    let whole = survives::<Compound4Args>(message);
    let stepped = bounded(message.len(), || stepwise(message.clone()));
    match (whole, stepped) {
        (Some(whole), Some((header, ops))) => {
            assert_eq!((whole.tag, whole.minorversion), (header.tag, header.minorversion));
            let known = ops.iter().take_while(|op| !is_illegal(op)).count();
            assert_eq!(whole.argarray[..known], ops[..known]);
            assert!(known == whole.argarray.len() || known < ops.len());
        }
        (None, None) => {}
        (None, Some((_, ops))) if ops.last().is_some_and(is_illegal) => {}
        (whole, stepped) => panic!("whole: {whole:?}, operation by operation: {stepped:?}"),
    }
}

fn is_illegal(op: &NfsArgop4) -> bool {
    matches!(op, NfsArgop4::Illegal(_))
}

/// The operations up to the last or the first that is illegal; nothing if one before is malformed.
fn stepwise(message: Bytes) -> Option<(CompoundArgs, Vec<NfsArgop4>)> {
    let mut d = Decoder::new(message);
    let header = CompoundArgs::decode_header(&mut d).ok()?;
    let mut ops = Vec::new();
    for _ in 0..header.op_count {
        ops.push(header.next_op(&mut d).ok()?);
        if ops.last().is_some_and(is_illegal) {
            break;
        }
    }
    Some((header, ops))
}

/// The status that a result is asked for is the one on the wire, right behind its number.
fn result(result: &NfsResop4) {
    let mut d = Decoder::new(to_bytes(result));
    assert_eq!(d.u32(), Ok(result.opnum()));
    assert_eq!(d.u32(), Ok(result.status() as u32));
    let error = NfsResop4::error(result.opnum(), NfsStat4::BadXdr);
    // A number that names no operation has one answer only (RFC 8881 §18.53).
    let illegal = matches!(error, NfsResop4::Illegal(_));
    assert_eq!(error.status(), if illegal { NfsStat4::OpIllegal } else { NfsStat4::BadXdr });
    survives::<NfsResop4>(&to_bytes(&error)).expect("the error of any operation decodes");
}

fn attributes(message: &Bytes) {
    let Some(fattr) = survives::<Fattr4>(message) else { return };
    assert_eq!(fattr.encoded_len(), to_bytes(&fattr).len());
    if let Ok(attributes) = bounded(message.len(), || FileAttributes::decode(&fattr)) {
        let again = attributes.encode(&fattr.attrmask);
        assert_eq!(again.attrmask, fattr.attrmask, "every attribute of the mask is kept");
        assert_eq!(FileAttributes::decode(&again), Ok(attributes));
    }
}
