//! Kerberos for tests: the keys of a made-up realm, time that stands, users that are known.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use gss::peer::{self, Initiator};
use gss::{Acceptor, Key};
use parking_lot::Mutex;
use types::{Clock, Identity, Random, Timestamp};

use super::{Kerberos, LocalUsers, Security};
use crate::asking::NamesUnavailable;

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
    fn identity(&self, user: &str) -> Result<Option<Identity>, NamesUnavailable> {
        Ok((user == "ann").then(|| Identity::new(1000, 100, &[7])))
    }
}

/// A name service that answers no question as long as `_speak` is there.
pub(crate) struct Asked {
    count: Arc<AtomicU64>,
    _speak: mpsc::Sender<()>,
}

impl Asked {
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

struct Away {
    count: Arc<AtomicU64>,
    spoken: Mutex<mpsc::Receiver<()>>,
}

impl LocalUsers for Away {
    fn identity(&self, _: &str) -> Result<Option<Identity>, NamesUnavailable> {
        self.count.fetch_add(1, Ordering::Relaxed);
        let _ = self.spoken.lock().recv();
        Err(NamesUnavailable)
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

fn acceptor() -> Acceptor {
    Acceptor::new(peer::keytab(&peer::key(18, 1)), "nfs").unwrap()
}

/// Lookups get no time to answer.
pub(crate) fn kerberos_without_answers() -> (Asked, Kerberos) {
    let ((speak, spoken), count) = (mpsc::channel(), Arc::new(AtomicU64::new(0)));
    let users = Arc::new(Away { count: Arc::clone(&count), spoken: Mutex::new(spoken) });
    let (clock, random) = (Arc::new(Standing), Arc::new(Counting::default()));
    let kerberos = Kerberos::with_patience(acceptor(), users, clock, random, Duration::ZERO);
    (Asked { count, _speak: speak }, kerberos)
}

pub(crate) fn kerberos() -> Kerberos {
    Kerberos::new(acceptor(), Arc::new(Ann), Arc::new(Standing), Arc::new(Counting::default()))
}

pub(crate) fn security() -> Arc<Security> {
    Security::with_kerberos(kerberos())
}
