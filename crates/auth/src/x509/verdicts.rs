//! Verdicts that are remembered: clients open many connections with one chain.

use std::collections::{HashMap, VecDeque};

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;

use super::{CertifiedUser, X509Error};

const ENTRIES_MAX: usize = 4096;
const CERTIFIED_S: u64 = 300;
/// Long enough to make repeated nonsense cheap, short enough for an administrator who mends something.
const REFUSED_S: u64 = 30;

pub type Verdict = Result<CertifiedUser, X509Error>;
pub type ChainDigest = [u8; 32];

#[derive(Debug, Default)]
pub struct Verdicts {
    entries: HashMap<ChainDigest, Entry>,
    /// The oldest goes first when it is full.
    order: VecDeque<ChainDigest>,
}

#[derive(Debug)]
struct Entry {
    verdict: Verdict,
    /// Which reading of the directories it rests on.
    generation: u64,
    from_s: u64,
    until_s: u64,
}

impl Verdicts {
    pub fn find(&self, chain: &ChainDigest, generation: u64, now_s: u64) -> Option<Verdict> {
        let entry = self.entries.get(chain)?;
        let holds = entry.generation == generation && (entry.from_s..entry.until_s).contains(&now_s);
        holds.then(|| entry.verdict.clone())
    }

    pub fn remember(&mut self, chain: ChainDigest, verdict: &Verdict, generation: u64, now_s: u64) {
        let until_s = match verdict {
            Ok(user) => now_s.saturating_add(CERTIFIED_S).min(user.expires_s),
            Err(_) => now_s.saturating_add(REFUSED_S),
        };
        let entry = Entry { verdict: verdict.clone(), generation, from_s: now_s, until_s };
        if self.entries.insert(chain, entry).is_some() {
            return;
        }
        self.order.push_back(chain);
        if self.order.len() > ENTRIES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.entries.remove(&oldest);
        }
    }
}

/// Lengths are digested too, so no two chains run into one.
pub fn chain_digest(chain: &[Bytes]) -> ChainDigest {
    let mut context = Context::new(&SHA256);
    for certificate in chain {
        context.update(&(certificate.len() as u64).to_be_bytes());
        context.update(certificate);
    }
    let mut out = [0; 32];
    out.copy_from_slice(context.finish().as_ref());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certified(expires_s: u64) -> Verdict {
        Ok(CertifiedUser { expires_s, ..CertifiedUser::default() })
    }

    #[test]
    fn a_verdict_holds_for_minutes_and_never_beyond_the_certificate() {
        let mut verdicts = Verdicts::default();
        verdicts.remember([1; 32], &certified(10_000), 0, 1_000);
        verdicts.remember([2; 32], &certified(1_010), 0, 1_000);
        verdicts.remember([3; 32], &Err(X509Error::NoAuthorities), 0, 1_000);
        assert!(verdicts.find(&[1; 32], 0, 1_299).is_some());
        assert!(verdicts.find(&[1; 32], 0, 1_300).is_none());
        assert!(verdicts.find(&[2; 32], 0, 1_010).is_none());
        assert!(verdicts.find(&[3; 32], 0, 1_029).is_some());
        assert!(verdicts.find(&[3; 32], 0, 1_030).is_none());
        assert!(verdicts.find(&[1; 32], 0, 999).is_none(), "the clock went back");
    }

    #[test]
    fn a_verdict_does_not_outlive_the_directories_it_rests_on() {
        let mut verdicts = Verdicts::default();
        verdicts.remember([1; 32], &certified(10_000), 0, 1_000);
        assert!(verdicts.find(&[1; 32], 1, 1_001).is_none());
    }

    #[test]
    fn there_is_a_bound_and_the_oldest_goes() {
        let mut verdicts = Verdicts::default();
        let chain = |n: usize| {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&n.to_be_bytes());
            digest
        };
        for n in 0..=ENTRIES_MAX {
            verdicts.remember(chain(n), &certified(10_000), 0, 1_000);
            verdicts.remember(chain(n), &certified(10_000), 0, 1_000);
        }
        assert_eq!((verdicts.entries.len(), verdicts.order.len()), (ENTRIES_MAX, ENTRIES_MAX));
        assert!(verdicts.find(&chain(0), 0, 1_000).is_none());
        assert!(verdicts.find(&chain(1), 0, 1_000).is_some());
    }

    #[test]
    fn where_one_certificate_ends_is_part_of_the_digest() {
        let digest = |parts: &[&'static [u8]]| {
            chain_digest(&parts.iter().map(|part| Bytes::from_static(part)).collect::<Vec<_>>())
        };
        assert_ne!(digest(&[b"ab", b"c"]), digest(&[b"a", b"bc"]));
    }
}
