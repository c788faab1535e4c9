//! Members come and go: keys are rotated, pool hosts are shut out and let in again, and pools are taken off the list.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use async_trait::async_trait;
use cluster::trust::{Fingerprint, Member};
use cluster::{Certified, KeyRegistry, Standing};
use tokio::time::timeout;
use types::PoolId;
use types::display::Seconds;

use super::{ClusterHead, authorities, tls_of};
use crate::cluster::book::{Book, KeyStanding};
use crate::cluster::command::{ClusterKeysReport, ShutOutReport, TokenReport};

/// For the disk of the data directory, before a pool host is answered.
const DISK_TIME: Duration = Duration::from_secs(2);

impl ClusterHead {
    /// A new authority, from now on. Pool hosts get keys of it when they renew their leases. Blocks.
    pub fn rotate_keys(&self) -> Result<()> {
        let mut book = self.book.lock();
        let kept = book.keys();
        if kept.has_former {
            bail!(
                "a rotation is under way: {} still used keys of before (end it: forebay cluster rotate-keys --end-overlap)",
                names(book.lagging())
            );
        }
        let made = authorities::make_at(&self.data, &self.instance, kept.generation.saturating_add(1))?;
        let mut next = self.trusted.read().authorities.clone();
        next.former = Some(std::mem::replace(&mut next.now, made.into()));
        let tls = tls_of(&next)?;
        book.rotate(self.now_s())?;
        self.trusted.write().authorities = next;
        self.tls.send_replace(tls);
        self.know(&book)?;
        tracing::info!(generation = book.keys().generation, "the keys of the cluster are rotated");
        self.end_overlap_if_due(&mut book)
    }

    /// Keys of before are accepted no more, also those of pool hosts that have no others. Blocks.
    pub fn end_overlap(&self) -> Result<()> {
        let mut book = self.book.lock();
        ensure!(book.keys().has_former, "no rotation of keys is under way");
        self.end_overlap_of(&mut book)
    }

    /// When all pools have the new keys.
    pub(super) fn end_overlap_if_due(&self, book: &mut Book) -> Result<()> {
        if book.keys().has_former && book.lagging().next().is_none() {
            self.end_overlap_of(book)?;
        }
        Ok(())
    }

    fn end_overlap_of(&self, book: &mut Book) -> Result<()> {
        let mut next = self.trusted.read().authorities.clone();
        next.former = None;
        let tls = tls_of(&next)?;
        book.end_overlap()?;
        let generation = book.keys().generation;
        self.trusted.write().authorities = next;
        self.tls.send_replace(tls);
        self.know(book)?;
        if let Some(former) = generation.checked_sub(1) {
            authorities::forget(&self.data, former);
        }
        tracing::info!(generation, "the former keys of the cluster are accepted no more");
        Ok(())
    }

    /// The keys of the book count from here on.
    fn know(&self, book: &Book) -> Result<()> {
        self.trusted.write().keys = book.keys();
        book.pools().iter().try_for_each(|pool| self.place(pool))
    }

    pub fn report_keys(&self) -> ClusterKeysReport {
        let kept = self.trusted.read().keys;
        let with = |standing| {
            let seats = self.seats.read();
            let found = seats.iter().filter(|(_, placed)| placed.standing == standing);
            found.map(|(pool, _)| pool.to_string()).collect()
        };
        ClusterKeysReport {
            generation: kept.generation,
            age_s: kept.since_s.map(|since_s| self.now_s().saturating_sub(since_s)),
            overlap: kept.has_former,
            lagging: with(KeyStanding::Former),
            left_behind: with(KeyStanding::LeftBehind),
        }
    }

    /// Whether a pool is about to take the new keys, or the overlap is about to end. Between two connections a pool is suspect.
    pub fn awaits_pools(&self) -> bool {
        if !self.trusted.read().keys.has_former {
            return false;
        }
        let seats = self.seats.read();
        let mut lagging = seats.values().filter(|placed| placed.standing == KeyStanding::Former).peekable();
        lagging.peek().is_none() || lagging.any(|placed| placed.seat.pool.standing() != Standing::Out)
    }

    /// No key of the pool's host is accepted from now on, and its connections end. The lease of the pool goes on until it is
    /// over. The keys of tickets are renewed: its host is given none of the new ones. Blocks.
    pub fn shut_out(&self, pool: PoolId) -> Result<ShutOutReport> {
        let is_new = {
            let mut book = self.book.lock();
            let is_new = book.shut_out(pool, self.now_s())?;
            self.place(book.pool(pool.0)?)?;
            if let Err(error) = self.end_overlap_if_due(&mut book) {
                tracing::warn!(error = format!("{error:#}"), "cannot end the overlap of keys yet");
            }
            is_new
        };
        if is_new {
            tracing::warn!(%pool, "pool host is shut out");
        }
        // Also where it was shut out before: that command may have been interrupted here.
        let renewed = self.keys.renew();
        renewed
            .with_context(|| format!("{pool} is shut out; renew the keys of tickets (forebay keys renew)"))?;
        let seen = self.hosts().remove(&pool).unwrap_or_default();
        Ok(ShutOutReport { pool: pool.to_string(), host: seen.host, lease_s: seen.lease_s })
    }

    /// A token with which the host of the pool may join again, by a new key. Blocks.
    pub fn readmit(&self, pool: PoolId, valid: Duration) -> Result<TokenReport> {
        let is_shut_out = self.book.lock().pool(pool.0)?.shut_out_s.is_some();
        if is_shut_out {
            // With the renewal when it was shut out: the pool will open no tickets by keys that its host of before may have.
            self.keys.renew()?;
        }
        self.make_token(valid, Some(pool))
    }

    /// Why the pool cannot be taken off the list, whatever files it has.
    pub fn require_removable(&self, pool: PoolId) -> Result<()> {
        if pool.0 < self.own_pools {
            bail!("{pool} is on this host: only pools of other hosts can be removed");
        }
        let Some(placed) = self.seats.read().get(&pool).cloned() else {
            bail!("there is no {pool} (`forebay cluster status` lists pools of other hosts)");
        };
        let report = placed.seat.pool.report();
        if report.connections > 0 {
            bail!(
                "{pool} is connected: stop its host first, or shut it out (forebay cluster shut-out {pool})"
            );
        }
        if !report.lease_left.is_zero() {
            let left = report.lease_left.as_millis().div_ceil(1_000);
            let left = Seconds(u64::try_from(left).unwrap_or(u64::MAX));
            bail!("clients may still write at {pool}: its lease is over in {left}, try again then");
        }
        Ok(())
    }

    /// Takes the pool off the list; no other pool gets its number. Its files were counted before. Blocks.
    pub fn remove(&self, pool: PoolId) -> Result<()> {
        let mut book = self.book.lock();
        self.require_removable(pool)?;
        book.remove(pool)?;
        let placed = self.seats.write().remove(&pool);
        self.names.write().remove(&pool);
        self.list.remove(pool)?;
        if let Some(placed) = placed {
            placed.seat.end_unknown();
        }
        tracing::info!(%pool, "pool is taken off the list");
        self.end_overlap_if_due(&mut book)
    }

    /// A certificate by the authority of now, with its generation, and that of the authority.
    pub(super) fn issue(&self, pool: PoolId, public_key: &[u8]) -> Result<(u32, String, String)> {
        let trusted = self.trusted.read();
        let authority = &trusted.authorities.now;
        let certificate = authority.issue(Member::Pool(pool), public_key)?;
        Ok((trusted.keys.generation, certificate, authority.certificate_pem().to_owned()))
    }
}

#[async_trait]
impl KeyRegistry for ClusterHead {
    fn generation(&self) -> u32 {
        self.trusted.read().keys.generation
    }

    async fn certify(&self, pool: PoolId, public_key: &[u8]) -> Result<Certified, String> {
        let public_key = public_key.to_vec();
        let certified = self.blocking(move |head| {
            let mut book = head.book.lock();
            let (generation, certificate, authority) = head.issue(pool, &public_key)?;
            book.add_next(pool, Fingerprint::of_key(&public_key))?;
            head.place(book.pool(pool.0)?)?;
            Ok(Certified::Certificate { generation, certificate, authority })
        });
        certified.await
    }

    async fn used(&self, pool: PoolId, key: Fingerprint) {
        // Most hellos are by the one key of a pool.
        if self.seats.read().get(&pool).is_none_or(|placed| !placed.has_next) {
            return;
        }
        let taken = self.blocking(move |head| {
            let mut book = head.book.lock();
            if book.take_next(pool, key)? {
                head.place(book.pool(pool.0)?)?;
                tracing::info!(%pool, "pool has taken its new keys");
                head.end_overlap_if_due(&mut book)?;
            }
            Ok(())
        });
        // Until it is noted, both are accepted.
        let outcome =
            timeout(DISK_TIME, taken).await.unwrap_or_else(|_| Err("the disk does not answer".to_owned()));
        if let Err(error) = outcome {
            tracing::warn!(%pool, error, "cannot note the new keys of a pool: its former ones are accepted still");
        }
    }

    fn refusal(&self, pool: PoolId) -> String {
        let readmit = format!("on the head, `forebay cluster readmit {pool}` makes a token for it");
        match self.seats.read().get(&pool).map(|placed| placed.standing) {
            Some(KeyStanding::ShutOut) => format!("{pool} was shut out ({readmit})"),
            Some(KeyStanding::LeftBehind) => format!("{pool} missed a rotation of keys ({readmit})"),
            Some(_) => format!("the key of this host is not that of {pool} any more ({readmit})"),
            None => {
                format!("{pool} does not belong to this cluster any more (join with an empty data directory)")
            }
        }
    }
}

fn names(pools: impl Iterator<Item = PoolId>) -> String {
    pools.map(|pool| pool.to_string()).collect::<Vec<_>>().join(", ")
}
