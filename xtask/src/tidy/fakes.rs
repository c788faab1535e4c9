//! Seams of the data path are faked in the test kit only: a fake there passes the suite of its seam, and a change of the
//! seam has one place to be made.

use super::Finding;
use super::tree::Tree;

const SEAMS: &[&str] = &["Pool", "OpenReplica", "PoolManager", "ReplicaRanges"];
const TESTKIT: &str = "testkit/";
/// Test code as a whole, without a mark of it.
const TEST_FOLDERS: &[&str] = &["fuzz/", "sim/"];

pub fn seams_are_faked_in_the_test_kit(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, scan) in tree.rust().filter(|(file, _)| !file.path.starts_with(TESTKIT)) {
        let is_outside = file.path.contains("/examples/")
            || TEST_FOLDERS.iter().any(|folder| file.path.starts_with(folder));
        for seam in SEAMS {
            let is_implemented = |at: &usize| {
                let behind = &scan.code[at + seam.len()..];
                behind.starts_with(char::is_whitespace) && behind.trim_start().starts_with("for ")
            };
            let lines = scan.find(seam).into_iter().filter(is_implemented).map(|at| scan.line_at(at));
            for line in lines.filter(|line| is_outside || scan.is_test(*line)) {
                let message = format!("a fake `{seam}`; take or put it into the test kit");
                findings.push(Finding::failure(&file.path, line, message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        seams_are_faked_in_the_test_kit(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn a_fake_seam_in_a_test_is_caught_wherever_the_test_is() {
        for seam in ["Pool", "OpenReplica", "PoolManager", "ReplicaRanges", "api::Pool"] {
            let fake = format!("struct Fake;\nimpl {seam} for Fake {{}}\n");
            for path in [
                "crates/files/tests/fakes.rs",
                "crates/http-server/examples/files.rs",
                "fuzz/src/world.rs",
                "sim/src/world.rs",
            ] {
                assert_eq!(found(path, &fake), 1, "{seam} in {path}");
            }
            let module = format!("#[cfg(test)]\nmod tests {{\n    {fake}}}\n");
            assert_eq!(found("crates/forebay/src/reaper.rs", &module), 1, "{seam}");
        }
        for fake in ["impl<T: Clone> Pool for Fake<T> {}\n", "impl<T> Pool\n    for Fake<T>\n{}\n"] {
            assert_eq!(found("crates/pool/tests/pools/mod.rs", fake), 1, "{fake}");
        }
    }

    #[test]
    fn a_seam_is_implemented_by_services_and_by_the_test_kit() {
        for path in ["crates/pool/src/local.rs", "testkit/src/memory_pool.rs", "testkit/tests/faulty.rs"] {
            assert_eq!(found(path, "impl Pool for LocalPool {}\n"), 0, "{path}");
        }
    }

    #[test]
    fn other_traits_and_comments_are_no_fakes_of_seams() {
        let text =
            "// A Pool for tests.\nimpl PoolUnderTest for Local {}\nimpl From<Pool> for MemoryPool {}\n";
        assert_eq!(found("crates/pool/tests/suite.rs", text), 0);
    }
}
