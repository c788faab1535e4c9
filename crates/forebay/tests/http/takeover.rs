//! A second head takes the namespace over while the first one is stopped: the first head no longer answers from memory.

use nfs4::attr::number;
use testkit::postgres::Cluster;

use crate::server::{Instance, Server, until};
use crate::wire::{Answer, Ask, Connection};

/// GET was answered 200 with the old bytes, and NFS with the old size, while PUT was refused; and the leases of its clients
/// were renewed for ever, so that those with delegations read their own memory.
#[test]
fn a_head_that_was_stopped_while_another_took_over_answers_nothing_from_its_memory_and_ends() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    let instance = Instance::new(&format!("[namespace]\ndatabase = \"{url}\"\n"));
    let mut first = instance.up();
    assert_eq!(first.put("/file", "old").status, 201);
    assert_eq!(first.read("/file"), b"old");
    let mut client = first.nfs("host");
    let root = client.root().unwrap();
    let file = client.lookup(&root, "file").unwrap();
    let size = |client: &mut testkit::nfs_client::NfsClient| client.attributes(&file, &[number::SIZE]);
    assert_eq!(size(&mut client).unwrap().size, Some(3));

    first.signal(rustix::process::Signal::STOP);
    let end_sessions = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                        WHERE datname = current_database() AND pid != pg_backend_pid()";
    cluster.query(&url, end_sessions).unwrap();
    let twin = instance.twin();
    let second = twin.up();
    assert_eq!(second.put("/file", "new contents").status, 204);
    first.signal(rustix::process::Signal::CONT);
    let mut ended = None;
    until("the first ends", || {
        for ask in [first.ask("GET", "/file"), first.ask("PUT", "/file").body("older")] {
            let answer = answer_or_end(&first, &ask);
            assert!(answer.as_ref().is_none_or(|answer| [500, 503].contains(&answer.status)), "{answer:?}");
        }
        assert!(size(&mut client).is_err() && client.lookup(&root, "file").is_err());
        ended = first.ended();
        ended.is_some()
    });
    assert_eq!(ended.and_then(|ended| ended.code()), Some(1));
    assert!(first.log().contains("forebay: another head has taken the namespace over"), "{}", first.log());
    assert_eq!(second.read("/file"), b"new contents");
    first.kill_complaining();
}

fn answer_or_end(server: &Server, ask: &Ask) -> Option<Answer> {
    Connection::try_open(server.web()).ok()?.ask_or_end(ask)
}
