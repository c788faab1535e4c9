//! Doors hold `files` and none of the seams below it: what an operation does with replicas, pools and uploads is the same
//! for every door. The seams that a door may read, it does not change: recalls and callers that go away are the matter of
//! `files`.

use super::Finding;
use super::scan::Scan;
use super::tree::Tree;

const SEAMS: &[&str] = &["Pool", "OpenReplica", "ReplicaRanges", "PoolManager", "Locations", "Uploads"];
/// Seams that a door reads, and their methods that change something.
const CHANGES: &[(&str, &[&str])] = &[
    ("namespace", &["create", "link", "unlink", "rename", "set_attributes", "record_write"]),
    ("properties", &["set_properties", "record_checksums", "forget_checksums"]),
    ("xattrs", &["set_xattr", "remove_xattr"]),
];
/// A pool's own face is a door that serves one pool, and asks no file layer.
const DATA_FACES: &[&str] =
    &["crates/door-nfs/src/ds.rs", "crates/door-nfs/src/pool_door.rs", "crates/door-webdav/src/data.rs"];

pub fn doors_know_files_and_no_seam_below(tree: &Tree) -> Vec<Finding> {
    let is_of_door = |path: &str| path.starts_with("crates/door-") && path.contains("/src/");
    let mut findings = Vec::new();
    for (file, scan) in tree.rust() {
        if !is_of_door(&file.path) || DATA_FACES.contains(&&*file.path) {
            continue;
        }
        for seam in SEAMS {
            // Variants of errors have such names, too.
            let is_seam = |at: &usize| {
                let before = &scan.code[..*at];
                !before.ends_with("::") || before.ends_with("api::")
            };
            let lines = scan.find(seam).into_iter().filter(is_seam).map(|at| scan.line_at(at));
            for line in lines.filter(|line| !scan.is_test(*line)) {
                let message = format!("a door knows `{seam}`; ask `files`, or give it the operation");
                findings.push(Finding::failure(&file.path, line, message));
            }
        }
        for line in changes(scan).filter(|line| !scan.is_test(*line)) {
            let message = "a door changes a seam itself; ask `files`, or give it the operation";
            findings.push(Finding::failure(&file.path, line, message));
        }
    }
    findings
}

/// Lines of calls that change a seam.
fn changes(scan: &Scan) -> impl Iterator<Item = usize> {
    let calls = CHANGES.iter().flat_map(|(seam, methods)| methods.iter().map(move |method| (seam, method)));
    calls.flat_map(move |(seam, method)| {
        let is_call = move |at: &usize| {
            let receiver = scan.code[..*at].strip_suffix('.').map(str::trim_end);
            receiver.is_some_and(|receiver| receiver.ends_with(*seam))
        };
        scan.find(method).into_iter().filter(is_call).map(|at| scan.line_at(at))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        doors_know_files_and_no_seam_below(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn a_seam_in_a_door_is_caught_however_it_is_named() {
        for text in [
            "use api::{Locations, Namespace};\n",
            "use api::Locations;\n",
            "fn f(replica: &dyn OpenReplica) {}\n",
            "struct S { pools: Arc<dyn api::PoolManager> }\n",
        ] {
            assert_eq!(found("crates/door-nfs/src/mds/open.rs", text), 1, "{text}");
            assert_eq!(found("crates/door-s3/src/get.rs", text), 1, "{text}");
        }
    }

    #[test]
    fn a_change_of_a_seam_in_a_door_is_caught_and_a_question_is_none() {
        for text in [
            "fn f() { self.namespace.unlink(who); }\n",
            "fn f() {\n    fs\n        .namespace\n        .set_attributes(who);\n}\n",
            "fn f() { self.services.properties.set_properties(who); }\n",
        ] {
            assert_eq!(found("crates/door-nfs/src/mds/open.rs", text), 1, "{text}");
            assert_eq!(found("crates/files/src/making.rs", text), 0, "{text}");
        }
        let others =
            "fn f() { self.namespace.lookup(who); self.files.set_attributes(by); namespace.read_link(a); }\n";
        assert_eq!(found("crates/door-nfs/src/mds/open.rs", others), 0);
    }

    #[test]
    fn the_file_layer_the_data_faces_and_tests_know_seams() {
        let text = "use api::Pool;\n";
        for path in ["crates/files/src/pools.rs", "crates/door-nfs/src/ds.rs", "crates/door-nfs/tests/a.rs"] {
            assert_eq!(found(path, text), 0, "{path}");
        }
        let test = "#[cfg(test)]\nmod tests {\n    use api::Pool;\n}\n";
        assert_eq!(found("crates/door-webdav/src/get.rs", test), 0);
    }

    #[test]
    fn an_error_of_a_pool_and_a_longer_word_are_no_seams() {
        let text =
            "// A Pool.\nuse files::UploadsAtPools;\nfn f() { FilesError::Pool(PoolError::TooLarge); }\n";
        assert_eq!(found("crates/door-nfs/src/status.rs", text), 0);
    }
}
