//! Header values and targets that say which bytes of which file, in which state and with which checksum: every line
//! of the input is read as each of them, and all lines together as the headers of one request.

#![no_main]

use forebay_fuzz::bounded;
use http::header::{
    HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, RANGE,
};
use http::{Method, Uri};
use http_wire::conditional::{Current, ETag, Verdict, evaluate, if_range_holds};
use http_wire::multipart::{Boundary, ByteRanges};
use http_wire::range::{ContentRange, RangeLimits, Selection, select, select_value};
use http_wire::target::{Reference, Target, encode_path, parse_form, parse_path};
use http_wire::{content, date, digest};
use libfuzzer_sys::fuzz_target;
use types::{FileId, Timestamp};

const LIMITS: RangeLimits = RangeLimits { ranges_max: 64, overlap_max: 2 };
const NAMES: [HeaderName; 12] = [
    RANGE,
    IF_MATCH,
    IF_NONE_MATCH,
    IF_MODIFIED_SINCE,
    IF_UNMODIFIED_SINCE,
    IF_RANGE,
    digest::DIGEST,
    digest::WANT_DIGEST,
    digest::REPR_DIGEST,
    digest::WANT_REPR_DIGEST,
    digest::CONTENT_DIGEST,
    digest::CONTENT_MD5,
];

fuzz_target!(|input: &[u8]| {
    let Some((shift, rest)) = input.split_first() else { return };
    let length = (0x0123_4567_89ab_cdef_u64) >> (shift & 63);
    bounded(rest.len(), || {
        let mut headers = HeaderMap::new();
        for line in rest.split(|byte| *byte == b'\n') {
            look_into(line, length);
            let Some((index, value)) = line.split_first() else { continue };
            let name = &NAMES[usize::from(*index) % NAMES.len()];
            if let Ok(value) = HeaderValue::from_bytes(value) {
                headers.append(name, value);
            }
        }
        as_a_request(&headers, length);
    });
});

fn look_into(line: &[u8], length: u64) {
    if let Selection::Parts(ranges) = select_value(line, length, &LIMITS) {
        let wanted: u128 = ranges.iter().map(|range| u128::from(range.length())).sum();
        assert!(!ranges.is_empty() && ranges.len() <= LIMITS.ranges_max);
        assert!(wanted <= u128::from(length.saturating_mul(2).max(1 << 20)));
        assert!(ranges.iter().all(|range| range.end() <= length));
        let body = ByteRanges::new(Boundary::new([7; 16]), &HeaderValue::from_static("a/b"), length, &ranges);
        let (foretold, closing) = (body.content_length(), body.closing());
        let written: u128 =
            body.into_parts().map(|(head, range)| head.len() as u128 + u128::from(range.length())).sum();
        assert_eq!(u128::from(foretold), written + closing.len() as u128);
    }
    if let Some(found) = ContentRange::parse(line) {
        assert_eq!(ContentRange::parse(found.header_value().as_bytes()), Some(found));
    }
    if let Some(tag) = ETag::parse(line) {
        assert_eq!(ETag::parse(tag.header_value().as_bytes()).as_ref(), Some(&tag));
    }
    if let Some(time) = date::parse(line) {
        assert_eq!(date::parse(&date::text(time)), Some(time));
    }
    for sums in [digest::parse_digest(line), digest::parse_repr_digest(line)].into_iter().flatten() {
        assert_eq!(digest::parse_digest(digest::digest_text(&sums).as_bytes()), Ok(sums.clone()));
        let repr = digest::repr_digest_header(&sums).map(|value| digest::parse_repr_digest(value.as_bytes()));
        assert!(repr.is_none_or(|again| again == Ok(sums)));
    }
    assert!(content::attachment(line).to_str().is_ok());
    let _ = (content::media_type(line), parse_form(line));
    as_a_target(line);
}

fn as_a_target(line: &[u8]) {
    if let Ok(uri) = Uri::try_from(line)
        && let Ok(target) = Target::of_uri(&uri)
    {
        let text = encode_path(&target.path, target.trailing_slash);
        assert!(
            text.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>&\"'%+".contains(&byte) || byte == b'%')
        );
        assert_eq!(parse_path(&text), Ok(target.path));
    }
    match Reference::parse(line) {
        Ok(Reference::Absolute(url)) => {
            assert!(!url.authority().contains('@') && !url.host().is_empty());
            let again = format!("{}://{}{}", url.scheme().name(), url.authority(), url.path_and_query());
            assert_eq!(Reference::parse(again.as_bytes()), Ok(Reference::Absolute(url)));
        }
        Ok(Reference::Here(_)) => assert!(line.contains(&b'/')),
        Err(error) => assert!(error.status().as_u16() >= 400),
    }
}

fn as_a_request(headers: &HeaderMap, length: u64) {
    let tag = ETag::of_change(FileId(1), 2);
    let modified = Timestamp::new(784_111_777, 0).unwrap_or_default();
    let current = Current { etag: &tag, modified };
    for method in [Method::GET, Method::PUT] {
        for current in [Some(current), None] {
            let verdict = evaluate(&method, headers, current);
            assert!(verdict != Verdict::NotModified || method == Method::GET);
        }
    }
    let _ = (if_range_holds(headers, current, modified), select(headers, length, &LIMITS));
    assert!(digest::want_digest(headers).len() <= 4 && digest::want_repr_digest(headers).len() <= 4);
    assert!(
        digest::announced(headers).is_ok_and(|sums| sums.len() <= 4) || digest::announced(headers).is_err()
    );
}
