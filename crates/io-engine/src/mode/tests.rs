//! The rule, row by row, and what holds of all inputs.

mod properties;

use std::collections::BTreeSet;

use super::*;
use crate::capabilities::DirectAlignment;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A pool that can do all modes.
fn capable() -> ModeCapabilities {
    let direct = Some(DirectAlignment { memory_bytes: 512, offset_bytes: 4096 });
    ModeCapabilities { is_uncached_possible: true, direct }
}

fn thresholds() -> Thresholds {
    let crossover = |uncached, direct| Crossover {
        small_bytes: 16 * KIB,
        uncached_bytes_min: Some(uncached),
        direct_bytes_min: direct,
    };
    let write = crossover(64 * KIB, Some(256 * KIB));
    let read_random = Crossover { uncached_bytes_min: None, ..crossover(0, Some(128 * KIB)) };
    Thresholds::calibrated(write, crossover(128 * KIB, Some(4 * MIB)), read_random)
}

fn write(length_bytes: u64) -> Inputs {
    let request = Request {
        kind: Kind::Write,
        offset: MIB,
        length_bytes,
        is_stable: false,
        pattern: Pattern::Sequential,
        memory_alignment_bytes: None,
    };
    let file = FileFacts { size_bytes: 64 * MIB, ..FileFacts::default() };
    Inputs { request, file, pool: PoolFacts { capabilities: capable(), ..PoolFacts::default() } }
}

/// A cold read of bytes that are used once.
fn read(length_bytes: u64, pattern: Pattern) -> Inputs {
    let Inputs { request, file, pool } = write(length_bytes);
    let request = Request { kind: Kind::Read, pattern, ..request };
    Inputs { request, file: FileFacts { residency: Residency::None, reuse: Reuse::Once, ..file }, pool }
}

fn with(mut inputs: Inputs, change: impl FnOnce(&mut Inputs)) -> Inputs {
    change(&mut inputs);
    inputs
}

fn dirty(inputs: &mut Inputs) {
    inputs.file.is_dirty = true;
}

fn contended(inputs: &mut Inputs) {
    inputs.file.is_contended = true;
}

fn tight(inputs: &mut Inputs) {
    inputs.pool.is_memory_tight = true;
}

fn no_direct(inputs: &mut Inputs) {
    inputs.pool.capabilities.direct = None;
}

fn no_uncached(inputs: &mut Inputs) {
    inputs.pool.capabilities.is_uncached_possible = false;
}

fn pinned(mode: Mode) -> impl FnOnce(&mut Inputs) {
    move |inputs| inputs.file.pinned = Some(mode)
}

struct Row {
    inputs: Inputs,
    policy: Policy,
    mode: Mode,
    reason: Reason,
}

fn auto(inputs: Inputs, mode: Mode, reason: Reason) -> Row {
    Row { inputs, policy: Policy::Auto, mode, reason }
}

fn check(rows: &[Row]) {
    for (at, Row { inputs, policy, mode, reason }) in rows.iter().enumerate() {
        let decision = decide(inputs, &policy.thresholds(thresholds()));
        assert_eq!(decision, Decision { mode: *mode, reason: *reason }, "row {at}: {policy} {inputs:?}");
    }
}

/// Rows that together have every reason.
fn rows() -> Vec<Row> {
    let mut rows = rows_of_choice();
    rows.extend(rows_of_conflict_and_pressure());
    rows.extend(rows_of_use());
    rows.extend(rows_of_size());
    rows.extend(rows_of_other_rules());
    rows
}

fn rows_of_choice() -> Vec<Row> {
    use Mode::*;
    let forced = |inputs, policy, mode, reason| Row { inputs, policy, mode, reason };
    let hot = |inputs: &mut Inputs| inputs.file.residency = Residency::All;
    let short = || with(write(KIB), pinned(Direct));
    vec![
        auto(with(write(4 * KIB), pinned(Direct)), Direct, Reason::Pinned),
        auto(with(with(read(MIB, Pattern::Random), hot), pinned(Uncached)), Uncached, Reason::Pinned),
        auto(with(write(4 * MIB), pinned(Buffered)), Buffered, Reason::Pinned),
        auto(with(short(), no_uncached), Buffered, Reason::BelowOneBlock),
        auto(short(), Uncached, Reason::BelowOneBlock),
        forced(write(4 * KIB), Policy::Direct, Direct, Reason::Forced),
        forced(write(4 * KIB), Policy::Uncached, Uncached, Reason::Forced),
        forced(write(4 * MIB), Policy::Buffered, Buffered, Reason::Forced),
        forced(with(write(4 * MIB), pinned(Buffered)), Policy::Direct, Buffered, Reason::Pinned),
        forced(with(write(MIB), no_direct), Policy::Direct, Uncached, Reason::DirectUnavailable),
        forced(with(write(MIB), no_uncached), Policy::Uncached, Buffered, Reason::UncachedUnavailable),
        // A direct read takes the whole block around its range.
        forced(read(100, Pattern::Random), Policy::Direct, Direct, Reason::Forced),
    ]
}

fn rows_of_conflict_and_pressure() -> Vec<Row> {
    use Mode::*;
    let headroom = |bytes| move |inputs: &mut Inputs| inputs.pool.dirty_headroom_bytes = Some(bytes);
    vec![
        auto(with(write(32 * KIB), dirty), Buffered, Reason::DirtyPages),
        auto(with(write(4 * MIB), dirty), Buffered, Reason::DirtyPages),
        auto(with(with(write(32 * KIB), dirty), contended), Buffered, Reason::DirtyPages),
        auto(with(with(write(256 * KIB), dirty), contended), Buffered, Reason::DirtyPages),
        auto(with(with(write(MIB), dirty), contended), Direct, Reason::DirtyContended),
        auto(with(with(with(write(MIB), dirty), contended), no_direct), Buffered, Reason::DirtyPages),
        auto(with(write(32 * KIB), contended), Buffered, Reason::BelowCrossover),
        auto(with(write(MIB), contended), Direct, Reason::Contended),
        auto(with(write(8 * KIB), contended), Buffered, Reason::Small),
        auto(with(with(write(32 * KIB), contended), no_direct), Buffered, Reason::BelowCrossover),
        auto(with(write(32 * KIB), tight), Uncached, Reason::MemoryTight),
        auto(with(write(MIB), tight), Direct, Reason::MemoryTight),
        auto(with(write(8 * KIB), tight), Buffered, Reason::Small),
        auto(with(with(write(32 * KIB), tight), no_uncached), Buffered, Reason::BelowCrossover),
        auto(with(read(32 * KIB, Pattern::Sequential), tight), Uncached, Reason::MemoryTight),
        auto(with(write(32 * KIB), headroom(31 * KIB)), Uncached, Reason::DirtyHeadroomLow),
        auto(with(write(32 * KIB), headroom(32 * KIB)), Buffered, Reason::BelowCrossover),
        auto(with(read(64 * KIB, Pattern::Sequential), headroom(0)), Buffered, Reason::BelowCrossover),
    ]
}

fn rows_of_use() -> Vec<Row> {
    use Mode::*;
    let read_soon = |inputs: &mut Inputs| inputs.file.is_read_after_write_expected = true;
    let reuse = |reuse| move |inputs: &mut Inputs| inputs.file.reuse = reuse;
    let residency = |residency| move |inputs: &mut Inputs| inputs.file.residency = residency;
    let enormous = |inputs: &mut Inputs| inputs.file.final_size_bytes = Some(1 << 40);
    let stream = || read(MIB, Pattern::Sequential);
    let half = Residency::Part { resident_bytes: MIB / 2 };
    let less = Residency::Part { resident_bytes: MIB / 2 - 1 };
    vec![
        auto(with(stream(), residency(Residency::All)), Buffered, Reason::HotRead),
        auto(with(with(stream(), residency(Residency::All)), tight), Buffered, Reason::HotRead),
        auto(with(stream(), residency(half)), Buffered, Reason::HotRead),
        auto(with(stream(), residency(less)), Uncached, Reason::StreamingRead),
        auto(with(write(4 * MIB), read_soon), Buffered, Reason::ReadAfterWrite),
        auto(with(with(write(4 * MIB), read_soon), enormous), Direct, Reason::LargeWrite),
        auto(with(with(write(4 * MIB), read_soon), tight), Direct, Reason::MemoryTight),
        auto(with(write(4 * MIB), reuse(Reuse::Reused)), Buffered, Reason::Reused),
        auto(with(with(stream(), reuse(Reuse::Reused)), contended), Buffered, Reason::Reused),
        auto(with(stream(), reuse(Reuse::Reused)), Buffered, Reason::Reused),
        auto(with(stream(), reuse(Reuse::Unknown)), Buffered, Reason::ReuseUnknown),
        auto(with(with(stream(), reuse(Reuse::Unknown)), enormous), Uncached, Reason::StreamingRead),
        auto(with(stream(), residency(Residency::Unknown)), Buffered, Reason::ResidencyUnknown),
    ]
}

fn rows_of_size() -> Vec<Row> {
    use Mode::*;
    let stable = |inputs: &mut Inputs| inputs.request.is_stable = true;
    let odd_offset = |inputs: &mut Inputs| inputs.request.offset += 1;
    let odd_memory = |inputs: &mut Inputs| inputs.request.memory_alignment_bytes = Some(16);
    let to_the_end = |inputs: &mut Inputs| inputs.file.size_bytes = inputs.request.offset + 8 * KIB;
    vec![
        auto(write(16 * KIB - 1), Buffered, Reason::Small),
        auto(write(0), Buffered, Reason::Small),
        auto(write(64 * KIB - 1), Buffered, Reason::BelowCrossover),
        auto(write(64 * KIB), Uncached, Reason::LargeWrite),
        auto(write(256 * KIB), Direct, Reason::LargeWrite),
        auto(with(write(256 * KIB), stable), Direct, Reason::StableLarge),
        auto(with(write(256 * KIB), no_direct), Uncached, Reason::DirectUnavailable),
        auto(with(with(write(256 * KIB), no_direct), no_uncached), Buffered, Reason::DirectUnavailable),
        auto(with(write(64 * KIB), no_uncached), Buffered, Reason::UncachedUnavailable),
        auto(with(write(256 * KIB), odd_offset), Uncached, Reason::Unaligned),
        auto(with(write(256 * KIB), odd_memory), Uncached, Reason::Unaligned),
        auto(with(write(MIB), odd_offset), Direct, Reason::LargeWrite),
        auto(read(128 * KIB, Pattern::Sequential), Uncached, Reason::StreamingRead),
        auto(read(4 * MIB, Pattern::Sequential), Direct, Reason::StreamingRead),
        auto(read(128 * KIB, Pattern::Random), Direct, Reason::RandomRead),
        auto(read(128 * KIB, Pattern::Strided), Direct, Reason::RandomRead),
        // Of an unknown pattern both classes must agree.
        auto(read(MIB, Pattern::Unknown), Buffered, Reason::BelowCrossover),
        auto(read(4 * MIB, Pattern::Unknown), Direct, Reason::RandomRead),
        auto(with(read(4 * MIB, Pattern::Random), to_the_end), Buffered, Reason::Small),
    ]
}

fn rows_of_other_rules() -> Vec<Row> {
    use Mode::*;
    let paper = |inputs, mode, reason| Row { inputs, policy: Policy::Paper, mode, reason };
    let beegfs = |inputs, mode, reason| Row { inputs, policy: Policy::BeeGfs, mode, reason };
    let reuse = |reuse| move |inputs: &mut Inputs| inputs.file.reuse = reuse;
    vec![
        paper(write(32 * KIB - 1), Buffered, Reason::Small),
        paper(write(32 * KIB), Buffered, Reason::ReuseUnknown),
        paper(with(write(32 * KIB), reuse(Reuse::Once)), Direct, Reason::UsedOnce),
        paper(with(write(32 * KIB), reuse(Reuse::Reused)), Buffered, Reason::Reused),
        paper(with(write(32 * KIB), contended), Direct, Reason::Contended),
        paper(with(write(32 * KIB), tight), Direct, Reason::MemoryTight),
        paper(write(2 * MIB), Direct, Reason::Large),
        paper(with(write(2 * MIB), no_direct), Buffered, Reason::DirectUnavailable),
        beegfs(write(512 * KIB - 1), Buffered, Reason::Small),
        beegfs(write(512 * KIB), Direct, Reason::Large),
        beegfs(with(write(512 * KIB), no_direct), Buffered, Reason::DirectUnavailable),
    ]
}

#[test]
fn each_row_of_the_rule_gives_its_mode_and_its_reason() {
    check(&rows());
}

#[test]
fn the_rows_have_every_reason() {
    let mut reasons: BTreeSet<Reason> = rows().into_iter().map(|row| row.reason).collect();
    // The rule decided about the mode before; only what was sent is counted.
    assert!(reasons.insert(Reason::Sent));
    assert_eq!(Vec::from_iter(reasons), Reason::ALL);
}

#[test]
fn an_unmeasured_pool_bypasses_the_page_cache_only_for_large_requests_while_memory_is_tight() {
    let uncalibrated = Thresholds::uncalibrated();
    for length in [4 * KIB, MIB, 64 * MIB] {
        for inputs in [write(length), with(write(length), contended), read(length, Pattern::Sequential)] {
            assert_eq!(decide(&inputs, &uncalibrated).mode, Mode::Buffered, "{inputs:?}");
        }
    }
    assert_eq!(decide(&with(write(2 * MIB - 1), tight), &uncalibrated).mode, Mode::Buffered);
    assert_eq!(decide(&with(write(2 * MIB), tight), &uncalibrated).mode, Mode::Direct);
}

#[test]
fn an_alignment_of_nothing_makes_direct_writes_impossible() {
    let nothing = DirectAlignment { memory_bytes: 0, offset_bytes: 0 };
    let inputs = with(write(4 * MIB), |inputs| inputs.pool.capabilities.direct = Some(nothing));
    let decision = decide(&inputs, &Policy::Direct.thresholds(thresholds()));
    assert_eq!(decision, Decision { mode: Mode::Uncached, reason: Reason::BelowOneBlock });
}

#[test]
fn a_decision_can_be_recorded_and_replayed() {
    for Row { inputs, policy, mode, reason } in rows() {
        let recorded = serde_json::to_string(&(inputs, Decision { mode, reason })).unwrap();
        let (inputs, decision): (Inputs, Decision) = serde_json::from_str(&recorded).unwrap();
        assert_eq!(decide(&inputs, &policy.thresholds(thresholds())), decision);
    }
}
