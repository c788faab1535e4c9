//! The examples of RFC 4918 §10.4, what litmus sends, and what must be refused.

use proptest::prelude::*;

use super::*;

fn parse(value: &str) -> IfHeader {
    IfHeader::parse(value.as_bytes()).unwrap()
}

fn state(tokens: &[&str], etag: Option<&str>) -> ResourceState {
    ResourceState { tokens: tokens.iter().map(|t| (*t).to_owned()).collect(), etag: etag.map(str::to_owned) }
}

/// Whether `value` holds for a request on a resource in that state; no other resource exists.
fn holds(value: &str, tokens: &[&str], etag: Option<&str>) -> bool {
    parse(value).holds(|tag| match tag {
        None => state(tokens, etag),
        Some(_) => ResourceState::default(),
    })
}

const LOCK: &str = "urn:uuid:181d4fae-7d8c-11d0-a765-00a0c91e6bf2";

#[test]
fn rfc_4918_10_4_6_either_list_is_enough() {
    let value = format!("(<{LOCK}> [\"I am an ETag\"]) ([\"I am another ETag\"])");
    assert!(holds(&value, &[LOCK], Some("\"I am an ETag\"")));
    assert!(!holds(&value, &[], Some("\"I am an ETag\"")));
    assert!(!holds(&value, &[LOCK], Some("\"x\"")));
    assert!(holds(&value, &[], Some("\"I am another ETag\"")));
}

#[test]
fn rfc_4918_10_4_7_not_reverses_a_condition() {
    let value = format!("(Not <{LOCK}> <urn:uuid:58f202ac-22cf-11d1-b12d-002035b29092>)");
    assert!(holds(&value, &["urn:uuid:58f202ac-22cf-11d1-b12d-002035b29092"], None));
    assert!(!holds(&value, &["urn:uuid:58f202ac-22cf-11d1-b12d-002035b29092", LOCK], None));
    assert!(!holds(&value, &[], None));
}

#[test]
fn rfc_4918_10_4_8_a_condition_that_always_holds_only_submits() {
    let value = format!("(<{LOCK}>) (Not <DAV:no-lock>)");
    assert!(holds(&value, &[], None));
    assert_eq!(parse(&value).submitted_tokens(), ["DAV:no-lock", LOCK]);
}

#[test]
fn rfc_4918_10_4_9_a_list_speaks_of_the_resource_before_it() {
    let value = "</resource1> (<urn:uuid:1> [W/\"A weak ETag\"]) ([\"strong ETag\"])";
    let header = parse(value);
    assert_eq!(header.resources(), [Some("/resource1")]);
    assert!(header.lists().iter().all(|list| list.resource.as_deref() == Some("/resource1")));
    let with = |tokens: &[&str], etag| {
        header.holds(|tag| {
            assert_eq!(tag, Some("/resource1"));
            state(tokens, Some(etag))
        })
    };
    assert!(with(&[], "\"strong ETag\""));
    // Weak tags are compared strongly here, so they never match.
    assert!(!with(&["urn:uuid:1"], "W/\"A weak ETag\""));
}

#[test]
fn rfc_4918_10_4_10_locks_on_a_collection_are_matched_by_its_members() {
    let value = format!("<http://www.example.com/specs/> (<{LOCK}>)");
    let locked = |tag: Option<&str>| match tag {
        Some("http://www.example.com/specs/") => state(&[LOCK], None),
        _ => ResourceState::default(),
    };
    assert!(parse(&value).holds(locked));
    assert_eq!(parse(&value).submitted_tokens(), [LOCK]);
}

#[test]
fn rfc_4918_10_4_11_an_unmapped_resource_has_no_etag() {
    let none = |_: Option<&str>| ResourceState::default();
    assert!(!parse("</specs/rfc2518.doc> ([\"4217\"])").holds(none));
    assert!(parse("</specs/rfc2518.doc> (Not [\"4217\"])").holds(none));
}

#[test]
fn if_headers_of_litmus_hold_as_litmus_expects() {
    let etag = Some("\"5-1a\"");
    assert!(holds(&format!("(<{LOCK}> [\"5-1a\"]) (Not <DAV:no-lock> [\"5-1a\"])"), &[LOCK], etag));
    assert!(!holds(&format!("(<{LOCK}> [\"5-1b\"]) (Not <DAV:no-lock> [\"5-1b\"])"), &[LOCK], etag));
    assert!(!holds("(<DAV:no-lock>)", &[LOCK], etag));
    assert!(holds(&format!("(<{LOCK}x>) (Not <DAV:no-lock>)"), &[LOCK], etag));
    assert!(!holds("(<DAV:no-lock> [\"5-1a\"])", &[LOCK], etag));
    assert!(holds("(<opaquelocktoken:abc>)", &["opaquelocktoken:abc"], None));
}

#[test]
fn blanks_are_optional_and_not_is_a_word_in_any_case() {
    assert_eq!(parse(" ( NOT<a:b>[\"x\"] ) "), parse("(Not <a:b> [\"x\"])"));
    assert_eq!(parse("</a>(<b:c>)(<d:e>)</f>(<g:h>)").lists().len(), 3);
    assert_eq!(parse("([\"a]b)\"])").lists()[0].conditions[0].state, State::ETag("\"a]b)\"".to_owned()));
}

#[test]
fn an_if_header_outside_the_grammar_is_refused() {
    for bad in [
        "",
        " ",
        "()",
        "(<a:b>",
        "<a:b>",
        "(<a:b>) </c> (<d:e>)",
        "</c> </d> (<a:b>)",
        "</c> (<a:b>) </d>",
        "(<a:b>), (<c:d>)",
        "(a:b)",
        "(<ab>)",
        "(<>)",
        "(Not)",
        "(Not Not <a:b>)",
        "([x])",
        "([\"x])",
        "([\"x\")",
        "([w/\"x\"])",
        "<> (<a:b>)",
        "< > (<a:b>)",
        "(<a:b>) x",
        "((<a:b>))",
        "(N\u{e9}t <a:b>)",
    ] {
        assert!(matches!(IfHeader::parse(bad.as_bytes()), Err(DavHeaderError::If(_))), "{bad}");
    }
    assert!(IfHeader::parse(b"(<a:\xff>)").is_err());
}

#[test]
fn lists_and_conditions_are_bounded() {
    assert!(IfHeader::parse("(<a:b>)".repeat(LISTS_MAX).as_bytes()).is_ok());
    let lists = "(<a:b>)".repeat(LISTS_MAX + 1);
    let conditions = format!("({})", "<a:b>".repeat(CONDITIONS_MAX + 1));
    let long = format!("(<a:{}>)", "b".repeat(HEADER_BYTES_MAX));
    for value in [lists, conditions, long] {
        assert_eq!(IfHeader::parse(value.as_bytes()), Err(DavHeaderError::IfTooLong));
    }
}

fn conditions() -> impl Strategy<Value = Vec<Condition>> {
    let state = prop_oneof!["[a-c]:[a-c]".prop_map(State::Token), "(W/)?\"[a-c]\"".prop_map(State::ETag)];
    let condition = (any::<bool>(), state).prop_map(|(is_negated, state)| Condition { is_negated, state });
    prop::collection::vec(condition, 1..4)
}

fn written(header: &IfHeader) -> String {
    let mut out = String::new();
    for list in &header.lists {
        if let Some(resource) = &list.resource {
            out += &format!("<{resource}> ");
        }
        let conditions = list.conditions.iter().map(|condition| {
            let not = if condition.is_negated { "Not " } else { "" };
            match &condition.state {
                State::Token(token) => format!("{not}<{token}>"),
                State::ETag(etag) => format!("{not}[{etag}]"),
            }
        });
        out += &format!("({}) ", conditions.collect::<Vec<_>>().join(" "));
    }
    out
}

proptest! {
    #[test]
    fn a_header_means_what_was_written(
        is_tagged: bool,
        lists in prop::collection::vec(("/[a-c]", conditions()), 1..5),
        tokens in prop::collection::vec("[a-c]:[a-c]", 0..4),
        etag in prop::option::of("\"[a-c]\""),
    ) {
        let lists = lists.into_iter().map(|(resource, conditions)| ConditionList {
            resource: is_tagged.then_some(resource),
            conditions,
        });
        let header = IfHeader { lists: lists.collect() };
        prop_assert_eq!(&IfHeader::parse(written(&header).as_bytes()).unwrap(), &header);
        let resource = ResourceState { tokens, etag };
        let expected = header.lists.iter().any(|list| list.conditions.iter().all(|c| {
            let is = match &c.state {
                State::Token(token) => resource.tokens.contains(token),
                State::ETag(etag) => resource.etag.as_deref() == Some(etag),
            };
            is ^ c.is_negated
        }));
        prop_assert_eq!(header.holds(|_| resource.clone()), expected);
    }

    #[test]
    fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..60), text in "[()<>\\[\\]\"Not a:/W]{0,40}") {
        let _ = IfHeader::parse(&bytes);
        let _ = IfHeader::parse(text.as_bytes());
    }
}
