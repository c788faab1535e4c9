//! Sending: one PUT, then the comparison, and cleaning up behind what failed.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use http_client::{AbsoluteUrl, ClientError, Outgoing, Upload, UploadStream};
use http_wire::digest::{DIGEST, digest_header};
use parking_lot::Mutex;
use tracing::{debug, info};
use types::{Checksum, ChecksumKind};

use super::CopySource;
use super::checksum::{Verdict, verdict};
use super::failure::Failure;
use super::remote::{Remote, Retries, Version, announced, rejected};
use files::Sums;

/// The file at the other side before the push, and whether it may be different now.
#[derive(Default)]
pub(super) struct Trace {
    before: Mutex<Before>,
    /// Set once a byte of the body was taken by a connection.
    is_touched: std::sync::atomic::AtomicBool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Before {
    #[default]
    Unknown,
    Absent,
    Present(Version),
}

const READ_BYTES: u32 = 1 << 20;
/// Read while the one before is sent.
const READS_AHEAD: usize = 2;

pub(super) async fn send(
    remote: &Remote,
    source: &Arc<dyn CopySource>,
    trace: &Arc<Trace>,
) -> Result<(), Failure> {
    if remote.request.may_ask_before || !remote.request.overwrite {
        look(remote, trace).await?;
    }
    let sums = put(remote, source, trace).await?;
    remote.progress.verify();
    let ours = Arc::into_inner(sums).map(|sums| sums.into_inner().finish()).unwrap_or_default();
    if !source.is_unchanged().await? {
        return Err(Failure::SourceChanged);
    }
    // Not the other server's fault: what is on our disk is not what it was.
    if let Verdict::Differ { theirs, ours } = verdict(&source.checksums(), &ours) {
        return Err(Failure::Local(super::LocalError(format!(
            "file is damaged: it was {theirs} when it was written and is {ours} now"
        ))));
    }
    compare(remote, source.size(), &ours).await
}

/// The file at the other side now decides whether we may go on, and later whether cleaning up is ours to do.
async fn look(remote: &Remote, trace: &Trace) -> Result<(), Failure> {
    let before = match remote.head(&[]).await {
        Ok(answer) if answer.status.is_success() => Before::Present(Version::of(&answer)),
        Ok(answer) if matches!(answer.status, StatusCode::NOT_FOUND | StatusCode::GONE) => Before::Absent,
        // Perhaps the token is for writing only.
        Ok(_) => Before::Unknown,
        // The PUT will say it better, and is tried again.
        Err(_) if remote.request.overwrite => Before::Unknown,
        Err(failure) => return Err(failure),
    };
    if !remote.request.overwrite && matches!(before, Before::Present(_)) {
        return Err(Failure::Exists);
    }
    *trace.before.lock() = before;
    Ok(())
}

async fn put(
    remote: &Remote,
    source: &Arc<dyn CopySource>,
    trace: &Arc<Trace>,
) -> Result<Arc<Mutex<Sums>>, Failure> {
    let mut url: AbsoluteUrl = remote.request.remote.clone();
    let mut retries = Retries::new(&remote.config);
    loop {
        let sums = Arc::new(Mutex::new(Sums::new(kinds(remote, source.as_ref()))));
        remote.progress.set(0, 0);
        let request = outgoing(remote, source.as_ref(), &url);
        let upload = Upload {
            length: Some(source.size()),
            stream: body(Arc::clone(source), remote, Arc::clone(&sums), Arc::clone(trace)),
        };
        let failure = match remote.client.upload(request, upload).await {
            Ok(answer) if answer.status.is_success() => return Ok(sums),
            Ok(answer) => rejected(Method::PUT, answer).await,
            Err(ClientError::LateRedirect { from, to }) if url == remote.request.remote => {
                debug!(%from, %to, "start again where the redirect leads");
                url = *to;
                continue;
            }
            Err(error) => error.into(),
        };
        // A new one could not tell our own half from somebody else's file.
        if !remote.request.overwrite && trace.is_touched() {
            return Err(failure);
        }
        retries.again(failure, 0).await?;
    }
}

fn outgoing(remote: &Remote, source: &dyn CopySource, url: &AbsoluteUrl) -> Outgoing {
    let mut own = HeaderMap::new();
    if !remote.request.overwrite {
        own.insert(header::IF_NONE_MATCH, HeaderValue::from_static("*"));
    }
    if !remote.request.transfer_headers.contains_key(DIGEST)
        && let Some(value) = digest_header(&source.checksums())
    {
        own.insert(DIGEST, value);
    }
    let mut request = remote.outgoing(Method::PUT, own, 0).answered_within(remote.config.checksum_timeout);
    if !url.is_same_origin(&request.url) {
        // The secrets were for the server that the client named.
        for name in remote.request.transfer_headers.keys() {
            request.headers.remove(name);
        }
    }
    request.url = url.clone();
    request
}

/// Those that the other side is likely to know, and those that are known here.
fn kinds(remote: &Remote, source: &dyn CopySource) -> Vec<ChecksumKind> {
    let mut kinds = vec![ChecksumKind::Adler32, ChecksumKind::Crc32c];
    if remote.is_checksum_required() {
        kinds.push(ChecksumKind::Md5);
    }
    kinds.extend(source.checksums().iter().map(Checksum::kind));
    kinds
}

fn body(
    source: Arc<dyn CopySource>,
    remote: &Remote,
    sums: Arc<Mutex<Sums>>,
    trace: Arc<Trace>,
) -> UploadStream {
    let size = source.size();
    let progress = Arc::clone(&remote.progress);
    let offsets = (0..size).step_by(READ_BYTES as usize);
    let reads = stream::iter(offsets).map(move |offset| {
        let source = Arc::clone(&source);
        async move {
            let length = u32::try_from(size - offset).unwrap_or(u32::MAX).min(READ_BYTES);
            let data = source.read_at(offset, length).await.map_err(std::io::Error::other)?;
            if data.len() != length as usize {
                return Err(std::io::Error::other("file became shorter"));
            }
            Ok::<Bytes, std::io::Error>(data)
        }
    });
    let summed = reads.buffered(READS_AHEAD).inspect(move |read| {
        if let Ok(data) = read {
            trace.touch();
            sums.lock().update(data);
            progress.add(0, data.len() as u64);
        }
    });
    Box::pin(summed)
}

/// Size or checksum must agree, both if the server tells both; the checksum always if it is required. A server that
/// tells neither may have anything.
async fn compare(remote: &Remote, size: u64, ours: &[Checksum]) -> Result<(), Failure> {
    let kinds: Vec<ChecksumKind> = match remote.request.require_checksum {
        Some(false) => Vec::new(),
        Some(true) | None => ours.iter().map(Checksum::kind).collect(),
    };
    let is_required = remote.is_checksum_required();
    let answer = match remote.head_patiently(&kinds).await {
        Ok(answer) => answer,
        Err(Failure::Rejected { status: StatusCode::NOT_FOUND | StatusCode::GONE, .. }) => {
            return Err(Failure::Answer("other server took the file, and does not have it".to_owned()));
        }
        Err(failure) if is_required => return Err(Failure::NoChecksum(format!(" ({failure})"))),
        Err(failure) => return Err(Failure::Unverified(format!(" ({failure})"))),
    };
    if let Some(got) = answer.length.filter(|got| *got != size) {
        return Err(Failure::Size { expected: size, got });
    }
    match verdict(&announced(&answer), ours) {
        Verdict::Agree => Ok(()),
        Verdict::Differ { theirs, ours } => Err(Failure::Checksum { theirs, ours }),
        Verdict::Unknown if is_required => Err(Failure::NoChecksum(String::new())),
        Verdict::Unknown if answer.length.is_none() => Err(Failure::Unverified(String::new())),
        Verdict::Unknown => Ok(()),
    }
}

impl Trace {
    fn touch(&self) {
        self.is_touched.store(true, std::sync::atomic::Ordering::Release);
    }

    fn is_touched(&self) -> bool {
        self.is_touched.load(std::sync::atomic::Ordering::Acquire)
    }
}

/// Deletes half a file. A file that was there before and is still there, unchanged, is not ours to delete.
pub(super) async fn clean_up(remote: &Remote, trace: &Trace) {
    if !trace.is_touched() {
        return;
    }
    let before = trace.before.lock().clone();
    if let Before::Present(version) = &before {
        match remote.head(&[]).await {
            Ok(answer) if answer.status == StatusCode::OK && Version::of(&answer) == *version => return,
            Ok(answer) if answer.status == StatusCode::NOT_FOUND => return,
            _ => {}
        }
    }
    match remote.delete().await {
        Ok(answer) => debug!(status = %answer.status, remote = %remote.request.remote, "deleted half a file"),
        Err(failure) => {
            info!(%failure, remote = %remote.request.remote, "half a file may be left at the other server");
        }
    }
}
