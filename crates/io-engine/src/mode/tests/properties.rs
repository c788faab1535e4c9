//! Properties of the rule for all inputs and thresholds.

use proptest::prelude::*;
use proptest::{option, sample};

use super::super::*;
use crate::capabilities::DirectAlignment;

/// Lengths and thresholds near each other: powers of two and their neighbours.
fn size_bytes() -> impl Strategy<Value = u64> {
    (0_u32..27, -1_i64..=1).prop_map(|(bits, off)| (1_u64 << bits).saturating_add_signed(off))
}

fn crossover() -> impl Strategy<Value = Crossover> {
    (size_bytes(), option::of(size_bytes()), option::of(size_bytes())).prop_map(
        |(small_bytes, uncached_bytes_min, direct_bytes_min)| Crossover {
            small_bytes,
            uncached_bytes_min,
            direct_bytes_min,
        },
    )
}

fn thresholds() -> impl Strategy<Value = Thresholds> {
    let classes = (crossover(), crossover(), crossover());
    let sizes = proptest::array::uniform4(option::of(size_bytes()));
    let others = (size_bytes(), 0_u8..=100, size_bytes());
    // The rule with most rows gets most cases.
    let policy = prop_oneof![4 => Just(Policy::Auto), 1 => sample::select(&Policy::ALL[..])];
    (policy, classes, sizes, others).prop_map(|(policy, classes, sizes, others)| {
        let (write, read_sequential, read_random) = classes;
        Thresholds {
            policy,
            write,
            read_sequential,
            read_random,
            stable_direct_bytes_min: sizes[0],
            contended_direct_bytes_min: sizes[1],
            tight_uncached_bytes_min: sizes[2],
            tight_direct_bytes_min: sizes[3],
            unaligned_direct_bytes_min: others.0,
            hot_percent: others.1,
            cached_file_bytes_max: others.2,
            contention: ContentionThresholds::default(),
        }
    })
}

fn request() -> impl Strategy<Value = Request> {
    let patterns =
        [Pattern::Unknown, Pattern::Sequential, Pattern::Strided, Pattern::Backward, Pattern::Random];
    let offset = prop_oneof![size_bytes(), Just(u64::MAX)];
    let memory = option::of((0_u32..13).prop_map(|bits| 1 << bits));
    (
        sample::select(&Kind::ALL[..]),
        offset,
        size_bytes(),
        any::<bool>(),
        sample::select(patterns.to_vec()),
        memory,
    )
        .prop_map(|(kind, offset, length_bytes, is_stable, pattern, memory_alignment_bytes)| Request {
            kind,
            offset,
            length_bytes,
            is_stable,
            pattern,
            memory_alignment_bytes,
        })
}

fn file() -> impl Strategy<Value = FileFacts> {
    let residency = prop_oneof![
        Just(Residency::Unknown),
        Just(Residency::None),
        size_bytes().prop_map(|resident_bytes| Residency::Part { resident_bytes }),
        Just(Residency::All),
    ];
    let reuse = sample::select(vec![Reuse::Unknown, Reuse::Once, Reuse::Reused]);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let pinned = prop_oneof![9 => Just(None), 1 => sample::select(&Mode::ALL[..]).prop_map(Some)];
    (size_bytes(), option::of(size_bytes()), residency, reuse, flags, pinned).prop_map(
        |(size_bytes, final_size_bytes, residency, reuse, flags, pinned)| FileFacts {
            size_bytes,
            final_size_bytes,
            residency,
            is_dirty: flags.0,
            reuse,
            is_contended: flags.1,
            is_read_after_write_expected: flags.2,
            pinned,
        },
    )
}

fn pool() -> impl Strategy<Value = PoolFacts> {
    let direct = option::weighted(0.8, (9_u32..=12, 9_u32..=12)).prop_map(|bits| {
        bits.map(|(memory, offset)| DirectAlignment { memory_bytes: 1 << memory, offset_bytes: 1 << offset })
    });
    let uncached = proptest::bool::weighted(0.8);
    (uncached, direct, any::<bool>(), option::of(size_bytes())).prop_map(
        |(is_uncached_possible, direct, is_memory_tight, dirty_headroom_bytes)| PoolFacts {
            capabilities: ModeCapabilities { is_uncached_possible, direct },
            is_memory_tight,
            dirty_headroom_bytes,
        },
    )
}

fn inputs() -> impl Strategy<Value = Inputs> {
    (request(), file(), pool()).prop_map(|(request, file, pool)| Inputs { request, file, pool })
}

/// Whether the pool can serve the request in that mode, computed apart from the rule.
fn is_possible(mode: Mode, inputs: &Inputs) -> bool {
    let Inputs { request, pool, .. } = inputs;
    match (mode, pool.capabilities.direct) {
        (Mode::Buffered, _) => true,
        (Mode::Uncached, _) => pool.capabilities.is_uncached_possible,
        (Mode::Direct, None) => false,
        (Mode::Direct, Some(_)) if request.kind == Kind::Read => true,
        (Mode::Direct, Some(alignment)) => {
            let (start, block) = (u128::from(request.offset), u128::from(alignment.offset_bytes));
            let end = (start + u128::from(request.length_bytes)).min(u128::from(u64::MAX));
            start.div_ceil(block) < end / block
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn an_impossible_mode_is_never_chosen(inputs in inputs(), thresholds in thresholds()) {
        let decision = decide(&inputs, &thresholds);
        prop_assert!(is_possible(decision.mode, &inputs), "{:?}", decision);
    }

    #[test]
    fn a_resident_read_is_buffered_unless_a_mode_is_forced(inputs in inputs(), thresholds in thresholds()) {
        let mut inputs = inputs;
        inputs.request.kind = Kind::Read;
        inputs.file.residency = Residency::All;
        inputs.file.pinned = None;
        let decision = decide(&inputs, &Thresholds { policy: Policy::Auto, ..thresholds });
        prop_assert_eq!(decision, Decision { mode: Mode::Buffered, reason: Reason::HotRead });
    }

    #[test]
    fn a_forced_or_pinned_mode_is_obeyed_where_it_is_possible(
        inputs in inputs(), thresholds in thresholds(), mode in sample::select(&Mode::ALL[..]),
    ) {
        let policy = match mode {
            Mode::Buffered => Policy::Buffered,
            Mode::Uncached => Policy::Uncached,
            Mode::Direct => Policy::Direct,
        };
        let pinned = Inputs { file: FileFacts { pinned: Some(mode), ..inputs.file }, ..inputs };
        let free = Inputs { file: FileFacts { pinned: None, ..inputs.file }, ..inputs };
        let nearest = [mode, Mode::Uncached, Mode::Buffered]
            .into_iter()
            .find(|other| *other <= mode && is_possible(*other, &inputs));
        prop_assert_eq!(Some(decide(&pinned, &thresholds).mode), nearest);
        prop_assert_eq!(Some(decide(&free, &policy.thresholds(thresholds)).mode), nearest);
    }

    #[test]
    fn a_longer_request_is_never_nearer_to_the_page_cache(inputs in inputs(), thresholds in thresholds()) {
        let mut before = Mode::Buffered;
        for length_bytes in (2..27).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1]) {
            let mut longer = inputs;
            longer.request.length_bytes = length_bytes;
            let decision = decide(&longer, &thresholds);
            prop_assert!(decision.mode >= before, "{} bytes: {:?} after {:?}", length_bytes, decision, before);
            before = decision.mode;
        }
    }

    #[test]
    fn thresholds_that_allow_no_bypass_give_buffered(inputs in inputs(), small_bytes in size_bytes()) {
        let buffered = Crossover::buffered(small_bytes);
        let thresholds = Thresholds {
            contended_direct_bytes_min: None,
            tight_uncached_bytes_min: None,
            ..Thresholds::calibrated(buffered, buffered, buffered)
        };
        let free = Inputs { file: FileFacts { pinned: None, ..inputs.file }, ..inputs };
        prop_assert_eq!(decide(&free, &thresholds).mode, Mode::Buffered);
    }

    #[test]
    fn inputs_survive_being_recorded(inputs in inputs(), thresholds in thresholds()) {
        let text = serde_json::to_string(&(inputs, thresholds)).unwrap();
        prop_assert_eq!(serde_json::from_str::<(Inputs, Thresholds)>(&text).unwrap(), (inputs, thresholds));
    }
}
