//! RPCSEC_GSS (RFC 2203): the credential, the handshake, the bodies that are protected, the window of sequence numbers.
//!
//! The caller makes and checks the tokens inside; here they are bytes.

use xdr::{Bytes, Decoder, Encoder, Opaque, Xdr, XdrError};

use crate::AUTH_BODY_MAX;

/// The only version (RFC 2203 §5.2.2).
const VERSION: u32 = 1;
/// Sequence numbers are below this; then the client makes a new context (RFC 2203 §5.3.3.1).
const SEQUENCE_END: u32 = 0x8000_0000;
/// The longest first token that is read. Tickets with the group lists of large directories have tens of kilobytes.
const TOKEN_MAX: usize = 64 << 10;
/// Bytes around the longest body: a token's header, confounder, trailer and checksum.
const TOKEN_OVERHEAD_MAX: usize = 256;

/// How a call uses its context (RFC 2203 §5.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
#[repr(u32)]
pub enum GssProcedure {
    Data = 0,
    Init = 1,
    ContinueInit = 2,
    Destroy = 3,
}

/// How arguments and results are protected; the header always is (RFC 2203 §5.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Xdr)]
#[repr(u32)]
pub enum GssService {
    None = 1,
    Integrity = 2,
    Privacy = 3,
}

/// `rpc_gss_cred_t` (RFC 2203 §5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GssCredential {
    pub procedure: GssProcedure,
    pub sequence: u32,
    pub service: GssService,
    pub handle: Opaque,
}

impl Xdr for GssCredential {
    fn encode(&self, e: &mut Encoder) {
        e.put_u32(VERSION);
        self.procedure.encode(e);
        e.put_u32(self.sequence);
        self.service.encode(e);
        self.handle.encode(e);
    }

    fn decode(d: &mut Decoder) -> Result<Self, XdrError> {
        let version = d.u32()?;
        if version != VERSION {
            return Err(XdrError::InvalidDiscriminant { type_name: "GssCredential", value: version });
        }
        Ok(GssCredential {
            procedure: GssProcedure::decode(d)?,
            sequence: d.u32()?,
            service: GssService::decode(d)?,
            handle: Opaque(d.opaque(AUTH_BODY_MAX)?),
        })
    }
}

/// `rpc_gss_init_arg`: the mechanism's token (RFC 2203 §5.2.2).
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct GssInitArgs {
    #[xdr(max = TOKEN_MAX)]
    pub token: Opaque,
}

/// `rpc_gss_init_res` (RFC 2203 §5.2.3.1).
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct GssInitRes {
    #[xdr(max = AUTH_BODY_MAX)]
    pub handle: Opaque,
    pub major: u32,
    pub minor: u32,
    pub window: u32,
    #[xdr(max = TOKEN_MAX)]
    pub token: Opaque,
}

/// The bytes of a call that its verifier signs: from the xid to the end of the credential (RFC 2203 §5.3.1). `None` if
/// they are not there, which [`CallHeader::decode`](crate::CallHeader::decode) has refused already.
pub fn signed_header(record: &Bytes) -> Option<Bytes> {
    const CREDENTIAL_AT: usize = 6 * 4;
    let mut d = Decoder::new(record.clone());
    d.skip(CREDENTIAL_AT).ok()?;
    d.u32().ok()?;
    d.opaque(AUTH_BODY_MAX).ok()?;
    Some(record.slice(..d.position()))
}

/// `rpc_gss_integ_data`: what is signed, and its MIC (RFC 2203 §5.3.2.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntegrityBody {
    pub signed: Bytes,
    pub mic: Bytes,
}

impl IntegrityBody {
    pub fn decode(body: Bytes) -> Result<Self, XdrError> {
        let mut d = Decoder::new(body);
        let signed_max = d.remaining();
        let (signed, mic) = (d.opaque(signed_max)?, d.opaque(TOKEN_OVERHEAD_MAX)?);
        d.finish()?;
        Ok(IntegrityBody { signed, mic })
    }
}

/// `rpc_gss_priv_data`: one Wrap token (RFC 2203 §5.3.2.3).
pub fn privacy_token(body: Bytes) -> Result<Bytes, XdrError> {
    let mut d = Decoder::new(body);
    let token_max = d.remaining();
    let token = d.opaque(token_max)?;
    d.finish()?;
    Ok(token)
}

/// Takes the sequence number off what was protected: `None` unless it is the credential's (RFC 2203 §5.3.2.2).
pub fn unnumbered(protected: Bytes, sequence: u32) -> Option<Bytes> {
    let mut d = Decoder::new(protected);
    (d.u32() == Ok(sequence)).then(|| d.rest())
}

/// Which of the latest sequence numbers were seen (RFC 2203 §5.3.3.1).
#[derive(Debug, Clone)]
pub struct SequenceWindow {
    highest: Option<u32>,
    /// Bit `n % LEN` for the number `n`, of the `LEN` numbers up to the highest.
    seen: [u64; (SequenceWindow::LEN / 64) as usize],
}

/// How to treat a call, by its sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceFate {
    Run,
    /// Seen before, or so old that nobody knows: dropped without an answer (RFC 2203 §5.3.3.1).
    Drop,
    /// The numbers of this context are used up.
    Exhausted,
}

impl SequenceWindow {
    /// Numbers that may be under way at once: several sessions of all slots over several connections.
    pub const LEN: u32 = 1024;

    pub fn new() -> Self {
        SequenceWindow { highest: None, seen: [0; (Self::LEN / 64) as usize] }
    }

    /// Judges the number of a call whose verifier was found good, and notes it.
    pub fn judge(&mut self, sequence: u32) -> SequenceFate {
        if sequence >= SEQUENCE_END {
            return SequenceFate::Exhausted;
        }
        match self.highest {
            Some(highest) if sequence <= highest => {
                if highest - sequence >= Self::LEN || self.is_seen(sequence) {
                    return SequenceFate::Drop;
                }
            }
            Some(highest) if sequence - highest < Self::LEN => {
                (highest + 1..sequence).for_each(|skipped| self.note(skipped, false));
                self.highest = Some(sequence);
            }
            _ => {
                self.seen.fill(0);
                self.highest = Some(sequence);
            }
        }
        self.note(sequence, true);
        SequenceFate::Run
    }

    fn is_seen(&self, sequence: u32) -> bool {
        let (word, bit) = place(sequence);
        self.seen[word] & bit != 0
    }

    fn note(&mut self, sequence: u32, is_seen: bool) {
        let (word, bit) = place(sequence);
        if is_seen {
            self.seen[word] |= bit;
        } else {
            self.seen[word] &= !bit;
        }
    }
}

impl Default for SequenceWindow {
    fn default() -> Self {
        Self::new()
    }
}

fn place(sequence: u32) -> (usize, u64) {
    let at = sequence % SequenceWindow::LEN;
    ((at / 64) as usize, 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;
    use xdr::{from_bytes, to_bytes};

    use super::*;

    #[test]
    fn a_credential_is_version_procedure_sequence_service_handle() {
        let body = b"\0\0\0\x01\0\0\0\0\0\0\0\x07\0\0\0\x03\0\0\0\x04abcd";
        let credential = GssCredential {
            procedure: GssProcedure::Data,
            sequence: 7,
            service: GssService::Privacy,
            handle: Opaque::from("abcd"),
        };
        assert_eq!(from_bytes(Bytes::from_static(body)), Ok(credential.clone()));
        assert_eq!(to_bytes(&credential), &body[..]);
        let mut other = body.to_vec();
        other[3] = 2;
        assert!(from_bytes::<GssCredential>(other.into()).is_err(), "another version");
    }

    #[test]
    fn a_verifier_signs_up_to_the_end_of_the_credential() {
        let call =
            b"xid \0\0\0\0\0\0\0\x02\0\x01\x86\xa3\0\0\0\x04\0\0\0\x01\0\0\0\x06\0\0\0\x05hello\0\0\0verf";
        let record = Bytes::from_static(call);
        assert_eq!(signed_header(&record), Some(record.slice(..call.len() - 4)));
        assert_eq!(signed_header(&record.slice(..30)), None);
    }

    #[test]
    fn a_signed_body_is_two_opaques_and_begins_with_its_number() {
        let body = Bytes::from_static(b"\0\0\0\x08\0\0\0\x07args\0\0\0\x03mic\0");
        let parts = IntegrityBody::decode(body.clone()).unwrap();
        assert_eq!(parts.mic, "mic");
        assert_eq!(unnumbered(parts.signed.clone(), 7), Some(Bytes::from("args")));
        assert_eq!(unnumbered(parts.signed, 8), None);
        assert!(IntegrityBody::decode(body.slice(..15)).is_err());
        assert_eq!(privacy_token(Bytes::from_static(b"\0\0\0\x02ab\0\0")), Ok(Bytes::from("ab")));
        assert!(privacy_token(Bytes::from_static(b"\xff\xff\xff\xff")).is_err());
        assert_eq!(unnumbered(Bytes::from_static(b"\0\0"), 0), None);
    }

    #[test]
    fn numbers_end_before_they_could_be_taken_for_negative() {
        let mut window = SequenceWindow::new();
        assert_eq!(window.judge(SEQUENCE_END - 1), SequenceFate::Run);
        assert_eq!(window.judge(SEQUENCE_END), SequenceFate::Exhausted);
        assert_eq!(window.judge(u32::MAX), SequenceFate::Exhausted);
    }

    proptest! {
        #[test]
        fn each_number_runs_once_and_old_ones_never(
            steps in proptest::collection::vec((0u32..3000, any::<bool>()), 1..300),
        ) {
            let (mut window, mut seen, mut highest) = (SequenceWindow::new(), HashSet::new(), None::<u32>);
            let mut base = 0u32;
            for (step, is_jump) in steps {
                let sequence = if is_jump { base + step } else { base.saturating_sub(step % 1100) };
                base = base.max(sequence);
                let is_old = highest.is_some_and(|highest| highest >= sequence + SequenceWindow::LEN);
                let runs = !is_old && seen.insert(sequence);
                let fate = if runs { SequenceFate::Run } else { SequenceFate::Drop };
                prop_assert_eq!(window.judge(sequence), fate, "{}", sequence);
                highest = highest.max(Some(sequence));
            }
        }
    }
}
