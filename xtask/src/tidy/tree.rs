//! The tree as text: every file of ours that a rule may look at, read once.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::scan::Scan;

/// Folders that hold what was built or what ran, never what was written.
const SKIPPED_FOLDERS: &[&str] = &["target", ".git", "forebay-data", "__pycache__", "corpus", "artifacts"];

/// Larger files are data, not prose or code.
const FILE_BYTES_MAX: u64 = 1 << 20;

pub struct Tree {
    pub files: Vec<File>,
    /// Paths that exist but are not text, so that links to them hold.
    others: BTreeSet<String>,
}

pub struct File {
    /// Relative to the workspace, with `/`.
    pub path: String,
    pub text: String,
    /// Present for Rust sources.
    pub scan: Option<Scan>,
}

impl Tree {
    pub fn read(root: &Path) -> Result<Tree> {
        let mut tree = Tree { files: Vec::new(), others: BTreeSet::new() };
        tree.read_folder(root, "")?;
        tree.mark_test_modules();
        Ok(tree)
    }

    /// A tree from literals, for the rules' own tests.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Tree {
        let mut tree = Tree { files: Vec::new(), others: BTreeSet::new() };
        for (path, text) in files {
            tree.add((*path).to_owned(), (*text).to_owned());
        }
        tree.mark_test_modules();
        tree
    }

    pub fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    pub fn exists(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        path.is_empty()
            || self.file(path).is_some()
            || self.others.contains(path)
            || self.files.iter().any(|file| file.path.starts_with(&folder))
            || self.others.iter().any(|other| other.starts_with(&folder))
    }

    pub fn rust(&self) -> impl Iterator<Item = (&File, &Scan)> {
        self.files.iter().filter_map(|file| file.scan.as_ref().map(|scan| (file, scan)))
    }

    fn read_folder(&mut self, folder: &Path, prefix: &str) -> Result<()> {
        let mut entries: Vec<_> = fs::read_dir(folder)
            .and_then(|entries| entries.collect::<std::io::Result<_>>())
            .with_context(|| format!("list {}", folder.display()))?;
        entries.sort_by_key(|entry| entry.file_name());
        for entry in entries {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            // The tree may change under us; a file that is gone is no finding.
            let Ok(about) = entry.metadata() else { continue };
            if about.is_dir() {
                if !SKIPPED_FOLDERS.contains(&name.as_str()) {
                    self.read_folder(&entry.path(), &format!("{path}/"))?;
                }
            } else if about.is_file() && about.len() <= FILE_BYTES_MAX {
                match fs::read(entry.path()).map(String::from_utf8) {
                    Ok(Ok(text)) => self.add(path, text),
                    Ok(Err(_)) | Err(_) => drop(self.others.insert(path)),
                }
            } else {
                self.others.insert(path);
            }
        }
        Ok(())
    }

    fn add(&mut self, path: String, text: String) {
        let scan = path.ends_with(".rs").then(|| Scan::new(&text));
        self.files.push(File { path, text, scan });
    }

    /// A file is test code when it lies in a test folder or is the out-of-line body of a `#[cfg(test)] mod`.
    fn mark_test_modules(&mut self) {
        let mut roots: Vec<String> = Vec::new();
        for (file, scan) in self.rust() {
            roots.extend(scan.test_modules.iter().map(|name| format!("{}{name}", module_folder(&file.path))));
        }
        for file in &mut self.files {
            let Some(scan) = &mut file.scan else { continue };
            let inside = |root: &String| {
                file.path == format!("{root}.rs") || file.path.starts_with(&format!("{root}/"))
            };
            let folder = file.path.starts_with("tests/")
                // Suites are tests that several crates run.
                || file.path.starts_with("testkit/src/")
                || file.path.contains("/tests/")
                || file.path.contains("/benches/");
            if folder || roots.iter().any(inside) {
                scan.mark_all_test();
            }
        }
    }
}

/// Where the submodules of a file lie, with the closing `/`.
fn module_folder(path: &str) -> String {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    match name {
        "lib.rs" | "main.rs" | "mod.rs" => format!("{folder}/"),
        _ => format!("{}/", path.trim_end_matches(".rs")),
    }
}

/// The crate that a path belongs to, by the name of `floors.rs`.
pub fn crate_of(path: &str) -> Option<&str> {
    if path.starts_with("crates/xdr/derive/") {
        return Some("xdr-derive");
    }
    if path.starts_with("bench/load/") {
        return Some("load");
    }
    match path.strip_prefix("crates/") {
        Some(rest) => rest.split('/').next(),
        None => {
            ["testkit", "fuzz", "sim", "xtask"].into_iter().find(|name| path.starts_with(&format!("{name}/")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_of_a_test_module_in_its_own_file_is_test_code() {
        let tree = Tree::of(&[
            ("crates/types/src/lib.rs", "//! x\nmod range;\n#[cfg(test)]\nmod model;\n"),
            ("crates/types/src/range.rs", "//! x\n#[cfg(test)]\nmod tests;\nfn live() {}\n"),
            ("crates/types/src/range/tests.rs", "//! x\nfn a() {}\n"),
            ("crates/types/src/model.rs", "//! x\nfn b() {}\n"),
            ("crates/types/src/model/deep.rs", "//! x\nfn c() {}\n"),
        ]);
        let is_test = |path: &str, line| tree.file(path).unwrap().scan.as_ref().unwrap().is_test(line);
        assert!(is_test("crates/types/src/range/tests.rs", 2));
        assert!(is_test("crates/types/src/model.rs", 2));
        assert!(is_test("crates/types/src/model/deep.rs", 2));
        assert!(!is_test("crates/types/src/range.rs", 4));
    }

    #[test]
    fn a_path_tells_its_crate() {
        assert_eq!(crate_of("crates/nfs4/src/lib.rs"), Some("nfs4"));
        assert_eq!(crate_of("crates/xdr/derive/src/lib.rs"), Some("xdr-derive"));
        assert_eq!(crate_of("testkit/src/lib.rs"), Some("testkit"));
        assert_eq!(crate_of("bench/load/src/main.rs"), Some("load"));
        assert_eq!(crate_of("fuzz/fuzz_targets/xdr.rs"), Some("fuzz"));
        assert_eq!(crate_of("sim/src/main.rs"), Some("sim"));
        assert_eq!(crate_of("README.md"), None);
    }
}
