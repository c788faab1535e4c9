//! Entity tags and conditional requests (RFC 9110 §8.8.3 and §13).
//!
//! Invariants: a condition that cannot be read never lets a change through, and never holds back an answer to GET;
//! evaluation is a function of headers and the file's present state.

use std::fmt;

use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use types::{FileId, Timestamp, hex};

use crate::date;
use crate::list::trim;

/// An entity tag. Ours are strong: the change attribute changes with every byte and with every attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ETag {
    weak: bool,
    opaque: Box<[u8]>,
}

impl ETag {
    pub fn of_change(file: FileId, change: u64) -> ETag {
        let (file, change) = (hex::number(file.0), hex::number(change));
        let mut opaque = Vec::with_capacity(file.len() + 1 + change.len());
        opaque.extend(file);
        opaque.push(b'-');
        opaque.extend(change);
        ETag { weak: false, opaque: opaque.into_boxed_slice() }
    }

    /// `"opaque"` or `W/"opaque"`.
    pub fn parse(text: &[u8]) -> Option<ETag> {
        match next_tag(text)? {
            (Some(tag), b"") => Some(ETag { weak: tag.weak, opaque: tag.opaque.into() }),
            _ => None,
        }
    }

    pub fn is_weak(&self) -> bool {
        self.weak
    }

    /// Without quotes and `W/`.
    pub fn opaque(&self) -> &[u8] {
        &self.opaque
    }

    /// RFC 9110 §8.8.3.2: the same, and neither is weak.
    pub fn matches_strongly(&self, other: &ETag) -> bool {
        self.as_tag().is_strongly(other)
    }

    pub fn header_value(&self) -> HeaderValue {
        let mut text = Vec::with_capacity(self.opaque.len() + 4);
        text.extend_from_slice(if self.weak { b"W/\"" } else { b"\"" });
        text.extend_from_slice(&self.opaque);
        text.push(b'"');
        HeaderValue::try_from(text).expect("an opaque tag has no control characters")
    }

    fn as_tag(&self) -> Tag<'_> {
        Tag { weak: self.weak, opaque: &self.opaque }
    }
}

/// As in a header and in `getetag`.
impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if self.weak { "W/" } else { "" };
        write!(f, "{prefix}\"{}\"", String::from_utf8_lossy(&self.opaque))
    }
}

/// The file as it is now.
#[derive(Clone, Copy, Debug)]
pub struct Current<'a> {
    pub etag: &'a ETag,
    pub modified: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Proceed,
    /// 304, with `ETag` and without a body.
    NotModified,
    /// 412.
    PreconditionFailed,
}

/// RFC 9110 §13.2.2 but for its last step, which is [`if_range_holds`]. `None`: there is no such file.
pub fn evaluate(method: &Method, headers: &HeaderMap, current: Option<Current<'_>>) -> Verdict {
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    if headers.contains_key(IF_MATCH) {
        if !if_match(headers, current) {
            return Verdict::PreconditionFailed;
        }
    } else if let (Some(since), Some(current)) = (time(headers, &IF_UNMODIFIED_SINCE), current)
        && current.modified.seconds > since
    {
        return Verdict::PreconditionFailed;
    }
    if headers.contains_key(IF_NONE_MATCH) {
        return match (if_none_match(headers, current), is_read) {
            (Outcome::True, _) | (Outcome::Unreadable, true) => Verdict::Proceed,
            (Outcome::False, true) => Verdict::NotModified,
            (Outcome::False | Outcome::Unreadable, false) => Verdict::PreconditionFailed,
        };
    }
    match (time(headers, &IF_MODIFIED_SINCE), current) {
        (Some(since), Some(current)) if is_read && current.modified.seconds <= since => Verdict::NotModified,
        _ => Verdict::Proceed,
    }
}

/// RFC 9110 §13.1.5: whether `Range` may be obeyed; if not, the answer is the whole file. True without `If-Range`.
///
/// A date holds only if the file has rested for the second that the date cannot divide (§8.8.2.2), hence `now`.
pub fn if_range_holds(headers: &HeaderMap, current: Current<'_>, now: Timestamp) -> bool {
    let mut values = headers.get_all(IF_RANGE).iter();
    let value = match (values.next(), values.next()) {
        (None, _) => return true,
        (Some(value), None) => trim(value.as_bytes()),
        _ => return false,
    };
    match ETag::parse(value) {
        Some(tag) => tag.matches_strongly(current.etag),
        None => {
            let rested = current.modified.seconds < now.seconds.saturating_sub(1);
            rested && date::parse(value).is_some_and(|time| time.seconds == current.modified.seconds)
        }
    }
}

fn if_match(headers: &HeaderMap, current: Option<Current<'_>>) -> bool {
    let Some(current) = current else { return false };
    any_value(headers, &IF_MATCH)
        || tags(headers, &IF_MATCH).flatten().any(|tag| tag.is_strongly(current.etag))
}

enum Outcome {
    True,
    False,
    /// No tag matched, but not all of them could be read.
    Unreadable,
}

fn if_none_match(headers: &HeaderMap, current: Option<Current<'_>>) -> Outcome {
    let Some(current) = current else { return Outcome::True };
    if any_value(headers, &IF_NONE_MATCH) {
        return Outcome::False;
    }
    let mut outcome = Outcome::True;
    for tag in tags(headers, &IF_NONE_MATCH) {
        match tag {
            Some(tag) if tag.opaque == current.etag.opaque() => return Outcome::False,
            Some(_) => {}
            None => outcome = Outcome::Unreadable,
        }
    }
    outcome
}

/// `*` stands alone, on the only line of the field (RFC 9110 §13.1.1 and §13.1.2). Beside a tag it is an element that
/// cannot be read: else it would let a change through that the tag forbids.
fn any_value(headers: &HeaderMap, name: &HeaderName) -> bool {
    let mut values = headers.get_all(name).iter();
    let (first, second) = (values.next(), values.next());
    second.is_none() && first.is_some_and(|value| trim(value.as_bytes()) == b"*")
}

/// `None` also for two values and for what is no date: such a header is ignored (RFC 9110 §13.1.3 and §13.1.4).
fn time(headers: &HeaderMap, name: &HeaderName) -> Option<i64> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    date::parse(value.as_bytes()).map(|time| time.seconds)
}

/// An entity tag in a header, not copied.
#[derive(Clone, Copy)]
struct Tag<'a> {
    weak: bool,
    opaque: &'a [u8],
}

impl Tag<'_> {
    fn is_strongly(&self, other: &ETag) -> bool {
        !self.weak && !other.weak && *self.opaque == *other.opaque
    }
}

/// The tags of all lines of a header; `None` for each element that is no tag.
fn tags<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = Option<Tag<'a>>> {
    headers.get_all(name).iter().flat_map(|value| {
        let mut rest = value.as_bytes();
        std::iter::from_fn(move || {
            let (tag, after) = next_tag(rest)?;
            rest = after;
            Some(tag)
        })
    })
}

/// The first element of a list and what follows it. A comma inside of quotes is part of the tag.
fn next_tag(list: &[u8]) -> Option<(Option<Tag<'_>>, &[u8])> {
    let start = list.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b','))?;
    let list = &list[start..];
    let (weak, quoted) = list.strip_prefix(b"W/").map_or((false, list), |rest| (true, rest));
    if let Some(rest) = quoted.strip_prefix(b"\"")
        && let Some(len) = rest.iter().position(|byte| *byte == b'"')
        && rest[..len].iter().all(|byte| *byte > b' ' && *byte != 0x7f)
    {
        let after = trim(&rest[len + 1..]);
        if after.first().is_none_or(|byte| *byte == b',') {
            return Some((Some(Tag { weak, opaque: &rest[..len] }), after));
        }
    }
    let comma = list.iter().position(|byte| *byte == b',').unwrap_or(list.len());
    Some((None, &list[comma..]))
}

#[cfg(test)]
mod tests;
