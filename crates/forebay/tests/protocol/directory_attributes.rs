//! A second client looks at a directory while others change its names: change, mtime and ctime never go backwards,
//! a listing that is kept under a change attribute is the directory's as long as that attribute stands, and a time that
//! was set by hand stays until the next change. In every consistency mode, over a hundred thousand looks in all.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use nfs4::attr::number;
use nfs4::{
    ChangeInfo4, CreateType4, FileAttributes, NfsArgop4, NfsFh4, NfsResop4, NfsTime4,
    OPEN4_SHARE_ACCESS_BOTH, Res, SetTime4, StateId4,
};
use testkit::body;
use testkit::nfs_client::files::{OWNER, handle};
use testkit::nfs_client::{ClientOptions, FORE_CHANNEL, NfsClient, REPLY_TIMEOUT, ops};

use crate::server::{Instance, Server};

/// Looks at a directory of each mode.
const STATS_MIN: usize = 50_000;
const CREATORS: usize = 4;
const OBSERVERS: usize = 2;
/// Looks at each directory in one COMPOUND, one after the other.
const LOOKS: usize = 30;
const LOOKED_AT: [u32; 4] = [number::CHANGE, number::NUMLINKS, number::TIME_METADATA, number::TIME_MODIFY];
/// SEQUENCE, and PUTFH and the looks of two directories.
const OPERATIONS: u32 = 3 + 2 * LOOKS as u32;
/// Changes, each followed by a look with a listing kept from before.
const LISTING_ROUNDS: usize = 60;

/// As `forebay dir set-consistency` names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Strong,
    Weak,
    Soft,
    Auto,
}

impl Mode {
    /// Whether a change of a directory's entries may be seen in its attributes some time later.
    fn is_late(self) -> bool {
        self == Mode::Weak
    }

    fn assert_is_so(self, what: &str, is_so: impl FnMut() -> bool) {
        if self.is_late() {
            return until(what, is_so);
        }
        let mut is_so = is_so;
        assert!(is_so(), "not at once: {what}");
    }
}

#[test]
fn a_second_client_never_sees_a_strong_directory_go_backwards() {
    never_backwards(Mode::Strong);
}

#[test]
fn a_second_client_never_sees_a_weak_directory_go_backwards() {
    never_backwards(Mode::Weak);
}

#[test]
fn a_second_client_never_sees_a_soft_directory_go_backwards() {
    never_backwards(Mode::Soft);
}

#[test]
fn a_second_client_never_sees_an_auto_directory_go_backwards() {
    never_backwards(Mode::Auto);
}

#[test]
fn a_listing_is_good_as_long_as_the_change_attribute_stands() {
    for mode in [Mode::Strong, Mode::Weak, Mode::Soft, Mode::Auto] {
        listings_are_good(mode);
    }
}

#[test]
fn a_time_set_by_hand_stays_until_the_next_change() {
    for mode in [Mode::Strong, Mode::Weak, Mode::Soft, Mode::Auto] {
        given_times_stay(mode);
    }
}

/// A directory of a mode, and the one that it is in.
struct Scene {
    _instance: Instance,
    server: Server,
    parent: NfsFh4,
    dir: NfsFh4,
}

impl Scene {
    fn new(mode: Mode) -> Scene {
        let (instance, server) = Server::start();
        let mut client = server.client("maker");
        let root = client.root().unwrap();
        let parent = client.mkdir(&root, "parent", 0o755).unwrap();
        let dir = client.mkdir(&parent, "dir", 0o755).unwrap();
        for path in ["/parent", "/parent/dir"] {
            let set = instance.run(&["dir", "set-consistency", path, &format!("{mode:?}").to_lowercase()]);
            assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
        }
        Scene { _instance: instance, server, parent, dir }
    }

    /// One that may send many operations at once.
    fn observer(&self, number: usize) -> NfsClient {
        let fore_channel = nfs4::ChannelAttrs4 { maxoperations: OPERATIONS, ..FORE_CHANNEL };
        let options = ClientOptions { fore_channel, ..ClientOptions::named(&format!("observer{number}")) };
        let client = self.server.client_by(options);
        assert!(client.created.fore_chan_attrs.maxoperations >= OPERATIONS, "{:?}", client.created);
        client
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Look {
    change: u64,
    mtime: NfsTime4,
    ctime: NfsTime4,
}

impl Look {
    fn of(result: &NfsResop4) -> Option<(Look, u32)> {
        let NfsResop4::GetAttr(Res::Ok(body)) = result else { return None };
        let told = FileAttributes::decode(&body.obj_attributes).unwrap();
        let look = Look {
            change: told.change.unwrap(),
            mtime: told.time_modify.unwrap(),
            ctime: told.time_metadata.unwrap(),
        };
        Some((look, told.numlinks.unwrap()))
    }

    /// Takes the higher value of each attribute.
    fn raise(&mut self, other: Look) {
        self.change = self.change.max(other.change);
        self.mtime = self.mtime.max(other.mtime);
        self.ctime = self.ctime.max(other.ctime);
    }

    fn assert_not_before(&self, floor: Look, what: &str) {
        let is_so = self.change >= floor.change && self.mtime >= floor.mtime && self.ctime >= floor.ctime;
        assert!(is_so, "{what} went back from {floor:?} to {self:?}");
    }
}

/// A directory, and its highest attributes that any client was told: a later reply must have no lower ones.
struct Watched {
    name: &'static str,
    handle: NfsFh4,
    floor: Mutex<Look>,
}

impl Watched {
    fn new(name: &'static str, handle: &NfsFh4) -> Watched {
        Watched { name, handle: handle.clone(), floor: Mutex::default() }
    }

    fn floor(&self) -> Look {
        *self.floor.lock().unwrap()
    }

    fn was_changed(&self, told: ChangeInfo4) {
        assert!(told.before <= told.after, "{}: {told:?}", self.name);
        self.floor.lock().unwrap().raise(Look { change: told.after, ..Look::default() });
    }
}

fn never_backwards(mode: Mode) {
    let scene = Scene::new(mode);
    let watched = [Watched::new("the directory", &scene.dir), Watched::new("its parent", &scene.parent)];
    let (seen, is_enough) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for number in 0..CREATORS {
            let mut client = scene.server.client(&format!("creator{number}"));
            let (watched, is_enough) = (&watched, &is_enough);
            scope.spawn(move || change_names(&mut client, number, watched, is_enough));
        }
        for number in 0..OBSERVERS {
            let mut client = scene.observer(number);
            let (watched, seen, is_enough) = (&watched, &seen, &is_enough);
            scope.spawn(move || {
                // The creators end also where this fails.
                let _ends = SetOnDrop(is_enough);
                while seen.load(Ordering::Relaxed) < STATS_MIN {
                    seen.fetch_add(look_at(&mut client, watched), Ordering::Relaxed);
                }
            });
        }
    });
    let seen = seen.into_inner();
    println!("{mode:?}: {seen} looks, none of them back");
    assert!(seen >= STATS_MIN);
    // All that was made is gone, and the link counts know it.
    let mut client = scene.observer(0);
    for (watched, links) in watched.iter().zip([2, 3]) {
        mode.assert_is_so("the links that are left", || {
            let told = client.attributes(&watched.handle, &[number::NUMLINKS]).unwrap();
            told.numlinks == Some(links)
        });
    }
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Looks at all that is watched, many times in one COMPOUND; how many.
fn look_at(client: &mut NfsClient, watched: &[Watched]) -> usize {
    let floors: Vec<Look> = watched.iter().map(Watched::floor).collect();
    let looks = |watched: &Watched| {
        let mut ops = vec![ops::put_fh(&watched.handle)];
        ops.resize(1 + LOOKS, ops::get_attr(&LOOKED_AT));
        ops
    };
    let asked: Vec<NfsArgop4> = watched.iter().flat_map(looks).collect();
    let reply = client.call(&asked).unwrap();
    let told: Vec<(Look, u32)> = reply.results.iter().filter_map(Look::of).collect();
    for ((watched, floor), told) in watched.iter().zip(floors).zip(told.chunks(LOOKS)) {
        let mut last = floor;
        for (look, links) in told {
            look.assert_not_before(last, watched.name);
            assert!(*links >= 2, "{}: {links} links", watched.name);
            last = *look;
        }
        watched.floor.lock().unwrap().raise(last);
    }
    told.len()
}

/// Creates, renames and removes until it is enough, and leaves nothing.
fn change_names(client: &mut NfsClient, creator: usize, watched: &[Watched; 2], is_enough: &AtomicBool) {
    let [dir, parent] = watched;
    for turn in 0.. {
        if is_enough.load(Ordering::Relaxed) {
            return;
        }
        let (file, folder, moved) =
            (format!("f{creator}.{turn}"), format!("d{creator}.{turn}"), format!("m{creator}.{turn}"));
        dir.was_changed(create(client, &dir.handle, &file));
        dir.was_changed(make_folder(client, &dir.handle, &folder));
        // Within the directory, and to where it is in itself.
        let renamed = rename(client, (dir, &file), (dir, &moved));
        dir.was_changed(renamed.1);
        for (from, to) in [(dir, parent), (parent, dir)] {
            let (source, target) = rename(client, (from, &folder), (to, &folder));
            from.was_changed(source);
            to.was_changed(target);
        }
        for name in [&moved, &folder] {
            let reply = client.call(&[ops::put_fh(&dir.handle), ops::remove(name)]).unwrap();
            dir.was_changed(body!(reply, Remove).unwrap().cinfo);
        }
    }
}

fn create(client: &mut NfsClient, dir: &NfsFh4, name: &str) -> ChangeInfo4 {
    let open = ops::open(OWNER, OPEN4_SHARE_ACCESS_BOTH, ops::guarded(0o644), name);
    let reply = client.call(&[ops::put_fh(dir), open, NfsArgop4::GetFh]).unwrap();
    let opened = body!(reply, Open).unwrap();
    client.call(&[ops::put_fh(&handle(&reply).unwrap()), ops::close(opened.stateid)]).unwrap();
    opened.cinfo
}

fn make_folder(client: &mut NfsClient, dir: &NfsFh4, name: &str) -> ChangeInfo4 {
    let reply = client.call(&[ops::put_fh(dir), ops::create(CreateType4::Dir, name, 0o755)]).unwrap();
    body!(reply, Create).unwrap().cinfo
}

fn rename(
    client: &mut NfsClient,
    from: (&Watched, &str),
    to: (&Watched, &str),
) -> (ChangeInfo4, ChangeInfo4) {
    let put = |watched: &Watched| ops::put_fh(&watched.handle);
    let asked = [put(from.0), NfsArgop4::SaveFh, put(to.0), ops::rename(from.1, to.1)];
    let told = body!(client.call(&asked).unwrap(), Rename).unwrap();
    (told.source_cinfo, told.target_cinfo)
}

/// Clients keep a listing under the change attribute that they read before it. If a client finds that attribute again,
/// it may use the listing: it must be the directory's.
fn listings_are_good(mode: Mode) {
    let scene = Scene::new(mode);
    let (round, at_work) = (Barrier::new(CREATORS + 1), AtomicUsize::new(CREATORS));
    std::thread::scope(|scope| {
        for creator in 0..CREATORS {
            let mut client = scene.server.client(&format!("creator{creator}"));
            let (round, at_work, dir) = (&round, &at_work, &scene.dir);
            scope.spawn(move || {
                for turn in 0..LISTING_ROUNDS {
                    // A different number of changes each, so that they end at different times.
                    for change in 0..=(creator + turn) % 4 {
                        make_or_remove(&mut client, dir, &format!("{creator}.{change}"));
                    }
                    at_work.fetch_sub(1, Ordering::SeqCst);
                    round.wait();
                }
            });
        }
        keep_a_listing(mode, &mut scene.observer(0), &scene.dir, &round, &at_work);
    });
}

fn make_or_remove(client: &mut NfsClient, dir: &NfsFh4, name: &str) {
    match client.lookup(dir, name) {
        Ok(_) => client.remove(dir, name).unwrap(),
        Err(_) => drop(create(client, dir, name)),
    }
}

fn keep_a_listing(mode: Mode, client: &mut NfsClient, dir: &NfsFh4, round: &Barrier, at_work: &AtomicUsize) {
    let mut used = 0;
    for turn in 0..LISTING_ROUNDS {
        let mut kept = list(client, dir);
        while at_work.load(Ordering::SeqCst) > 0 {
            let again = list(client, dir);
            // One that is newer than its change attribute may be seen while that is on its way; a client keeps the first.
            if again.0 != kept.0 {
                kept = again;
            }
        }
        let (change, now) = list(client, dir);
        if change == kept.0 {
            used += 1;
            let is_good = kept.1 == now || mode.is_late() && moves_on(client, dir, change);
            assert!(is_good, "round {turn}: from {:?} to {now:?} and its change attribute stood", kept.1);
        }
        for name in now.iter().take(3) {
            assert!(client.lookup(dir, name).is_ok(), "round {turn}: {name} is listed and not found");
        }
        at_work.store(CREATORS, Ordering::SeqCst);
        round.wait();
    }
    println!("{LISTING_ROUNDS} rounds, a listing kept to the end of {used}");
    assert!(used > 0);
}

/// The change attribute as it was before, and all names.
fn list(client: &mut NfsClient, dir: &NfsFh4) -> (u64, BTreeSet<String>) {
    let change = client.change(dir).unwrap();
    let entries = client.list(dir, 1 << 16).unwrap();
    let names = entries.iter().map(|entry| String::from_utf8_lossy(entry.name.as_bytes()).into_owned());
    (change, names.collect())
}

/// A time in the past is not overwritten by what happened before it was set, however late that is written; the next
/// change sets the present.
fn given_times_stay(mode: Mode) {
    let scene = Scene::new(mode);
    let (mut client, mut observer) = (scene.server.client("creator"), scene.observer(0));
    let mut last = Look::default();
    for turn in 0..20 {
        create(&mut client, &scene.dir, &format!("before{turn}"));
        let given = NfsTime4 { seconds: 1_000_000 + i64::from(turn), nseconds: 7 };
        let wanted = FileAttributes {
            time_modify_set: Some(SetTime4::ClientTime(given)),
            ..FileAttributes::default()
        };
        client.set_attributes(&scene.dir, StateId4::ANONYMOUS, &wanted).unwrap();
        // Elsewhere things go on, and whatever is pending may be written meanwhile.
        for other in 0..10 {
            make_folder(&mut client, &scene.parent, &format!("other{turn}.{other}"));
            let look = look_once(&mut observer, &scene.dir);
            assert_eq!(look.mtime, given, "turn {turn}");
            assert!(look.change > last.change && look.ctime >= last.ctime, "{last:?}, then {look:?}");
        }
        last = look_once(&mut observer, &scene.dir);
        let made = create(&mut client, &scene.dir, &format!("after{turn}"));
        mode.assert_is_so("the next change sets the present", || {
            let look = look_once(&mut observer, &scene.dir);
            assert!(look.mtime >= given && look.change >= made.after, "{given:?}, {made:?}, then {look:?}");
            let is_seen = look.mtime > given && look.change > last.change;
            last = look;
            is_seen
        });
    }
}

/// Whether the change attribute leaves this value, as it must when it is late.
fn moves_on(client: &mut NfsClient, dir: &NfsFh4, change: u64) -> bool {
    until("the change attribute follows", || client.change(dir).unwrap() != change);
    true
}

/// Asks again until it is so; how often is nobody's business, but not for ever.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + REPLY_TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn look_once(client: &mut NfsClient, dir: &NfsFh4) -> Look {
    let reply = client.call(&[ops::put_fh(dir), ops::get_attr(&LOOKED_AT)]).unwrap();
    reply.results.iter().find_map(Look::of).unwrap().0
}
