//! The feature `channel`: this suite is run with it too, and then shows that pools may be elsewhere.

use crate::server::{Server, Setup};

#[test]
fn every_pool_of_this_build_is_behind_a_channel() {
    let configuration = "[log]\nlevel = \"info\"";
    let (_instance, server) = Server::start_with(Setup { pools: 3, configuration, ..Setup::default() });
    let log = server.log();
    assert_eq!(log.matches("pool is behind a channel").count(), 3, "{log}");
}
