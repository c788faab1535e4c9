//! Readers beside the steps: they keep the cache learning while changes are published, and see no file go backwards.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::{Cookie, Locations, Namespace, Properties, Xattrs};
use forebay_namespace::SqlNamespace;
use testkit::namespace_suite::name;
use tokio::task::JoinHandle;
use types::{Attributes, FileId, Identity};

use super::NAMES;

pub struct Watch {
    is_over: Arc<AtomicBool>,
    readers: Vec<JoinHandle<()>>,
}

impl Watch {
    pub fn start(namespace: &Arc<SqlNamespace>) -> Watch {
        let is_over = Arc::new(AtomicBool::new(false));
        let readers = (0..2)
            .map(|start| {
                let reader = Reader {
                    namespace: Arc::clone(namespace),
                    seen: HashMap::new(),
                    known: vec![FileId::ROOT],
                };
                let is_over = Arc::clone(&is_over);
                tokio::spawn(reader.run(start, is_over))
            })
            .collect();
        Watch { is_over, readers }
    }

    pub async fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        for reader in self.readers {
            reader.await.unwrap();
        }
    }
}

struct Reader {
    namespace: Arc<SqlNamespace>,
    /// The highest change of each file.
    seen: HashMap<FileId, u64>,
    known: Vec<FileId>,
}

impl Reader {
    async fn run(mut self, start: usize, is_over: Arc<AtomicBool>) {
        let root = Identity::root();
        for step in (start..).step_by(7) {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            let file = self.known[step % self.known.len()];
            let text = name(NAMES[step % NAMES.len()]);
            match step % 5 {
                0 | 1 => {
                    self.see(self.namespace.lookup(&root, file, &text).await.ok().map(|found| found.entry))
                }
                2 => self.see(self.namespace.attributes(file).await.ok()),
                3 => {
                    // Whether it is a regular file or not, the cache is asked.
                    let _ = self.namespace.locality(file).await;
                    let _ = self.namespace.read_link(file).await;
                    let _ = self.namespace.properties(file).await;
                    let _ = self.namespace.xattrs(&root, file, Cookie::START).await;
                }
                _ => {
                    let listed = self.namespace.list(&root, file, Cookie::START, 100).await;
                    for entry in listed.map(|page| page.entries).unwrap_or_default() {
                        self.see(Some(entry.attributes));
                    }
                }
            }
            tokio::task::yield_now().await;
        }
    }

    fn see(&mut self, attributes: Option<Attributes>) {
        let Some(attributes) = attributes else { return };
        let seen = self.seen.entry(attributes.file).or_insert_with(|| {
            self.known.push(attributes.file);
            0
        });
        assert!(
            attributes.change >= *seen,
            "{} went from {seen:#x} to {:#x}",
            attributes.file,
            attributes.change
        );
        *seen = attributes.change;
    }
}
