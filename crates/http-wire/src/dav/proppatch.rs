//! The changes of a PROPPATCH, in order (RFC 4918 §9.2, §14.19).

use bytes::Bytes;

use super::QName;
use super::propfind::property_name;
use super::xml::{Element, XmlBody, XmlError, decode};

/// Changes in one request.
pub const PROPPATCH_OPS_MAX: usize = 1000;
/// Values of one request as they are kept, together. More than a body because declarations are repeated.
const VALUES_BYTES_MAX: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropPatchOp {
    Set {
        name: QName,
        /// The element of the property with all that is in it, standing alone: what PROPFIND answers as it is.
        value_xml: Bytes,
        /// The language that the value is in; `value_xml` says so too (RFC 4918 §4.3).
        lang: Option<String>,
    },
    Remove(QName),
}

impl PropPatchOp {
    pub fn name(&self) -> &QName {
        match self {
            PropPatchOp::Set { name, .. } | PropPatchOp::Remove(name) => name,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PropPatch {
    pub ops: Vec<PropPatchOp>,
}

impl PropPatch {
    pub fn parse(body: &[u8]) -> Result<PropPatch, XmlError> {
        let text = decode(body)?;
        let mut xml = XmlBody::new(&text);
        let root = xml.dav_root("propertyupdate")?;
        let mut reading = Reading { ops: Vec::new(), bytes: 0 };
        let mut instructions = 0_usize;
        while let Some(instruction) = xml.next_child()? {
            let is_set = instruction.name.is_dav("set");
            if !is_set && !instruction.name.is_dav("remove") {
                xml.skip()?;
                continue;
            }
            instructions += 1;
            let lang = instruction.lang().or(root.lang());
            while let Some(child) = xml.next_child()? {
                if child.name.is_dav("prop") {
                    reading.properties(&mut xml, is_set, child.lang().or(lang))?;
                } else {
                    xml.skip()?;
                }
            }
        }
        xml.finish()?;
        if instructions == 0 {
            return Err(XmlError::Unexpected("neither set nor remove"));
        }
        Ok(PropPatch { ops: reading.ops })
    }
}

struct Reading {
    ops: Vec<PropPatchOp>,
    bytes: usize,
}

impl Reading {
    fn properties(
        &mut self,
        xml: &mut XmlBody<'_>,
        is_set: bool,
        lang: Option<&str>,
    ) -> Result<(), XmlError> {
        while let Some(property) = xml.next_child()? {
            if self.ops.len() >= PROPPATCH_OPS_MAX {
                return Err(XmlError::Limit("more than 1000 properties are changed"));
            }
            let op = if is_set {
                self.set(xml, property, lang)?
            } else {
                xml.skip()?;
                PropPatchOp::Remove(property_name(property)?)
            };
            self.ops.push(op);
        }
        Ok(())
    }

    fn set(
        &mut self,
        xml: &mut XmlBody<'_>,
        property: Element,
        lang: Option<&str>,
    ) -> Result<PropPatchOp, XmlError> {
        let value_xml = xml.capture(&property, lang, VALUES_BYTES_MAX - self.bytes)?;
        self.bytes += value_xml.len();
        let lang = property.lang().or(lang).map(str::to_owned);
        Ok(PropPatchOp::Set { name: property_name(property)?, value_xml, lang })
    }
}

/// The text of a kept value, without its tags; for properties that are understood after all (`executable`).
pub fn value_text(value_xml: &[u8]) -> Result<String, XmlError> {
    let text = decode(value_xml)?;
    let mut xml = XmlBody::new(&text);
    xml.any_root()?;
    let text = xml.text()?;
    xml.finish()?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ops(body: &str) -> Vec<PropPatchOp> {
        PropPatch::parse(body.as_bytes()).unwrap().ops
    }

    fn kept(body: &str) -> String {
        match &ops(body)[..] {
            [PropPatchOp::Set { value_xml, .. }] => String::from_utf8(value_xml.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn set(prop: &str) -> String {
        format!("<D:propertyupdate xmlns:D='DAV:'><D:set><D:prop>{prop}</D:prop></D:set></D:propertyupdate>")
    }

    #[test]
    fn changes_keep_their_order() {
        let body = "<propertyupdate xmlns='DAV:'>\
            <remove><prop><a xmlns='urn:x'/><b xmlns='urn:x'>ignored</b></prop></remove>\
            <set><prop><a xmlns='urn:x'>1</a></prop></set><set><prop><a xmlns='urn:x'>2</a></prop></set>\
            </propertyupdate>";
        let seen: Vec<_> = ops(body)
            .iter()
            .map(|op| match op {
                PropPatchOp::Set { name, value_xml, .. } => {
                    format!("{name}={}", value_text(value_xml).unwrap())
                }
                PropPatchOp::Remove(name) => format!("-{name}"),
            })
            .collect();
        assert_eq!(seen, ["-{urn:x}a", "-{urn:x}b", "{urn:x}a=1", "{urn:x}a=2"]);
    }

    #[test]
    fn a_value_keeps_names_prefixes_attributes_and_text() {
        let value = "<Z:v xmlns:Z=\"urn:z\" Z:a=\"1\" b=\"&lt;&#10;&quot;\"> x <Z:w>&amp;]]&gt;</Z:w><e xmlns=\"http://bar\"></e></Z:v>";
        assert_eq!(kept(&set(value)), value);
        assert_eq!(
            kept(&set("<v><![CDATA[<a>&]]><!-- no --><?pi no?></v>")),
            "<v xmlns=\"\">&lt;a&gt;&amp;</v>"
        );
    }

    #[test]
    fn declarations_of_the_outside_come_along_where_they_are_used() {
        let outside = |value: &str| {
            kept(&format!(
                "<propertyupdate xmlns='DAV:' xmlns:u='urn:u' xmlns:xs='urn:xs' xmlns:n='urn:n'>\
                 <set><prop>{value}</prop></set></propertyupdate>"
            ))
        };
        assert_eq!(outside("<u:p>1</u:p>"), "<u:p xmlns:u=\"urn:u\">1</u:p>");
        assert_eq!(outside("<u:p><q/></u:p>"), "<u:p xmlns=\"DAV:\" xmlns:u=\"urn:u\"><q></q></u:p>");
        // A prefix in text or in a value means something to whoever wrote it.
        assert_eq!(
            outside("<u:p n:type=\"xs:string\"/>"),
            "<u:p xmlns:u=\"urn:u\" xmlns:xs=\"urn:xs\" xmlns:n=\"urn:n\" n:type=\"xs:string\"></u:p>"
        );
        assert_eq!(
            outside("<u:p xmlns:xs='urn:own'>xs:int</u:p>"),
            "<u:p xmlns:u=\"urn:u\" xmlns:xs=\"urn:own\">xs:int</u:p>"
        );
    }

    #[test]
    fn no_namespace_stays_no_namespace_wherever_the_value_is_put() {
        let value = kept(&set("<Z:v xmlns:Z='urn:z'><bare/></Z:v>"));
        assert_eq!(value, "<Z:v xmlns=\"\" xmlns:Z=\"urn:z\"><bare></bare></Z:v>");
        let again = format!("<propertyupdate xmlns='DAV:'><set><prop>{value}</prop></set></propertyupdate>");
        assert_eq!(kept(&again), value);
    }

    #[test]
    fn the_language_in_force_is_kept_with_the_value() {
        let body = "<D:propertyupdate xmlns:D='DAV:' xml:lang='de'><D:set xml:lang='fr'><D:prop>\
            <a xml:lang='en'>x</a><b>y</b></D:prop></D:set><D:set><D:prop><c/></D:prop></D:set></D:propertyupdate>";
        let seen: Vec<_> = ops(body)
            .into_iter()
            .map(|op| match op {
                PropPatchOp::Set { value_xml, lang, .. } => {
                    (String::from_utf8(value_xml.to_vec()).unwrap(), lang.unwrap())
                }
                PropPatchOp::Remove(_) => panic!("nothing is removed"),
            })
            .collect();
        let seen: Vec<_> = seen.iter().map(|(xml, lang)| (xml.as_str(), lang.as_str())).collect();
        assert_eq!(
            seen,
            [
                ("<a xmlns=\"\" xml:lang=\"en\">x</a>", "en"),
                ("<b xmlns=\"\" xml:lang=\"fr\">y</b>", "fr"),
                ("<c xmlns=\"\" xml:lang=\"de\"></c>", "de")
            ]
        );
    }

    #[test]
    fn a_kept_value_is_kept_the_same_when_it_is_set_again() {
        let first = kept(&set("<a:x xmlns:a='urn:a' D:q='1'>\u{10000}&#13;<b xmlns='' c='&#9;'/></a:x>"));
        assert_eq!(kept(&set(&first)), first);
    }

    #[test]
    fn an_update_without_instructions_is_refused() {
        for body in ["<propertyupdate xmlns='DAV:'/>", "<propertyupdate xmlns='DAV:'><foo/></propertyupdate>"]
        {
            assert!(matches!(PropPatch::parse(body.as_bytes()), Err(XmlError::Unexpected(_))), "{body}");
        }
        assert!(PropPatch::parse(b"").is_err());
        assert!(matches!(
            PropPatch::parse(b"<propfind xmlns='DAV:'/>"),
            Err(XmlError::WrongRoot(root)) if root == "{DAV:}propfind"
        ));
    }

    #[test]
    fn a_long_declaration_is_not_multiplied_without_end() {
        let head =
            format!("<D:propertyupdate xmlns:D='DAV:' xmlns:n='urn:{}'><D:set><D:prop>", "x".repeat(900));
        let body = |n| format!("{head}{}</D:prop></D:set></D:propertyupdate>", "<n:a/>".repeat(n));
        assert_eq!(ops(&body(PROPPATCH_OPS_MAX)).len(), PROPPATCH_OPS_MAX);
        assert!(PropPatch::parse(body(PROPPATCH_OPS_MAX + 1).as_bytes()).is_err_and(|e| e.is_limit()));
        let many = (0..40).map(|i| format!(" xmlns:n{i}='urn:{i}{}'", "x".repeat(1000))).collect::<String>();
        let uses = (0..40).map(|i| format!(" n{i}:b=''")).collect::<String>();
        let body = format!(
            "<D:propertyupdate xmlns:D='DAV:'{many}><D:set><D:prop>{}</D:prop></D:set></D:propertyupdate>",
            format!("<a{uses}/>").repeat(100)
        );
        assert!(PropPatch::parse(body.as_bytes()).is_err_and(|e| e.is_limit()));
    }
}
