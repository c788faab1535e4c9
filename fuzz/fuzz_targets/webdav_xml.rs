//! Bodies and the If header of WebDAV: bounded, and what is kept of a property is the same when it is set again.

#![no_main]

use forebay_fuzz::bounded;
use http_wire::dav::{
    IfHeader, LiveProperty, LockRequest, Multistatus, PropFind, PropPatch, PropPatchOp, ResourceState,
    XmlError, value_text,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Ok(PropFind::Props(names) | PropFind::AllProp { include: names }) =
        bounded(input.len(), || PropFind::parse(input))
    {
        let body = answer(|props| names.iter().for_each(|name| props.name(name)));
        assert!(is_well_formed(&body));
    }
    if let Ok(update) = bounded(input.len(), || PropPatch::parse(input)) {
        update.ops.iter().for_each(keeps_its_meaning);
    }
    if let Ok(LockRequest::New(info)) = bounded(input.len(), || LockRequest::parse(input)) {
        assert!(info.owner_xml.is_none_or(|owner| is_well_formed(&owner)));
    }
    if let Ok(header) = bounded(input.len(), || IfHeader::parse(input)) {
        conditions(&header);
    }
    if let Ok(text) = std::str::from_utf8(input) {
        assert!(is_well_formed(&answer(|props| props.text(LiveProperty::DisplayName, text))));
    }
});

/// Depth is counted from the root, and an answer is one element deeper than a request.
fn is_well_formed(xml: &[u8]) -> bool {
    matches!(value_text(xml), Ok(_) | Err(XmlError::Limit(_)))
}

fn answer(write: impl FnOnce(&mut http_wire::dav::Props<'_>)) -> Vec<u8> {
    let mut answer = Multistatus::begin();
    answer.response("/", |groups| groups.group(http::StatusCode::OK, write));
    answer.end().to_vec()
}

fn keeps_its_meaning(op: &PropPatchOp) {
    let PropPatchOp::Set { name, value_xml, lang } = op else { return };
    assert!(is_well_formed(&answer(|props| props.dead(value_xml))));
    let update =
        [&b"<propertyupdate xmlns='DAV:'><set><prop>"[..], value_xml, &b"</prop></set></propertyupdate>"[..]]
            .concat();
    let again = match PropPatch::parse(&update) {
        Err(XmlError::Limit(_)) => return,
        again => again.expect("what was kept is well-formed"),
    };
    let [PropPatchOp::Set { name: name_again, value_xml: xml_again, lang: lang_again }] = &again.ops[..]
    else {
        panic!("{again:?}")
    };
    assert_eq!((name_again, xml_again, lang_again), (name, value_xml, lang));
}

fn conditions(header: &IfHeader) {
    let resources = header.resources();
    assert!(!resources.is_empty() && header.lists().iter().all(|list| !list.conditions.is_empty()));
    // Of a resource that has every token that was submitted, no list without Not and tags can fail.
    let tokens: Vec<String> = header.submitted_tokens().into_iter().map(str::to_owned).collect();
    let holds = header.holds(|resource| {
        assert!(resources.contains(&resource));
        ResourceState { tokens: tokens.clone(), etag: None }
    });
    let is_plain = header.lists().iter().any(|list| {
        list.conditions.iter().all(|condition| {
            matches!(condition.state, http_wire::dav::State::Token(_)) && !condition.is_negated
        })
    });
    assert!(holds || !is_plain);
}
