//! pgbouncer between a head and its server: what is asked for at login is left out, or sessions are shared.

use api::NamespaceError;
use forebay_namespace::bulk::{self, NamespaceLocation};
use testkit::postgres::Cluster;

use super::{create, try_open, url_of_role};

const WITHOUT_OPTIONS: &str = "ignore_startup_parameters = options";
/// Settings that a head requests at login.
const SETTINGS: [&str; 6] = [
    "search_path = forebay",
    "plan_cache_mode = force_generic_plan",
    "statement_timeout = 0",
    "lock_timeout = '20s'",
    "idle_session_timeout = 0",
    "idle_in_transaction_session_timeout = 0",
];
/// One session after the other, for any connection.
const SHARED: &str = "pool_mode = transaction\nserver_round_robin = 1\nignore_startup_parameters = options";

fn require_nothing_made(cluster: &Cluster, url: &str) {
    let made = "SELECT count(*) FROM pg_tables WHERE schemaname IN ('public', 'forebay')";
    assert_eq!(cluster.query(url, made).unwrap().trim(), "0");
}

/// 16 tables were made in `public`, or each change failed.
#[test]
fn a_pooler_that_takes_no_options_or_leaves_them_out_is_refused_before_anything_is_made() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    for mode in ["session", "transaction"] {
        for (ignored, told) in [("", "startup parameter"), (WITHOUT_OPTIONS, "search_path is")] {
            let settings = format!("pool_mode = {mode}\n{ignored}");
            let Some(pooler) = cluster.pooler(&settings) else { return };
            let refused = try_open(&pooler.url(&url), 10).map(drop).unwrap_err().to_string();
            assert!(refused.contains(told) && refused.contains("pgbouncer"), "{settings}: {refused}");
            assert!(!refused.contains('\n'), "{refused}");
            require_nothing_made(cluster, &url);
        }
    }
}

/// As an administrator may bring it about that all is as a head asks for.
fn url_of_configured_role(cluster: &Cluster, role: &str) -> String {
    let url = cluster.create_database().unwrap();
    let theirs = url_of_role(cluster, &url, role, "");
    let database = url.rsplit_once('/').unwrap().1;
    cluster.query(&url, &format!("GRANT CREATE ON DATABASE {database} TO {role}")).unwrap();
    for setting in SETTINGS {
        cluster.query(&url, &format!("ALTER ROLE {role} SET {setting}")).unwrap();
    }
    theirs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_shares_sessions_is_refused_whatever_is_set_for_the_role() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = url_of_configured_role(cluster, "pooled");
    // Few of them, many, and as many as there are connections.
    for pools in
        ["default_pool_size = 2", "default_pool_size = 20\nmin_pool_size = 7", "default_pool_size = 3"]
    {
        let Some(pooler) = cluster.pooler(&format!("{SHARED}\n{pools}")) else { return };
        let there = pooler.url(&url);
        let refused = try_open(&there, 10).map(drop).unwrap_err().to_string();
        assert!(refused.contains("pool_mode = session") && !refused.contains('\n'), "{pools}: {refused}");
        require_nothing_made(cluster, &url);
        let place = NamespaceLocation::Postgres(there);
        let saved = tempfile::tempdir().unwrap();
        let to = saved.path().join("saved");
        let refused = tokio::task::spawn_blocking(move || bulk::backup(&place, &to, None, &mut |_| {}));
        let refused = refused.await.unwrap().map(drop).unwrap_err().to_string();
        assert!(refused.contains("pool_mode = session"), "{pools}: {refused}");
    }
}

/// It was looked at when the head started, and never again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_begins_to_share_sessions_under_a_head_is_told_of() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = url_of_configured_role(cluster, "pooled_later");
    let Some(mut pooler) = cluster.pooler(&format!("pool_mode = session\n{WITHOUT_OPTIONS}")) else { return };
    let namespace = try_open(&pooler.url(&url), 1 << 20).unwrap();
    create(&namespace, "made").await.unwrap();
    cluster.change_pooler(&mut pooler, SHARED);
    let refused = loop {
        match create(&namespace, "refused").await.unwrap_err() {
            NamespaceError::Busy => {}
            refused => break refused.to_string(),
        }
    };
    assert!(refused.contains("pool_mode = session"), "{refused}");
    cluster.change_pooler(&mut pooler, &format!("pool_mode = session\n{WITHOUT_OPTIONS}"));
    while let Err(refused) = create(&namespace, "again").await {
        let is_pooled = refused.to_string().contains("pool_mode = session");
        assert!(matches!(refused, NamespaceError::Busy) || is_pooled, "{refused}");
    }
}
