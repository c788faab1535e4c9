//! Exact bytes of the answers, and that whatever is written comes back from another reader.

use proptest::prelude::*;
use quick_xml::NsReader;
use quick_xml::events::Event;
use quick_xml::name::ResolveResult;

use super::super::PropPatch;
use super::super::xml::{XmlBody, decode};
use super::super::{Depth, LockScope, PropPatchOp, Timeout};
use super::*;

fn written(write: impl FnOnce(&mut Multistatus)) -> String {
    let mut answer = Multistatus::begin();
    let head = answer.take();
    write(&mut answer);
    let xml = String::from_utf8(answer.end().to_vec()).unwrap();
    let whole = String::from_utf8(head.to_vec()).unwrap() + &xml;
    // Our own strict reader finds it well-formed, from the first byte to the last.
    let whole = decode(whole.as_bytes()).unwrap();
    let mut body = XmlBody::new(&whole);
    body.dav_root("multistatus").unwrap();
    body.skip().unwrap();
    body.finish().unwrap();
    xml
}

#[test]
fn a_response_lists_what_was_found_before_what_was_not() {
    let xml = written(|answer| {
        answer.response("/a%20b&c", |groups| {
            groups.group(StatusCode::OK, |props| {
                props.number(LiveProperty::ContentLength, u64::MAX);
                props.text(LiveProperty::DisplayName, "a <b>&c\u{1}");
                props.resource_type(false);
                props.mode(0o100_644);
            });
            groups.group(StatusCode::NOT_FOUND, |props| {
                props.name(&QName::new("urn:x\"&", "foo").unwrap());
                props.name(&QName::new("", "bare").unwrap());
                props.name(&QName::new("DAV:", "acl").unwrap());
                props.live_name(LiveProperty::QuotaUsedBytes);
            });
        });
    });
    assert_eq!(
        xml,
        "<D:response><D:href>/a%20b&amp;c</D:href><D:propstat><D:prop>\
         <D:getcontentlength>18446744073709551615</D:getcontentlength>\
         <D:displayname>a &lt;b&gt;&amp;c\u{fffd}</D:displayname><D:resourcetype/><L:mode>100644</L:mode>\
         </D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat><D:propstat><D:prop>\
         <n:foo xmlns:n=\"urn:x&quot;&amp;\"/><bare/><D:acl/><D:quota-used-bytes/></D:prop>\
         <D:status>HTTP/1.1 404 Not Found</D:status></D:propstat></D:response>\n</D:multistatus>\n"
    );
}

#[test]
fn a_group_without_properties_is_not_written_but_a_response_is_never_without_one() {
    let xml = written(|answer| {
        answer.response("/", |groups| {
            groups.group(StatusCode::NOT_FOUND, |_| {});
        });
    });
    assert_eq!(
        xml,
        "<D:response><D:href>/</D:href><D:propstat><D:prop/><D:status>HTTP/1.1 200 OK</D:status></D:propstat>\
         </D:response>\n</D:multistatus>\n"
    );
}

#[test]
fn a_resource_that_failed_says_with_what_and_why() {
    let xml = written(|answer| {
        answer.status("/c/", StatusCode::LOCKED, Some(&Precondition::LockTokenSubmitted { hrefs: &["/c/"] }));
        answer.status("/d", StatusCode::FAILED_DEPENDENCY, None);
        answer.response("/e", |groups| {
            let why = Precondition::CannotModifyProtectedProperty;
            groups.group_because(StatusCode::FORBIDDEN, Some(&why), |props| {
                props.live_name(LiveProperty::ETag);
            });
        });
    });
    assert_eq!(
        xml,
        "<D:response><D:href>/c/</D:href><D:status>HTTP/1.1 423 Locked</D:status><D:error>\
         <D:lock-token-submitted><D:href>/c/</D:href></D:lock-token-submitted></D:error></D:response>\n\
         <D:response><D:href>/d</D:href><D:status>HTTP/1.1 424 Failed Dependency</D:status></D:response>\n\
         <D:response><D:href>/e</D:href><D:propstat><D:prop><D:getetag/></D:prop>\
         <D:status>HTTP/1.1 403 Forbidden</D:status><D:error><D:cannot-modify-protected-property/></D:error>\
         </D:propstat></D:response>\n</D:multistatus>\n"
    );
}

#[test]
fn live_values_have_the_form_that_their_clients_read() {
    let md5 = Checksum::new(ChecksumKind::Md5, &[0xab; 16]).unwrap();
    let adler = Checksum::new(ChecksumKind::Adler32, &[0, 1, 2, 0xff]).unwrap();
    let lock = ActiveLock {
        scope: LockScope::Shared,
        depth: Depth::Zero,
        owner_xml: None,
        timeout: Timeout::Infinite,
        token: "urn:uuid:1",
        root_href: "/x",
    };
    let xml = written(|answer| {
        answer.response("/", |groups| {
            groups.group(StatusCode::OK, |props| {
                props.resource_type(true);
                props.time(LiveProperty::CreationDate, Timestamp::new(784_111_777, 5).unwrap());
                props.time(LiveProperty::LastModified, Timestamp::new(784_111_777, 5).unwrap());
                props.mode(0o040_755);
                props.executable(true);
                props.owncloud_checksums(&[md5, adler]);
                props.lock_discovery(&[]);
                props.lock_discovery(&[lock]);
                props.supported_lock();
            });
        });
    });
    for part in [
        "<D:resourcetype><D:collection/></D:resourcetype>",
        "<D:creationdate>1994-11-06T08:49:37Z</D:creationdate>",
        "<D:getlastmodified>Sun, 06 Nov 1994 08:49:37 GMT</D:getlastmodified>",
        "<L:mode>040755</L:mode>",
        "<A:executable>T</A:executable>",
        "<O:checksums><O:checksum>MD5:abababababababababababababababab ADLER32:000102ff</O:checksum></O:checksums>",
        "<D:lockdiscovery/><D:lockdiscovery><D:activelock><D:locktype><D:write/></D:locktype>",
        "<D:depth>0</D:depth><D:timeout>Infinite</D:timeout>",
        "<D:supportedlock><D:lockentry><D:lockscope><D:exclusive/></D:lockscope>",
    ] {
        assert!(xml.contains(part), "{part} in {xml}");
    }
}

#[test]
fn a_large_answer_passes_through_a_small_buffer() {
    let (mut answer, mut pieces, mut bytes) = (Multistatus::begin(), 0_u64, 0_usize);
    for n in 0..100_000_u64 {
        answer.response(&format!("/dir/file-{n}"), |groups| {
            groups.group(StatusCode::OK, |props| props.number(LiveProperty::ContentLength, n));
        });
        if answer.buffered() > 16 << 10 {
            pieces += 1;
            bytes += answer.take().len();
            assert_eq!(answer.buffered(), 0);
        }
    }
    bytes += answer.end().len();
    assert!(pieces > 500 && bytes > 12_000_000, "{pieces} pieces, {bytes} bytes");
}

/// Names, attributes and text of a stored value, as another reader of XML sees them.
fn seen(xml: &str) -> Vec<String> {
    let mut reader = NsReader::from_str(xml);
    reader.config_mut().expand_empty_elements = true;
    let (mut seen, mut text) = (Vec::new(), String::new());
    loop {
        let (namespace, event) = reader.read_resolved_event().unwrap();
        let namespace = match namespace {
            ResolveResult::Bound(namespace) => String::from_utf8(namespace.0.to_vec()).unwrap(),
            ResolveResult::Unbound => String::new(),
            ResolveResult::Unknown(prefix) => panic!("{prefix:?} is not declared"),
        };
        match event {
            Event::Text(ref part) => text += &part.xml10_content().unwrap(),
            Event::GeneralRef(ref part) => match part.resolve_char_ref().unwrap() {
                Some(c) => text.push(c),
                None => text += quick_xml::escape::resolve_xml_entity(&part.decode().unwrap()).unwrap(),
            },
            Event::Start(_) | Event::End(_) | Event::Eof if !text.is_empty() => {
                seen.push(format!("text {}", std::mem::take(&mut text)));
                push_tag(&mut seen, &namespace, &event);
            }
            _ => push_tag(&mut seen, &namespace, &event),
        }
        if matches!(event, Event::Eof) {
            return seen;
        }
    }
}

fn push_tag(seen: &mut Vec<String>, namespace: &str, event: &Event<'_>) {
    match event {
        Event::Start(tag) => {
            let local = String::from_utf8(tag.local_name().into_inner().to_vec()).unwrap();
            seen.push(format!("<{{{namespace}}}{local}"));
            for attribute in tag.attributes().map(Result::unwrap) {
                let value = attribute.normalized_value(quick_xml::XmlVersion::Implicit1_0).unwrap();
                if attribute.key.as_namespace_binding().is_none() {
                    seen.push(format!("{:?}={value}", attribute.key));
                }
            }
        }
        Event::End(_) => seen.push(">".to_owned()),
        _ => {}
    }
}

#[derive(Clone, Debug)]
enum Node {
    Text(String),
    Element { name: &'static str, attribute: Option<String>, children: Vec<Node> },
}

fn nodes() -> impl Strategy<Value = Node> {
    let text = any::<String>()
        .prop_map(|text| Node::Text(text.chars().filter(|c| escape::is_xml_char(*c)).collect()));
    text.prop_recursive(4, 24, 4, |inner| {
        let name = prop::sample::select(vec!["a", "p:b", "q:c", "D:d"]);
        (name, prop::option::of("[ -~]{0,8}"), prop::collection::vec(inner, 0..4))
            .prop_map(|(name, attribute, children)| Node::Element { name, attribute, children })
    })
}

fn put(out: &mut BytesMut, node: &Node) {
    match node {
        Node::Text(text) => escape::text(out, text),
        Node::Element { name, attribute, children } => {
            write!(out, "<{name}").unwrap();
            if let Some(value) = attribute {
                out.put_slice(b" p:x=\"");
                escape::attribute(out, value);
                out.put_u8(b'"');
            }
            out.put_u8(b'>');
            children.iter().for_each(|child| put(out, child));
            write!(out, "</{name}>").unwrap();
        }
    }
}

proptest! {
    /// PROPPATCH of anything, then PROPFIND of it: the value is the same to whoever reads it.
    #[test]
    fn a_dead_property_comes_back_as_it_was_set(children in prop::collection::vec(nodes(), 0..4)) {
        let mut value = BytesMut::new();
        put(&mut value, &Node::Element { name: "q:prop", attribute: None, children });
        let value = String::from_utf8(value.to_vec()).unwrap();
        let outside = "xmlns:D=\"DAV:\" xmlns=\"urn:default\" xmlns:p=\"urn:p\" xmlns:q=\"urn:q?a&amp;b\"";
        let body = format!(
            "<D:propertyupdate {outside}><D:set><D:prop>{value}</D:prop></D:set></D:propertyupdate>"
        );
        let ops = PropPatch::parse(body.as_bytes()).unwrap().ops;
        let [PropPatchOp::Set { value_xml, .. }] = &ops[..] else { panic!("{ops:?}") };
        let xml = written(|answer| {
            answer.response("/", |groups| groups.group(StatusCode::OK, |props| props.dead(value_xml)));
        });
        let kept = xml.split_once("<D:prop>").unwrap().1.split_once("</D:prop><D:status>").unwrap().0;
        let given = seen(&format!("<w {outside}>{value}</w>"));
        prop_assert_eq!(seen(kept), &given[1..given.len() - 1]);
    }

    #[test]
    fn text_and_names_come_back_as_they_were_written(
        text in "[^\r\u{0}-\u{8}\u{b}-\u{1f}\u{fffe}\u{ffff}]{0,12}",
        namespace in "[ -~é]{1,12}",
    ) {
        let name = QName::new(namespace, "x").unwrap();
        let xml = written(|answer| answer.response("/", |groups| {
            groups.group(StatusCode::OK, |props| {
                props.text(LiveProperty::DisplayName, &text);
                props.name(&name);
            });
        }));
        let whole = format!("<w xmlns:D='DAV:'>{}", xml.replace("</D:multistatus>", "</w>"));
        let seen = seen(&whole);
        let at = seen.iter().position(|item| item == "<{DAV:}displayname").unwrap();
        match text.is_empty() {
            true => prop_assert_eq!(&seen[at + 1], ">"),
            false => prop_assert_eq!(&seen[at + 1], &format!("text {text}")),
        }
        let raw = name.namespace.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
        prop_assert!(seen.contains(&format!("<{{{raw}}}x")), "{:?}", seen);
    }
}
