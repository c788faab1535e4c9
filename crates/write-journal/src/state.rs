//! The journal in memory, behind its one lock: decides and encodes, and does no I/O.

use std::sync::Arc;

use types::Random;

use crate::batch::{Answers, Batch, Piece, Waiter};
use crate::chain::{Chain, InUse, Need, Room};
use crate::config::Config;
use crate::error::JournalError;
use crate::ledger::Ledger;
use crate::record::{self, Record, Stamp, Subject, encoded_bytes};
use crate::segment::Header;

pub(crate) struct State {
    pub config: Config,
    pub instance: [u8; 16],
    pub random: Arc<dyn Random>,
    pub chain: Chain,
    pub ledger: Ledger,
    pub batch: Batch,
    pub next_sequence: u64,
    /// The last sequence on disk.
    pub durable: u64,
    /// A thread has the turn, or is about to take it.
    pub is_led: bool,
    /// That thread is at the disk with a batch.
    pub is_writing: bool,
    /// That batch has notes.
    pub is_writing_notes: bool,
    /// All records are being made void; nothing is taken meanwhile.
    pub is_voiding: bool,
    pub failure: Option<JournalError>,
    /// A buffer of an earlier batch, used again.
    pub buffer: Vec<u8>,
}

impl State {
    pub fn append(&mut self, record: &Record<'_>) -> Result<u64, JournalError> {
        self.check_open()?;
        let payload = record.payload();
        if payload.len() > self.config.payload_bytes_max {
            return Err(JournalError::TooLarge);
        }
        let is_busy = self.batch.waiting() >= self.config.waiting_max
            || self.batch.bytes + encoded_bytes(payload.len()) > self.config.batch_bytes_max;
        if is_busy {
            return Err(JournalError::Busy);
        }
        if !self.ledger.has_room(record.file(), self.config.files_max) {
            return Err(JournalError::Full);
        }
        let subject = record.subject();
        let (sequence, segment) = self.put(&subject, payload, Need::Record)?;
        self.ledger.add(subject.file, sequence, segment.first_sequence);
        Ok(sequence)
    }

    pub fn check_open(&self) -> Result<(), JournalError> {
        match &self.failure {
            Some(failure) => Err(failure.clone()),
            None if self.is_voiding => Err(JournalError::Busy),
            None => Ok(()),
        }
    }

    pub fn has_unwritten_notes(&self) -> bool {
        self.ledger.has_notes() || !self.batch.notes.is_empty() || self.is_writing_notes
    }

    /// The next batch, with every note that finds room, and waiters whose notes find none. Without a batch the turn
    /// ends: nothing is to be written and nobody waits.
    pub fn next_batch(&mut self) -> (Option<Batch>, Answers) {
        let mut answers = Answers::default();
        let noted = if self.failure.is_none() { self.put_notes() } else { Ok(()) };
        if noted.is_err() {
            answers.add(std::mem::take(&mut self.batch.barriers), noted);
        }
        if self.batch.is_empty() {
            self.is_led = false;
            return (None, answers);
        }
        let batch = std::mem::take(&mut self.batch);
        (self.is_writing, self.is_writing_notes) = (true, !batch.notes.is_empty());
        (Some(batch), answers)
    }

    fn put_notes(&mut self) -> Result<(), JournalError> {
        for (file, through) in self.ledger.notes() {
            self.put(&Subject::note(file, through), &[], Need::Note)?;
            self.ledger.take_note(file);
            self.batch.notes.push((file, through));
        }
        Ok(())
    }

    /// The batch is on disk, or is not.
    pub fn finish(&mut self, mut batch: Batch, outcome: Result<(), JournalError>) -> Answers {
        (self.is_writing, self.is_writing_notes) = (false, false);
        let mut answers = Answers::default();
        match &outcome {
            Ok(()) => {
                if let Some((sequence, replay_from)) = batch.last {
                    self.durable = sequence;
                    self.chain.free_before(replay_from);
                }
                for (file, through) in &batch.notes {
                    self.ledger.noted(*file, *through);
                }
                self.keep_buffer(&mut batch);
            }
            Err(failure) => answers.add(self.fail(failure.clone()), outcome.clone()),
        }
        answers.add(batch.take_waiters(), outcome);
        answers
    }

    /// Takes nothing from now on. Returns the waiters of the records that were not yet written.
    pub fn fail(&mut self, failure: JournalError) -> Vec<Waiter> {
        tracing::error!(%failure, "write journal failed; files are synced one by one");
        self.failure = Some(failure);
        std::mem::take(&mut self.batch).take_waiters()
    }

    fn keep_buffer(&mut self, batch: &mut Batch) {
        if let Some(piece) =
            batch.pieces.pop().filter(|piece| piece.bytes.len() <= self.config.batch_bytes_max)
        {
            self.buffer = piece.bytes;
            self.buffer.clear();
        }
    }

    fn put(&mut self, subject: &Subject, payload: &[u8], need: Need) -> Result<(u64, InUse), JournalError> {
        let record_bytes = encoded_bytes(payload.len());
        match self.chain.room(record_bytes, need) {
            Room::None => return Err(JournalError::Full),
            Room::Here => {}
            Room::NextSegment(number) => self.begin_segment(number),
        }
        let (segment, offset) = self.chain.place(record_bytes);
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let stamp = Stamp {
            salt: segment.salt,
            sequence,
            durable: self.durable,
            replay_from: self.ledger.tail().unwrap_or(sequence),
        };
        let continues = |piece: &Piece| {
            piece.segment == segment.number && piece.offset + piece.bytes.len() as u64 == offset
        };
        if !self.batch.pieces.last().is_some_and(continues) {
            let bytes = std::mem::take(&mut self.buffer);
            self.batch.pieces.push(Piece { segment: segment.number, offset, bytes });
        }
        let piece = self.batch.pieces.last_mut().expect("a piece was found or made");
        record::encode(&mut piece.bytes, &stamp, subject, payload);
        self.batch.bytes += record_bytes;
        self.batch.last = Some((sequence, stamp.replay_from));
        Ok((sequence, segment))
    }

    fn begin_segment(&mut self, number: u32) {
        let segment = InUse { number, first_sequence: self.next_sequence, salt: self.random.u64() };
        let header = Header {
            instance: self.instance,
            number,
            salt: segment.salt,
            first_sequence: segment.first_sequence,
            durable: self.durable,
            replay_from: self.ledger.tail().unwrap_or(segment.first_sequence),
        };
        self.chain.begin(segment);
        self.batch.pieces.push(Piece { segment: number, offset: 0, bytes: header.encode() });
    }
}
