//! One client with names of its own: chooses changes, asks for them by NFS and HTTP, and remembers what was answered.

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;

use nfs4::attr::{Principal4, number};
use nfs4::{
    CreateType4, FileAttributes, NfsArgop4, NfsFh4, NfsTime4, OPEN4_SHARE_ACCESS_BOTH, OpenFlag4, SetTime4,
    StableHow4, StateId4,
};
use testkit::body;
use testkit::nfs_client::files::{OWNER, attributes, handle};
use testkit::nfs_client::{ClientError, NfsClient, Reply, ops, when_ready};

use crate::model::{Change, Content, Kind, Random, Tree};
use crate::observe::Observed;
use crate::server::Server;
use crate::wire::Connection;

/// Directories in the root that everybody works in.
pub const SHARED: [&str; 3] = ["hot", "warm", "cold"];
const NAMES_MAX: usize = 40;
const BYTES_MAX: u64 = 20_000;
/// Attributes of a directory in a reply: neither may be less in a later reply.
const FLOOR: [u32; 2] = [number::CHANGE, number::TIME_MODIFY];

/// How a worker reaches the server of one round.
pub struct Client {
    nfs: NfsClient,
    http: Connection,
    credential: String,
}

impl Client {
    pub fn of(server: &Server, number: usize) -> Client {
        let nfs = server.nfs(&format!("worker{number}"));
        Client { nfs, http: server.connect(), credential: server.credential.clone() }
    }
}

/// The server is gone, and whether it did the last change is not known.
struct Gone;

pub struct Worker {
    pub number: usize,
    shared: BTreeMap<String, NfsFh4>,
    /// The names after all answered changes.
    tree: Tree,
    /// The change that was requested and not answered.
    pending: Option<Change>,
    /// The highest change and mtime that were told of the shared directories.
    floors: BTreeMap<String, (u64, NfsTime4)>,
    next_name: u64,
}

impl Worker {
    pub fn new(number: usize, shared: &[NfsFh4]) -> Worker {
        let shared = SHARED.iter().map(|name| (*name).to_owned()).zip(shared.iter().cloned()).collect();
        let (tree, floors) = (Tree::default(), BTreeMap::new());
        Worker { number, shared, tree, pending: None, floors, next_name: 0 }
    }

    /// Until the server is gone.
    pub fn work(&mut self, client: &mut Client, random: &mut Random, answered: &Sender<()>) {
        loop {
            let change = self.choose(random);
            let done = self.ask(client, &change);
            self.pending = Some(change);
            let Ok(made) = done else { return };
            self.acknowledge(made);
            // Nobody counts any more once the server is to be killed.
            let _ = answered.send(());
        }
    }

    fn acknowledge(&mut self, made: Option<(String, u64, NfsFh4)>) {
        self.tree.apply(&self.pending.take().expect("a change is under way"));
        if let Some((path, id, handle)) = made {
            self.tree.learn(&path, id, handle);
        }
    }

    /// After a restart: the tree is as answered, or that and the whole of what was under way.
    ///
    /// Of data one thing is left of a request that was not done: bytes behind the file's end, where a write was under way. The
    /// client asks again, as one does whose request was not answered. A cut that had begun is finished by the start.
    pub fn settle(&mut self, seen: &Observed, client: &mut Client) {
        let there = seen.of_worker(self.number);
        let Some(change) = self.pending.take() else { panic!("worker {} was not interrupted", self.number) };
        let mut after = self.tree.clone();
        after.apply(&change);
        match (self.tree.settle(&there), after.settle(&there)) {
            (_, Ok(())) => self.tree = after,
            (Ok(()), _) if !matches!(change, Change::Append { .. }) => {}
            (Ok(()), _) => self.ask_again(client, change),
            (Err(without), Err(with)) => {
                panic!("worker {}: {change:?} is neither undone ({without}) nor done ({with})", self.number)
            }
        }
        for (directory, floor) in &self.floors {
            let now = seen.shared(directory);
            assert!(now >= *floor, "{directory} went back from {floor:?} to {now:?}");
        }
    }

    /// As a client does whose request was not answered.
    fn ask_again(&mut self, client: &mut Client, change: Change) {
        let made = self.ask(client, &change).unwrap_or_else(|Gone| panic!("the server ends in {change:?}"));
        self.pending = Some(change);
        self.acknowledge(made);
    }

    fn new_path(&mut self, random: &mut Random) -> String {
        self.next_name += 1;
        let mut directories: Vec<String> = self.shared.keys().cloned().collect();
        // One level of own directories is enough to move something with what is in it.
        let own = self.tree.paths(|kind| *kind == Kind::Directory);
        directories.extend(own.into_iter().filter(|path| path.matches('/').count() == 1));
        format!("{}/w{}n{}", random.one_of(&directories), self.number, self.next_name)
    }

    fn choose(&mut self, random: &mut Random) -> Change {
        let any = self.tree.paths(|_| true);
        let files = self.tree.paths(|kind| matches!(kind, Kind::File(_)));
        let dice = random.below(100);
        if files.len() < 4 || (dice < 25 && any.len() < NAMES_MAX) {
            return Change::Create { path: self.new_path(random), mode: 0o600 + random.below(64) as u32 };
        }
        let file = random.one_of(&files).clone();
        match dice {
            25..40 => Change::Append { path: file, bytes: self.bytes(random) },
            40..48 => Change::Put { path: self.file_or_new(random, &files), bytes: self.bytes(random) },
            48..54 if any.len() < NAMES_MAX => {
                Change::MakeDirectory { path: self.new_path(random), mode: 0o755 }
            }
            54..58 if any.len() < NAMES_MAX => {
                let path = self.new_path(random);
                Change::Symlink { target: format!("to {path}"), path }
            }
            58..62 if any.len() < NAMES_MAX => Change::Link { from: file, to: self.new_path(random) },
            62..75 => self.choose_rename(random, &any, &files),
            75..82 => Change::Attributes {
                path: file,
                mode: 0o600 + random.below(64) as u32,
                uid: random.below(5) as u32,
                mtime: random.below(1 << 30) as i64,
            },
            82..92 => Change::Resize { path: file, size: self.new_size(random) },
            _ => Change::Remove { path: self.removable(random, &any) },
        }
    }

    fn bytes(&self, random: &mut Random) -> Content {
        Content((0..1 + random.below(BYTES_MAX)).map(|_| random.next() as u8).collect())
    }

    /// Of a cut to nothing, as `O_TRUNC` asks for it, or to any other size.
    fn new_size(&self, random: &mut Random) -> usize {
        if random.below(3) == 0 { 0 } else { random.below(BYTES_MAX) as usize }
    }

    fn file_or_new(&mut self, random: &mut Random, files: &[String]) -> String {
        if random.below(2) == 0 { self.new_path(random) } else { random.one_of(files).clone() }
    }

    fn choose_rename(&mut self, random: &mut Random, any: &[String], files: &[String]) -> Change {
        let from = random.one_of(any).clone();
        let is_directory = self.tree.node(&from).is_some_and(|node| node.kind == Kind::Directory);
        let to = match (is_directory, random.below(2)) {
            // To the top, where it cannot come below itself.
            (true, _) => {
                self.next_name += 1;
                format!("{}/w{}n{}", random.one_of(&SHARED), self.number, self.next_name)
            }
            (false, 0) => self.new_path(random),
            (false, _) => random.one_of(files).clone(),
        };
        Change::Rename { from, to }
    }

    fn removable(&self, random: &mut Random, any: &[String]) -> String {
        let can_go: Vec<&String> = any.iter().filter(|path| self.tree.is_empty_directory(path)).collect();
        (*random.one_of(&can_go)).clone()
    }

    fn directory<'a>(&self, path: &'a str) -> (NfsFh4, &'a str) {
        let (parent, name) = path.rsplit_once('/').expect("a path has a directory");
        let own = || self.tree.node(parent).and_then(|node| node.handle.clone());
        (self.shared.get(parent).cloned().or_else(own).expect("a directory's handle is known"), name)
    }

    /// One request that changes something and what belongs to it; of something new: path, number, handle.
    fn ask(&mut self, client: &mut Client, change: &Change) -> Result<Option<(String, u64, NfsFh4)>, Gone> {
        match change {
            Change::Create { path, mode } => {
                let (dir, name) = self.directory(path);
                let open = ops::open(OWNER, OPEN4_SHARE_ACCESS_BOTH, ops::guarded(*mode), name);
                let reply = self.call(client, path, &[ops::put_fh(&dir), open])?;
                let opened = body!(reply, Open).expect("OPEN was answered");
                let (id, made) = made(&reply);
                close(client, &made, opened.stateid);
                Ok(Some((path.clone(), id, made)))
            }
            Change::MakeDirectory { path, mode } => self.make(client, path, CreateType4::Dir, *mode),
            Change::Symlink { path, target } => {
                let target = bytes::Bytes::from(target.clone().into_bytes());
                self.make(client, path, CreateType4::Lnk(target.into()), 0o777)
            }
            Change::Append { path, bytes } => self.append(client, path, &bytes.0),
            Change::Rename { from, to } => {
                let ((old_dir, old), (new_dir, new)) = (self.directory(from), self.directory(to));
                let first = [ops::put_fh(&old_dir), NfsArgop4::SaveFh];
                let [put, rename] = [ops::put_fh(&new_dir), ops::rename(old, new)];
                self.call(client, to, &[&first[..], &[put, rename]].concat()).map(|_| None)
            }
            Change::Link { from, to } => {
                let ((old_dir, old), (new_dir, new)) = (self.directory(from), self.directory(to));
                let first = [ops::put_fh(&old_dir), ops::lookup(old), NfsArgop4::SaveFh];
                let [put, link] = [ops::put_fh(&new_dir), ops::link(new)];
                self.call(client, to, &[&first[..], &[put, link]].concat()).map(|_| None)
            }
            Change::Remove { path } => {
                let (dir, name) = self.directory(path);
                self.call(client, path, &[ops::put_fh(&dir), ops::remove(name)]).map(|_| None)
            }
            Change::Attributes { path, mode, uid, mtime } => {
                let given = NfsTime4 { seconds: *mtime, nseconds: 0 };
                let wanted = FileAttributes {
                    mode: Some(*mode),
                    owner: Some(Principal4::numeric(*uid)),
                    time_modify_set: Some(SetTime4::ClientTime(given)),
                    ..FileAttributes::default()
                };
                self.set_attributes(client, path, &wanted)
            }
            Change::Resize { path, size } => {
                let wanted = FileAttributes { size: Some(*size as u64), ..FileAttributes::default() };
                self.set_attributes(client, path, &wanted)
            }
            Change::Put { path, bytes } => put(client, path, &bytes.0).map(|()| None),
        }
    }

    fn make(
        &mut self,
        client: &mut Client,
        path: &str,
        objtype: CreateType4,
        mode: u32,
    ) -> Result<Option<(String, u64, NfsFh4)>, Gone> {
        let (dir, name) = self.directory(path);
        let reply = self.call(client, path, &[ops::put_fh(&dir), ops::create(objtype, name, mode)])?;
        let (id, made) = made(&reply);
        Ok(Some((path.to_owned(), id, made)))
    }

    fn set_attributes(
        &mut self,
        client: &mut Client,
        path: &str,
        wanted: &FileAttributes,
    ) -> Result<Option<(String, u64, NfsFh4)>, Gone> {
        let (dir, name) = self.directory(path);
        let change = [ops::put_fh(&dir), ops::lookup(name), ops::set_attr(StateId4::ANONYMOUS, wanted)];
        self.call(client, path, &change).map(|_| None)
    }

    fn append(
        &mut self,
        client: &mut Client,
        path: &str,
        bytes: &[u8],
    ) -> Result<Option<(String, u64, NfsFh4)>, Gone> {
        let (dir, name) = self.directory(path);
        let open = ops::open(OWNER, OPEN4_SHARE_ACCESS_BOTH, OpenFlag4::NoCreate, name);
        let file = answer(when_ready(|| client.nfs.open_by(&dir, open.clone())))?;
        let end = self.tree.content(path).len() as u64;
        let write = || client.nfs.write(&file.handle, file.stateid, end, StableHow4::FileSync, bytes);
        let written = answer(when_ready(write))?;
        assert_eq!((written.count as usize, written.committed), (bytes.len(), StableHow4::FileSync));
        close(client, &file.handle, file.stateid);
        Ok(None)
    }

    /// `change`, and what it made of the directory in which `path` is.
    fn call(&mut self, client: &mut Client, path: &str, change: &[NfsArgop4]) -> Result<Reply, Gone> {
        let (dir, _) = self.directory(path);
        let made = [NfsArgop4::GetFh, ops::get_attr(&[number::FILEID])];
        let is_new = matches!(change.last(), Some(NfsArgop4::Open(_) | NfsArgop4::Create(_)));
        let parent = [ops::put_fh(&dir), ops::get_attr(&FLOOR)];
        let ops = [change, if is_new { &made } else { &[] }, &parent].concat();
        let reply = answer(client.nfs.call_when_ready(&ops))?;
        let told = attributes(&reply).expect("GETATTR is answered");
        let now = (told.change.unwrap(), told.time_modify.unwrap());
        if let Some(shared) = path.split_once('/').filter(|(_, rest)| !rest.contains('/')) {
            let floor = self.floors.entry(shared.0.to_owned()).or_insert(now);
            assert!(now >= *floor, "{} went back from {floor:?} to {now:?}", shared.0);
            *floor = now;
        }
        Ok(reply)
    }
}

/// If the connection ends, the server is gone. A refusal is a failed test, since no other worker has these names.
fn answer<T>(outcome: Result<T, ClientError>) -> Result<T, Gone> {
    match outcome {
        Ok(told) => Ok(told),
        Err(ClientError::Closed(_) | ClientError::Io(_)) => Err(Gone),
        Err(error) => panic!("a change is refused: {error}"),
    }
}

/// Number and handle of what OPEN or CREATE has made: the first GETATTR is of that, the last of its directory.
fn made(reply: &Reply) -> (u64, NfsFh4) {
    let first = reply.results.iter().position(|result| matches!(result, nfs4::NfsResop4::GetAttr(_)));
    let until = first.expect("GETATTR is answered") + 1;
    let head = Reply { results: reply.results[..until].to_vec(), ..reply.clone() };
    (attributes(&head).unwrap().fileid.unwrap(), handle(reply).unwrap())
}

/// Ignores the outcome: all earlier changes are answered, and a CLOSE changes no name.
fn close(client: &mut Client, file: &NfsFh4, stateid: StateId4) {
    let _ = client.nfs.call(&[ops::put_fh(file), ops::close(stateid)]);
}

fn put(client: &mut Client, path: &str, bytes: &[u8]) -> Result<(), Gone> {
    let ask = crate::wire::Ask::new("PUT", &format!("/{path}"));
    let ask = ask.with("Authorization", &client.credential).body(bytes);
    let told = client.http.ask_or_end(&ask).ok_or(Gone)?;
    assert!(matches!(told.status, 201 | 204), "{told:?}");
    Ok(())
}
