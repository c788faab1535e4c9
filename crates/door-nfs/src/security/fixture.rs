//! Kerberos for tests: the keys of a made-up realm, time that stands, users that are known.

use std::sync::Arc;
use std::time::Duration;

use gss::peer::{self, Initiator};
use gss::{Acceptor, Key};
use types::{Clock, Identity, Random, Timestamp};

use super::{Flavor, Kerberos, LocalUsers, Security};

pub(crate) struct Standing;

impl Clock for Standing {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix(Duration::from_secs(peer::NOW as u64))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(1000)
    }
}

/// Numbers that differ and are known.
#[derive(Default)]
struct Counting(std::sync::atomic::AtomicU8);

impl Random for Counting {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    }
}

struct Ann;

impl LocalUsers for Ann {
    fn identity(&self, user: &str) -> Option<Identity> {
        (user == "ann").then(|| Identity::new(1000, 100, &[7]))
    }
}

/// A fresh ticket of `ann`, and what it takes to use it.
pub(crate) fn initiator() -> Initiator {
    let mut initiator = Initiator::new(18);
    // Authenticators differ by their subkeys, or the second client would be a replay of the first.
    static NEXT: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(10);
    let byte = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    initiator.subkey = Some(Key::new(18, &[byte; 32]).unwrap());
    initiator
}

pub(crate) fn kerberos() -> Kerberos {
    let acceptor = Acceptor::new(peer::keytab(&peer::key(18, 1)), "nfs").unwrap();
    Kerberos::new(acceptor, Arc::new(Ann), Arc::new(Standing), Arc::new(Counting::default()))
}

pub(crate) fn security(flavors: &[Flavor]) -> Arc<Security> {
    Security::new(flavors.to_vec(), Some(kerberos()))
}
