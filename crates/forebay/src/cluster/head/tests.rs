//! The head of a cluster in a directory, without connections.

use cluster::trust::MemberKey;
use cluster::{Certified, KeyRegistry};
use xdr::Opaque;

use super::*;
use crate::config::keys::KeyRules;
use crate::lengths::Settled;
use crate::services::open_database;
use crate::system::{SystemClock, SystemRandom};

const POOL: PoolId = PoolId(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// A pool host could move the cursor of the operator's terminal.
#[test]
fn texts_of_pool_hosts_have_no_control_characters_and_a_bound() {
    assert_eq!(printable("fb2\u{1b}[2J\n"), "fb2[2J");
    assert_eq!(printable(&"x".repeat(1_000)).len(), HOST_MAX);
}

fn open(dir: &tempfile::TempDir) -> Arc<ClusterHead> {
    let data = DataDir::open(dir.path(), None, &SystemRandom).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let mut config = Config::default();
    config.cluster.lease_s = 3;
    // Without own pools: the list has those of other hosts alone.
    let place = tempfile::tempdir_in(dir.path()).unwrap().keep();
    let database = namespace::Database::Sqlite(place);
    let namespace = open_database(&config, database, Arc::clone(&clock), Vec::new()).unwrap();
    let services = Services {
        clock: Arc::clone(&clock),
        random: Arc::new(SystemRandom),
        namespace: Arc::new(namespace),
        local_pools: Vec::new(),
        pools: Arc::default(),
        settled: Settled::default(),
        elsewhere: Default::default(),
    };
    let keys = Arc::new(Keys::open(&data, KeyRules::default(), clock).unwrap());
    ClusterHead::open((&config, &data, 7413), &services, keys).unwrap()
}

async fn join(
    head: &ClusterHead,
    token: &TokenReport,
    key: &MemberKey,
    pool: Option<u32>,
) -> Result<Joined, String> {
    let secret = token.token.parse::<Token>().unwrap().secret;
    let public_key = Opaque(key.public_key().into());
    let join = Join { secret, public_key, host: "fb2".to_owned(), pool };
    head.join(join, "127.0.0.1:1".parse().unwrap()).await
}

async fn joined(head: &ClusterHead) -> MemberKey {
    let key = MemberKey::make().unwrap();
    let token = head.make_token(HOUR, None).unwrap();
    assert!(matches!(join(head, &token, &key, None).await, Ok(Joined::Pool { pool: 1, .. })));
    key
}

fn knows(head: &ClusterHead, key: &MemberKey) -> bool {
    head.seat(POOL, key.fingerprint()).is_some()
}

async fn certified(head: &ClusterHead) -> (MemberKey, u32) {
    let key = MemberKey::make().unwrap();
    let Certified::Certificate { generation, .. } = head.certify(POOL, &key.public_key()).await.unwrap()
    else {
        panic!("it gets no certificate")
    };
    (key, generation)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_ends_when_the_last_pool_has_shown_its_new_key() {
    let dir = tempfile::tempdir().unwrap();
    let head = open(&dir);
    let first = joined(&head).await;
    let before = head.make_token(HOUR, None).unwrap();
    let authority = head.trusted.read().authorities.now.fingerprint();
    head.rotate_keys().unwrap();
    let report = head.report_keys();
    assert_eq!((report.generation, report.overlap, report.lagging), (1, true, vec!["pool-1".to_owned()]));
    let refused = head.rotate_keys().unwrap_err().to_string();
    assert!(refused.contains("pool-1 still used") && refused.contains("--end-overlap"), "{refused}");
    let (second, generation) = certified(&head).await;
    assert!(generation == 1 && knows(&head, &first) && knows(&head, &second));
    head.used(POOL, first.fingerprint()).await;
    assert!(knows(&head, &first), "it has not shown the new one");
    // The head starts anew within the rotation.
    drop(head);
    let head = open(&dir);
    assert!(knows(&head, &first) && knows(&head, &second));
    assert_eq!(head.trusted.read().authorities.former.as_ref().unwrap().fingerprint(), authority);
    head.used(POOL, second.fingerprint()).await;
    assert!(!knows(&head, &first) && knows(&head, &second));
    let report = head.report_keys();
    assert!(!report.overlap && report.lagging.is_empty() && report.age_s.is_some());
    assert!(!dir.path().join("cluster-authority.key").exists());
    let late = join(&head, &before, &MemberKey::make().unwrap(), None).await.err().unwrap();
    assert!(late.contains("not known"), "{late}");
    drop(head);
    let head = open(&dir);
    assert!(!knows(&head, &first) && knows(&head, &second));
    head.rotate_keys().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_ends_the_overlap_and_a_host_that_was_away_joins_again() {
    let dir = tempfile::tempdir().unwrap();
    let head = open(&dir);
    let first = joined(&head).await;
    assert!(head.end_overlap().is_err(), "no rotation is under way");
    head.rotate_keys().unwrap();
    head.end_overlap().unwrap();
    assert!(!knows(&head, &first));
    assert_eq!(head.report_keys().left_behind, ["pool-1"]);
    assert!(head.refusal(POOL).contains("forebay cluster readmit pool-1"), "{}", head.refusal(POOL));
    let token = head.readmit(POOL, HOUR).unwrap();
    let second = MemberKey::make().unwrap();
    join(&head, &token, &second, Some(1)).await.unwrap();
    assert!(knows(&head, &second) && head.report_keys().left_behind.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_host_that_was_shut_out_stays_so_over_a_restart_until_it_joins_by_another_key() {
    let dir = tempfile::tempdir().unwrap();
    let head = open(&dir);
    let first = joined(&head).await;
    let generation = head.keys.report().generation;
    head.shut_out(POOL).unwrap();
    assert!(!knows(&head, &first));
    assert_eq!(head.keys.report().generation, generation + 1, "its ticket keys are renewed");
    let offline = head.list.statuses()[0].offline.clone().unwrap();
    assert!(offline.contains("shut out"), "{offline}");
    assert!(head.shut_out(PoolId(7)).unwrap_err().to_string().contains("pool-7 is not on another host"));
    drop(head);
    let head = open(&dir);
    assert!(!knows(&head, &first) && head.report().pools[0].shut_out);
    assert!(head.refusal(POOL).contains("was shut out"));
    let token = head.readmit(POOL, HOUR).unwrap();
    assert_eq!(head.keys.report().generation, generation + 2, "neither of the two is known to it");
    let refused = join(&head, &token, &first, Some(1)).await.err().unwrap();
    assert!(refused.contains("its key is that of pool-1"), "{refused}");
    let second = MemberKey::make().unwrap();
    join(&head, &token, &second, Some(1)).await.unwrap();
    assert!(knows(&head, &second) && !knows(&head, &first));
    assert!(head.list.statuses()[0].offline.as_ref().is_some_and(|offline| !offline.contains("shut out")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_is_taken_off_the_list_when_its_lease_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let head = open(&dir);
    let first = joined(&head).await;
    let refused = head.require_removable(PoolId(0)).unwrap_err().to_string();
    assert!(refused.contains("pool-0 is on this host"), "{refused}");
    let refused = head.remove(POOL).unwrap_err().to_string();
    assert!(refused.contains("its lease is over in"), "an earlier start may have given it one: {refused}");
    let removed = async {
        while head.remove(POOL).is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), removed).await.unwrap();
    assert!(!knows(&head, &first) && head.hosts().is_empty() && head.calls().is_empty());
    assert!(head.list.ids().is_empty());
    assert!(head.refusal(POOL).contains("does not belong to this cluster any more"));
    drop(head);
    let head = open(&dir);
    assert!(head.hosts().is_empty());
    let token = head.make_token(HOUR, None).unwrap();
    let next = join(&head, &token, &MemberKey::make().unwrap(), None).await;
    assert!(matches!(next, Ok(Joined::Pool { pool: 2, .. })), "no other pool gets its number");
}
