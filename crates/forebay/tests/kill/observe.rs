//! The whole tree as a client sees it after a restart.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use nfs4::attr::number;
use nfs4::{FileAttributes, NfsArgop4, NfsFh4, NfsFtype4, NfsTime4, StateId4};
use testkit::body;
use testkit::nfs_client::{NfsClient, ops, when_ready};

use crate::model::{Content, Kind, Node};

const LISTED: [u32; 8] = [
    number::TYPE,
    number::CHANGE,
    number::FILEHANDLE,
    number::FILEID,
    number::MODE,
    number::NUMLINKS,
    number::OWNER,
    number::TIME_MODIFY,
];
const PAGE_BYTES: u32 = 1 << 16;
const READ_BYTES: u32 = 1 << 18;

#[derive(Default)]
pub struct Observed {
    nodes: BTreeMap<String, Node>,
    /// Change and mtime of directories.
    directories: BTreeMap<String, (u64, NfsTime4)>,
    untold: RefCell<BTreeSet<String>>,
    links: HashMap<u64, (u32, u32)>,
}

impl Observed {
    pub fn of(client: &mut NfsClient) -> Observed {
        let mut seen = Observed::default();
        let root = client.root().unwrap();
        seen.directory(client, &root, "");
        for (id, (told, counted)) in &seen.links {
            assert_eq!(told, counted, "links of file {id}");
        }
        let of_workers = seen.nodes.keys().filter(|path| path.contains('/')).cloned().collect();
        seen.untold = RefCell::new(of_workers);
        seen
    }

    /// All names in it, once each; how many directories.
    fn directory(&mut self, client: &mut NfsClient, dir: &NfsFh4, path: &str) -> u32 {
        let (mut names, mut cookie, mut folders) = (BTreeSet::new(), 0, 0);
        loop {
            let list = [ops::put_fh(dir), ops::read_dir(cookie, PAGE_BYTES, &LISTED)];
            let page = body!(client.call_when_ready(&list).unwrap(), ReadDir).unwrap();
            for entry in &page.entries {
                let name = std::str::from_utf8(entry.name.as_bytes()).unwrap();
                assert!(names.insert(name.to_owned()), "{path}/{name} stands twice");
                let path = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
                let told = FileAttributes::decode(&entry.attrs).unwrap();
                folders += u32::from(told.file_type == Some(NfsFtype4::Dir));
                self.node(client, path, &told);
                cookie = entry.cookie;
            }
            if page.eof {
                return folders;
            }
        }
    }

    fn node(&mut self, client: &mut NfsClient, path: String, told: &FileAttributes) {
        let (handle, id) = (told.filehandle.clone().unwrap(), told.fileid.unwrap());
        let links = self.links.entry(id).or_insert((told.numlinks.unwrap(), 0));
        links.1 += 1;
        let kind = match told.file_type {
            Some(NfsFtype4::Dir) => {
                assert_eq!(links.1, 1, "{path} is in two places");
                let at = (told.change.unwrap(), told.time_modify.unwrap());
                self.directories.insert(path.clone(), at);
                let folders = self.directory(client, &handle, &path);
                self.links.insert(id, (told.numlinks.unwrap(), 2 + folders));
                Kind::Directory
            }
            Some(NfsFtype4::Lnk) => {
                let target = client.call(&[ops::put_fh(&handle), NfsArgop4::ReadLink]).unwrap();
                Kind::Symlink(body!(target, ReadLink).unwrap().link.as_bytes().to_vec())
            }
            _ => Kind::File(Content(content(client, &handle, &path))),
        };
        let node = Node {
            kind,
            id: Some(id),
            handle: Some(handle),
            mode: told.mode,
            uid: told.owner.as_ref().and_then(nfs4::attr::Principal4::as_numeric).unwrap(),
            mtime: told.time_modify.map(|time| time.seconds),
        };
        self.nodes.insert(path, node);
    }

    /// The names of one worker; with that they have been told.
    pub fn of_worker(&self, number: usize) -> BTreeMap<String, Node> {
        let mark = format!("/w{number}n");
        let its = self.nodes.iter().filter(|(path, _)| path.contains(&mark));
        let its: BTreeMap<String, Node> = its.map(|(path, node)| (path.clone(), node.clone())).collect();
        self.untold.borrow_mut().retain(|path| !its.contains_key(path));
        its
    }

    pub fn shared(&self, directory: &str) -> (u64, NfsTime4) {
        self.directories[directory]
    }

    pub fn assert_all_were_told(&self) {
        assert!(self.untold.borrow().is_empty(), "names of nobody: {:?}", self.untold.borrow());
    }
}

fn content(client: &mut NfsClient, file: &NfsFh4, path: &str) -> Vec<u8> {
    let mut content = Vec::new();
    loop {
        let offset = content.len() as u64;
        let read = when_ready(|| client.read(file, StateId4::ANONYMOUS, offset, READ_BYTES));
        let read = read.unwrap_or_else(|error| panic!("{path}: {error}"));
        content.extend_from_slice(&read.data);
        if read.eof {
            return content;
        }
    }
}
