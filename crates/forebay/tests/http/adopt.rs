//! A tree that was there before: adopted as a pool, or imported as names alone.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, UNIX_EPOCH};

use nfs4::attr::number;
use nfs4::{DataContent4, LayoutIomode4, NfsStat4, OPEN4_SHARE_ACCESS_BOTH, StableHow4};

use crate::server::{Instance, Server, status_of};

/// An instance that has no data directory yet, and a tree beside it.
fn tree() -> (Instance, PathBuf) {
    let instance = Instance::new("");
    let tree = instance.data().with_file_name("tree");
    fs::create_dir_all(tree.join("papers/old")).unwrap();
    for (path, text) in [
        ("papers/plan", "the plan"),
        ("papers/old/draft", "a draft"),
        ("run me", "#!/bin/sh\n"),
        ("empty", ""),
    ] {
        fs::write(tree.join(path), text).unwrap();
    }
    fs::hard_link(tree.join("papers/plan"), tree.join("same plan")).unwrap();
    symlink("papers/plan", tree.join("link")).unwrap();
    fs::set_permissions(tree.join("run me"), fs::Permissions::from_mode(0o751)).unwrap();
    let file = fs::File::options().write(true).open(tree.join("papers/plan")).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    (instance, tree)
}

fn forebay(arguments: &[&str], paths: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forebay")).args(arguments).args(paths).output().unwrap()
}

fn adopt(instance: &Instance, tree: &Path, more: &[&str]) -> Output {
    let data = instance.data();
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(["namespace", "adopt", "--tree"]).arg(tree).arg("--data").arg(data).args(more);
    command.output().unwrap()
}

fn succeeded(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(output: Output) -> String {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn an_adopted_tree_is_served_and_its_old_names_stay() {
    let (instance, tree) = tree();
    let told = succeeded(adopt(&instance, &tree, &[]));
    assert!(told.starts_with("5 files and 3 directories are in"), "{told}");
    assert_eq!(fs::metadata(tree.join("papers/plan")).unwrap().nlink(), 3, "two names, and the pool's");

    let server = instance.up();
    for (path, text) in [
        ("papers/plan", "the plan"),
        ("same%20plan", "the plan"),
        ("papers/old/draft", "a draft"),
        ("empty", ""),
    ] {
        assert_eq!(server.read(&format!("/{path}")), text.as_bytes(), "{path}");
    }
    let about = server.call("HEAD", "/papers/plan");
    assert_eq!(about.told("last-modified"), "Sun, 09 Sep 2001 01:46:40 GMT");
    assert_eq!(server.put("/papers/plan", "a new plan").status, 204);
    assert_eq!(server.put("/papers/new", "new").status, 201);
    assert_eq!(server.read("/papers/plan"), b"a new plan");
    assert_eq!(server.read("/same%20plan"), b"the plan");
    assert_eq!(fs::read(tree.join("papers/plan")).unwrap(), b"the plan", "an upload is a file of its own");
    drop(server);
    instance.forebay(&["fsck"]);
}

/// The modes of files in the namespace of `server`, which are the answers of its NFS door.
fn modes_of(server: &Server, names: &[&str]) -> Vec<u32> {
    let mut client = server.nfs("host");
    let root = client.root().unwrap();
    let mut mode = |name: &&str| {
        let file = client.lookup(&root, name).unwrap();
        client.attributes(&file, &[number::MODE]).unwrap().mode.unwrap()
    };
    names.iter().map(&mut mode).collect()
}

/// The server could not open the replica.
#[test]
fn files_that_their_owner_may_only_read_are_adopted_and_keep_their_modes_in_the_namespace() {
    let instance = Instance::new("");
    let (data, tree) = (instance.data(), instance.data().with_file_name("tree"));
    let names = ["kept", "secret", "usual"];
    let modes = [0o444, 0, 0o664];
    fs::create_dir(&tree).unwrap();
    for (name, mode) in names.iter().zip(modes) {
        fs::write(tree.join(name), name).unwrap();
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    // Root may open every file, so the command runs as another user.
    if rustix::process::geteuid().is_root() {
        const USER: u32 = 65_534;
        let program = data.with_file_name("forebay");
        fs::copy(env!("CARGO_BIN_EXE_forebay"), &program).unwrap();
        let in_tree = names.map(|name| tree.join(name));
        for path in in_tree.iter().chain([&tree, &program]).map(PathBuf::as_path).chain(data.parent()) {
            chown(path, Some(USER), Some(USER)).unwrap();
        }
        command = Command::new(program);
        command.uid(USER).gid(USER);
    }
    command.args(["namespace", "adopt", "--tree"]).arg(&tree).arg("--data").arg(&data);
    let told = succeeded(command.output().unwrap());
    assert!(told.contains("the owner of 2 files may read and write them now"), "{told}");
    let mode = |name: &str| fs::metadata(tree.join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(names.map(mode), [0o644, 0o600, 0o664]);
    let server = instance.up();
    assert_eq!(modes_of(&server, &names), modes);
    for name in names {
        assert_eq!(server.read(&format!("/{name}")), name.as_bytes());
    }
}

/// The pools of an adopted tree are recorded, so that a start without the file takes it for a lost one.
#[test]
fn the_first_start_after_an_adoption_misses_no_keys() {
    let (instance, tree) = tree();
    succeeded(adopt(&instance, &tree, &[]));
    let server = instance.up();
    let log = server.log();
    assert!(!log.contains("keys.json"), "{log}");
    server.stop();
    fs::remove_file(instance.data().join("keys.json")).unwrap();
    let log = instance.up().log();
    assert!(log.contains("keys.json is missing"), "{log}");
}

#[test]
fn names_that_are_taken_away_leave_the_files_to_the_pool() {
    let (instance, tree) = tree();
    let pool = instance.data().with_file_name("pool elsewhere");
    let told =
        succeeded(adopt(&instance, &tree, &["--move", "--under", "/site", "--pool", pool.to_str().unwrap()]));
    assert!(told.contains("5 names were removed"), "{told}");
    assert!(!tree.join("papers/plan").exists() && tree.join("papers/old").is_dir());
    assert!(pool.join("pool.json").exists());
    let server = instance.up();
    assert_eq!(server.read("/site/papers/plan"), b"the plan");
    assert_eq!(server.read("/site/run%20me"), b"#!/bin/sh\n");
    instance.forebay(&["fsck"]);
}

#[test]
fn an_adoption_that_was_broken_off_is_begun_again() {
    let (instance, tree) = tree();
    let label = |path: &Path, text: &str| {
        let set =
            rustix::fs::setxattr(path, "user.forebay.id", text.as_bytes(), rustix::fs::XattrFlags::empty());
        set.unwrap();
    };
    // A replica of some other pool.
    label(&tree.join("papers/old/draft"), &format!("1 0000000000000005 {} 0", "a".repeat(32)));
    let error = refused(adopt(&instance, &tree, &[]));
    assert!(error.contains("\"papers/old/draft\" is a replica of another pool already"), "{error}");
    rustix::fs::removexattr(tree.join("papers/old/draft"), "user.forebay.id").unwrap();
    succeeded(adopt(&instance, &tree, &[]));
    let again = refused(adopt(&instance, &tree, &[]));
    assert!(again.contains("has pools already"), "{again}");
    let server = instance.up();
    assert_eq!(server.read("/papers/old/draft"), b"a draft");
    drop(server);
    instance.forebay(&["fsck"]);
}

/// Its names, without its data.
pub fn import(instance: &Instance, tree: &Path) -> Output {
    let listing = tree.with_file_name("listing");
    let find =
        Command::new("find").arg(tree).args(["-printf", ::namespace::import::PRINTF]).output().unwrap();
    fs::write(&listing, &find.stdout).unwrap();
    let arguments = ["namespace", "import", "--format", "find", "--listing"];
    forebay(&arguments, &[&listing, Path::new("--to"), &instance.data()])
}

#[test]
fn a_listing_by_find_is_imported_into_an_empty_place_and_no_other() {
    let (instance, tree) = tree();
    let import = || import(&instance, &tree);
    let told = succeeded(import());
    assert!(told.starts_with("5 files and 3 directories are in"), "{told}");
    let error = refused(import());
    assert!(error.contains("is not empty") && error.lines().count() == 1, "{error}");
    let help = succeeded(forebay(&["namespace", "import", "--help"], &[]));
    assert!(help.contains(::namespace::import::PRINTF), "{help}");
    let server = instance.up();
    let about = server.call("PROPFIND", "/papers/plan");
    assert_eq!(about.status, 207);
    assert!(String::from_utf8_lossy(&about.body).contains("getcontentlength>8<"), "{about:?}");
}

#[test]
fn a_file_that_lies_nowhere_is_an_error_to_its_readers_until_it_is_empty_or_written_anew() {
    let (instance, tree) = tree();
    succeeded(import(&instance, &tree));
    let server = instance.up();
    assert_eq!(server.status_of("GET", "/papers/plan"), 500);
    let digest = server.send(&server.ask("HEAD", "/papers/plan").with("Want-Digest", "sha-256"));
    assert_eq!(digest.header("digest"), None, "{digest:?}");
    let copy = server.send(&server.ask("COPY", "/papers/plan").with("Destination", server.url("/copy")));
    assert_eq!(copy.status, 500, "{copy:?}");

    let mut client = server.nfs("host");
    let root = client.root().unwrap();
    let papers = client.lookup(&root, "papers").unwrap();
    let plan = client.open(&papers, "plan", OPEN4_SHARE_ACCESS_BOTH).unwrap();
    let other = client.create(&papers, "other").unwrap();
    let is_error = |status| assert_eq!(status, NfsStat4::Io);
    is_error(status_of(client.read(&plan.handle, plan.stateid, 0, 8)));
    is_error(status_of(client.read_plus(&plan, 0, 8)));
    is_error(status_of(client.seek(&plan, 0, DataContent4::Hole)));
    is_error(status_of(client.copy((&plan, 0), (&other, 0), 8)));
    is_error(status_of(client.write(&plan.handle, plan.stateid, 1, StableHow4::FileSync, b"part")));
    for size in [7, 9] {
        is_error(status_of(client.set_size(&plan.handle, plan.stateid, size)));
    }
    let layout = client.layout_get(&plan.handle, plan.stateid, LayoutIomode4::Rw);
    assert_eq!(status_of(layout), NfsStat4::LayoutUnavailable);
    assert_eq!(server.status_of("GET", "/papers/plan"), 500, "nothing has made it one of zeros");

    client.write(&plan.handle, plan.stateid, 0, StableHow4::FileSync, b"new plan").unwrap();
    assert_eq!(server.read("/papers/plan"), b"new plan");
    let draft =
        client.lookup(&papers, "old").and_then(|old| client.open(&old, "draft", OPEN4_SHARE_ACCESS_BOTH));
    let draft = draft.unwrap();
    client.set_size(&draft.handle, draft.stateid, 0).unwrap();
    client.set_size(&draft.handle, draft.stateid, 3).unwrap();
    assert_eq!(server.read("/papers/old/draft"), [0; 3]);
    assert_eq!(server.put("/run%20me", "anew").status, 204);
    assert_eq!(server.read("/run%20me"), b"anew");
}
