//! The content of a replica in memory: pieces between holes.

use std::collections::BTreeMap;

use api::RangeKind;
use bytes::{Bytes, BytesMut};

/// A hole reads as zeros and takes no space. Pieces do not overlap, and none is empty or passes `size`.
#[derive(Clone, Default)]
pub(super) struct SparseBytes {
    size: u64,
    pieces: BTreeMap<u64, Piece>,
}

#[derive(Clone)]
enum Piece {
    Data(Bytes),
    /// Reads as zeros and takes the space of so many bytes.
    Reserved(u64),
}

impl SparseBytes {
    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn space_used(&self) -> u64 {
        self.pieces.values().map(Piece::length).sum()
    }

    /// Bytes of `[from, to)` that take no space yet.
    pub fn uncovered(&self, from: u64, to: u64) -> u64 {
        let covered: u64 =
            self.overlapping(from, to).map(|(at, piece)| (at + piece.length()).min(to) - at.max(from)).sum();
        to - from - covered
    }

    pub fn read(&self, offset: u64, length: u64) -> Bytes {
        let end = offset.saturating_add(length).min(self.size);
        if offset >= end {
            return Bytes::new();
        }
        let mut found = self.overlapping(offset, end);
        if let Some((at, Piece::Data(data))) = found.next()
            && at <= offset
            && at + data.len() as u64 >= end
        {
            return data.slice((offset - at) as usize..(end - at) as usize);
        }
        let mut read = BytesMut::zeroed((end - offset) as usize);
        for (at, piece) in self.overlapping(offset, end) {
            if let Piece::Data(data) = piece {
                let (from, to) = (at.max(offset), (at + data.len() as u64).min(end));
                let part = &data[(from - at) as usize..(to - at) as usize];
                read[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
            }
        }
        read.freeze()
    }

    pub fn write(&mut self, offset: u64, data: Bytes) {
        let end = offset + data.len() as u64;
        if data.is_empty() {
            return;
        }
        self.free(offset, end);
        self.pieces.insert(offset, Piece::Data(data));
        self.size = self.size.max(end);
    }

    pub fn reserve(&mut self, from: u64, to: u64) {
        let mut gaps = Vec::new();
        let mut at = from;
        for (start, piece) in self.overlapping(from, to) {
            gaps.push((at, start));
            at = start + piece.length();
        }
        gaps.push((at, to));
        for (start, end) in gaps.into_iter().filter(|(start, end)| start < end) {
            self.pieces.insert(start, Piece::Reserved(end - start));
        }
        self.size = self.size.max(to);
    }

    /// Makes `[from, to)` a hole; the size stays.
    pub fn free(&mut self, from: u64, to: u64) {
        let overlapping: Vec<u64> = self.overlapping(from, to).map(|(at, _)| at).collect();
        for at in overlapping {
            let Some(piece) = self.pieces.remove(&at) else { continue };
            let end = at + piece.length();
            if at < from {
                self.pieces.insert(at, piece.part(0, from - at));
            }
            if end > to {
                self.pieces.insert(to, piece.part(to - at, end - at));
            }
        }
    }

    pub fn set_size(&mut self, size: u64) {
        if size < self.size {
            self.free(size, self.size);
        }
        self.size = size;
    }

    /// Reserved space is a hole, as file systems have it.
    pub fn seek(&self, offset: u64, kind: RangeKind) -> Option<u64> {
        let data = || {
            let pieces = self.overlapping(offset, u64::MAX);
            pieces.filter_map(|(at, piece)| match piece {
                Piece::Data(data) => Some((at, at + data.len() as u64)),
                Piece::Reserved(_) => None,
            })
        };
        match kind {
            RangeKind::Data => data().next().map(|(at, _)| at.max(offset)),
            RangeKind::Hole => {
                let is_in_data = |hole: u64, (at, _): &(u64, u64)| *at <= hole;
                Some(data().fold(offset, |hole, piece| if is_in_data(hole, &piece) { piece.1 } else { hole }))
            }
        }
    }

    fn overlapping(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, &Piece)> {
        let before = self.pieces.range(..from).next_back();
        let before = before.filter(|(at, piece)| **at + piece.length() > from);
        let behind = (from < to).then(|| self.pieces.range(from..to));
        before.into_iter().chain(behind.into_iter().flatten()).map(|(at, piece)| (*at, piece))
    }
}

impl Piece {
    fn length(&self) -> u64 {
        match self {
            Piece::Data(data) => data.len() as u64,
            Piece::Reserved(length) => *length,
        }
    }

    fn part(&self, from: u64, to: u64) -> Piece {
        match self {
            Piece::Data(data) => Piece::Data(data.slice(from as usize..to as usize)),
            Piece::Reserved(_) => Piece::Reserved(to - from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    const SIZE_MAX: u64 = 64;

    /// Each byte: `None` is a hole, 0 reserved.
    #[derive(Default)]
    struct Model(Vec<Option<u8>>);

    impl Model {
        fn fill(&mut self, from: u64, to: u64, fill: impl Fn(Option<u8>) -> Option<u8>) {
            let bytes = self.0.iter_mut().take(to as usize).skip(from as usize);
            bytes.for_each(|byte| *byte = fill(*byte));
        }

        fn grow(&mut self, size: u64) {
            let size = self.0.len().max(size as usize);
            self.0.resize(size, None);
        }

        fn seek(&self, offset: u64, kind: RangeKind) -> Option<u64> {
            let wanted = kind == RangeKind::Data;
            let is_data =
                |at: u64| self.0.get(at as usize).is_some_and(|byte| byte.is_some_and(|byte| byte > 0));
            let found = (offset..SIZE_MAX).find(|at| is_data(*at) == wanted);
            if wanted { found } else { found.or(Some(offset.max(SIZE_MAX))) }
        }
    }

    fn step(bytes: &mut SparseBytes, model: &mut Model, dice: &mut Dice) {
        let from = dice.below(SIZE_MAX);
        let to = from + dice.below(SIZE_MAX - from) + 1;
        match dice.below(4) {
            0 => {
                let byte = 1 + dice.below(255) as u8;
                bytes.write(from, Bytes::from(vec![byte; (to - from) as usize]));
                model.grow(to);
                model.fill(from, to, |_| Some(byte));
            }
            1 => {
                bytes.reserve(from, to);
                model.grow(to);
                model.fill(from, to, |byte| byte.or(Some(0)));
            }
            2 => {
                bytes.free(from, to);
                model.fill(from, to, |_| None);
            }
            _ => {
                bytes.set_size(from);
                model.0.resize(from as usize, None);
            }
        }
    }

    #[test]
    fn content_is_that_of_a_list_of_bytes_after_any_steps() {
        for seed in 1..200 {
            let (mut bytes, mut model) = (SparseBytes::default(), Model::default());
            let mut dice = Dice::seeded(seed);
            for _ in 0..60 {
                step(&mut bytes, &mut model, &mut dice);
                check(&bytes, &model, &mut dice);
            }
        }
    }

    fn check(bytes: &SparseBytes, model: &Model, dice: &mut Dice) {
        assert_eq!(bytes.size(), model.0.len() as u64);
        let plain: Vec<u8> = model.0.iter().map(|byte| byte.unwrap_or(0)).collect();
        let (from, length) = (dice.below(SIZE_MAX), dice.below(SIZE_MAX));
        let end = plain.len().min((from + length) as usize);
        assert_eq!(bytes.read(from, length)[..], plain[end.min(from as usize)..end]);
        assert_eq!(bytes.read(0, u64::MAX)[..], plain[..]);
        assert_eq!(bytes.space_used(), model.0.iter().flatten().count() as u64);
        let covered = model.0.iter().skip(from as usize).flatten().count() as u64;
        assert_eq!(bytes.uncovered(from, SIZE_MAX), SIZE_MAX - from - covered);
        for content in [RangeKind::Data, RangeKind::Hole] {
            assert_eq!(bytes.seek(from, content), model.seek(from, content), "{content:?} from {from}");
        }
    }
}
