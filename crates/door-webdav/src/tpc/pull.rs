//! Fetching: by one GET that goes on where it broke, or by several ranged ones at a time; then the comparison.
//!
//! With one stream every checksum is computed while the bytes pass, in order. With several, each computes adler32 and
//! crc32c of its own part and these are combined; what cannot be combined (md5, sha-256) is computed from what was
//! written, and only if the other side knows no other.

use bytes::{Bytes, BytesMut};
use futures_util::future::try_join_all;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use http_client::Incoming;
use http_wire::digest::WANT_DIGEST;
use http_wire::range::ContentRange;
use types::{ByteRange, Checksum, ChecksumKind};

use super::CopyTarget;
use super::checksum::{Verdict, combine, is_combinable, verdict, want_digest};
use super::failure::Failure;
use super::remote::{Remote, Retries, Version, announced, rejected};
use files::Sums;

/// A file that is all there and agrees with the other side.
#[derive(Debug)]
pub(super) struct Fetched {
    pub size: u64,
    pub checksums: Vec<Checksum>,
}

/// All bytes are there; nothing is compared yet.
struct Gathered {
    size: u64,
    version: Version,
    checksums: Vec<Checksum>,
    /// The checksums that the other side sent along with the bytes.
    announced: Vec<Checksum>,
    /// The end of the body was told from a broken connection.
    is_delimited: bool,
}

/// Small pieces are gathered to this before they are written.
const WRITE_BYTES: usize = 1 << 20;
/// A piece of this size is written as it is.
const PIECE_BYTES_MIN: usize = 128 << 10;
const READ_BACK_BYTES: u32 = 4 << 20;

pub(super) async fn fetch(remote: &Remote, target: &dyn CopyTarget) -> Result<Fetched, Failure> {
    let gathered = match plan(remote).await? {
        Some((version, parts)) => match fetch_parts(remote, target, &version, &parts).await? {
            Some(gathered) => gathered,
            // It promised ranges and gave the whole file.
            None => fetch_whole(remote, target).await?,
        },
        None => fetch_whole(remote, target).await?,
    };
    remote.progress.verify();
    compare(remote, target, gathered).await
}

/// How to cut the file, if several streams are wanted and the other side can do it.
async fn plan(remote: &Remote) -> Result<Option<(Version, Vec<ByteRange>)>, Failure> {
    let streams = remote.request.streams.min(remote.config.streams_max);
    if streams < 2 || !remote.request.may_ask_before {
        return Ok(None);
    }
    // An error comes with the GET as well, which reports it better and is tried again.
    let Ok(answer) = remote.head(&[]).await else { return Ok(None) };
    let has_ranges = answer.headers.get(header::ACCEPT_RANGES).is_some_and(|units| {
        units
            .to_str()
            .is_ok_and(|units| units.split(',').any(|unit| unit.trim().eq_ignore_ascii_case("bytes")))
    });
    let version = Version::of(&answer);
    if answer.status != StatusCode::OK || !has_ranges || version.validator().is_none() {
        return Ok(None);
    }
    let parts = cut(version.size.unwrap_or(0), streams, remote.config.part_bytes_min);
    Ok((parts.len() > 1).then_some((version, parts)))
}

/// Equal parts, none smaller than the minimum; the last takes the rest.
fn cut(size: u64, streams: usize, part_bytes_min: u64) -> Vec<ByteRange> {
    let parts = (size / part_bytes_min.max(1)).clamp(1, streams as u64);
    let bytes = size / parts;
    (0..parts)
        .filter_map(|part| {
            let end = if part + 1 == parts { size } else { (part + 1) * bytes };
            ByteRange::from_bounds(part * bytes, end)
        })
        .collect()
}

async fn fetch_whole(remote: &Remote, target: &dyn CopyTarget) -> Result<Gathered, Failure> {
    remote.progress.use_stripes(1);
    let mut whole = Whole {
        sink: Sink::new(remote, target, 0, 0, None, &[]),
        version: Version::default(),
        announced: Vec::new(),
        is_delimited: true,
    };
    let mut retries = Retries::new(&remote.config);
    loop {
        let before = whole.sink.position;
        match whole.attempt().await {
            Ok(()) => break,
            Err(failure) => retries.again(failure, whole.sink.position.saturating_sub(before)).await?,
        }
    }
    Ok(Gathered {
        size: whole.sink.position,
        version: whole.version,
        checksums: whole.sink.sums.finish(),
        announced: whole.announced,
        is_delimited: whole.is_delimited,
    })
}

/// One stream, from the beginning or from where it broke.
struct Whole<'a> {
    sink: Sink<'a>,
    version: Version,
    announced: Vec<Checksum>,
    is_delimited: bool,
}

impl Whole<'_> {
    async fn attempt(&mut self) -> Result<(), Failure> {
        let remote = self.sink.remote;
        let mut own = HeaderMap::new();
        if remote.request.require_checksum != Some(false)
            && let Some(wanted) = want_digest(&ChecksumKind::ALL)
        {
            own.insert(WANT_DIGEST, wanted);
        }
        let position = self.sink.position;
        let is_resuming = match self.version.validator() {
            Some(validator) if position > 0 => {
                own.insert(header::RANGE, range_from(position, None));
                own.insert(header::IF_RANGE, validator.clone());
                true
            }
            _ => false,
        };
        let mut answer = remote.get(own, 0).await?;
        match answer.status {
            StatusCode::OK => self.restart(&answer)?,
            StatusCode::PARTIAL_CONTENT if is_resuming => {
                let rest = self.version.size.and_then(|size| ByteRange::from_bounds(position, size));
                check_part(&answer, &self.version, position, rest)?;
            }
            _ => return Err(rejected(Method::GET, answer).await),
        }
        self.sink.pour(&mut answer).await?;
        match self.version.size {
            Some(expected) if expected != self.sink.position => {
                Err(Failure::Size { expected, got: self.sink.position })
            }
            _ => Ok(()),
        }
    }

    /// Bytes received before, if any, are of a connection that broke, and cannot be used.
    fn restart(&mut self, answer: &Incoming) -> Result<(), Failure> {
        if answer.headers.get(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
            return Err(Failure::Answer("other server sends a coded form of the file".to_owned()));
        }
        self.version = Version::of(answer);
        self.announced = announced(answer);
        self.is_delimited = answer.is_delimited;
        let remote = self.sink.remote;
        let kinds: Vec<ChecksumKind> = self.announced.iter().map(Checksum::kind).collect();
        self.sink = Sink::new(remote, self.sink.target, 0, 0, self.version.size, &kinds);
        remote.progress.set(0, 0);
        Ok(())
    }
}

/// `None`: the other side does not answer with ranges after all.
async fn fetch_parts(
    remote: &Remote,
    target: &dyn CopyTarget,
    version: &Version,
    parts: &[ByteRange],
) -> Result<Option<Gathered>, Failure> {
    remote.progress.use_stripes(parts.len());
    let fetches =
        parts.iter().enumerate().map(|(stripe, part)| fetch_part(remote, target, version, stripe, *part));
    let done = try_join_all(fetches).await?;
    let mut checksums: Option<Vec<Checksum>> = None;
    for (part, sums) in parts.iter().zip(done) {
        let Some(sums) = sums else {
            for stripe in 0..parts.len() {
                remote.progress.set(stripe, 0);
            }
            return Ok(None);
        };
        checksums = Some(match checksums {
            None => sums,
            Some(before) => combine(&before, &sums, part.length()),
        });
    }
    Ok(Some(Gathered {
        size: parts.iter().map(|part| part.length()).sum(),
        version: version.clone(),
        checksums: checksums.unwrap_or_default(),
        announced: Vec::new(),
        is_delimited: true,
    }))
}

async fn fetch_part(
    remote: &Remote,
    target: &dyn CopyTarget,
    version: &Version,
    stripe: usize,
    part: ByteRange,
) -> Result<Option<Vec<Checksum>>, Failure> {
    let mut sink = Sink::new(remote, target, stripe, part.offset(), Some(part.end()), &[]);
    let mut retries = Retries::new(&remote.config);
    while sink.position < part.end() {
        let before = sink.position;
        match attempt_part(&mut sink, version, part).await {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(failure) => retries.again(failure, sink.position - before).await?,
        }
    }
    Ok(Some(sink.sums.finish()))
}

async fn attempt_part(sink: &mut Sink<'_>, version: &Version, part: ByteRange) -> Result<bool, Failure> {
    let mut own = HeaderMap::new();
    own.insert(header::RANGE, range_from(sink.position, Some(part.end())));
    if let Some(validator) = version.validator() {
        own.insert(header::IF_RANGE, validator.clone());
    }
    let mut answer = sink.remote.get(own, sink.stripe).await?;
    match answer.status {
        StatusCode::PARTIAL_CONTENT => {}
        // By If-Range: the file is another one now. Else ranges are not done.
        StatusCode::OK if !Version::of(&answer).agrees(version) => return Err(Failure::RemoteChanged),
        StatusCode::OK => return Ok(false),
        _ => return Err(rejected(Method::GET, answer).await),
    }
    check_part(&answer, version, sink.position, ByteRange::from_bounds(sink.position, part.end()))?;
    let position = sink.position;
    sink.pour(&mut answer).await?;
    if sink.position == position {
        return Err(Failure::Answer("other server sends an empty part".to_owned()));
    }
    Ok(true)
}

/// `end` is not included, as everywhere but in the header.
fn range_from(offset: u64, end: Option<u64>) -> HeaderValue {
    let text = match end {
        Some(end) => format!("bytes={offset}-{}", end - 1),
        None => format!("bytes={offset}-"),
    };
    HeaderValue::try_from(text).expect("digits and punctuation are visible ASCII")
}

/// A part must be the one that was asked for, of the file that was begun.
fn check_part(
    answer: &Incoming,
    version: &Version,
    offset: u64,
    asked: Option<ByteRange>,
) -> Result<(), Failure> {
    let told =
        answer.headers.get(header::CONTENT_RANGE).and_then(|value| ContentRange::parse(value.as_bytes()));
    let Some(ContentRange::Part { range, complete }) = told else {
        return Err(Failure::Answer("other server does not say which part it sends".to_owned()));
    };
    if range.offset() != offset || asked.is_some_and(|asked| range.end() > asked.end()) {
        return Err(Failure::Answer("other server sends another part than was asked for".to_owned()));
    }
    let is_same = Version::of_part(answer, complete).agrees(version);
    if is_same { Ok(()) } else { Err(Failure::RemoteChanged) }
}

/// Consecutive bytes on their way into the target, summed as they pass.
struct Sink<'a> {
    remote: &'a Remote,
    target: &'a dyn CopyTarget,
    stripe: usize,
    start: u64,
    position: u64,
    /// More than this was not asked for.
    end: Option<u64>,
    sums: Sums,
}

impl<'a> Sink<'a> {
    /// A stripe that is the whole file sums all kinds that are kept and `more`, others what can be combined.
    fn new(
        remote: &'a Remote,
        target: &'a dyn CopyTarget,
        stripe: usize,
        start: u64,
        end: Option<u64>,
        more: &[ChecksumKind],
    ) -> Sink<'a> {
        let always = ChecksumKind::ALL.into_iter().filter(|kind| is_combinable(*kind));
        let kept = target.kinds().into_iter();
        let sums = Sums::new(always.chain(kept).chain(more.iter().copied()));
        Sink { remote, target, stripe, start, position: start, end, sums }
    }

    /// Bytes received before an error are kept, so that the rest can be asked for.
    async fn pour(&mut self, answer: &mut Incoming) -> Result<(), Failure> {
        let mut gathered = BytesMut::new();
        let ended = loop {
            match answer.next().await {
                Ok(Some(piece)) if gathered.is_empty() && piece.len() >= PIECE_BYTES_MIN => {
                    self.write(piece).await?;
                }
                Ok(Some(piece)) => {
                    gathered.extend_from_slice(&piece);
                    if gathered.len() >= WRITE_BYTES {
                        self.write(gathered.split().freeze()).await?;
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if !gathered.is_empty() {
            self.write(gathered.freeze()).await?;
        }
        Ok(ended?)
    }

    async fn write(&mut self, data: Bytes) -> Result<(), Failure> {
        let next = self.position + data.len() as u64;
        if self.end.is_some_and(|end| next > end) {
            return Err(Failure::Answer("other server sends more than was asked for".to_owned()));
        }
        self.target.write_at(self.position, data.clone()).await?;
        self.sums.update(&data);
        self.position = next;
        self.remote.progress.set(self.stripe, next - self.start);
        Ok(())
    }
}

async fn compare(remote: &Remote, target: &dyn CopyTarget, gathered: Gathered) -> Result<Fetched, Failure> {
    let Gathered { size, version, mut checksums, mut announced, is_delimited } = gathered;
    let is_required = remote.is_checksum_required();
    let mut why = String::new();
    if announced.is_empty() && (remote.request.require_checksum != Some(false) || !is_delimited) {
        match ask(remote, size, &version).await {
            Ok(found) => announced = found,
            Err(failure @ (Failure::Size { .. } | Failure::RemoteChanged)) => return Err(failure),
            Err(failure) => why = format!(" ({failure})"),
        }
    }
    if verdict(&announced, &checksums) == Verdict::Unknown && !announced.is_empty() {
        let kinds: Vec<ChecksumKind> = announced.iter().map(Checksum::kind).collect();
        checksums.extend(read_back(target, size, &kinds).await?);
    }
    match verdict(&announced, &checksums) {
        Verdict::Agree => Ok(Fetched { size, checksums }),
        Verdict::Differ { theirs, ours } => Err(Failure::Checksum { theirs, ours }),
        Verdict::Unknown if is_required => Err(Failure::NoChecksum(why)),
        Verdict::Unknown if !is_delimited => Err(Failure::Answer(
            "other server tells neither length nor checksum, so the end may be missing".to_owned(),
        )),
        Verdict::Unknown => Ok(Fetched { size, checksums }),
    }
}

/// The source's checksums, and once more its size and version.
async fn ask(remote: &Remote, size: u64, version: &Version) -> Result<Vec<Checksum>, Failure> {
    let answer = remote.head_patiently(&ChecksumKind::ALL).await?;
    let now = Version::of(&answer);
    if let Some(expected) = now.size.filter(|now| *now != size) {
        return Err(Failure::Size { expected, got: size });
    }
    if !now.agrees(version) {
        return Err(Failure::RemoteChanged);
    }
    Ok(announced(&answer))
}

async fn read_back(
    target: &dyn CopyTarget,
    size: u64,
    kinds: &[ChecksumKind],
) -> Result<Vec<Checksum>, Failure> {
    let mut sums = Sums::new(kinds.iter().copied());
    let mut position = 0;
    while position < size {
        let length = u32::try_from(size - position).unwrap_or(u32::MAX).min(READ_BACK_BYTES);
        let data = target.read_at(position, length).await?;
        if data.is_empty() {
            return Err(Failure::Size { expected: size, got: position });
        }
        sums.update(&data);
        position += data.len() as u64;
    }
    Ok(sums.finish())
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn parts_cover_the_file_without_gaps() {
        for (size, streams, part_bytes_min, expected) in
            [(100, 4, 10, 4), (100, 4, 40, 2), (100, 4, 200, 1), (7, 4, 1, 4), (0, 4, 1, 0), (3, 8, 0, 3)]
        {
            let parts = cut(size, streams, part_bytes_min);
            assert_eq!(parts.len(), expected, "{size} {streams} {part_bytes_min}");
            let mut position = 0;
            for part in &parts {
                assert_eq!(part.offset(), position);
                position = part.end();
            }
            assert_eq!(position, size);
        }
        assert_eq!(range_from(5, Some(10)), "bytes=5-9");
        assert_eq!(range_from(5, None), "bytes=5-");
    }
}
