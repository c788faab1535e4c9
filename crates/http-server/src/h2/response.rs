//! A response as HTTP/2 frames.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use futures_util::stream;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderName, HeaderValue, TRANSFER_ENCODING};
use hyper::body::{Body, Frame, SizeHint};

use super::activity::Running;
use crate::assembly::{Assembly, Part, Shape};
use crate::message::{Response, ResponseBody};

const SHAPE: Shape = Shape { batch_bytes: 256 << 10, sends_files: false };
/// Those that do not exist in HTTP/2 (RFC 9113 §8.2.2), and those that are written here.
const OWN: [HeaderName; 4] = [CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION, DATE];

type Items = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

pub(super) struct ResponseFrames {
    items: Option<Items>,
    running: Running,
}

pub(super) fn of(response: Response, is_head: bool, running: Running) -> http::Response<ResponseFrames> {
    let has_no_body = crate::h1::has_no_body(response.status);
    let (items, length): (Option<Items>, Option<u64>) = match response.body {
        ResponseBody::Empty => (None, Some(0)),
        ResponseBody::Full(bytes) => {
            let length = bytes.len() as u64;
            (Some(Box::pin(stream::iter([Ok(bytes)]))), Some(length))
        }
        ResponseBody::Absent { length } => (None, if is_head { length } else { Some(0) }),
        ResponseBody::Pieces { length, pieces } => {
            (Some(of_pieces(Assembly::new(pieces, length, SHAPE))), Some(length))
        }
        ResponseBody::Stream(items) => (Some(items), None),
    };
    let items = items.filter(|_| !is_head && !has_no_body && length != Some(0));
    let mut frames = http::Response::new(ResponseFrames { items, running });
    *frames.status_mut() = response.status;
    *frames.headers_mut() = response.headers;
    for name in OWN {
        frames.headers_mut().remove(name);
    }
    if let Some(length) = length.filter(|_| !has_no_body) {
        frames.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    frames
}

fn of_pieces(assembly: Assembly) -> Items {
    Box::pin(stream::unfold((Some(assembly), VecDeque::new()), |(mut assembly, mut ready)| async move {
        loop {
            if let Some(bytes) = ready.pop_front() {
                return Some((Ok(bytes), (assembly, ready)));
            }
            match assembly.as_mut()?.next().await {
                Ok(None) => return None,
                Ok(Some(Part::Bytes(parts))) => ready.extend(parts),
                // Not asked for; it could only be read.
                Ok(Some(Part::File(stretch))) => assembly.as_mut()?.put_back(stretch),
                Err(error) => return Some((Err(io::Error::other(error)), (None, ready))),
            }
        }
    }))
}

impl Body for ResponseFrames {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Some(items) = &mut self.items else { return Poll::Ready(None) };
        let item = items.as_mut().poll_next(context);
        // Asked again as soon as the client takes more.
        self.running.waits_for_client(item.is_ready());
        if let Poll::Ready(Some(Err(error))) = &item {
            tracing::warn!(%error, "stream reset, response ends early");
        }
        if let Poll::Ready(None | Some(Err(_))) = &item {
            self.items = None;
        }
        item.map(|item| item.map(|item| item.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.items.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match self.items {
            None => SizeHint::with_exact(0),
            // The head has it already; what is left is not counted.
            Some(_) => SizeHint::default(),
        }
    }
}
