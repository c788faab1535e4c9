//! Steps about places, and a look at everything that may be asked of a file.

use api::{FileLocations, Locality, Locations, Namespace, ReplicaState};
use types::{FileId, Identity, PoolId};

use super::reference::DataPlace;
use super::{Run, refusal};

fn place_of(locality: &Locality) -> DataPlace {
    match locality {
        Locality::Empty => DataPlace::Empty,
        Locality::Replicas(replicas) => {
            assert!(replicas.iter().all(|replica| replica.state == ReplicaState::Good));
            DataPlace::Pools(locality.pools().collect())
        }
        Locality::Lost => DataPlace::Lost,
    }
}

impl Run {
    pub async fn place(&mut self, file: usize, how: u8, pool: PoolId) {
        let file = self.file(file);
        let id = self.ids[file];
        match how {
            0..=1 => {
                let expected = self.model.add_location(file, pool);
                let found = self.namespace.add_location(id, pool).await;
                assert_eq!(found.map_err(|error| refusal(&error)), expected);
            }
            2..=3 => {
                self.model.drop_location(file, pool);
                self.namespace.drop_location(id, pool).await.unwrap();
            }
            _ => {
                let before = self.namespace.attributes(id).await;
                let expected = self.model.raise_epoch(file);
                let found = self.namespace.raise_epoch(id).await;
                if let (Ok(before), Ok(epoch)) = (before, &found) {
                    assert_eq!(*epoch, before.epoch.next());
                }
                assert_eq!(found.map(drop).map_err(|error| refusal(&error)), expected);
            }
        }
        self.look(&Identity::root(), 0).await;
    }

    pub async fn look(&self, who: &Identity, file: usize) {
        let file = self.file(file);
        let id = self.ids[file];
        let found = self.namespace.attributes(id).await;
        if let Ok(found) = &found {
            assert_eq!(u64::from(found.epoch.0), self.model.epoch(file));
        }
        self.compare(found, self.model.attributes(file));
        let found = self.namespace.locality(id).await;
        let found = found.map(|locality| place_of(&locality)).map_err(|error| refusal(&error));
        assert_eq!(found, self.model.place(file));
        let target = self.namespace.read_link(id).await;
        let target = target.map(|target| target.as_bytes().to_vec()).map_err(|error| refusal(&error));
        assert_eq!(target, self.model.target(file));
        if let Some(parent) = self.model.parent_of(file)
            && self.model.attributes(file).is_ok_and(|seen| seen.is_directory)
            && let Ok(found) = self.namespace.parent(who, id).await
        {
            assert_eq!(found.file, self.ids[parent]);
        }
        for only_orphans in [false, true] {
            let found = match only_orphans {
                true => self.namespace.orphans(FileId(0), 1000).await.unwrap(),
                false => self.namespace.files(FileId(0), 1000).await.unwrap(),
            };
            let place = |file: &FileLocations| (file.attributes.file, place_of(&file.locality));
            let found: Vec<_> = found.iter().map(place).collect();
            let mut expected: Vec<_> = self.model.files(only_orphans);
            expected.sort_by_key(|(number, _)| self.ids[*number]);
            let expected: Vec<_> =
                expected.into_iter().map(|(number, place)| (self.ids[number], place)).collect();
            assert_eq!(found, expected);
        }
    }
}
