//! Clients: each does one operation after the other, at the pool by a ticket or through the head, and tries again after errors.
//!
//! A client that had no answer from a pool has the head fence the file before it writes again, as one does that returns its
//! layout with an error.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::{PoolError, Stability, TicketMode};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};
use types::FileId;

use super::head::{HeadProcess, Layout};
use super::model::{Check, Failure};
use super::plan::{Cells, Step, Way};
use super::pool_host::{FaceError, PoolProcess};
use super::{Plant, World};
use crate::dice::draw_of;
use crate::histories::LineSubject;

/// An answer of a pool is waited for so long.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(700);
/// Of requests of clients to pools, which may be on the way for longer than their answers are waited for.
const REQUEST_DELAY_MAX: Duration = Duration::from_secs(8);
const LAYOUTS_MAX: usize = 8;

/// An operation is to be done: a step of the plan.
pub type Steps = mpsc::UnboundedSender<Step>;

pub struct Client {
    world: Arc<World>,
    number: usize,
    layouts: BTreeMap<u64, Layout>,
    /// All that it got of late, void or not.
    kept: Vec<(u64, Layout)>,
}

/// The write did not end well, and why.
enum Mishap {
    /// The pool may have it or get it yet.
    NoAnswer,
    /// It is refused, and not under way.
    Refused,
    /// The disk failed.
    Failed,
}

impl Client {
    pub fn start(world: &Arc<World>, number: usize) -> Steps {
        let (steps, mut waiting) = mpsc::unbounded_channel();
        let mut client =
            Client { world: Arc::clone(world), number, layouts: BTreeMap::new(), kept: Vec::new() };
        tokio::spawn(async move {
            while let Some(step) = waiting.recv().await {
                client.take(step).await;
                client.world.note_done();
            }
        });
        steps
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::Write { cells, way, is_stable, .. } => self.write(cells, way, is_stable).await,
            Step::Read { file, way, .. } => self.read(file, way).await,
            Step::Fence { file, .. } => self.have_fenced(file).await,
            Step::Stray { cells, draw, .. } => self.stray(cells, draw),
            Step::Fault(_) => {}
        }
    }

    fn note(&self, file: u64, what: &str) {
        let number = self.number;
        self.world.note(LineSubject::One(file), (number, file, what), || format!("client {number}: {what}"));
    }

    /// Until it is done or the disk has failed.
    async fn write(&mut self, cells: Cells, mut way: Way, is_stable: bool) {
        let value = self.world.model.lock().begin(cells, self.world.now());
        let Cells { file, first, count } = cells;
        self.note(
            file,
            &format!("writes {value} to file {file}, {count} cells from {first}, at the {way:?}"),
        );
        let stability = if is_stable { Stability::FileSync } else { Stability::Unstable };
        loop {
            let done = match way {
                Way::Pool => self.write_at_pool(value, cells, stability).await,
                Way::Head => self.write_through_head(value, cells, stability).await,
            };
            match done {
                Ok(()) => break,
                Err(Mishap::Failed) => return self.note(file, &format!("gives up {value}, the disk failed")),
                Err(Mishap::NoAnswer) if way == Way::Pool => {
                    self.note(file, &format!("has no answer to {value}"));
                    self.layouts.remove(&file);
                    if self.world.plant != Some(Plant::RepeatedWrite) {
                        self.have_fenced(file).await;
                        // Linux writes again through the head.
                        way = Way::Head;
                    }
                }
                Err(Mishap::Refused | Mishap::NoAnswer) => {
                    self.layouts.remove(&file);
                    sleep(PAUSE).await;
                }
            }
        }
        self.world.acknowledge(value);
        self.note(file, &format!("is told that {value} is done"));
    }

    async fn write_at_pool(&mut self, value: u64, cells: Cells, stability: Stability) -> Result<(), Mishap> {
        let Layout { sealed, epoch, term } = self.layout(cells.file).await;
        self.world.model.lock().send(value, epoch, term);
        let pool = self.world.pool_of(cells.file);
        let request = sealed.clone();
        let write = move |process: Arc<PoolProcess>| process.write(request, (value, cells), stability);
        let (done, verifier) = self.world.ask_pool(pool, self.number, REQUEST_DELAY_MAX, write).await?;
        if done >= Stability::DataSync {
            return Ok(());
        }
        let commit = move |process: Arc<PoolProcess>| process.commit(sealed);
        match self.world.ask_pool(pool, self.number, REQUEST_DELAY_MAX, commit).await {
            Ok(synced) if synced == verifier => Ok(()),
            // The write itself was answered: it is not under way any more.
            Ok(_) | Err(Mishap::NoAnswer | Mishap::Refused) => Err(Mishap::Refused),
            Err(Mishap::Failed) => Err(Mishap::Failed),
        }
    }

    async fn write_through_head(&self, value: u64, cells: Cells, stability: Stability) -> Result<(), Mishap> {
        let write = move |head: Arc<HeadProcess>| head.write(value, cells, stability);
        match self.world.ask_head(self.number, write).await {
            None => Err(Mishap::NoAnswer),
            Some(Ok(())) => Ok(()),
            Some(Err(PoolError::Io { .. })) => Err(Mishap::Failed),
            Some(Err(_)) => Err(Mishap::Refused),
        }
    }

    /// Until the head has answered.
    async fn layout(&mut self, file: u64) -> Layout {
        if let Some(layout) = self.layouts.get(&file) {
            return layout.clone();
        }
        let layout = loop {
            let ask = move |head: Arc<HeadProcess>| head.layout(file, TicketMode::ReadWrite);
            match self.world.ask_head(self.number, ask).await {
                Some(layout) => break layout,
                None => sleep(PAUSE).await,
            }
        };
        self.layouts.insert(file, layout.clone());
        if self.kept.len() == LAYOUTS_MAX {
            self.kept.remove(0);
        }
        self.kept.push((file, layout.clone()));
        layout
    }

    /// Until the head says that it is done.
    async fn have_fenced(&self, file: u64) {
        loop {
            match self.world.ask_head(self.number, move |head| head.fence(file)).await {
                Some(Ok(())) => return,
                None | Some(Err(_)) => sleep(PAUSE).await,
            }
        }
    }

    async fn read(&mut self, file: u64, way: Way) {
        let from = self.world.now();
        let read = match way {
            Way::Head => match self.world.ask_head(self.number, move |head| head.read(file)).await {
                Some(Ok(values)) => values,
                None | Some(Err(_)) => return,
            },
            Way::Pool => {
                let ask = move |head: Arc<HeadProcess>| head.layout(file, TicketMode::Read);
                let Some(layout) = self.world.ask_head(self.number, ask).await else { return };
                let read = move |process: Arc<PoolProcess>| process.read(layout.sealed);
                let pool = self.world.pool_of(file);
                match self.world.ask_pool(pool, self.number, REQUEST_DELAY_MAX, read).await {
                    Ok(values) => values,
                    Err(_) => return,
                }
            }
        };
        self.note(file, &format!("reads {read:?} of file {file}, at the {way:?}"));
        let judged = self.world.model.lock().read(file, &read, from);
        self.world.judge(judged);
    }

    /// By a ticket that may be void. The write is on its way for long, and its sender may be gone.
    fn stray(&self, cells: Cells, draw: u64) {
        let of_file: Vec<_> = self.kept.iter().filter(|(file, _)| *file == cells.file).collect();
        if of_file.is_empty() {
            return;
        }
        let (_, layout) = of_file[(draw % of_file.len() as u64) as usize].clone();
        let value = {
            let mut model = self.world.model.lock();
            let value = model.begin(cells, self.world.now());
            model.send_once(value, layout.epoch, layout.term);
            value
        };
        self.note(
            cells.file,
            &format!(
                "sends {value} to file {}, by epoch {} of term {}",
                cells.file, layout.epoch.0, layout.term.0
            ),
        );
        let (world, number, pool) = (Arc::clone(&self.world), self.number, self.world.pool_of(cells.file));
        let delay = Duration::from_micros(draw_of(draw, 1) % (2 * REQUEST_DELAY_MAX.as_micros() as u64));
        tokio::spawn(async move {
            sleep(delay).await;
            let write = move |process: Arc<PoolProcess>| {
                process.write(layout.sealed, (value, cells), Stability::Unstable)
            };
            drop(world.ask_pool(pool, number, Duration::ZERO, write).await);
        });
    }
}

impl World {
    /// `None`: the head is down, or ended before it answered.
    pub async fn ask_head<T, F>(
        self: &Arc<Self>,
        client: usize,
        ask: impl FnOnce(Arc<HeadProcess>) -> F,
    ) -> Option<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        sleep(self.delay(requests_of(client))).await;
        let process = self.head_process()?;
        let (tell, answer) = oneshot::channel();
        let (tasks, asked) = (process.host.tasks(), ask(process));
        tasks.spawn(async move {
            let _ = tell.send(asked.await);
        });
        let answer = answer.await.ok()?;
        sleep(self.delay(requests_of(client))).await;
        Some(answer)
    }

    async fn ask_pool<T, F>(
        self: &Arc<Self>,
        pool: usize,
        client: usize,
        delay_max: Duration,
        ask: impl FnOnce(Arc<PoolProcess>) -> F + Send + 'static,
    ) -> Result<T, Mishap>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, FaceError>> + Send + 'static,
    {
        let delay_max = if self.is_calm() { delay_max.min(PAUSE) } else { delay_max };
        let delays = [delay_max, PAUSE].map(|max| self.some_time(requests_of(client), max));
        let (tell, answer) = oneshot::channel();
        let world = Arc::clone(self);
        tokio::spawn(async move {
            sleep(delays[0]).await;
            let Some(process) = world.pool_process(pool) else {
                let _ = tell.send(Err(FaceError::Closed));
                return;
            };
            let (tasks, asked) = (process.host.tasks(), ask(process));
            tasks.spawn(async move {
                let answer = asked.await;
                sleep(delays[1]).await;
                let _ = tell.send(answer);
            });
        });
        match timeout(PATIENCE, answer).await {
            Ok(Ok(Ok(done))) => Ok(done),
            Ok(Ok(Err(FaceError::Pool(PoolError::Io { .. })))) => Err(Mishap::Failed),
            Ok(Ok(Err(FaceError::Pool(PoolError::Unknown(_))))) | Ok(Err(_)) | Err(_) => {
                Err(Mishap::NoAnswer)
            }
            Ok(Ok(Err(_))) => Err(Mishap::Refused),
        }
    }

    /// A client writes at the pool, once.
    pub async fn try_face(self: &Arc<Self>, cells: Cells) -> bool {
        let ask = move |head: Arc<HeadProcess>| head.layout(cells.file, TicketMode::ReadWrite);
        let Some(Layout { sealed, epoch, term }) = self.ask_head(0, ask).await else { return false };
        let value = {
            let mut model = self.model.lock();
            let value = model.begin(cells, self.now());
            model.send(value, epoch, term);
            value
        };
        let write =
            move |process: Arc<PoolProcess>| process.write(sealed, (value, cells), Stability::FileSync);
        let is_done = self.ask_pool(self.pool_of(cells.file), 0, PAUSE, write).await.is_ok();
        if is_done {
            self.acknowledge(value);
        }
        is_done
    }

    pub fn acknowledge(&self, value: u64) {
        let cells = self.model.lock().acknowledge(value, self.now());
        let disk = &self.disks[self.pool_of(cells.file)];
        let lost = (cells.first..cells.first + cells.count)
            .find(|cell| !disk.is_on_disk(FileId(cells.file), *cell, value));
        if let Some(cell) = lost {
            let what = format!(
                "write {value} is acknowledged, and cell {cell} of file {} is not on disk",
                cells.file
            );
            self.fail(Failure { check: Check::Durable, about: Some(cells.file), what });
        }
    }
}

fn requests_of(client: usize) -> u64 {
    0x2_0000 + client as u64
}
