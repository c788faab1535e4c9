//! `forebay dir set-io`: a mode of I/O goes with the files of a directory to their pool.

use std::fs::File;
use std::process::Command;

use rustix::fs::OFlags;
use rustix::io::Errno;
use serde_json::{Value, json};

use crate::redirect::{sent_elsewhere, waiting};
use crate::server::{Instance, Server};
use crate::wire::Ask;

fn told(instance: &Instance, command: &[&str]) -> Value {
    serde_json::from_slice(&instance.output(&[command, &["--json"]].concat())).unwrap()
}

fn text(instance: &Instance, command: &[&str]) -> String {
    String::from_utf8(instance.output(command)).unwrap()
}

/// The pin of a file and its last decision, as `forebay why io` has them.
fn last(instance: &Instance, path: &str) -> (Value, Value) {
    let mut found = told(instance, &["why", "io", path]);
    let replica = found["replicas"][0].take();
    (replica["pinned"].clone(), replica["decisions"].as_array().unwrap().last().cloned().unwrap_or_default())
}

fn refusal(instance: &Instance, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(["dir", "set-io"]).args(arguments).arg("--data").arg(instance.data());
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Else the decision names the mode that is missing.
fn has_direct(instance: &Instance) -> bool {
    let replica = instance.replicas().into_iter().next().unwrap();
    let replica = File::open(replica).unwrap();
    rustix::fs::fcntl_setfl(&replica, OFlags::DIRECT) != Err(Errno::INVAL)
}

#[test]
fn files_of_a_directory_are_written_and_read_in_its_mode_until_it_is_set_back() {
    let (instance, server) = Server::start();
    assert_eq!(server.call("MKCOL", "/kept").status, 201);
    assert_eq!(server.call("MKCOL", "/kept/streams").status, 201);
    assert_eq!(server.put("/kept/streams/before", [1; 9000]).status, 201);
    let said = text(&instance, &["dir", "set-io", "/kept", "buffered"]);
    assert_eq!(said, "/kept: I/O buffered (set for it)\n");
    assert_eq!(told(&instance, &["dir", "show", "/kept/streams"])["io"], "auto");
    let said = text(&instance, &["dir", "set-io", "/kept/streams", "direct"]);
    assert_eq!(said, "/kept/streams: I/O direct (set for it)\n");
    assert_eq!(server.call("MKCOL", "/kept/streams/run").status, 201);
    for path in ["/kept/buffered", "/kept/streams/run/direct"] {
        assert_eq!(server.put(path, [7; 64 << 10]).status, 201);
        assert!(server.read(path) == [7; 64 << 10], "{path}");
    }

    let (pinned, decision) = last(&instance, "/kept/buffered");
    assert_eq!(
        (&pinned, &decision["reason"], &decision["ran"]),
        (&json!("buffered"), &json!("pinned"), &json!("buffered"))
    );
    let (pinned, decision) = last(&instance, "/kept/streams/run/direct");
    assert_eq!((&pinned, &decision["inputs"]["file"]["pinned"]), (&json!("direct"), &json!("direct")));
    if has_direct(&instance) {
        assert_eq!(decision["reason"], "pinned", "{decision}");
    }
    assert!(server.read("/kept/streams/before") == [1; 9000]);
    assert_eq!(last(&instance, "/kept/streams/before").0, Value::Null, "it was there before");

    let change = server.call("HEAD", "/kept/buffered").told("etag");
    let said = text(&instance, &["dir", "set-io", "/kept", "auto", "--recursive"]);
    // Three directories, and three files.
    assert_eq!(said, "/kept: I/O auto (as pools.io says)\nset for 6 directories and files\n");
    assert!(server.read("/kept/buffered") == [7; 64 << 10]);
    assert_eq!(last(&instance, "/kept/buffered").0, Value::Null);
    assert_eq!(server.call("HEAD", "/kept/buffered").told("etag"), change, "caches stay good");
}

#[test]
fn an_upload_that_is_sent_to_the_pool_is_written_in_the_mode_of_its_directory() {
    let (instance, server) = Server::start_with("redirect = \"always\"");
    assert_eq!(server.call("MKCOL", "/dir").status, 201);
    instance.forebay(&["dir", "set-io", "/dir", "uncached"]);
    let (pool, target) = sent_elsewhere(&server, &waiting(&server, "/dir/file", 9000));
    let stored = Ask::new("PUT", &target).body([3; 9000]).send(pool);
    assert_eq!(stored.status, 201, "{stored:?}");
    assert_eq!(last(&instance, "/dir/file").0, "uncached");
}

#[test]
fn a_file_has_no_mode_of_io_to_set_and_an_unknown_one_is_refused() {
    let (instance, server) = Server::start();
    assert_eq!(server.put("/file", "data").status, 201);
    for (arguments, why) in [
        (["/file", "direct"], "not a directory"),
        (["/none", "direct"], "/none: "),
        (["/", "fast"], "invalid value 'fast'"),
    ] {
        let refused = refusal(&instance, &arguments);
        assert!(refused.contains(why), "{refused}");
    }
    assert_eq!(told(&instance, &["dir", "show", "/"])["io"], "auto");
}
