//! The body of PROPFIND (RFC 4918 §9.1, §14.20).

use std::collections::BTreeSet;

use super::xml::{Element, XmlBody, XmlError, decode};
use super::{PROPERTY_NAME_BYTES_MAX, QName};

/// Names in one request. Each may stand in every response of a large answer.
pub const PROPFIND_NAMES_MAX: usize = 512;
/// All names of one request, together.
pub const PROPFIND_NAMES_BYTES_MAX: usize = 32 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropFind {
    AllProp {
        /// Beside those that all of it means.
        include: Vec<QName>,
    },
    PropName,
    /// Each name once, in the order of the request.
    Props(Vec<QName>),
}

impl PropFind {
    pub fn parse(body: &[u8]) -> Result<PropFind, XmlError> {
        // §9.1: no body asks for allprop.
        if body.is_empty() {
            return Ok(PropFind::AllProp { include: Vec::new() });
        }
        let text = decode(body)?;
        let mut xml = XmlBody::new(&text);
        xml.dav_root("propfind")?;
        let (mut asked, mut include) = (None, Vec::new());
        while let Some(child) = xml.next_child()? {
            let question = if child.name.is_dav("prop") {
                PropFind::Props(property_names(&mut xml)?)
            } else if child.name.is_dav("include") {
                include = property_names(&mut xml)?;
                continue;
            } else {
                xml.skip()?;
                match child.name {
                    name if name.is_dav("propname") => PropFind::PropName,
                    name if name.is_dav("allprop") => PropFind::AllProp { include: Vec::new() },
                    // §17: what is not understood is passed over with all that is in it.
                    _ => continue,
                }
            };
            if asked.replace(question).is_some() {
                return Err(XmlError::Unexpected("more than one of prop, propname and allprop"));
            }
        }
        xml.finish()?;
        match asked {
            Some(PropFind::AllProp { .. }) => Ok(PropFind::AllProp { include }),
            Some(asked) if include.is_empty() => Ok(asked),
            Some(_) => Err(XmlError::Unexpected("include without allprop")),
            None => Err(XmlError::Unexpected("none of prop, propname and allprop")),
        }
    }
}

/// The names of the children of the element that is open; closes it.
fn property_names(xml: &mut XmlBody<'_>) -> Result<Vec<QName>, XmlError> {
    let (mut names, mut seen, mut bytes) = (Vec::new(), BTreeSet::new(), 0);
    while let Some(property) = xml.next_child()? {
        // davix asks for `resourcetype` with a `collection` in it.
        xml.skip()?;
        let name = property_name(property)?;
        if !seen.insert(name.clone()) {
            continue;
        }
        bytes += name.written_bytes();
        if names.len() >= PROPFIND_NAMES_MAX || bytes > PROPFIND_NAMES_BYTES_MAX {
            return Err(XmlError::Limit("too many properties are named"));
        }
        names.push(name);
    }
    Ok(names)
}

pub(super) fn property_name(element: Element) -> Result<QName, XmlError> {
    if element.name.written_bytes() > PROPERTY_NAME_BYTES_MAX {
        return Err(XmlError::Limit("the name of a property is longer than 1024 bytes"));
    }
    Ok(element.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dav(local: &str) -> QName {
        QName::new("DAV:", local).unwrap()
    }

    fn asked(inside: &str) -> Result<PropFind, XmlError> {
        PropFind::parse(format!("<propfind xmlns=\"DAV:\">{inside}</propfind>").as_bytes())
    }

    #[test]
    fn no_body_asks_for_all_properties() {
        assert_eq!(PropFind::parse(b""), Ok(PropFind::AllProp { include: vec![] }));
    }

    #[test]
    fn the_three_questions_of_rfc_4918_are_understood() {
        assert_eq!(asked("<propname/>"), Ok(PropFind::PropName));
        assert_eq!(asked("<prop><getetag/></prop>"), Ok(PropFind::Props(vec![dav("getetag")])));
        assert_eq!(
            asked("<include><a/></include><allprop/>"),
            Ok(PropFind::AllProp { include: vec![dav("a")] })
        );
        assert_eq!(asked("<prop/>"), Ok(PropFind::Props(vec![])));
    }

    #[test]
    fn an_unknown_element_is_skipped_with_its_content() {
        let inside = "<foobar><prop><a/></prop></foobar><propname xmlns='urn:x'/><allprop>x</allprop>";
        assert_eq!(asked(inside), Ok(PropFind::AllProp { include: vec![] }));
        assert!(matches!(asked("<foobar/>"), Err(XmlError::Unexpected(_))));
    }

    #[test]
    fn two_questions_at_once_are_refused() {
        for inside in [
            "<prop/><allprop/>",
            "<prop/><prop/>",
            "<propname/><include><a/></include>",
            "<allprop/><allprop/>",
        ] {
            assert!(matches!(asked(inside), Err(XmlError::Unexpected(_))), "{inside}");
        }
    }

    #[test]
    fn a_name_that_stands_twice_is_answered_once() {
        let names = "<prop><a/><b xmlns='urn:x'/><a>text</a><x:a xmlns:x='DAV:'><y/></x:a></prop>";
        assert_eq!(asked(names), Ok(PropFind::Props(vec![dav("a"), QName::new("urn:x", "b").unwrap()])));
    }

    #[test]
    fn names_are_bounded_in_number_and_in_length() {
        let many = |n: usize| (0..n).map(|i| format!("<p{i}/>")).collect::<String>();
        assert!(asked(&format!("<prop>{}</prop>", many(PROPFIND_NAMES_MAX))).is_ok());
        assert!(
            asked(&format!("<prop>{}</prop>", many(PROPFIND_NAMES_MAX + 1))).is_err_and(|e| e.is_limit())
        );
        let long = "x".repeat(1000);
        assert!(asked(&format!("<prop><{long}/></prop>")).is_ok());
        assert!(asked(&format!("<prop><{long}{long}/></prop>")).is_err_and(|e| e.is_limit()));
        let namespaced: String = (0..40).map(|i| format!("<p{i} xmlns='urn:{long}'/>")).collect();
        assert!(asked(&format!("<prop>{namespaced}</prop>")).is_err_and(|e| e.is_limit()));
    }
}
