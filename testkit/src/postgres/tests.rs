//! The server of a test is started, stopped, killed, followed, and leaves nothing.

use super::*;

fn cluster() -> Option<Cluster> {
    unless_missing(Cluster::start())
}

#[test]
fn databases_of_the_shared_server_are_apart() {
    let Some(cluster) = Cluster::shared() else { return };
    let (one, other) = (cluster.create_database().unwrap(), cluster.create_database().unwrap());
    cluster.query(&one, "CREATE TABLE kept (id bigint); INSERT INTO kept VALUES (7)").unwrap();
    assert_eq!(cluster.query(&one, "SELECT id FROM kept").unwrap(), "7\n");
    let missing = cluster.query(&other, "SELECT id FROM kept").unwrap_err();
    assert!(missing.to_string().contains("does not exist"), "{missing}");
}

#[test]
fn committed_rows_are_there_after_a_stop_and_after_a_kill() {
    let Some(mut cluster) = cluster() else { return };
    let url = cluster.create_database().unwrap();
    cluster.query(&url, "CREATE TABLE kept (id bigint); INSERT INTO kept VALUES (1)").unwrap();
    cluster.stop().unwrap();
    assert!(cluster.query(&url, "SELECT 1").is_err());
    cluster.start_again().unwrap();
    cluster.query(&url, "INSERT INTO kept VALUES (2)").unwrap();
    let pid = cluster.pid().unwrap();
    let pid = Pid::from_raw(pid.cast_signed()).unwrap();
    let children = children_of(pid);
    assert!(!children.is_empty());
    cluster.kill_9().unwrap();
    assert!(children.into_iter().all(|child| has_ended(child, Duration::ZERO)));
    cluster.start_again().unwrap();
    assert_eq!(cluster.query(&url, "SELECT sum(id) FROM kept").unwrap(), "3\n");
}

#[test]
fn a_standby_has_what_its_primary_had_and_takes_its_place() {
    let settings = vec![("synchronous_standby_names".into(), "*".into())];
    let options = Options { settings, ..Options::default() };
    let Some(mut primary) = unless_missing(Cluster::start_with(&options)) else { return };
    let standby = primary.standby().unwrap();
    // A commit at the primary waits for the standby, by the setting.
    primary.query(&primary.url(), "CREATE TABLE kept AS SELECT 7 AS id").unwrap();
    assert!(standby.query(&standby.url(), "CREATE TABLE refused (id bigint)").is_err());
    primary.kill_9().unwrap();
    standby.promote().unwrap();
    let written = "SET synchronous_commit = local; INSERT INTO kept VALUES (8)";
    standby.query(&standby.url(), written).unwrap();
    assert_eq!(standby.query(&standby.url(), "SELECT sum(id) FROM kept").unwrap(), "15\n");
}

#[test]
fn a_dropped_server_leaves_nothing() {
    let Some(mut cluster) = cluster() else { return };
    let (directory, pid) =
        (cluster.directory.clone(), Pid::from_child(&cluster.server.as_ref().unwrap().process));
    // Also of one that was killed once.
    cluster.kill_9().unwrap();
    assert!(has_ended(pid, Duration::ZERO));
    cluster.start_again().unwrap();
    let pid = Pid::from_child(&cluster.server.as_ref().unwrap().process);
    drop(cluster);
    assert!(has_ended(pid, Duration::ZERO));
    assert!(!directory.exists());
}

#[test]
fn a_setting_that_the_server_refuses_is_told() {
    if cluster().is_none() {
        return;
    }
    let settings = vec![("no_such_setting".into(), "1".into())];
    let options = Options { settings, ..Options::default() };
    let refused = Cluster::start_with(&options).err().unwrap();
    assert!(refused.to_string().contains("no_such_setting"), "{refused}");
}

/// Run by the next test in a process of its own, which it kills.
#[test]
#[ignore = "waits to be killed"]
fn wait_to_be_killed() {
    let cluster = Cluster::start().unwrap();
    println!("\nkill {} {} {}", cluster.pid().unwrap(), cluster.watcher.id(), cluster.directory.display());
    // The other end is held as long as whoever kills us lives.
    let _ = io::stdin().read_line(&mut String::new());
}

#[test]
fn a_killed_test_leaves_no_server_and_no_files() {
    if cluster().is_none() {
        return;
    }
    let mut test = Command::new(std::env::current_exe().unwrap());
    test.args(["--exact", "postgres::tests::wait_to_be_killed", "--ignored", "--nocapture"]);
    let mut test = test.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(test.stdout.take().unwrap()).lines().map_while(|line| line.ok());
    let told = lines.filter_map(|line| line.strip_prefix("kill ").map(str::to_owned)).next().unwrap();
    let mut told = told.split(' ');
    let mut pid = || Pid::from_raw(told.next().unwrap().parse().unwrap()).unwrap();
    let (server, watcher) = (pid(), pid());
    test.kill().unwrap();
    test.wait().unwrap();
    assert!(has_ended(watcher, STOP_TIMEOUT));
    assert!(has_ended(server, Duration::ZERO));
    assert!(!Path::new(told.next().unwrap()).exists());
}
