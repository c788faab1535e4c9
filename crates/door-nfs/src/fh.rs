//! File handles of the head: the file's id with a MAC, so that a handle is only what this instance gave out.
//!
//! ```text
//! 0 version (1)   1 kind (1 file)   2 reserved (0, 0)   4 file id (u64)   12 HMAC-SHA-256 of 0..12, first 12 bytes
//! ```
//!
//! Persistent (FH4_PERSISTENT): ids are never reused and the key lives as long as the instance. Handles of data servers
//! are sealed tickets (`api::ticket`), of another length.

use api::HandleKey;
use bytes::Bytes;
use nfs4::{NfsFh4, NfsStat4};
use types::FileId;

const VERSION: u8 = 1;
const KIND_FILE: u8 = 1;
const BODY_BYTES: usize = 12;
const MAC_BYTES: usize = 12;

pub(crate) fn encode(key: &HandleKey, file: FileId) -> NfsFh4 {
    let mut handle = [0; BODY_BYTES + MAC_BYTES];
    handle[0] = VERSION;
    handle[1] = KIND_FILE;
    handle[4..BODY_BYTES].copy_from_slice(&file.0.to_be_bytes());
    let mac = key.authenticate::<MAC_BYTES>(&handle[..BODY_BYTES]);
    handle[BODY_BYTES..].copy_from_slice(&mac);
    NfsFh4::from(Bytes::copy_from_slice(&handle))
}

pub(crate) fn decode(key: &HandleKey, handle: &NfsFh4) -> Result<FileId, NfsStat4> {
    let bytes: &[u8; BODY_BYTES + MAC_BYTES] =
        handle.as_bytes().try_into().map_err(|_| NfsStat4::BadHandle)?;
    if bytes[..4] != [VERSION, KIND_FILE, 0, 0] {
        return Err(NfsStat4::BadHandle);
    }
    let (body, mac) = bytes.split_at(BODY_BYTES);
    // A handle is no secret worth a constant-time comparison of 96 bits over a network; a wrong one is simply not ours.
    if key.authenticate::<MAC_BYTES>(body) != mac {
        return Err(NfsStat4::BadHandle);
    }
    let id: [u8; 8] = body[4..].try_into().map_err(|_| NfsStat4::BadHandle)?;
    Ok(FileId(u64::from_be_bytes(id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_opens_again_and_any_other_bytes_do_not() {
        let key = HandleKey::new(&[1; 32]);
        let handle = encode(&key, FileId(77));
        assert_eq!(decode(&key, &handle), Ok(FileId(77)));
        for at in 0..handle.as_bytes().len() {
            let mut forged = handle.as_bytes().to_vec();
            forged[at] ^= 1;
            assert_eq!(decode(&key, &NfsFh4::from(forged)), Err(NfsStat4::BadHandle));
        }
        assert_eq!(decode(&HandleKey::new(&[2; 32]), &handle), Err(NfsStat4::BadHandle));
        assert_eq!(decode(&key, &NfsFh4::from(vec![0; 128])), Err(NfsStat4::BadHandle));
    }

    // Clients keep their handles while the server is upgraded.
    #[test]
    fn a_handle_has_the_bytes_that_earlier_versions_gave_it() {
        let mac = [0x78, 0xae, 0xdd, 0x38, 0x6e, 0x34, 0xec, 0xb5, 0xaa, 0x6f, 0x42, 0x25];
        let bytes = [&[1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 77][..], &mac].concat();
        assert_eq!(encode(&HandleKey::new(&[1; 32]), FileId(77)), NfsFh4::from(bytes));
    }
}
