//! This suite is run twice, the second time with `FOREBAY_TEST_CHANNEL`, and then shows that pools may be elsewhere.

use crate::server::{Server, Setup};

#[test]
fn every_pool_is_behind_a_channel_in_the_run_that_asks_for_it() {
    let configuration = "[log]\nlevel = \"info\"";
    let (_instance, server) = Server::start_with(Setup { pools: 3, configuration, ..Setup::default() });
    let log = server.log();
    let behind = if std::env::var_os("FOREBAY_TEST_CHANNEL").is_some() { 3 } else { 0 };
    assert_eq!(log.matches("pool is behind a channel").count(), behind, "{log}");
}
