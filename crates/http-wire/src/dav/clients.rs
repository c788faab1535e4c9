//! Request bodies as clients are known to send them, and what they mean.

use super::*;

fn names(body: &str) -> Vec<String> {
    match PropFind::parse(body.as_bytes()) {
        Ok(PropFind::Props(names)) => names.iter().map(QName::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

fn changes(body: &str) -> Vec<(String, Option<String>)> {
    let change = |op: PropPatchOp| match op {
        PropPatchOp::Set { name, value_xml, .. } => (name.to_string(), Some(value_text(&value_xml).unwrap())),
        PropPatchOp::Remove(name) => (name.to_string(), None),
    };
    PropPatch::parse(body.as_bytes()).unwrap().ops.into_iter().map(change).collect()
}

fn lock(body: &str) -> (LockScope, String) {
    match LockRequest::parse(body.as_bytes()) {
        Ok(LockRequest::New(info)) => {
            let owner = info.owner_xml.map(|xml| value_text(&xml).unwrap());
            (info.scope, owner.unwrap_or_default().trim().to_owned())
        }
        other => panic!("{other:?}"),
    }
}

fn is_all_live(names: &[String]) -> bool {
    names.iter().all(|name| QName::parse(name).as_ref().and_then(LiveProperty::from_qname).is_some())
}

#[test]
fn davix_asks_for_what_a_stat_needs() {
    let names = names(
        "<?xml version=\"1.0\" encoding=\"utf-8\" ?><D:propfind xmlns:D=\"DAV:\" xmlns:L=\"LCGDM:\"><D:prop>\
         <D:displayname/><D:getlastmodified/><D:creationdate/><D:getcontentlength/><D:quota-used-bytes/>\
         <D:resourcetype><D:collection/></D:resourcetype><L:mode/><D:owner></D:owner><D:group></D:group>\
         </D:prop></D:propfind>",
    );
    assert_eq!(names.len(), 9);
    assert!(is_all_live(&names));
    assert_eq!(names[6], "{LCGDM:}mode");
}

#[test]
fn rclone_asks_for_checksums_in_ownclouds_namespace() {
    let names = names(
        "<?xml version=\"1.0\"?>\n<d:propfind  xmlns:d=\"DAV:\" xmlns:oc=\"http://owncloud.org/ns\" \
         xmlns:nc=\"http://nextcloud.org/ns\">\n <d:prop>\n  <d:displayname />\n  <d:getlastmodified />\n  \
         <d:getcontentlength />\n  <d:resourcetype />\n  <d:getcontenttype />\n  <oc:checksums />\n  \
         <oc:permissions />\n </d:prop>\n</d:propfind>\n",
    );
    assert_eq!(names[5..], ["{http://owncloud.org/ns}checksums", "{http://owncloud.org/ns}permissions"]);
    assert!(is_all_live(&names[..6]) && !is_all_live(&names));
}

#[test]
fn rclone_asks_for_the_space_that_is_left() {
    let names = names(
        "<?xml version=\"1.0\" ?>\n<D:propfind xmlns:D=\"DAV:\">\n <D:prop>\n  <D:quota-available-bytes/>\n  \
         <D:quota-used-bytes/>\n </D:prop>\n</D:propfind>\n",
    );
    assert!(is_all_live(&names));
}

#[test]
fn the_finder_and_gvfs_and_cadaver_ask_in_their_own_ways() {
    let finder = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:propfind xmlns:D=\"DAV:\">\n<D:prop>\n\
        <D:getlastmodified/>\n<D:getcontentlength/>\n<D:creationdate/>\n<D:resourcetype/>\n</D:prop>\n</D:propfind>\n";
    let gvfs = "<?xml version=\"1.0\" encoding=\"utf-8\" ?>\n <D:propfind xmlns:D=\"DAV:\">\n  <D:prop>\n\
        <D:creationdate/>\n<D:displayname/>\n<D:getcontentlength/>\n<D:getcontenttype/>\n<D:getetag/>\n\
        <D:getlastmodified/>\n<D:resourcetype/>\n  </D:prop>\n </D:propfind>";
    let cadaver = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<propfind xmlns=\"DAV:\"><prop>\n\
        <getcontentlength xmlns=\"DAV:\"/>\n<getlastmodified xmlns=\"DAV:\"/>\n\
        <executable xmlns=\"http://apache.org/dav/props/\"/>\n<resourcetype xmlns=\"DAV:\"/>\n\
        </prop></propfind>\n";
    for (body, count) in [(finder, 4), (gvfs, 7), (cadaver, 4)] {
        let names = names(body);
        assert_eq!(names.len(), count);
        assert!(is_all_live(&names), "{names:?}");
    }
}

#[test]
fn windows_asks_for_all_and_sets_its_times() {
    let body =
        "<?xml version=\"1.0\" encoding=\"utf-8\" ?><D:propfind xmlns:D=\"DAV:\"><D:allprop/></D:propfind>";
    assert_eq!(PropFind::parse(body.as_bytes()), Ok(PropFind::AllProp { include: vec![] }));
    let body = "<?xml version=\"1.0\" encoding=\"utf-8\" ?><D:propertyupdate xmlns:D=\"DAV:\" \
        xmlns:Z=\"urn:schemas-microsoft-com:\"><D:set><D:prop>\
        <Z:Win32CreationTime>Tue, 02 Jul 2024 09:30:00 GMT</Z:Win32CreationTime>\
        <Z:Win32FileAttributes>00000020</Z:Win32FileAttributes></D:prop></D:set></D:propertyupdate>";
    assert_eq!(
        changes(body),
        [
            (
                "{urn:schemas-microsoft-com:}Win32CreationTime".to_owned(),
                Some("Tue, 02 Jul 2024 09:30:00 GMT".to_owned())
            ),
            ("{urn:schemas-microsoft-com:}Win32FileAttributes".to_owned(), Some("00000020".to_owned())),
        ]
    );
}

#[test]
fn everybody_locks_in_his_own_way() {
    let windows = "<?xml version=\"1.0\" encoding=\"utf-8\" ?><D:lockinfo xmlns:D=\"DAV:\"><D:lockscope>\
        <D:exclusive/></D:lockscope><D:locktype><D:write/></D:locktype><D:owner><D:href>HOST\\user</D:href>\
        </D:owner></D:lockinfo>";
    let finder = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:lockinfo xmlns:D=\"DAV:\">\n<D:lockscope>\
        <D:exclusive/></D:lockscope>\n<D:locktype><D:write/></D:locktype>\n<D:owner>\n\
        <D:href>http://www.apple.com/webdav_fs/</D:href>\n</D:owner>\n</D:lockinfo>\n";
    let neon = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<lockinfo xmlns='DAV:'>\n \
        <lockscope><shared/></lockscope>\n<locktype><write/></locktype><owner>litmus test suite</owner>\n</lockinfo>\n";
    assert_eq!(lock(windows), (LockScope::Exclusive, "HOST\\user".to_owned()));
    assert_eq!(lock(finder), (LockScope::Exclusive, "http://www.apple.com/webdav_fs/".to_owned()));
    assert_eq!(lock(neon), (LockScope::Shared, "litmus test suite".to_owned()));
}

const LITMUS: &str = "http://example.com/neon/litmus/";

#[test]
fn litmus_propfind_bodies() {
    let missing =
        "<?xml version=\"1.0\" encoding=\"utf-8\" ?><propfind xmlns=\"DAV:\"><foobar/><allprop/></propfind>";
    assert_eq!(PropFind::parse(missing.as_bytes()), Ok(PropFind::AllProp { include: vec![] }));
    assert!(matches!(PropFind::parse(b"<foo>"), Err(XmlError::WrongRoot(_))));
    let invalid2 = "<D:propfind xmlns:D=\"DAV:\"><D:prop><bar:foo xmlns:bar=\"\"/></D:prop></D:propfind>";
    assert!(matches!(PropFind::parse(invalid2.as_bytes()), Err(XmlError::Namespace(_))));
    let many: String = (0..10)
        .map(|n| format!("<somename xmlns='http://example.com/{}/'/>\r\n", "abcdefghij".split_at(n).0))
        .collect();
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\r\n<propfind xmlns=\"DAV:\"><prop>\r\n{many}</prop></propfind>\r\n"
    );
    assert_eq!(names(&body).len(), 10);
}

#[test]
fn litmus_proppatch_bodies() {
    let head = "<?xml version=\"1.0\" encoding=\"utf-8\" ?><propertyupdate xmlns='DAV:'>";
    let removeset = format!(
        "{head}<remove><prop><removeset xmlns='{LITMUS}'/></prop></remove><set><prop><removeset xmlns='{LITMUS}'>x\
         </removeset></prop></set><set><prop><removeset xmlns='{LITMUS}'>y</removeset></prop></set></propertyupdate>"
    );
    let name = format!("{{{LITMUS}}}removeset");
    let expected = [(name.clone(), None), (name.clone(), Some("x".to_owned())), (name, Some("y".to_owned()))];
    assert_eq!(changes(&removeset), expected);
    let unicode = format!(
        "{head}<set><prop><high-unicode xmlns='{LITMUS}'>&#65536;</high-unicode></prop></set></propertyupdate>"
    );
    assert_eq!(changes(&unicode)[0].1.as_deref(), Some("\u{10000}"));
    let none = format!(
        "{head}<set><prop><nonamespace xmlns=\"\">randomvalue</nonamespace></prop></set></propertyupdate>"
    );
    assert_eq!(changes(&none), [("{}nonamespace".to_owned(), Some("randomvalue".to_owned()))]);
}

#[test]
fn litmus_propvalnspace_is_kept_with_both_namespaces() {
    let body = "<?xml version=\"1.0\" encoding=\"utf-8\" ?><propertyupdate xmlns='DAV:'><set><prop>\
        <t:valnspace xmlns:t='http://example.com/neon/litmus/'><foo xmlns='http://bar'/></t:valnspace>\
        </prop></set></propertyupdate>";
    let ops = PropPatch::parse(body.as_bytes()).unwrap().ops;
    let PropPatchOp::Set { value_xml, .. } = &ops[0] else { panic!("{ops:?}") };
    assert_eq!(
        std::str::from_utf8(value_xml).unwrap(),
        "<t:valnspace xmlns:t=\"http://example.com/neon/litmus/\"><foo xmlns=\"http://bar\"></foo></t:valnspace>"
    );
}
