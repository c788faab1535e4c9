//! Well-formed bodies are read, others are refused, and nothing panics.

use proptest::prelude::*;

use super::super::{LockRequest, PropFind, PropPatch, value_text};
use super::*;

fn read(body: &[u8]) -> Result<(), XmlError> {
    let text = decode(body)?;
    let mut xml = XmlBody::new(&text);
    xml.any_root()?;
    xml.skip()?;
    xml.finish()
}

#[test]
fn a_well_formed_body_is_read() {
    for good in [
        "<a/>",
        "<?xml version='1.0'?>\r\n<!-- c --><?pi x?><a\n/ >".replace("/ >", "/>").as_str(),
        "<a b='1' c=\"2\">&#65;&#x10FFFF;&lt;&amp;&gt;&apos;&quot;<![CDATA[<&]]></a >\n<!-- after -->",
        "<é:ü xmlns:é='urn:x'/>",
        "<a xml:lang='de' xmlns=''/>",
        "\u{feff}<a/>",
    ] {
        assert_eq!(read(good.as_bytes()), Ok(()), "{good}");
    }
}

#[test]
fn a_body_that_is_not_well_formed_is_refused() {
    for bad in [
        "",
        " ",
        "x",
        "<a>",
        "<a></b>",
        "</a>",
        "<a/><b/>",
        "<a/>x",
        "x<a/>",
        "<a/>&lt;",
        "<a><b></a></b>",
        "<a",
        "<a b/>",
        "<a b=1/>",
        "<a b='1'c='2'/>",
        "<a b='1' b='2'/>",
        "<a b='<'/>",
        "<a b='&'/>",
        "<a>&</a>",
        "<a>&nbsp;</a>",
        "<a>&#0;</a>",
        "<a>&#xD800;</a>",
        "<a>\u{1}</a>",
        "<a>&#1;</a>",
        "<a b='&#1;'/>",
        "<a>]]></a>",
        "<1/>",
        "<a:/>",
        "<:a/>",
        "<a:b:c xmlns:a='x'/>",
        "<a <b/>",
        " <?xml version='1.0'?><a/>",
        "<a><?xml version='1.0'?></a>",
        "<a><!-- -- --></a>",
        "<a>\u{ffff}</a>",
        "<a b&='1'/>",
        "<![CDATA[x]]><a/>",
        "<a><![CDATA[x</a>",
        "<a/",
    ] {
        assert!(
            matches!(read(bad.as_bytes()), Err(XmlError::Malformed(_))),
            "{bad}: {:?}",
            read(bad.as_bytes())
        );
    }
    assert!(read(b"<a>\xff</a>").is_err());
}

#[test]
fn a_document_type_is_refused_before_its_entities_can_laugh() {
    for bad in [
        "<!DOCTYPE a [<!ENTITY lol 'lol'><!ENTITY lol2 '&lol;&lol;'>]><a>&lol2;</a>",
        "<!DOCTYPE a SYSTEM 'file:///etc/passwd'><a/>",
        "<?xml version='1.0'?><!DOCTYPE a><a/>",
    ] {
        assert_eq!(read(bad.as_bytes()), Err(XmlError::DocumentType));
    }
}

#[test]
fn namespaces_are_held_to_their_rules() {
    for bad in [
        // litmus: propfind_invalid2
        "<D:propfind xmlns:D=\"DAV:\"><D:prop><bar:foo xmlns:bar=\"\"/></D:prop></D:propfind>",
        "<x:a/>",
        "<a x:b='1'/>",
        "<a xmlns:x=''/>",
        "<a xmlns:xml='urn:x'/>",
        "<a xmlns:xmlns='urn:x'/>",
        "<xmlns:a/>",
        "<b><a xmlns:x='urn:x'/><x:c/></b>",
    ] {
        assert!(
            matches!(read(bad.as_bytes()), Err(XmlError::Namespace(_))),
            "{bad}: {:?}",
            read(bad.as_bytes())
        );
    }
    let same = "<a xmlns:x='urn:x' xmlns:y='urn:x' x:b='' y:b=''/>";
    assert!(matches!(read(same.as_bytes()), Err(XmlError::Malformed(_))));
}

#[test]
fn depth_and_attributes_are_bounded() {
    let nested = |n: usize| "<a>".repeat(n) + &"</a>".repeat(n);
    assert_eq!(read(nested(DEPTH_MAX).as_bytes()), Ok(()));
    assert!(read(nested(DEPTH_MAX + 1).as_bytes()).is_err_and(|e| e.is_limit()));
    // A body of nothing but start tags is refused at the bound and not at its end.
    assert!(read("<a>".repeat(80_000).as_bytes()).is_err_and(|e| e.is_limit()));
    let attributes = |n: usize| format!("<a{}/>", (0..n).map(|i| format!(" b{i}=''")).collect::<String>());
    assert_eq!(read(attributes(ATTRIBUTES_MAX).as_bytes()), Ok(()));
    assert!(read(attributes(ATTRIBUTES_MAX + 1).as_bytes()).is_err_and(|e| e.is_limit()));
}

#[test]
fn utf_16_is_read_and_other_encodings_are_not() {
    let text = "<?xml version='1.0' encoding='utf-16'?><a>\u{e9}\u{10000}</a>";
    let little: Vec<u8> =
        [0xff, 0xfe].into_iter().chain(text.encode_utf16().flat_map(u16::to_le_bytes)).collect();
    let big: Vec<u8> =
        [0xfe, 0xff].into_iter().chain(text.encode_utf16().flat_map(u16::to_be_bytes)).collect();
    assert_eq!((read(&little), read(&big)), (Ok(()), Ok(())));
    assert!(read(&little[..little.len() - 1]).is_err());
    assert!(read(&[0xff, 0xfe, 0x00, 0xd8]).is_err());
    assert_eq!(read("<?xml version='1.0' encoding=\"UTF-8\"?><a>\u{e9}</a>".as_bytes()), Ok(()));
    assert!(read("<?xml version='1.0' encoding='iso-8859-1'?><a>\u{e9}</a>".as_bytes()).is_err());
    assert_eq!(read(b"<?xml version='1.0' encoding='us-ascii'?><a>e</a>"), Ok(()));
}

#[test]
fn the_rest_is_read_before_anything_is_believed() {
    for bad in ["<propfind xmlns='DAV:'><allprop/>", "<propfind xmlns='DAV:'><allprop/></propfind><x/>"] {
        assert!(matches!(PropFind::parse(bad.as_bytes()), Err(XmlError::Malformed(_))));
    }
}

fn parse_all(body: &[u8]) {
    let _ = PropFind::parse(body);
    let _ = LockRequest::parse(body);
    let _ = value_text(body);
    let _ = PropPatch::parse(body);
}

proptest! {
    #[test]
    fn any_bytes_are_answered(body in prop::collection::vec(any::<u8>(), 0..200)) {
        parse_all(&body);
    }

    #[test]
    fn any_mixture_of_pieces_is_answered(pieces in prop::collection::vec(prop::sample::select(vec![
        "<propfind xmlns='DAV:'>", "<D:propertyupdate xmlns:D='DAV:'>", "<lockinfo xmlns='DAV:'>", "<prop>", "</prop>",
        "<D:set>", "</D:set>", "<D:prop>", "</D:prop>", "</propfind>", "</D:propertyupdate>", "</lockinfo>", "<owner>",
        "</owner>", "<x xmlns='urn:x' a='b'>", "</x>", "<y:z xmlns:y='urn:y'/>", "text", "y:", "&lt;", "&#x41;", "&bad;",
        "<![CDATA[c]]>", "<!-- c -->", "<?pi?>", "<lockscope><shared/></lockscope>", "<allprop/>", "]]>", "\u{0}", "<", ">",
    ]), 0..30)) {
        parse_all(pieces.concat().as_bytes());
    }
}
