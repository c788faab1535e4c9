//! Owner names, with a name service that answers, does not know the owner, fails, or never returns.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use testkit::clock::ManualClock;

use super::*;
use crate::asking::PAUSE;

/// `ann` is 1000, the group `staff` 50; the id 7 makes it fail, and 8 wait until the test speaks.
struct System {
    asked: AtomicU64,
    spoken: Mutex<mpsc::Receiver<()>>,
}

impl System {
    fn new() -> (Arc<System>, mpsc::Sender<()>) {
        let (speak, spoken) = mpsc::channel();
        (Arc::new(System { asked: AtomicU64::new(0), spoken: Mutex::new(spoken) }), speak)
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

impl LocalNames for System {
    fn name_of(&self, kind: OwnerKind, id: u32) -> Result<Option<String>, NamesUnavailable> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if (kind, id) == (OwnerKind::User, 8) {
            self.spoken.lock().recv().map_err(|_| NamesUnavailable)?;
        }
        match (kind, id) {
            (OwnerKind::User, 7) => Err(NamesUnavailable),
            (OwnerKind::User, 8) => Ok(Some("slow".to_owned())),
            (OwnerKind::User, 9) => Ok(Some("bob@elsewhere.org".to_owned())),
            (OwnerKind::User, 1000) => Ok(Some("ann".to_owned())),
            (OwnerKind::Group, 50) => Ok(Some("staff".to_owned())),
            _ => Ok(None),
        }
    }

    fn id_of(&self, kind: OwnerKind, name: &str) -> Result<Option<u32>, NamesUnavailable> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match (kind, name) {
            (OwnerKind::User, "ann") => Ok(Some(1000)),
            (OwnerKind::User, "broken") => Err(NamesUnavailable),
            (OwnerKind::Group, "staff") => Ok(Some(50)),
            _ => Ok(None),
        }
    }
}

/// For tests of other modules: names as `System` has them, in the domain `example.org`.
pub(crate) fn names_for_tests() -> Arc<OwnerNames> {
    scene(PATIENCE).names
}

struct Scene {
    names: Arc<OwnerNames>,
    system: Arc<System>,
    clock: Arc<ManualClock>,
    speak: mpsc::Sender<()>,
}

fn scene(patience: Duration) -> Scene {
    let ((system, speak), clock) = (System::new(), Arc::new(ManualClock::new(0)));
    let names = OwnerNames::with_patience("example.org", system.clone(), clock.clone(), patience);
    Scene { names: Arc::new(names), system, clock, speak }
}

impl Scene {
    async fn told(&self, kind: OwnerKind, id: u32) -> String {
        let named = self.names.name(BTreeSet::from([(kind, id)]), self.names.deadline()).await;
        String::from_utf8(named.principal(kind, id).0.to_vec()).unwrap()
    }

    async fn id(&self, kind: OwnerKind, text: &'static str) -> Result<u32, NfsStat4> {
        id_of(Some(&self.names), kind, &Principal4(Opaque::from(text))).await
    }

    fn pass(&self, time: Duration) {
        self.clock.pass(time);
    }
}

#[tokio::test]
async fn an_owner_with_a_name_is_shown_by_name_and_any_other_by_number() {
    let scene = scene(PATIENCE);
    assert_eq!(scene.told(OwnerKind::User, 1000).await, "ann@example.org");
    assert_eq!(scene.told(OwnerKind::Group, 50).await, "staff@example.org");
    assert_eq!(scene.told(OwnerKind::Group, 1000).await, "1000");
    assert_eq!(scene.told(OwnerKind::User, 9).await, "9", "its domain is not ours");
}

#[tokio::test]
async fn an_owner_is_given_by_number_or_by_a_name_of_the_domain() {
    let scene = scene(PATIENCE);
    assert_eq!(scene.id(OwnerKind::User, "ann@example.org").await, Ok(1000));
    assert_eq!(scene.id(OwnerKind::User, "ann@EXAMPLE.ORG").await, Ok(1000));
    assert_eq!(scene.id(OwnerKind::Group, "staff@example.org").await, Ok(50));
    assert_eq!(scene.id(OwnerKind::User, "1000").await, Ok(1000));
    for text in ["ann", "ann@elsewhere.org", "staff@example.org", "@example.org", "01000", "", "ann@"] {
        assert_eq!(scene.id(OwnerKind::User, text).await, Err(NfsStat4::BadOwner), "{text:?}");
    }
    let nobody = Principal4(Opaque::from("ann@example.org"));
    assert_eq!(id_of(None, OwnerKind::User, &nobody).await, Err(NfsStat4::BadOwner), "without a domain");
}

#[tokio::test]
async fn the_name_service_is_asked_once_in_a_while_also_for_unknown_owners() {
    let scene = scene(PATIENCE);
    for _ in 0..5 {
        assert_eq!(scene.told(OwnerKind::User, 1000).await, "ann@example.org");
        assert_eq!(scene.told(OwnerKind::User, 4).await, "4");
        assert_eq!(scene.id(OwnerKind::User, "none@example.org").await, Err(NfsStat4::BadOwner));
    }
    assert_eq!(scene.system.asked(), 3);
    scene.pass(KEEP_ABSENCE);
    scene.told(OwnerKind::User, 1000).await;
    scene.told(OwnerKind::User, 4).await;
    assert_eq!(scene.system.asked(), 4);
    scene.pass(KEEP);
    scene.told(OwnerKind::User, 1000).await;
    assert_eq!(scene.system.asked(), 5);
}

#[tokio::test]
async fn a_name_service_that_fails_is_left_alone_for_a_while() {
    let scene = scene(PATIENCE);
    assert_eq!(scene.told(OwnerKind::User, 7).await, "7");
    assert_eq!(scene.id(OwnerKind::User, "ann@example.org").await, Err(NfsStat4::Delay));
    assert_eq!(scene.told(OwnerKind::User, 1000).await, "1000");
    assert_eq!(scene.system.asked(), 1);
    scene.pass(PAUSE);
    assert_eq!(scene.id(OwnerKind::User, "ann@example.org").await, Ok(1000));
    assert_eq!(scene.id(OwnerKind::User, "broken@example.org").await, Err(NfsStat4::Delay));
}

#[tokio::test]
async fn a_request_does_not_wait_for_a_hung_name_service_and_a_late_answer_is_kept() {
    let scene = scene(Duration::ZERO);
    assert_eq!(scene.told(OwnerKind::User, 8).await, "8");
    scene.speak.send(()).unwrap();
    while scene.names.kept_name((OwnerKind::User, 8)).is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(scene.told(OwnerKind::User, 8).await, "slow@example.org");
}

#[tokio::test]
async fn a_list_of_many_ids_is_asked_for_in_pieces_and_not_beyond_its_time() {
    let scene = scene(PATIENCE);
    let many: BTreeSet<_> = (10_000..10_100).map(|id| (OwnerKind::User, id)).collect();
    scene.names.name(many.clone(), scene.names.deadline()).await;
    assert_eq!(scene.system.asked(), 100);
    scene.names.name(many, scene.names.deadline()).await;
    assert_eq!(scene.system.asked(), 100, "what was found is kept, also that there is nobody");
    let over = scene.names.clock.monotonic();
    let named = scene.names.name(BTreeSet::from([(OwnerKind::User, 1000)]), over).await;
    assert_eq!(named.principal(OwnerKind::User, 1000), Principal4::numeric(1000));
    assert_eq!(scene.system.asked(), 100);
}

#[tokio::test]
async fn names_of_one_request_are_looked_up_once_and_not_beyond_its_time() {
    let scene = scene(PATIENCE);
    let mut ids = GivenIds::new(Some(&scene.names));
    let given = |text: &'static str| Principal4(Opaque::from(text));
    for _ in 0..3 {
        assert_eq!(ids.id_of(OwnerKind::User, given("ann@example.org")).await, Ok(1000));
    }
    assert_eq!(scene.system.asked(), 1);
    scene.pass(PATIENCE);
    assert_eq!(ids.id_of(OwnerKind::User, given("ann@example.org")).await, Ok(1000));
    assert_eq!(ids.id_of(OwnerKind::Group, given("staff@example.org")).await, Err(NfsStat4::Delay));
    assert_eq!(ids.id_of(OwnerKind::Group, given("50")).await, Ok(50));
}
