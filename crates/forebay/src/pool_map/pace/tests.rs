//! Scenes in which clients tell of their writes.

use super::*;

const A: PoolId = PoolId(0);
const B: PoolId = PoolId(1);

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// `count` of 1 MiB, each of which took so long.
fn writes(count: u64, each_ms: u64) -> Transfers {
    Transfers { operations: count, bytes: count << 20, time: Duration::from_millis(each_ms * count) }
}

#[derive(Default)]
struct Scene {
    paces: Paces,
    now: Duration,
}

impl Scene {
    fn tell(&mut self, client: u64, pool: PoolId, writes: Transfers) {
        let report = TransferReport { client, pool, reads: Transfers::default(), writes };
        self.paces.take(&report, self.now);
    }

    /// A client that finds `A` and `B` so.
    fn compare(&mut self, client: u64, a_ms: u64, b_ms: u64) {
        self.tell(client, A, writes(100, a_ms));
        self.tell(client, B, writes(100, b_ms));
    }

    fn slow(&mut self) -> Vec<PoolId> {
        self.now += JUDGED;
        self.paces.slow(self.now).iter().copied().collect()
    }
}

#[test]
fn a_pool_that_takes_clients_more_than_twice_as_long_is_slow() {
    let mut scene = Scene::default();
    for client in 1..=3 {
        scene.compare(client, 21, 10);
    }
    assert_eq!(scene.slow(), [A]);
    let pace = scene.paces.of_pool(A, scene.now);
    assert!(pace.is_slow && (pace.writes.operation_s - 0.021).abs() < 1e-9, "{pace:?}");
    assert!((pace.writes.mib_s - 0.021).abs() < 1e-9 && pace.reads == Pace::default(), "{pace:?}");

    let mut scene = Scene::default();
    for client in 1..=3 {
        scene.compare(client, 20, 10);
    }
    assert_eq!(scene.slow(), [], "twice is not more than twice");
}

#[test]
fn no_client_alone_makes_a_pool_slow() {
    let mut scene = Scene::default();
    for _ in 0..1000 {
        scene.compare(1, 500, 1);
    }
    assert_eq!(scene.slow(), []);
    scene.compare(2, 10, 10);
    assert_eq!(scene.slow(), [], "one of two, however much it told");
    scene.compare(3, 50, 10);
    assert_eq!(scene.slow(), [A], "two of three");
}

#[test]
fn a_client_that_returns_under_another_number_has_one_vote() {
    let mut scene = Scene::default();
    scene.compare(1, 500, 1);
    scene.paces.forget_client(1);
    scene.compare(2, 500, 1);
    assert_eq!(scene.slow(), []);
}

#[test]
fn a_client_that_is_far_away_or_knows_one_pool_says_nothing() {
    let mut scene = Scene::default();
    for client in 1..=3 {
        scene.compare(client, 10, 10);
    }
    for client in 10..=20 {
        scene.tell(client, A, writes(100, 5_000));
        scene.compare(client + 100, 900, 800);
    }
    assert_eq!(scene.slow(), []);
}

#[test]
fn pools_that_get_operations_of_other_lengths_are_not_slow_for_that() {
    let mut scene = Scene::default();
    // Alike: 1 ms for the operation and 10 ms for the MiB.
    let alike = |kib: u64| Transfers {
        operations: 1000,
        bytes: 1000 * (kib << 10),
        time: Duration::from_micros(1000 * (1000 + 10_000 * kib / 1024)),
    };
    for client in 1..=3 {
        for (pool, kib) in [(A, 4), (B, 64), (PoolId(2), 1024), (PoolId(3), 8192)] {
            scene.tell(client, pool, alike(kib));
        }
    }
    assert_eq!(scene.slow(), []);
    for client in 1..=3 {
        let mut slower = alike(64);
        slower.time *= 30;
        scene.tell(client, B, slower);
    }
    assert_eq!(scene.slow(), [B]);
}

#[test]
fn few_operations_and_old_ones_decide_nothing() {
    let mut scene = Scene::default();
    for client in 1..=3 {
        scene.tell(client, A, writes(31, 100));
        scene.tell(client, B, writes(1000, 1));
    }
    assert_eq!(scene.slow(), []);
    for client in 1..=3 {
        scene.compare(client, 100, 1);
    }
    assert_eq!(scene.slow(), [A]);
    scene.now += RECENT;
    assert_eq!(scene.slow(), []);
    assert_eq!(scene.paces.of_pool(A, scene.now), PoolPace::default());
}

#[test]
fn a_pool_that_became_fast_is_not_slow_for_long() {
    let mut scene = Scene::default();
    let mut minutes = 0;
    for _ in 0..100 {
        (1..=3).for_each(|client| scene.compare(client, 100, 10));
        scene.now += s(60);
    }
    assert_eq!(scene.slow(), [A]);
    while !scene.slow().is_empty() {
        (1..=3).for_each(|client| scene.compare(client, 10, 10));
        scene.now += s(60);
        minutes += 1;
    }
    assert!((10..=20).contains(&minutes), "{minutes}");
}

#[test]
fn implausible_reports_are_dropped() {
    let mut scene = Scene::default();
    let most = Transfers { operations: u64::MAX, bytes: u64::MAX, time: Duration::MAX };
    let absurd = [
        most,
        Transfers { time: Duration::ZERO, ..writes(100, 1) },
        Transfers { time: s(100_000), ..writes(100, 1) },
        Transfers { bytes: 0, ..writes(100, 1) },
        Transfers { bytes: u64::MAX, ..writes(100, 1) },
        Transfers { operations: 0, ..writes(100, 1) },
    ];
    for told in absurd {
        scene.tell(1, A, told);
    }
    assert!(scene.paces.told.is_empty());
    // As much as is believed, again and again.
    let operations = OPERATIONS_MAX;
    for _ in 0..1000 {
        scene.tell(1, A, Transfers { operations, bytes: 1, time: s(600 * operations) });
        scene.compare(2, 10, 10);
    }
    let pace = scene.paces.of_pool(A, scene.now);
    assert!((pace.writes.operation_s - 0.01).abs() < 1e-9, "the faster of two: {pace:?}");
    assert_eq!(scene.slow(), []);
}

#[test]
fn ever_new_clients_do_not_grow_the_table() {
    let mut scene = Scene::default();
    for client in 0..CLIENTS_MAX as u64 + 10 {
        scene.compare(client, 10, 10);
        scene.now += s(1);
    }
    assert_eq!(scene.paces.told.len(), 2 * CLIENTS_MAX);
    assert!(scene.paces.told.keys().all(|(_, client)| *client >= 10), "the oldest went");
}
