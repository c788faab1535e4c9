//! Opens, byte ranges, delegations and layouts at once, of clients of two doors, in random steps beside lists: what is
//! granted is what the lists allow, no two grants conflict, and departed holders leave nothing.
//!
//! `FOREBAY_TEST_MODEL_STEPS=1000000` plays so many steps, in release within seconds; a few are played each time.

use super::*;
use crate::DelegationKind;

const STEPS: u64 = 40_000;
const STEPS_PER_RUN: u64 = 200;
const HOLDERS: u64 = 4;
const FILES: u64 = 2;
const BYTES: u64 = 8;

trait Throws {
    fn owner(&mut self) -> Owner;
    fn share(&mut self) -> Share;
    fn range(&mut self) -> ByteRange;
}

impl Throws for Dice {
    /// The last comes through another door.
    fn owner(&mut self) -> Owner {
        owner(of_some_door(1 + self.below(HOLDERS)), 1 + self.below(2))
    }

    fn share(&mut self) -> Share {
        share(1 + self.below(3) as u32, self.of(&[0, 0, 0, 1, 2, 3]))
    }

    fn range(&mut self) -> ByteRange {
        let from = self.below(BYTES);
        ByteRange::from_bounds(from, (from + 1 + self.below(BYTES)).min(BYTES)).unwrap()
    }
}

fn of_some_door(number: u64) -> Holder {
    Holder::of(if number < HOLDERS { DOOR } else { OTHER_DOOR }, number)
}

#[derive(Default)]
struct Model {
    opens: Vec<(FileId, Owner, Share)>,
    /// For each byte who has locked it and how.
    locks: BTreeMap<(FileId, Owner, u64), LockKind>,
    delegations: Vec<(FileId, Holder, DelegationKind)>,
    layouts: BTreeMap<(FileId, Holder), LayoutModes>,
}

impl Model {
    /// Whether an open of `file` goes along with all that others have.
    fn may_open(&self, file: FileId, owner: Owner, share: Share) -> bool {
        let others = self.opens.iter().filter(|(of, other, _)| *of == file && *other != owner);
        let opens = others.clone().all(|(_, _, other)| {
            !share.access.intersects(other.deny) && !share.deny.intersects(other.access)
        });
        opens
            && self
                .delegations
                .iter()
                .all(|(of, holder, kind)| *of != file || *holder == owner.holder || !conflicts(*kind, share))
    }

    fn may_lock(&self, file: FileId, owner: Owner, range: ByteRange, kind: LockKind) -> bool {
        !self.locks.iter().any(|((of, other, byte), held)| {
            *of == file
                && *other != owner
                && (range.offset()..range.end()).contains(byte)
                && (kind == LockKind::Write || *held == LockKind::Write)
        })
    }

    fn set(&mut self, file: FileId, owner: Owner, range: ByteRange, kind: Option<LockKind>) {
        for byte in range.offset()..range.end() {
            match kind {
                Some(kind) => self.locks.insert((file, owner, byte), kind),
                None => self.locks.remove(&(file, owner, byte)),
            };
        }
    }

    fn forget(&mut self, holder: Holder) {
        self.opens.retain(|(_, owner, _)| owner.holder != holder);
        self.locks.retain(|(_, owner, _), _| owner.holder != holder);
        self.delegations.retain(|(_, who, _)| *who != holder);
        self.layouts.retain(|(_, who), _| *who != holder);
    }

    /// Nothing that was granted conflicts with another, and the table counts the same.
    fn check(&self, state: &FileState) {
        for (file, owner, share) in &self.opens {
            assert_eq!(state.file(*file).share_of(*owner), Some(*share));
            assert!(self.may_open(*file, *owner, *share), "{owner:?} has {share:?}");
        }
        for ((file, owner, byte), kind) in &self.locks {
            let range = ByteRange::from_bounds(*byte, byte + 1).unwrap();
            assert!(self.may_lock(*file, *owner, range, *kind), "{owner:?} has byte {byte}");
        }
        for (file, holder, kind) in &self.delegations {
            let others = self.delegations.iter().filter(|(of, other, _)| of == file && other != holder);
            assert!(
                others
                    .clone()
                    .all(|(_, _, other)| (*kind, *other) == (DelegationKind::Read, DelegationKind::Read))
            );
        }
        let held = state.holders().total();
        assert_eq!((held.opens, held.delegations), (self.opens.len(), self.delegations.len()));
        assert_eq!(held.layouts, self.layouts.len());
        let begins = |(file, owner, byte): &(FileId, Owner, u64), kind: &LockKind| {
            *byte == 0 || self.locks.get(&(*file, *owner, byte - 1)) != Some(kind)
        };
        assert_eq!(held.locks, self.locks.iter().filter(|(place, kind)| begins(place, kind)).count());
    }
}

/// Whether a delegation must end before others have that open.
fn conflicts(kind: DelegationKind, share: Share) -> bool {
    kind == DelegationKind::Write || share.access.contains(Modes::WRITE) || share.deny.contains(Modes::READ)
}

fn open_or_close(state: &mut FileState, model: &mut Model, dice: &mut Dice, file: FileId) {
    let (owner, share) = (dice.owner(), dice.share());
    let at = model.opens.iter().position(|(of, other, _)| (*of, *other) == (file, owner));
    match dice.below(6) {
        0..3 => {
            let is_allowed = model.may_open(file, owner, share);
            let opened = state.open(file, owner, share);
            assert_eq!(opened.is_ok(), is_allowed, "{owner:?} {share:?}: {opened:?}");
            if let Ok(all) = opened {
                let expected = at.map_or(share, |at| model.opens[at].2.union(share));
                assert_eq!(all, expected);
                at.map(|at| model.opens.swap_remove(at));
                model.opens.push((file, owner, all));
            }
        }
        3 => {
            let has = at.is_some_and(|at| model.opens[at].2.contains(share));
            assert_eq!(state.downgrade(file, owner, share), has);
            if let Some(at) = at.filter(|_| has) {
                model.opens[at].2 = share;
            }
        }
        _ => assert_eq!(state.close(file, owner), at.map(|at| model.opens.swap_remove(at).2)),
    }
}

fn lock_or_unlock(state: &mut FileState, model: &mut Model, dice: &mut Dice, file: FileId) {
    let (owner, range) = (dice.owner(), dice.range());
    let kind = dice.of(&[LockKind::Read, LockKind::Write]);
    match dice.below(8) {
        0..4 => {
            let locked = state.locks().lock(file, owner, range, kind);
            assert_eq!(locked.is_ok(), model.may_lock(file, owner, range, kind));
            if locked.is_ok() {
                model.set(file, owner, range, Some(kind));
            }
        }
        4..7 => {
            state.locks().unlock(file, owner, range).unwrap();
            model.set(file, owner, range, None);
        }
        _ => {
            state.locks().release(file, owner);
            model.locks.retain(|(of, other, _), _| (*of, *other) != (file, owner));
        }
    }
}

fn grant_or_return(
    state: &mut FileState,
    model: &mut Model,
    dice: &mut Dice,
    (file, now): (FileId, Duration),
) {
    let holder = dice.owner().holder;
    match dice.below(6) {
        0 | 1 => {
            let kind = dice.of(&[DelegationKind::Read, DelegationKind::Write]);
            if state.delegations().grant(file, holder, kind, now).is_ok() {
                // One to read becomes one to write.
                model.delegations.retain(|(of, who, _)| (*of, *who) != (file, holder));
                model.delegations.push((file, holder, kind));
                let others =
                    model.opens.iter().filter(|(of, owner, _)| *of == file && owner.holder != holder);
                assert!(
                    others.clone().all(|(_, _, share)| !conflicts(kind, *share)),
                    "{kind:?} beside an open"
                );
            }
        }
        2 => {
            let at = model.delegations.iter().position(|(of, who, _)| (*of, *who) == (file, holder));
            assert_eq!(
                state.delegations().give_back(file, holder),
                at.map(|at| model.delegations.swap_remove(at).2)
            );
        }
        3 | 4 => {
            let mode = dice.of(&[LayoutMode::Read, LayoutMode::ReadWrite]);
            if state.layouts().grant(file, holder, mode, now).is_ok() {
                model.layouts.insert((file, holder), state.file(file).layout_of(holder));
            }
        }
        _ => {
            assert!(state.layouts().give_back(file, holder, LayoutModes::ALL).is_empty());
            model.layouts.remove(&(file, holder));
        }
    }
}

/// Time passes: who did not give back in time loses it.
fn revoke(state: &mut FileState, model: &mut Model, now: Duration) {
    for revoke in state.expired_recalls(now, now + s(2)) {
        match revoke.granted {
            Granted::Delegation(_) => {
                state.delegations().give_back(revoke.file, revoke.holder);
                model.delegations.retain(|(of, who, _)| (*of, *who) != (revoke.file, revoke.holder));
            }
            Granted::Layout(_) => {
                state.layouts().give_back(revoke.file, revoke.holder, LayoutModes::ALL);
                model.layouts.remove(&(revoke.file, revoke.holder));
            }
        }
    }
}

/// One question for all layouts, and what its holder says to it.
fn recall_at_once(state: &mut FileState, dice: &mut Dice, now: Duration) {
    let holder = dice.owner().holder;
    let files: Vec<FileId> = (1..=FILES).map(FileId).collect();
    match dice.below(4) {
        0 => state.recalls().expire_at_once(holder),
        1 => state.recalls().forget_at_once(holder),
        _ => _ = state.recalls().begin_at_once(holder, &files, now + s(10)),
    }
    if state.under_way.at_once.has(holder) {
        assert!(files.iter().any(|file| state.file(*file).is_recalled(holder, GrantKind::Layout)));
    }
}

fn run(dice: &mut Dice) {
    let (mut state, mut model, mut now) = (FileState::default(), Model::default(), s(0));
    for _ in 0..STEPS_PER_RUN {
        let file = FileId(1 + dice.below(FILES));
        match dice.below(26) {
            0..8 => open_or_close(&mut state, &mut model, dice, file),
            8..14 => lock_or_unlock(&mut state, &mut model, dice, file),
            14..20 => grant_or_return(&mut state, &mut model, dice, (file, now)),
            20 | 21 => {
                let change = dice.of(&[Change::Truncate, Change::Remove, Change::SetAttributes]);
                let _ = state.changes().ask(file, Some(dice.owner().holder), change, now + s(10));
            }
            24 => state.changes().withdraw(file, dice.owner().holder),
            22 => recall_at_once(&mut state, dice, now),
            23 => {
                now += s(dice.below(8));
                revoke(&mut state, &mut model, now);
            }
            _ => {
                let gone = dice.owner().holder;
                state.release_holder(gone);
                model.forget(gone);
                assert_eq!(state.holders().held(gone), Held::default());
            }
        }
        model.check(&state);
    }
    (1..=HOLDERS).for_each(|number| state.release_holder(of_some_door(number)));
    state.expired_recalls(now + s(100), now + s(200));
    assert!(state.is_empty(), "state outlives its holders: {state:?}");
}

#[test]
fn all_kinds_of_state_together_are_what_lists_allow_and_nothing_outlives_its_holder() {
    let steps =
        std::env::var("FOREBAY_TEST_MODEL_STEPS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(STEPS);
    let mut dice = Dice::seeded(0x9e37_79b9_7f4a_7c15);
    for _ in 0..steps / STEPS_PER_RUN {
        run(&mut dice);
    }
}
