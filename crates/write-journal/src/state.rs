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
    pub phase: Phase,
    pub failure: Option<JournalError>,
    /// A buffer of an earlier batch, used again.
    pub buffer: Vec<u8>,
}

/// The activity of the thread with the turn; there is one at most.
pub(crate) enum Phase {
    /// Nobody has the turn.
    Rest,
    /// A thread has the turn, or is about to take it.
    Led,
    /// It is at the disk with the pieces of this batch. The rest stays here, so that a panic loses no waiter.
    Writing(Batch),
    /// It makes all records void; nothing is taken meanwhile.
    Voiding,
}

/// The next step of the thread with the turn.
pub(crate) enum Step {
    Write(Vec<Piece>),
    Tell(Answers),
    /// Nothing is to be written and nobody waits.
    End,
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

    pub fn is_at_rest(&self) -> bool {
        matches!(self.phase, Phase::Rest)
    }

    pub fn check_open(&self) -> Result<(), JournalError> {
        match &self.failure {
            Some(failure) => Err(failure.clone()),
            None if matches!(self.phase, Phase::Voiding) => Err(JournalError::Busy),
            None => Ok(()),
        }
    }

    pub fn has_unwritten_notes(&self) -> bool {
        let is_writing_notes = matches!(&self.phase, Phase::Writing(batch) if !batch.notes.is_empty());
        self.ledger.has_notes() || !self.batch.notes.is_empty() || is_writing_notes
    }

    /// Puts every note that finds room into the batch; the waiters of those that find none are told.
    pub fn next_step(&mut self) -> Step {
        let noted = if self.failure.is_none() { self.put_notes() } else { Ok(()) };
        if noted.is_err() && !self.batch.barriers.is_empty() {
            let mut answers = Answers::default();
            answers.add(std::mem::take(&mut self.batch.barriers), noted);
            return Step::Tell(answers);
        }
        if self.batch.is_empty() {
            self.phase = Phase::Rest;
            return Step::End;
        }
        let mut batch = std::mem::take(&mut self.batch);
        let pieces = std::mem::take(&mut batch.pieces);
        self.phase = Phase::Writing(batch);
        Step::Write(pieces)
    }

    fn put_notes(&mut self) -> Result<(), JournalError> {
        for (file, through) in self.ledger.notes() {
            self.put(&Subject::note(file, through), &[], Need::Note)?;
            self.ledger.take_note(file);
            self.batch.notes.push((file, through));
        }
        Ok(())
    }

    /// The pieces of the batch are on disk, or are not.
    pub fn finish(&mut self, pieces: Vec<Piece>, outcome: Result<(), JournalError>) -> Answers {
        let Phase::Writing(batch) = &self.phase else { panic!("the thread that writes calls this") };
        if outcome.is_ok() {
            if let Some((sequence, replay_from)) = batch.last {
                self.durable = sequence;
                self.chain.free_before(replay_from);
            }
            for (file, through) in &batch.notes {
                self.ledger.noted(*file, *through);
            }
            self.keep_buffer(pieces);
        }
        self.end_batch(outcome, Phase::Led)
    }

    /// The thread with the turn ends without having led it to its end.
    pub fn abandon(&mut self) -> Answers {
        match self.phase {
            Phase::Writing(_) | Phase::Voiding => {
                let error = std::io::Error::other("the writing thread panicked");
                self.end_batch(Err(JournalError::failed("write records", error)), Phase::Rest)
            }
            Phase::Rest | Phase::Led => {
                self.phase = Phase::Rest;
                let mut answers = Answers::default();
                answers.add(self.batch.take_waiters(), Err(JournalError::Abandoned));
                answers
            }
        }
    }

    /// Of the batch that was at the disk, if there is one. An error is told to the waiters behind it as well.
    fn end_batch(&mut self, outcome: Result<(), JournalError>, then: Phase) -> Answers {
        let mut answers = Answers::default();
        if let Err(failure) = &outcome {
            answers.add(self.fail(failure.clone()), outcome.clone());
        }
        if let Phase::Writing(mut batch) = std::mem::replace(&mut self.phase, then) {
            answers.add(batch.take_waiters(), outcome);
        }
        answers
    }

    /// Takes nothing from now on. Returns the waiters of the records that were not yet written.
    pub fn fail(&mut self, failure: JournalError) -> Vec<Waiter> {
        tracing::error!(%failure, "write journal failed; files are synced one by one");
        self.failure = Some(failure);
        std::mem::take(&mut self.batch).take_waiters()
    }

    fn keep_buffer(&mut self, mut pieces: Vec<Piece>) {
        if let Some(piece) = pieces.pop().filter(|piece| piece.bytes.len() <= self.config.batch_bytes_max) {
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
