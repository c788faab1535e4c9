//! Uploads between requests.

use std::time::Duration;

use api::{Caller, Published, Replace};
use forebay_files::{
    PublishError, Received, Sums, Upload, UploadBounds, UploadError, UploadKey, UploadsAtPools,
    UploadsInParts,
};
use types::{ChecksumKind, FileId, Name};

use crate::scene::{Rules, give_name, name};
use crate::world::World;

const BOUNDS: UploadBounds = UploadBounds { all_max: 2, per_caller_max: 2 };
const HOUR: Duration = Duration::from_secs(3_600);

fn path(text: &str) -> Vec<Name> {
    vec![name("dir"), name(text)]
}

struct InParts {
    scene: World,
    uploads: UploadsInParts,
    key: UploadKey,
}

impl InParts {
    fn of(scene: World) -> InParts {
        let uploads = UploadsInParts::new(BOUNDS, scene.clock.clone());
        let key = UploadKey::new(&scene.caller, path("file"));
        InParts { scene, uploads, key }
    }

    /// In the hand of a request, with its first bytes.
    async fn begin(&self, bytes: &'static str) -> Upload {
        let place = self.uploads.admit(&self.scene.caller).unwrap();
        let upload = self.scene.begin("file", Replace::Any, bytes).await.unwrap();
        self.uploads.begin(&self.key, upload, place)
    }

    fn take_up(&self, total: u64) -> Result<Option<Upload>, UploadError> {
        self.uploads.take_up(&self.key, None, total)
    }
}

pub async fn an_upload_in_parts_is_found_again_with_the_bytes_that_came(scene: World) {
    let parts = InParts::of(scene);
    let upload = parts.begin("123").await;
    assert!(matches!(parts.take_up(3), Err(UploadError::BeingReceived)));
    parts.uploads.put_back(&parts.key, upload).unwrap();
    assert!(parts.take_up(4).unwrap().is_none(), "it is of another length");
    let other = UploadKey::new(&Caller { name: "other".into(), ..parts.scene.caller.clone() }, path("file"));
    assert!(parts.uploads.take_up(&other, None, 3).unwrap().is_none(), "it is another caller's");
    let upload = parts.take_up(3).unwrap().expect("it was put back");
    assert_eq!(upload.arrived(), 3);
    assert_eq!(give_name(upload, &Rules::default()).await.unwrap().attributes.size, 3);
    assert!(parts.take_up(3).unwrap().is_none(), "it is over");
}

pub async fn a_request_that_breaks_off_leaves_its_upload_to_the_next(scene: World) {
    let parts = InParts::of(scene);
    drop(parts.begin("123").await);
    let upload = parts.take_up(3).unwrap().expect("a request that is dropped puts it back");
    let rules = Rules { refuses: true, may_pass: true, ..Rules::default() };
    assert!(upload.finish().await.unwrap().publish(&rules).await.is_err());
    let upload = parts.take_up(3).unwrap().expect("the hindrance may pass");
    assert!(!upload.is_coming() && upload.arrived() == 3);
    let rules = Rules { refuses: true, ..Rules::default() };
    assert!(upload.finish().await.unwrap().publish(&rules).await.is_err());
    assert!(parts.take_up(3).unwrap().is_none(), "the hindrance stays");
    assert_eq!(parts.scene.reap().await.len(), 1);
}

pub async fn an_upload_that_is_begun_anew_takes_the_place_of_the_one_before(scene: World) {
    let parts = InParts::of(scene);
    let before = parts.begin("123").await;
    let id = before.file().file.to_string();
    parts.uploads.supersede(&parts.key, None);
    let after = parts.begin("456").await;
    assert!(matches!(parts.uploads.put_back(&parts.key, before), Err(UploadError::Superseded { .. })));
    parts.uploads.put_back(&parts.key, after).unwrap();
    assert!(matches!(parts.take_up(3), Err(UploadError::Ambiguous)));
    let stale = parts.uploads.take_up(&parts.key, Some(id.as_bytes()), 3);
    assert!(matches!(stale, Err(UploadError::Superseded { .. })));
    assert_eq!(parts.scene.reap().await.len(), 1, "the one before leaves nothing");
}

pub async fn an_upload_that_nobody_goes_on_with_gives_its_place_and_its_bytes_up(scene: World) {
    let parts = InParts::of(scene);
    let held = parts.begin("123").await;
    let full = parts.uploads.admit(&parts.scene.caller).unwrap();
    assert!(parts.uploads.admit(&parts.scene.caller).is_err());
    drop(full);
    parts.scene.clock.pass(HOUR);
    parts.uploads.give_up_idle();
    parts.uploads.put_back(&parts.key, held).expect("a request had it in hand");
    parts.scene.clock.pass(HOUR - Duration::from_secs(1));
    parts.uploads.give_up_idle();
    drop(parts.take_up(3).unwrap().expect("the hour is not over"));
    parts.scene.clock.pass(HOUR);
    parts.uploads.give_up_idle();
    assert!(parts.take_up(3).unwrap().is_none());
    assert_eq!(parts.scene.reap().await.len(), 1);
    let places = [(); 2].map(|()| parts.uploads.admit(&parts.scene.caller));
    assert!(places.iter().all(Result::is_ok));
}

/// An upload that was sent to a pool, with a minute to begin.
async fn sent(scene: &World) -> (UploadsAtPools<&'static str>, FileId) {
    let uploads = UploadsAtPools::new(BOUNDS, scene.clock.clone());
    let place = uploads.admit(&scene.caller).unwrap();
    let upload = scene.begin("file", Replace::Any, "123456789").await.unwrap();
    let file = upload.file().file;
    uploads.keep(upload, place, "of the door", Duration::from_secs(60));
    (uploads, file)
}

fn received() -> Received {
    let mut sums = Sums::new([ChecksumKind::Adler32]);
    sums.update(b"123456789");
    Received { size: 9, checksums: sums.finish() }
}

async fn complete(
    uploads: &UploadsAtPools<&'static str>,
    file: FileId,
    rules: &Rules,
) -> Result<Published, PublishError<bool>> {
    let (complete, of_door) = uploads.complete(file, received()).expect("it is there");
    assert_eq!(of_door, "of the door");
    complete.publish(rules).await
}

pub async fn an_upload_at_a_pool_is_begun_once_unless_it_is_put_off(scene: World) {
    let (uploads, file) = sent(&scene).await;
    assert_eq!(uploads.begin(file, false), Some(vec![ChecksumKind::Adler32]));
    assert_eq!(uploads.begin(file, false), None);
    uploads.put_off(file);
    assert!(uploads.begin(file, true).is_some());
    let rules = Rules { refuses: true, may_pass: true, ..Rules::default() };
    assert!(matches!(complete(&uploads, file, &rules).await, Err(PublishError::Door(true))));
    assert!(uploads.begin(file, true).is_some(), "the hindrance may pass");
    let published = complete(&uploads, file, &Rules::default()).await.unwrap();
    assert_eq!(scene.found("file").await.unwrap(), published.attributes);
    assert!(uploads.complete(file, received()).is_none(), "it is over");
}

/// The second body would mix with what is left of the first.
pub async fn an_upload_at_a_pool_that_has_lost_its_bytes_is_over(scene: World) {
    let (uploads, file) = sent(&scene).await;
    assert!(uploads.begin(file, false).is_some());
    uploads.put_off(file);
    assert_eq!((uploads.begin(file, false), uploads.begin(file, true)), (None, None));
    assert_eq!(scene.reap().await, vec![file]);
}

pub async fn an_upload_at_a_pool_that_is_not_begun_in_time_or_given_up_leaves_nothing(scene: World) {
    let (uploads, file) = sent(&scene).await;
    uploads.begin(file, false).unwrap();
    scene.clock.pass(Duration::from_secs(61));
    uploads.give_up_idle();
    assert!(scene.reap().await.is_empty(), "one that is begun ends with its request");
    uploads.put_off(file);
    uploads.give_up_idle();
    assert_eq!((uploads.begin(file, false), scene.reap().await), (None, vec![file]));
    let (uploads, file) = sent(&scene).await;
    uploads.begin(file, false).unwrap();
    uploads.give_up(file);
    assert_eq!((uploads.begin(file, false), scene.reap().await), (None, vec![file]));
}
