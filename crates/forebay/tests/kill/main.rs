//! The server killed with `kill -9` twenty times while clients change names and data: answered changes are there,
//! changes under way are there as a whole or not at all, no name stands twice, and `forebay fsck` finds nothing.
//!
//! Each worker has names of its own, in directories that all share, and asks for one change at a time; so it knows what
//! must be there but for the one change whose answer did not come. A seed decides which changes a worker asks for. A
//! failure prints the seed (`FOREBAY_TEST_KILL_SEED` gives another).

#![allow(clippy::unwrap_used, reason = "everything here is a test or a step of one")]

mod model;
mod observe;
#[path = "../http/server.rs"]
#[allow(dead_code, reason = "not every test needs all of it")]
mod server;
#[path = "../http/wire.rs"]
#[allow(dead_code, reason = "not every test needs all of it")]
mod wire;
mod worker;

use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use nfs4::NfsFh4;
use testkit::postgres::Cluster;

use crate::model::Random;
use crate::observe::Observed;
use crate::server::{Instance, Server, until};
use crate::worker::{Client, SHARED, Worker};

const ROUNDS: u64 = 20;
const WORKERS: usize = 8;
/// Of the shared directories.
const MODES: [&str; 3] = ["soft", "strong", "weak"];
/// Answers before the kill of a round: at least so many, and at most so many more.
const ANSWERS_MIN: u64 = 40;
const ANSWERS_SPREAD: u64 = 300;
/// Long enough for a busy machine: nothing depends on how fast it goes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
const SEED: &str = "FOREBAY_TEST_KILL_SEED";

#[test]
fn a_server_killed_under_load_has_done_each_change_as_a_whole_or_not_at_all() {
    survive_kills("");
}

#[test]
fn a_server_killed_under_load_over_postgresql_has_done_each_change_as_a_whole_or_not_at_all() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    survive_kills(&format!("[namespace]\ndatabase = \"{url}\"\n"));
}

/// `configuration`: further sections of the file.
fn survive_kills(configuration: &str) {
    let seed = std::env::var(SEED).map_or(1, |text| text.parse().unwrap());
    let instance = Instance::new(configuration);
    let mut server = instance.up();
    let shared = make_shared(&instance, &server);
    let mut workers: Vec<Worker> = (0..WORKERS).map(|number| Worker::new(number, &shared)).collect();
    for round in 0..ROUNDS {
        let mut random = Random::new(seed, round);
        let answers = ANSWERS_MIN + random.below(ANSWERS_SPREAD);
        println!("{SEED}={seed}, round {round}: killed after {answers} answers");
        workers = work_until_killed(workers, server, &mut random, answers);
        server = instance.up();
        let seen = Observed::of(&mut server.nfs("reader"));
        for worker in &mut workers {
            worker.settle(&seen, &mut Client::of(&server, worker.number));
        }
        seen.assert_all_were_told();
        assert_comes_clean(&instance);
    }
    server.kill();
    fsck(&instance).unwrap();
}

/// Directories that everybody works in, each with a consistency mode of its own.
fn make_shared(instance: &Instance, server: &Server) -> Vec<NfsFh4> {
    let mut client = server.nfs("maker");
    let root = client.root().unwrap();
    let made = SHARED.iter().map(|name| client.mkdir(&root, name, 0o755).unwrap()).collect();
    for (name, mode) in SHARED.iter().zip(MODES) {
        instance.forebay(&["dir", "set-consistency", &format!("/{name}"), mode]);
    }
    made
}

/// All workers at once, until so many answers have come and the server is gone.
fn work_until_killed(workers: Vec<Worker>, server: Server, random: &mut Random, answers: u64) -> Vec<Worker> {
    let (answered, all_answered) = mpsc::channel();
    let started: Vec<_> = workers
        .into_iter()
        .map(|mut worker| {
            let mut client = Client::of(&server, worker.number);
            let (answered, mut random) = (answered.clone(), random.split());
            std::thread::spawn(move || {
                worker.work(&mut client, &mut random, &answered);
                worker
            })
        })
        .collect();
    drop(answered);
    for _ in 0..answers {
        // An end of the channel: a worker has failed and is about to say why.
        if all_answered.recv_timeout(ANSWER_TIMEOUT).is_err() {
            break;
        }
    }
    server.kill();
    started.into_iter().map(|worker| worker.join().expect("a worker ends with the server")).collect()
}

/// On a running server, the accounts in memory reach the database, and files without a name are removed, a moment later
/// only.
fn assert_comes_clean(instance: &Instance) {
    until("fsck finds nothing", || fsck(instance).inspect_err(|found| println!("{found}")).is_ok());
}

/// Runs `forebay fsck`; its output is the error.
fn fsck(instance: &Instance) -> Result<(), String> {
    let mut fsck = Command::new(env!("CARGO_BIN_EXE_forebay"));
    fsck.arg("fsck").arg("--data").arg(instance.data());
    fsck.arg("--config").arg(instance.data().with_file_name("forebay.toml"));
    let said = fsck.output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout) + String::from_utf8_lossy(&said.stderr);
    if said.status.success() { Ok(()) } else { Err(text.into_owned()) }
}
