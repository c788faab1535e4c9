//! Entries into rows that are kept in memory.

use super::*;
use crate::inode::NO_PARENT;

/// Keeps all rows and holds them to what the trait says.
#[derive(Default)]
struct Memory {
    inodes: BTreeMap<FileId, Inode>,
    names: BTreeMap<(FileId, Name), FileId>,
    cookies: Vec<u64>,
    targets: BTreeMap<FileId, SymlinkTarget>,
    locations: BTreeMap<FileId, ReplicaRef>,
    settled: BTreeMap<(FileId, Name), FileId>,
    usage: BTreeMap<Account, Counted>,
}

impl Rows for Memory {
    fn inode(&mut self, inode: &Inode) -> Result<(), RowError> {
        assert!(self.inodes.insert(inode.id(), *inode).is_none(), "{inode:?} is given twice");
        Ok(())
    }

    fn name(&mut self, name: &NamedFile) -> Result<(), RowError> {
        self.cookies.push(name.cookie);
        match self.names.insert((name.dir, name.name.clone()), name.file) {
            Some(_) => Err(RowError::Twice { dir: name.dir, name: name.name.clone() }),
            None => Ok(()),
        }
    }

    fn target(&mut self, file: FileId, target: &SymlinkTarget) -> Result<(), RowError> {
        self.targets.insert(file, target.clone());
        Ok(())
    }

    fn location(&mut self, file: FileId, replica: &ReplicaRef) -> Result<(), RowError> {
        self.locations.insert(file, *replica);
        Ok(())
    }

    fn settle(&mut self) -> Result<(), RowError> {
        self.settled = self.names.clone();
        Ok(())
    }

    fn child(&mut self, dir: FileId, name: &Name) -> Result<Option<FileId>, RowError> {
        Ok(self.settled.get(&(dir, name.clone())).copied())
    }

    fn count_links(&mut self, has_several: bool) -> Result<(), RowError> {
        let mut counts: BTreeMap<FileId, u32> = BTreeMap::new();
        for ((dir, _), file) in &self.names {
            let counted = if self.inodes[file].is_directory() { dir } else { file };
            *counts.entry(*counted).or_default() += 1;
        }
        for inode in self.inodes.values_mut() {
            let count = counts.get(&inode.id()).copied().unwrap_or(0);
            if inode.is_directory() {
                inode.attributes.nlink = 2 + count;
            } else if has_several {
                inode.attributes.nlink = count;
            }
        }
        Ok(())
    }

    fn usage(&mut self, usage: &[(Account, Counted)]) -> Result<(), RowError> {
        self.usage = usage.iter().copied().collect();
        assert_eq!(self.usage.len(), usage.len());
        Ok(())
    }
}

impl Memory {
    fn walk(&self, path: &str) -> Inode {
        let step = |dir: FileId, part: &str| self.names[&(dir, Name::new(part.as_bytes()).unwrap())];
        let file = path.split('/').filter(|part| !part.is_empty()).fold(FileId::ROOT, step);
        self.inodes[&file]
    }
}

fn at(seconds: i64) -> Option<Timestamp> {
    Timestamp::new(seconds, 0)
}

const FACTS: Facts =
    Facts { mode: 0o644, uid: 10, gid: 20, mtime: None, atime: None, ctime: None, birth: None };

fn entry(path: &str, what: What) -> Entry {
    Entry { path: path.as_bytes().to_vec(), what, facts: FACTS, same: None }
}

fn file(path: &str, size: u64) -> Entry {
    entry(path, What::Regular { size, space_used: 512 })
}

fn dir(path: &str) -> Entry {
    Entry { facts: Facts { mode: 0o700, ..FACTS }, ..entry(path, What::Directory) }
}

fn link(path: &str, target: &str) -> Entry {
    entry(path, What::LinkTo(target.as_bytes().to_vec()))
}

fn build_under(under: &str, entries: &[Entry]) -> Result<Finished<Memory>, String> {
    let mut tree =
        Tree::new(Memory::default(), at(100).unwrap(), under.as_bytes(), 0).map_err(|e| e.to_string())?;
    for entry in entries {
        tree.add(entry, &mut |file| Ok(Placed { file, pool: None })).map_err(|error| error.to_string())?;
    }
    tree.finish().map_err(|error| error.to_string())
}

fn build(entries: &[Entry]) -> Finished<Memory> {
    build_under("", entries).unwrap()
}

fn refused(entries: &[Entry]) -> String {
    build_under("", entries).err().expect("it is refused")
}

fn usage(made: &Finished<Memory>, scope: Scope, id: u64) -> (i64, i64, i64) {
    let found = made.rows.usage[&Account { scope, id }];
    (found.files, found.directories, found.bytes)
}

#[test]
fn a_tree_has_its_link_counts_parents_sums_and_number_ends() {
    let target = SymlinkTarget::new(b"a").unwrap();
    let made = build(&[
        dir(""),
        dir("d"),
        file("d/a", 5),
        dir("d/e"),
        file("d/e/b", 7),
        entry("l", What::Symlink(target)),
    ]);
    let rows = &made.rows;
    assert_eq!(rows.walk("").attributes.nlink, 3);
    assert_eq!((rows.walk("d").attributes.nlink, rows.walk("d/e").attributes.nlink), (3, 2));
    assert_eq!((rows.walk("").attributes.mode, rows.walk("").parent), (0o700, NO_PARENT));
    assert_eq!(rows.walk("d/e/b").parent, rows.walk("d/e").id());
    assert_eq!(rows.walk("d/e").parent, rows.walk("d").id());
    let link = rows.walk("l").attributes;
    assert_eq!((link.size, link.mode, rows.targets.len()), (1, 0o777, 1));
    assert_eq!(made.totals, Totals { files: 6, bytes: 12 });
    assert_eq!(made.made, Made { directories: 3, files: 3, names: 5, bytes: 12, untold: 0 });
    assert!(rows.inodes.keys().all(|file| file.0 < made.ends.files));
    assert!(rows.cookies.iter().all(|cookie| (FIRST..made.ends.cookies).contains(cookie)));
    assert_eq!(usage(&made, Scope::Tree, 1), (3, 2, 12));
    assert_eq!(usage(&made, Scope::Tree, rows.walk("d").id().0), (2, 1, 12));
    assert_eq!(usage(&made, Scope::User, 10), (3, 3, 12));
    assert_eq!(usage(&made, Scope::Group, 20), (3, 3, 12));
}

#[test]
fn directories_that_were_not_told_are_made_and_may_be_told_later() {
    let made = build(&[file("./a/b/f", 1), dir("./a/b/"), file("/a/b/g", 1)]);
    assert_eq!((made.rows.walk("a").attributes.mode, made.rows.walk("a").attributes.uid), (0o755, 0));
    assert_eq!((made.rows.walk("a/b").attributes.mode, made.rows.walk("a/b").attributes.uid), (0o700, 10));
    assert_eq!(made.rows.walk("a/b/g").parent, made.rows.walk("a/b").id());
    // The root and a.
    assert_eq!(made.made.untold, 2);
    assert_eq!(usage(&made, Scope::User, 0), (0, 2, 0));
}

#[test]
fn a_file_of_several_names_is_one_file() {
    let same = Some(SameFile { device: 1, inode: 2 });
    let several = |path| Entry { same, ..file(path, 9) };
    let alone = Entry { same: Some(SameFile { device: 1, inode: 3 }), ..file("alone", 1) };
    let made = build(&[several("d/a"), several("b"), alone, several("c")]);
    assert_eq!(made.rows.walk("b").attributes.nlink, 3);
    assert_eq!(made.rows.walk("b").parent, made.rows.walk("d").id());
    assert_eq!(made.rows.walk("c").id(), made.rows.walk("d/a").id());
    assert_eq!(made.rows.walk("alone").attributes.nlink, 1);
    assert_eq!(made.totals.bytes, 10);
}

#[test]
fn further_names_told_by_path_lead_to_their_file() {
    let made = build(&[file("d/a", 9), link("d/b", "./d/a"), link("c", "d/b")]);
    assert_eq!(made.rows.walk("d/a").attributes.nlink, 3);
    assert_eq!(made.rows.walk("c").id(), made.rows.walk("d/a").id());
    assert_eq!((made.made.files, made.made.names), (1, 4));
}

#[test]
fn everything_lies_below_the_directory_that_was_asked_for() {
    let made = build_under("/data/old", &[dir("."), file("f", 1), link("g", "f")]).unwrap();
    assert_eq!(made.rows.walk("data/old/f").attributes.nlink, 2);
    assert_eq!(made.rows.walk("data/old").attributes.mode, 0o700);
    assert_eq!(made.rows.walk("data").attributes.mode, 0o755);
}

#[test]
fn times_that_are_not_told_are_as_the_modification() {
    let known = Facts { mtime: at(5), ..FACTS };
    let made = build(&[Entry { facts: known, ..file("a", 0) }, file("b", 0)]);
    let times = |path| {
        let attributes = made.rows.walk(path).attributes;
        [attributes.mtime, attributes.atime, attributes.birth, attributes.ctime].map(|time| time.seconds)
    };
    assert_eq!(times("a"), [5, 5, 5, 100]);
    assert_eq!(times("b"), [100; 4]);
}

#[test]
fn a_placed_file_has_the_id_and_the_pool_that_it_is_told() {
    let mut tree = Tree::new(Memory::default(), at(100).unwrap(), b"", 5000).unwrap();
    let mut asked = Vec::new();
    for path in ["a", "b"] {
        let place = &mut |file: FileId| {
            asked.push(file);
            Ok(Placed { file: if path == "a" { FileId(77) } else { file }, pool: Some(PoolId(3)) })
        };
        tree.add(&file(path, 1), place).unwrap();
    }
    let failing = tree.add(&file("c", 1), &mut |_| Err("cannot be linked".to_owned()));
    assert_eq!(failing.unwrap_err().to_string(), "\"c\" cannot be linked");
    let made = tree.finish().unwrap();
    assert_eq!(asked, [FileId(5000), FileId(5001)]);
    let placed = ReplicaRef::good(PoolId(3), at(100).unwrap());
    assert_eq!(made.rows.locations, [(FileId(77), placed), (FileId(5001), placed)].into());
    let placements = made.rows.inodes.values().filter(|inode| !inode.is_directory());
    assert!(placements.into_iter().all(|inode| inode.extras.placement == Placement::Replicas));
}

#[test]
fn a_file_that_is_told_without_a_pool_is_lost_unless_it_is_empty() {
    let made = build(&[file("full", 1), file("empty", 0)]);
    let placement = |path| made.rows.walk(path).extras.placement;
    assert_eq!([placement("full"), placement("empty")], [Placement::Lost, Placement::Empty]);
}

#[test]
fn entries_that_make_no_tree_are_refused_with_their_path() {
    assert_eq!(
        refused(&[file("d/f", 1), file("d/f", 1)]),
        "\"d/f\" is there twice, or a directory and not one"
    );
    assert!(refused(&[file("d", 1), file("d/f", 1)]).starts_with("\"d\" is there twice"));
    assert!(refused(&[dir("d"), dir("d/.")]).starts_with("\"d/.\" is there twice"));
    assert!(refused(&[file("d/f", 1), file("d", 1)]).starts_with("\"d\" is there twice"));
    assert!(refused(&[file("a/../b", 1)]).contains("name is . or .."));
    assert!(refused(&[file(&"n".repeat(256), 1)]).contains("longer than 255 bytes"));
    assert!(refused(&[file("a", u64::MAX)]).contains("cannot have"));
    assert!(refused(&[file("", 1)]).contains("no directory"));
    assert!(refused(&[link("l", "nowhere")]).contains("which is not there"));
    assert!(refused(&[link("l", "none/where")]).contains("which is not there"));
    assert!(refused(&[dir("d"), link("l", "d")]).contains("is a directory and cannot have further names"));
    let crowded: Vec<_> = (0..65_000).map(|number| dir(&format!("{number}"))).collect();
    assert!(refused(&crowded).contains("more than 64998 directories"));
}

#[test]
fn entries_deeper_than_a_path_may_be_are_refused() {
    let deep = |names: usize| vec!["d"; names].join("/");
    build(&[file(&deep(DEPTH_MAX), 1)]);
    build_under("top", &[dir(&deep(DEPTH_MAX - 1))]).unwrap();
    for too_deep in
        [file(&deep(DEPTH_MAX + 1), 1), dir(&deep(DEPTH_MAX + 1)), link(&deep(DEPTH_MAX + 1), "d")]
    {
        let error = refused(&[too_deep]);
        assert!(error.ends_with("begins a path of more than 1024 names"), "{error}");
    }
    let error = build_under("top", &[file(&deep(DEPTH_MAX), 1)]).err().unwrap();
    assert!(error.ends_with("1024 names"), "{error}");
    assert!(build_under(&deep(DEPTH_MAX + 1), &[]).is_err());
}
