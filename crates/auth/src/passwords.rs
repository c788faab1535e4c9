//! Passwords: checked at a cost, remembered for minutes, and guessed slowly.
//!
//! A check takes tens of milliseconds of CPU and megabytes on purpose, so few run at once and off the async threads. WebDAV
//! clients send the password with every request: a verified one is remembered as an HMAC with a key that lives as long
//! as the process, never as the password. A change of the user's line in the file ends that at once. Before a wrong
//! password counts as one, the file is looked at again: the password may have been set a moment ago.

pub mod file;
pub mod hash;
pub mod throttle;

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::AuthError;
use hmac::{Hmac, KeyInit, Mac};
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use sha2::Sha256;
use tokio::sync::Semaphore;
use types::Clock;

use crate::watched::Watched;
use file::{User, Users};
use hash::Cost;
use throttle::Throttle;

/// Checks that run at once: two threads and their memory are what guessing can take from the server.
const CHECKS_MAX: usize = 2;
const WAITING_MAX: usize = 128;
const WAIT_MAX: Duration = Duration::from_secs(10);
const REMEMBERED_MAX: usize = 4096;
const REMEMBERED: Duration = Duration::from_secs(300);
const PASSWORD_BYTES_MAX: usize = 1024;
/// Nobody learns whether it was the name or the password.
const WRONG: &str = "the user name or the password is wrong";

pub struct Passwords {
    users: Arc<Watched<Users>>,
    clock: Arc<dyn Clock>,
    key: Hmac<Sha256>,
    remembered: Cache<[u8; 32], Remembered>,
    throttle: Mutex<Throttle>,
    checks: Arc<Semaphore>,
    waiting: AtomicUsize,
    /// Unknown users cost as much as known ones.
    nobody: Arc<str>,
}

#[derive(Clone)]
struct Remembered {
    hash: Arc<str>,
    /// In the monotonic clock.
    until: Duration,
}

impl Passwords {
    pub fn open(path: Option<&Path>, clock: Arc<dyn Clock>) -> Result<Passwords, String> {
        let mut key = [0; 32];
        aws_lc_rs::rand::fill(&mut key).map_err(|_| "the system gives no random numbers".to_owned())?;
        Ok(Passwords {
            users: Watched::open(path, Users::parse, clock.clone())?,
            clock,
            key: Hmac::new_from_slice(&key).expect("HMAC takes keys of any length"),
            remembered: Cache::new(REMEMBERED_MAX),
            throttle: Mutex::default(),
            checks: Arc::new(Semaphore::new(CHECKS_MAX)),
            waiting: AtomicUsize::new(0),
            nobody: hash::nobody(Cost::default()).into(),
        })
    }

    /// The user as the file has it now.
    pub async fn find(&self, name: &str) -> Option<User> {
        self.users.current().await.find(name).cloned()
    }

    pub async fn check(&self, name: &str, password: &str, from: IpAddr) -> Result<User, AuthError> {
        if name.len() > file::NAME_BYTES_MAX || password.len() > PASSWORD_BYTES_MAX {
            return Err(wrong());
        }
        let mut users = self.users.current().await;
        let fingerprint = self.fingerprint(name, password);
        loop {
            let user = users.find(name);
            // Requests that come at once with one password wait for one check of it.
            let guard = match self.remembered.get_value_or_guard_async(&fingerprint).await {
                Err(guard) => guard,
                Ok(remembered) => match user {
                    Some(user)
                        if user.hash == remembered.hash && self.clock.monotonic() < remembered.until =>
                    {
                        return Ok(user.clone());
                    }
                    _ => {
                        self.remembered.remove(&fingerprint);
                        continue;
                    }
                },
            };
            let hash = user.map_or_else(|| self.nobody.clone(), |user| user.hash.clone());
            let is_right = self.compute(name, password, hash.clone(), from).await?;
            let Some(user) = user.filter(|_| is_right) else {
                let fresh = self.users.fresh().await;
                if fresh.find(name).map(|user| &user.hash) == user.map(|user| &user.hash) {
                    return Err(wrong());
                }
                self.throttle.lock().give_back(from, name, false);
                users = fresh;
                continue;
            };
            let until = self.clock.monotonic() + REMEMBERED;
            // Fails only if somebody removed the placeholder; then the next request checks again.
            let _ = guard.insert(Remembered { hash, until });
            return Ok(user.clone());
        }
    }

    /// The check itself, within the bounds on guesses and on what runs at once.
    async fn compute(
        &self,
        name: &str,
        password: &str,
        hash: Arc<str>,
        from: IpAddr,
    ) -> Result<bool, AuthError> {
        let now = self.clock.monotonic();
        self.throttle.lock().take(from, name, now).map_err(|wait| {
            let wait_s = wait.as_secs() + 1;
            AuthError::Refused(format!("too many wrong passwords; try again in {wait_s} s"))
        })?;
        let Some(_place) = QueuePlace::take(&self.waiting) else {
            self.throttle.lock().give_back(from, name, false);
            return Err(busy());
        };
        let Ok(Ok(permit)) = tokio::time::timeout(WAIT_MAX, self.checks.clone().acquire_owned()).await else {
            self.throttle.lock().give_back(from, name, false);
            return Err(busy());
        };
        let password = password.to_owned();
        let is_right = tokio::task::spawn_blocking(move || {
            // Held by the work, which goes on when the request that asked for it is dropped.
            let _permit = permit;
            hash::verify(&password, &hash)
        })
        .await
        .map_err(|_| busy())?;
        if is_right {
            self.throttle.lock().give_back(from, name, true);
        } else {
            tracing::debug!(%from, "a wrong password");
        }
        Ok(is_right)
    }

    fn fingerprint(&self, name: &str, password: &str) -> [u8; 32] {
        let length = (name.len() as u64).to_le_bytes();
        self.key
            .clone()
            .chain_update(length)
            .chain_update(name)
            .chain_update(password)
            .finalize()
            .into_bytes()
            .into()
    }
}

/// One of the places in front of the checks.
struct QueuePlace<'a>(&'a AtomicUsize);

impl QueuePlace<'_> {
    fn take(waiting: &AtomicUsize) -> Option<QueuePlace<'_>> {
        let place = QueuePlace(waiting);
        // Dropped, and so given back, when it was one too many.
        (waiting.fetch_add(1, Ordering::Relaxed) < WAITING_MAX).then_some(place)
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn wrong() -> AuthError {
    AuthError::Refused(WRONG.to_owned())
}

fn busy() -> AuthError {
    AuthError::Unavailable("too many passwords are being checked; try again".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::clock::ManualClock;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    struct Trial {
        _folder: tempfile::TempDir,
        path: std::path::PathBuf,
        clock: Arc<ManualClock>,
        passwords: Passwords,
    }

    fn trial() -> Trial {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("passwords");
        write(&path, "right");
        let clock = Arc::new(ManualClock::new(1_000));
        let mut passwords = Passwords::open(Some(&path), clock.clone()).unwrap();
        passwords.nobody = hash::nobody(Cost::TEST).into();
        Trial { _folder: folder, path, clock, passwords }
    }

    fn write(path: &Path, password: &str) {
        let hash = hash::hash(password, Cost::TEST).unwrap();
        let new = path.with_extension("new");
        std::fs::write(&new, format!("anna:{hash}:1001:1000,27:admin\n")).unwrap();
        std::fs::rename(&new, path).unwrap();
    }

    #[tokio::test]
    async fn the_right_password_gives_the_identity_of_the_line() {
        let trial = trial();
        let user = trial.passwords.check("anna", "right", HERE).await.unwrap();
        assert_eq!((user.identity.uid, user.role), (1001, api::Role::Admin));
        for (name, password) in
            [("anna", "wrong"), ("anna", ""), ("bert", "right"), ("", ""), ("Anna", "right")]
        {
            let error = trial.passwords.check(name, password, HERE).await.unwrap_err();
            assert_eq!(error.to_string(), WRONG, "{name}");
        }
    }

    #[tokio::test]
    async fn a_verified_password_is_not_computed_again_for_minutes() {
        let trial = trial();
        trial.passwords.check("anna", "right", HERE).await.unwrap();
        // Nothing can be computed any more.
        trial.passwords.checks.close();
        assert!(trial.passwords.check("anna", "right", HERE).await.is_ok());
        trial.clock.pass(REMEMBERED + Duration::from_secs(1));
        assert!(matches!(trial.passwords.check("anna", "right", HERE).await, Err(AuthError::Unavailable(_))));
    }

    #[tokio::test]
    async fn a_changed_password_is_in_force_although_the_old_one_is_remembered() {
        let trial = trial();
        trial.passwords.check("anna", "right", HERE).await.unwrap();
        write(&trial.path, "new");
        trial.clock.advance(2);
        assert!(trial.passwords.check("anna", "right", HERE).await.is_err());
        assert!(trial.passwords.check("anna", "new", HERE).await.is_ok());
        std::fs::remove_file(&trial.path).unwrap();
        trial.clock.advance(2);
        assert!(trial.passwords.check("anna", "new", HERE).await.is_err());
    }

    /// It took a second, in which the new password was counted as a wrong one.
    #[tokio::test]
    async fn a_password_that_was_set_a_moment_ago_is_right_and_costs_no_guess() {
        let trial = trial();
        for round in 0..2 * throttle::PAIR_BURST {
            let password = format!("new-{round}");
            write(&trial.path, &password);
            // The clock stands still.
            let outcome = trial.passwords.check("anna", &password, HERE).await;
            assert!(outcome.is_ok(), "{round}: {outcome:?}");
        }
        for _ in 0..throttle::PAIR_BURST {
            assert_eq!(trial.passwords.check("anna", "wrong", HERE).await.unwrap_err().to_string(), WRONG);
        }
        let error = trial.passwords.check("anna", "wrong", HERE).await.unwrap_err();
        assert!(error.to_string().starts_with("too many wrong passwords"), "{error}");
    }

    #[tokio::test]
    async fn a_user_who_was_added_a_moment_ago_is_known() {
        let trial = trial();
        let line = std::fs::read_to_string(&trial.path).unwrap();
        std::fs::write(&trial.path, "").unwrap();
        let passwords = Passwords::open(Some(&trial.path), trial.clock.clone()).unwrap();
        std::fs::write(&trial.path, line).unwrap();
        assert!(passwords.check("anna", "right", HERE).await.is_ok());
    }

    #[tokio::test]
    async fn guessing_is_slowed_down_where_it_happens_and_nowhere_else() {
        let trial = trial();
        for _ in 0..throttle::PAIR_BURST {
            assert_eq!(trial.passwords.check("anna", "wrong", HERE).await.unwrap_err().to_string(), WRONG);
        }
        let error = trial.passwords.check("anna", "right", HERE).await.unwrap_err();
        assert!(error.to_string().starts_with("too many wrong passwords"), "{error}");
        assert!(
            trial.passwords.check("anna", "right", THERE).await.is_ok(),
            "another address is not locked out"
        );
        trial.clock.advance(60);
        assert!(trial.passwords.check("anna", "right", HERE).await.is_ok());
    }

    #[tokio::test]
    async fn a_user_who_is_verified_is_not_disturbed_by_guesses_from_the_same_address() {
        let trial = trial();
        trial.passwords.check("anna", "right", HERE).await.unwrap();
        for _ in 0..=throttle::PAIR_BURST {
            assert!(trial.passwords.check("anna", "wrong", HERE).await.is_err());
        }
        assert!(trial.passwords.check("anna", "right", HERE).await.is_ok());
    }

    #[tokio::test]
    async fn many_requests_at_once_with_one_password_compute_it_once() {
        use std::task::Poll;

        let trial = trial();
        trial.passwords.checks.forget_permits(CHECKS_MAX);
        let mut pending: Vec<_> =
            (0..50).map(|_| Box::pin(trial.passwords.check("anna", "right", HERE))).collect();
        // Polled together, as requests of many connections are.
        std::future::poll_fn(|context| {
            assert!(pending.iter_mut().all(|attempt| attempt.as_mut().poll(context).is_pending()));
            Poll::Ready(())
        })
        .await;
        assert_eq!(trial.passwords.waiting.load(Ordering::Relaxed), 1, "one stands in front of the checks");
        // One check and no other.
        trial.passwords.checks.add_permits(1);
        std::future::poll_fn(|context| {
            pending.retain_mut(|attempt| match attempt.as_mut().poll(context) {
                Poll::Ready(outcome) => {
                    assert!(outcome.is_ok());
                    false
                }
                Poll::Pending => true,
            });
            if pending.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    #[tokio::test]
    async fn more_checks_than_there_are_places_are_refused_and_cost_no_guess() {
        use std::task::Poll;

        let trial = trial();
        trial.passwords.checks.forget_permits(CHECKS_MAX);
        let addresses = (0..WAITING_MAX).map(|n| IpAddr::V4(u32::try_from(n + 1).unwrap().into()));
        let waiting = addresses.map(|from| {
            let passwords = &trial.passwords;
            Box::pin(async move { passwords.check(&format!("user-{from}"), "x", from).await })
        });
        let mut waiting: Vec<_> = waiting.collect();
        std::future::poll_fn(|context| {
            assert!(waiting.iter_mut().all(|attempt| attempt.as_mut().poll(context).is_pending()));
            Poll::Ready(())
        })
        .await;
        for _ in 0..2 * throttle::PAIR_BURST {
            let error = trial.passwords.check("anna", "right", HERE).await.unwrap_err();
            assert!(matches!(error, AuthError::Unavailable(_)), "{error}");
        }
        drop(waiting);
        trial.passwords.checks.add_permits(1);
        assert!(trial.passwords.check("anna", "right", HERE).await.is_ok());
    }
}
