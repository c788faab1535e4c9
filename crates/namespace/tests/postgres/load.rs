//! Tasks that change names until they are told to end, and know what was acknowledged.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use api::{ExpectedEnds, ExpectedFile, Namespace, Replace};
use forebay_namespace::SqlNamespace;
use testkit::namespace_suite::{name, root};
use tokio::task::JoinHandle;

use super::{TOP, create};

const CREATORS: u64 = 6;

pub struct Load {
    is_over: Arc<AtomicBool>,
    made: Arc<AtomicU64>,
    creators: Vec<JoinHandle<BTreeSet<String>>>,
}

impl Load {
    /// Every change has to be acknowledged, however long it takes.
    pub fn begin(namespace: &Arc<SqlNamespace>) -> Load {
        static LOADS: AtomicU64 = AtomicU64::new(0);
        let load = LOADS.fetch_add(1, Ordering::Relaxed);
        let (is_over, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let creator = |creator| {
            let (namespace, is_over, made) = (Arc::clone(namespace), Arc::clone(&is_over), Arc::clone(&made));
            tokio::spawn(async move {
                let mut acknowledged = BTreeSet::new();
                let mut number = 0;
                while !is_over.load(Ordering::Relaxed) {
                    number += 1;
                    let text = format!("{load}-{creator}-{number:06}");
                    change(&namespace, &text, number, &mut acknowledged).await;
                    made.fetch_add(1, Ordering::Relaxed);
                }
                acknowledged
            })
        };
        let creators = (0..CREATORS).map(creator).collect();
        Load { is_over, made, creators }
    }

    /// For so many more changes.
    pub async fn wait_for(&self, more: u64) {
        let wanted = self.made.load(Ordering::Relaxed) + more;
        while self.made.load(Ordering::Relaxed) < wanted {
            assert!(self.creators.iter().all(|creator| !creator.is_finished()), "a change was refused");
            tokio::task::yield_now().await;
        }
    }

    /// The names that are to be there, in order.
    pub async fn end(self) -> Vec<String> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut acknowledged = BTreeSet::new();
        for creator in self.creators {
            acknowledged.extend(creator.await.unwrap());
        }
        acknowledged.into_iter().collect()
    }
}

/// Mostly a new name; sometimes a rename or a removal of it, which a second time would not pass.
async fn change(namespace: &SqlNamespace, text: &str, number: u64, acknowledged: &mut BTreeSet<String>) {
    create(namespace, text).await.unwrap();
    acknowledged.insert(text.to_owned());
    match number % 4 {
        1 => {
            let to = format!("{text}-renamed");
            let (from, to_name) = (name(text), name(&to));
            let moved = namespace
                .rename(&root(), (TOP, &from), (TOP, &to_name), Replace::Never, ExpectedEnds::ANY)
                .await;
            moved.unwrap();
            acknowledged.remove(text);
            acknowledged.insert(to);
        }
        2 => {
            namespace.unlink(&root(), TOP, &name(text), ExpectedFile::Any).await.unwrap();
            acknowledged.remove(text);
        }
        _ => {}
    }
}
