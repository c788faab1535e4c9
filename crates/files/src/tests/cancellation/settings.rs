//! Changes of attributes.

use api::{Properties, Property, PropertyChange, SetAttributes, SetTime, SetXattr, Xattrs};
use types::{Identity, Timestamp, XattrName};

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    Mode,
    LengthAndOthers,
    /// The namespace is too busy at first to hear of the length.
    LengthWhileBusy,
    Xattr,
    XattrRemoval,
    PropertiesAndMode,
}

const ALL: [Setting; 6] = [
    Setting::Mode,
    Setting::LengthAndOthers,
    Setting::LengthWhileBusy,
    Setting::Xattr,
    Setting::XattrRemoval,
    Setting::PropertiesAndMode,
];

const MODE: u32 = 0o604;
const TIME: Timestamp = Timestamp::from_seconds(77);

/// All that a change of attributes changes.
#[derive(Debug, PartialEq, Eq)]
struct State {
    mode: u32,
    size: u64,
    /// Only where it is given.
    is_dated: bool,
    xattr: Option<Bytes>,
    properties: usize,
}

fn xattr() -> XattrName {
    XattrName::new(b"name").unwrap()
}

/// A change of the attributes of `file`.
struct Change<'a> {
    stage: &'a Stage,
    setting: Setting,
    file: FileId,
}

impl Change<'_> {
    async fn of<'a>(stage: &'a Stage, setting: Setting, case: usize) -> Change<'a> {
        let file = stage.put(&case.to_string()).await;
        if setting == Setting::XattrRemoval {
            let (root, value) = (Identity::root(), Bytes::from_static(b"value"));
            stage.scene.namespace.set_xattr(&root, file, &xattr(), &value, SetXattr::Create).await.unwrap();
        }
        Change { stage, setting, file }
    }

    async fn make(&self) -> Result<(), FilesError> {
        let (files, by, file) = (self.stage.files(), self.stage.by(), self.file);
        let found = files.attributes(file).await?;
        let mode = SetAttributes { mode: Some(MODE), ..SetAttributes::default() };
        let set = async |set| files.set_attributes(by, &found, set).await.map(drop).map_err(|set| set.error);
        match self.setting {
            Setting::Mode => set(mode).await,
            Setting::LengthAndOthers => {
                set(SetAttributes { size: Some(3), mtime: Some(SetTime::To(TIME)), ..mode }).await
            }
            Setting::LengthWhileBusy => {
                self.stage.scene.names.be_busy("set_attributes", 2);
                files.set_length(by, &found, 3, false).await.map(drop)
            }
            Setting::Xattr => {
                let named = (xattr(), Bytes::from_static(b"value"));
                files.set_xattr(by, file, named, SetXattr::Either).await.map(drop)
            }
            Setting::XattrRemoval => files.remove_xattr(by, file, xattr()).await.map(drop),
            Setting::PropertiesAndMode => {
                let property = Property { name: "{DAV:}a".to_owned(), value: Bytes::from_static(b"a") };
                files.set_properties(by, &found, vec![PropertyChange::Set(property)], Some(mode)).await
            }
        }
    }

    async fn state(&self) -> State {
        let namespace = &self.stage.scene.namespace;
        let found = self.stage.files().attributes(self.file).await.unwrap();
        State {
            mode: found.mode,
            size: found.size,
            is_dated: found.mtime == TIME,
            xattr: namespace.xattr(&Identity::root(), self.file, &xattr()).await.ok(),
            properties: namespace.properties(self.file).await.unwrap().len(),
        }
    }

    fn made(&self, before: State) -> State {
        match self.setting {
            Setting::Mode => State { mode: MODE, ..before },
            Setting::LengthAndOthers => State { mode: MODE, size: 3, is_dated: true, ..before },
            Setting::LengthWhileBusy => State { size: 3, ..before },
            Setting::Xattr => State { xattr: Some(Bytes::from_static(b"value")), ..before },
            Setting::XattrRemoval => State { xattr: None, ..before },
            Setting::PropertiesAndMode => State { mode: MODE, properties: 1, ..before },
        }
    }

    /// Drops the caller after so many polls. `true`: it was done before.
    async fn is_made_before(&self, polls: usize, when: When) -> bool {
        let stage = self.stage;
        let context = format!("{:?}, dropped after {polls} polls, {when:?}", self.setting);
        let before = self.state().await;
        let answer = stage.polled(self.make(), polls, when).await;
        let table = || stage.files().table();
        let is_delegated =
            table().delegations().grant(self.file, A, DelegationKind::Read, Duration::ZERO).is_ok();
        let then = self.state().await;
        stage.settle().await;
        let now = self.state().await;
        assert!(!is_delegated || now == then, "{context}: it goes on while its holder caches {then:?}");
        stage.give_all_back();
        recall_time_passes(stage);
        stage.judge(&context).await;
        let replica = stage.scene.pool.pool().writer(self.file);
        let bytes = replica.read_at(0, 100).await.unwrap().data;
        assert_eq!(bytes.len() as u64, now.size, "{context}: the namespace has heard of the length");
        let is_made = now != before;
        let made = self.made(before);
        assert!(!is_made || now == made, "{context}: {now:?}");
        if let Some(answer) = answer {
            assert!(answer.is_ok() && is_made, "{context}: {answer:?}");
            return true;
        }
        self.make().await.unwrap();
        assert_eq!(self.state().await, made, "{context}");
        false
    }
}

/// A SETATTR without a length gave its guard back while the change was on its way to the namespace.
#[tokio::test]
async fn a_dropped_change_of_attributes_keeps_delegations_off_until_it_is_made() {
    for setting in ALL {
        let stage = Stage::set().await;
        let mut cases = 0;
        at_each_poll(async |polls, when| {
            cases += 1;
            Change::of(&stage, setting, cases).await.is_made_before(polls, when).await
        })
        .await;
    }
}
