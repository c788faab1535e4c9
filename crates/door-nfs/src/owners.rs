//! Owners by name (RFC 8881 §5.9): `ann@example.org` in the place of 1000, where a domain is configured.
//!
//! The system's name service may be far away and slow. So other threads ask it (`asking`), and its answers are cached
//! for some minutes, also that a name or id is unknown. While it does not answer, ids are sent as numbers, which every
//! client understands, and a name that is not cached gets DELAY.

mod expiring_cache;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use nfs4::NfsStat4;
use nfs4::attr::Principal4;
use parking_lot::Mutex;
use types::Clock;
use xdr::Opaque;

use crate::asking::{Asking, NamesUnavailable};

use expiring_cache::ExpiringCache;

/// Ids and names kept, of each.
const KEPT_MAX: usize = 16_384;
const KEEP: Duration = Duration::from_secs(600);
/// A user that was just made is to be seen soon.
const KEEP_ABSENCE: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(2);
/// Ids asked for at once: a long list is no question that takes too long.
const ASKED_MAX: usize = 32;
/// The longest name that is asked for.
const NAME_BYTES_MAX: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OwnerKind {
    User,
    Group,
}

/// The names of the local system, both ways. Each may take its time. `None`: there is nobody of this id or name.
pub trait LocalNames: Send + Sync {
    fn name_of(&self, kind: OwnerKind, id: u32) -> Result<Option<String>, NamesUnavailable>;
    fn id_of(&self, kind: OwnerKind, name: &str) -> Result<Option<u32>, NamesUnavailable>;
}

type Ids = ExpiringCache<(OwnerKind, u32), Option<Arc<str>>>;
type Names = ExpiringCache<(OwnerKind, String), Option<u32>>;

/// Names of the configured domain.
pub struct OwnerNames {
    domain: String,
    system: Arc<dyn LocalNames>,
    clock: Arc<dyn Clock>,
    /// Leaf lock.
    by_id: Mutex<Ids>,
    /// Leaf lock.
    by_name: Mutex<Names>,
    asking: Asking,
}

/// The names of some ids; ids without a name are missing.
#[derive(Debug, Default)]
pub(crate) struct Named(BTreeMap<(OwnerKind, u32), Principal4>);

impl Named {
    /// An owner as it is told to the client.
    pub fn principal(&self, kind: OwnerKind, id: u32) -> Principal4 {
        self.0.get(&(kind, id)).cloned().unwrap_or_else(|| Principal4::numeric(id))
    }
}

impl OwnerNames {
    pub fn new(domain: &str, system: Arc<dyn LocalNames>, clock: Arc<dyn Clock>) -> Arc<OwnerNames> {
        Arc::new(OwnerNames::with_patience(domain, system, clock, PATIENCE))
    }

    fn with_patience(
        domain: &str,
        system: Arc<dyn LocalNames>,
        clock: Arc<dyn Clock>,
        patience: Duration,
    ) -> OwnerNames {
        let asking = Asking::new(Arc::clone(&clock), patience, "owners are told in numbers");
        OwnerNames {
            domain: domain.to_owned(),
            system,
            clock,
            by_id: Mutex::new(ExpiringCache::new(KEPT_MAX)),
            by_name: Mutex::new(ExpiringCache::new(KEPT_MAX)),
            asking,
        }
    }

    /// Until when names are looked up for a request that begins now.
    pub(crate) fn deadline(&self) -> Duration {
        self.clock.monotonic() + PATIENCE
    }

    /// The names of these ids, as far as they are known or can be looked up by `until`.
    pub(crate) async fn name(self: &Arc<Self>, ids: BTreeSet<(OwnerKind, u32)>, until: Duration) -> Named {
        let (mut named, mut unknown) = (Named::default(), Vec::new());
        for key in ids {
            match self.kept_name(key) {
                Some(name) => self.put(&mut named, key, name),
                None => unknown.push(key),
            }
        }
        for keys in unknown.chunks(ASKED_MAX) {
            let (names, keys) = (Arc::clone(self), keys.to_vec());
            // A name that comes too late for this answer is cached for the next.
            let finding = move || keys.into_iter().try_for_each(|key| names.find_name(key));
            if self.clock.monotonic() >= until || self.asking.ask(finding).await.is_err() {
                break;
            }
        }
        for key in unknown {
            let name = self.kept_name(key).flatten();
            self.put(&mut named, key, name);
        }
        named
    }

    fn put(&self, named: &mut Named, key: (OwnerKind, u32), name: Option<Arc<str>>) {
        // A name with a domain of its own could be taken for one of ours, or is too long for the wire.
        let Some(name) = name.filter(|name| !name.contains('@') && name.len() <= NAME_BYTES_MAX) else {
            return;
        };
        let owner = format!("{name}@{}", self.domain);
        named.0.insert(key, Principal4(Opaque::copy_from_slice(owner.as_bytes())));
    }

    /// The id of a name of our domain. BADOWNER: no user or group has the name; DELAY: it cannot be looked up now.
    async fn id(self: &Arc<Self>, kind: OwnerKind, given: &Principal4) -> Result<u32, NfsStat4> {
        let text = std::str::from_utf8(&given.0).map_err(|_| NfsStat4::BadOwner)?;
        let (name, domain) = text.rsplit_once('@').ok_or(NfsStat4::BadOwner)?;
        if !domain.eq_ignore_ascii_case(&self.domain) || name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(NfsStat4::BadOwner);
        }
        let key = (kind, name.to_owned());
        if self.kept_id(&key).is_none() {
            let (names, key) = (Arc::clone(self), key.clone());
            self.asking.ask(move || names.find_id(key)).await.map_err(|_| NfsStat4::Delay)?;
        }
        self.kept_id(&key).ok_or(NfsStat4::Delay)?.ok_or(NfsStat4::BadOwner)
    }

    fn kept_name(&self, key: (OwnerKind, u32)) -> Option<Option<Arc<str>>> {
        self.by_id.lock().find(&key, self.clock.monotonic())
    }

    fn kept_id(&self, key: &(OwnerKind, String)) -> Option<Option<u32>> {
        self.by_name.lock().find(key, self.clock.monotonic())
    }

    fn find_name(&self, key: (OwnerKind, u32)) -> Result<(), NamesUnavailable> {
        // Somebody else may have asked meanwhile.
        if self.kept_name(key).is_none() {
            let name: Option<Arc<str>> = self.system.name_of(key.0, key.1)?.map(Into::into);
            let until = self.keep(name.is_some());
            self.by_id.lock().insert(key, name, until);
        }
        Ok(())
    }

    fn find_id(&self, key: (OwnerKind, String)) -> Result<(), NamesUnavailable> {
        if self.kept_id(&key).is_none() {
            let id = self.system.id_of(key.0, &key.1)?;
            let until = self.keep(id.is_some());
            self.by_name.lock().insert(key, id, until);
        }
        Ok(())
    }

    fn keep(&self, is_known: bool) -> Duration {
        self.clock.monotonic() + if is_known { KEEP } else { KEEP_ABSENCE }
    }
}

/// The ids of the names in one request. Each is looked up once. If that takes too long in all, the answer is DELAY;
/// the ids found so far are cached for the client's retry.
pub(crate) struct GivenIds<'a> {
    names: Option<&'a Arc<OwnerNames>>,
    until: Option<Duration>,
    found: HashMap<(OwnerKind, Principal4), u32>,
}

impl<'a> GivenIds<'a> {
    pub fn new(names: Option<&'a Arc<OwnerNames>>) -> GivenIds<'a> {
        GivenIds { names, until: names.map(|names| names.deadline()), found: HashMap::new() }
    }

    /// As [`id_of`].
    pub async fn id_of(&mut self, kind: OwnerKind, given: Principal4) -> Result<u32, NfsStat4> {
        if let Some(id) = given.as_numeric() {
            return Ok(id);
        }
        let key = (kind, given);
        if let Some(id) = self.found.get(&key) {
            return Ok(*id);
        }
        if self.names.zip(self.until).is_some_and(|(names, until)| names.clock.monotonic() >= until) {
            return Err(NfsStat4::Delay);
        }
        let id = id_of(self.names, kind, &key.1).await?;
        self.found.insert(key, id);
        Ok(id)
    }
}

/// The id that an owner is given by: a number, or a name of the domain if there is one.
pub(crate) async fn id_of(
    names: Option<&Arc<OwnerNames>>,
    kind: OwnerKind,
    given: &Principal4,
) -> Result<u32, NfsStat4> {
    match (given.as_numeric(), names) {
        (Some(id), _) => Ok(id),
        (None, Some(names)) => names.id(kind, given).await,
        (None, None) => Err(NfsStat4::BadOwner),
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::names_for_tests;
