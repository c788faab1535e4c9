//! Conditions as the RFC's sentences have them, and every combination against a table of its own.

use proptest::prelude::*;

use super::*;

const MODIFIED: i64 = 784_111_777;
const AT: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

fn headers(lines: &[(HeaderName, &str)]) -> HeaderMap {
    lines.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
}

fn tag() -> ETag {
    ETag::parse(b"\"a,b\"").unwrap()
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::new(seconds, 500).unwrap()
}

fn verdict(method: &Method, lines: &[(HeaderName, &str)]) -> Verdict {
    let etag = tag();
    evaluate(method, &headers(lines), Some(Current { etag: &etag, modified: at(MODIFIED) }))
}

fn verdict_without_file(lines: &[(HeaderName, &str)]) -> Verdict {
    evaluate(&Method::PUT, &headers(lines), None)
}

#[test]
fn a_tag_names_a_file_and_its_change() {
    let tag = ETag::of_change(FileId(0x2a), 0xbeef);
    assert_eq!(tag.to_string(), "\"2a-beef\"");
    assert_eq!(tag.header_value(), "\"2a-beef\"");
    assert_eq!(ETag::parse(tag.to_string().as_bytes()), Some(tag));
    assert_eq!(ETag::parse(b"W/\"x\"").unwrap().to_string(), "W/\"x\"");
    for bad in
        [&b""[..], b"x", b"\"x", b"x\"", b"w/\"x\"", b"W/x", b"\"a b\"", b"\"a\"\"b\"", b"\"a\", \"b\"", b"*"]
    {
        assert_eq!(ETag::parse(bad), None, "{}", bad.escape_ascii());
    }
}

#[test]
fn if_match_compares_strongly_and_wants_a_file() {
    for (value, expected) in [
        ("\"a,b\"", Verdict::Proceed),
        ("\"x\", \"a,b\"", Verdict::Proceed),
        ("*", Verdict::Proceed),
        ("W/\"a,b\"", Verdict::PreconditionFailed),
        ("\"a\", \"b\"", Verdict::PreconditionFailed),
        ("a,b", Verdict::PreconditionFailed),
        ("", Verdict::PreconditionFailed),
    ] {
        assert_eq!(verdict(&Method::PUT, &[(IF_MATCH, value)]), expected, "{value}");
    }
    assert_eq!(verdict_without_file(&[(IF_MATCH, "*")]), Verdict::PreconditionFailed);
}

#[test]
fn if_none_match_compares_weakly_and_is_304_for_reads_only() {
    for (value, get, put) in [
        ("\"a,b\"", Verdict::NotModified, Verdict::PreconditionFailed),
        ("W/\"a,b\"", Verdict::NotModified, Verdict::PreconditionFailed),
        ("*", Verdict::NotModified, Verdict::PreconditionFailed),
        ("\"x\" , ,W/\"a,b\"", Verdict::NotModified, Verdict::PreconditionFailed),
        ("\"x\"", Verdict::Proceed, Verdict::Proceed),
        ("unreadable", Verdict::Proceed, Verdict::PreconditionFailed),
    ] {
        assert_eq!(verdict(&Method::GET, &[(IF_NONE_MATCH, value)]), get, "{value}");
        assert_eq!(verdict(&Method::PUT, &[(IF_NONE_MATCH, value)]), put, "{value}");
    }
    assert_eq!(verdict_without_file(&[(IF_NONE_MATCH, "*")]), Verdict::Proceed);
}

#[test]
fn tags_on_several_lines_are_one_list() {
    let lines = [(IF_NONE_MATCH, "\"x\""), (IF_NONE_MATCH, "\"a,b\"")];
    assert_eq!(verdict(&Method::GET, &lines), Verdict::NotModified);
}

#[test]
fn an_asterisk_beside_a_tag_is_not_any_file() {
    for lines in [["\"x\"", "*"], ["*", "\"x\""], ["*", "*"]] {
        let on_lines = |name: &HeaderName| lines.map(|value| (name.clone(), value));
        let joined = lines.join(", ");
        let in_one = |name: &HeaderName| [(name.clone(), joined.as_str())];
        for matches in [&on_lines(&IF_MATCH)[..], &in_one(&IF_MATCH)] {
            assert_eq!(verdict(&Method::PUT, matches), Verdict::PreconditionFailed, "{matches:?}");
        }
        for none_match in [&on_lines(&IF_NONE_MATCH)[..], &in_one(&IF_NONE_MATCH)] {
            assert_eq!(verdict(&Method::PUT, none_match), Verdict::PreconditionFailed, "{none_match:?}");
            assert_eq!(verdict(&Method::GET, none_match), Verdict::Proceed, "{none_match:?}");
        }
    }
    let lines = [(IF_MATCH, "*"), (IF_MATCH, "\"a,b\"")];
    assert_eq!(verdict(&Method::PUT, &lines), Verdict::Proceed, "the tag is the file's");
}

#[test]
fn times_are_compared_in_whole_seconds() {
    for (value, since, unmodified) in [
        (BEFORE, Verdict::Proceed, Verdict::PreconditionFailed),
        (AT, Verdict::NotModified, Verdict::Proceed),
        (AFTER, Verdict::NotModified, Verdict::Proceed),
        ("no date", Verdict::Proceed, Verdict::Proceed),
    ] {
        assert_eq!(verdict(&Method::HEAD, &[(IF_MODIFIED_SINCE, value)]), since, "{value}");
        assert_eq!(verdict(&Method::PUT, &[(IF_MODIFIED_SINCE, value)]), Verdict::Proceed, "{value}");
        assert_eq!(verdict(&Method::PUT, &[(IF_UNMODIFIED_SINCE, value)]), unmodified, "{value}");
    }
}

#[test]
fn tags_go_before_times() {
    let lines = [(IF_NONE_MATCH, "\"x\""), (IF_MODIFIED_SINCE, AFTER)];
    assert_eq!(verdict(&Method::GET, &lines), Verdict::Proceed);
    let lines = [(IF_MATCH, "*"), (IF_UNMODIFIED_SINCE, BEFORE)];
    assert_eq!(verdict(&Method::PUT, &lines), Verdict::Proceed);
    let lines = [(IF_MATCH, "\"x\""), (IF_NONE_MATCH, "\"a,b\"")];
    assert_eq!(verdict(&Method::GET, &lines), Verdict::PreconditionFailed);
}

#[test]
fn if_range_wants_a_strong_validator_that_is_the_same() {
    let etag = tag();
    let current = Current { etag: &etag, modified: at(MODIFIED) };
    let holds = |value, now| if_range_holds(&headers(&[(IF_RANGE, value)]), current, at(now));
    assert!(if_range_holds(&HeaderMap::new(), current, at(MODIFIED)));
    assert!(holds("\"a,b\"", MODIFIED));
    assert!(!holds("W/\"a,b\"", MODIFIED));
    assert!(!holds("\"x\"", MODIFIED));
    assert!(holds(AT, MODIFIED + 2));
    assert!(!holds(AT, MODIFIED + 1), "the file may change again within the same second");
    assert!(!holds(BEFORE, MODIFIED + 9));
    assert!(!holds(AFTER, MODIFIED + 9));
    assert!(!holds("nonsense", MODIFIED + 9));
    let weak = ETag::parse(b"W/\"a,b\"").unwrap();
    let current = Current { etag: &weak, ..current };
    assert!(!if_range_holds(&headers(&[(IF_RANGE, "W/\"a,b\"")]), current, at(MODIFIED)));
}

/// RFC 9110 §13.2.2 word by word, over headers that are each absent, true or false.
fn model(is_read: bool, [matches, unmodified, none_match, modified]: [Option<bool>; 4]) -> Verdict {
    match (matches, unmodified) {
        (Some(false), _) | (None, Some(false)) => return Verdict::PreconditionFailed,
        _ => {}
    }
    match (none_match, modified) {
        (Some(false), _) if is_read => Verdict::NotModified,
        (Some(false), _) => Verdict::PreconditionFailed,
        (None, Some(false)) if is_read => Verdict::NotModified,
        _ => Verdict::Proceed,
    }
}

proptest! {
    #[test]
    fn a_tag_is_two_hexadecimal_numbers(file: u64, change: u64, fewer in 0_u32..64) {
        let (file, change) = (file >> fewer, change >> (63 - fewer));
        let tag = ETag::of_change(FileId(file), change).to_string();
        prop_assert_eq!(tag, format!("\"{file:x}-{change:x}\""));
    }

    #[test]
    fn conditions_are_weighed_in_the_order_of_the_rfc(
        is_read: bool,
        conditions in prop::array::uniform4(prop::option::of(any::<bool>())),
    ) {
        let names = [IF_MATCH, IF_UNMODIFIED_SINCE, IF_NONE_MATCH, IF_MODIFIED_SINCE];
        let values = [("\"x\"", "\"a,b\""), (BEFORE, AT), ("\"a,b\"", "\"x\""), (AT, BEFORE)];
        let lines: Vec<(HeaderName, &str)> = std::iter::zip(names, values)
            .zip(conditions)
            .filter_map(|((name, (no, yes)), condition)| Some((name, if condition? { yes } else { no })))
            .collect();
        let method = if is_read { Method::GET } else { Method::PUT };
        prop_assert_eq!(verdict(&method, &lines), model(is_read, conditions));
    }

    #[test]
    fn no_list_of_tags_makes_it_panic_or_run_forever(text in "[\"W/, *a-]{0,40}") {
        prop_assert!(tags(&headers(&[(IF_MATCH, &text)]), &IF_MATCH).count() <= text.len());
    }
}
