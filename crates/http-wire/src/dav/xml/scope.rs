//! Which prefix stands for which namespace at a place in a document (Namespaces in XML 1.0).

use super::XmlError;

pub const XML_NAMESPACE: &str = "http://www.w3.org/XML/1998/namespace";
const XMLNS_NAMESPACE: &str = "http://www.w3.org/2000/xmlns/";

/// Declarations in force at one place.
const BINDINGS_MAX: usize = 64;
const NAMESPACE_BYTES_MAX: usize = 1024;

#[derive(Clone, Debug)]
pub struct Binding {
    /// Empty: the default namespace.
    pub prefix: String,
    pub namespace: String,
    depth: usize,
}

/// A stack of declarations, innermost last.
#[derive(Debug, Default)]
pub struct Scopes {
    bindings: Vec<Binding>,
}

impl Scopes {
    /// Takes a declaration of the element at `depth`.
    pub fn declare(&mut self, depth: usize, prefix: &str, namespace: &str) -> Result<(), XmlError> {
        let refused = |why| Err(XmlError::Namespace(format!("prefix `{prefix}` {why}")));
        // §3, reserved prefixes and namespace names.
        if prefix == "xmlns" || namespace == XMLNS_NAMESPACE {
            return refused("may not be declared so");
        }
        if (prefix == "xml") != (namespace == XML_NAMESPACE) {
            return refused("is bound to the namespace of another");
        }
        // §5: only the default namespace can be taken back. litmus: propfind_invalid2.
        if !prefix.is_empty() && namespace.is_empty() {
            return refused("is bound to no namespace");
        }
        if namespace.len() > NAMESPACE_BYTES_MAX {
            return Err(XmlError::Limit("a namespace is longer than 1024 bytes"));
        }
        if self.bindings.len() >= BINDINGS_MAX {
            return Err(XmlError::Limit("more than 64 namespace declarations are in force"));
        }
        self.bindings.push(Binding { prefix: prefix.to_owned(), namespace: namespace.to_owned(), depth });
        Ok(())
    }

    /// The element at `depth` is closed.
    pub fn leave(&mut self, depth: usize) {
        while self.bindings.last().is_some_and(|binding| binding.depth >= depth) {
            self.bindings.pop();
        }
    }

    /// Declarations in force.
    pub fn len(&self) -> usize {
        self.bindings.len()
    }

    pub fn outermost(&self, count: usize) -> &[Binding] {
        &self.bindings[..count.min(self.bindings.len())]
    }

    /// The place in the stack of the declaration that `prefix` refers to.
    pub fn position(&self, prefix: &str) -> Option<usize> {
        self.bindings.iter().rposition(|binding| binding.prefix == prefix)
    }

    /// The namespace of an element, or of an attribute with a prefix.
    pub fn resolve(&self, prefix: &str) -> Result<&str, XmlError> {
        match self.position(prefix) {
            Some(at) => Ok(&self.bindings[at].namespace),
            None if prefix.is_empty() => Ok(""),
            None if prefix == "xml" => Ok(XML_NAMESPACE),
            None => Err(XmlError::Namespace(format!("prefix `{prefix}` is not declared"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inner_declaration_hides_an_outer_one_until_it_is_left() {
        let mut scopes = Scopes::default();
        scopes.declare(1, "", "DAV:").unwrap();
        scopes.declare(2, "", "").unwrap();
        assert_eq!(scopes.resolve(""), Ok(""));
        scopes.leave(2);
        assert_eq!(scopes.resolve(""), Ok("DAV:"));
        scopes.leave(1);
        assert_eq!((scopes.resolve(""), scopes.len()), (Ok(""), 0));
    }

    #[test]
    fn reserved_prefixes_stay_what_they_are() {
        let mut scopes = Scopes::default();
        assert!(scopes.declare(1, "xml", XML_NAMESPACE).is_ok());
        for (prefix, namespace) in
            [("xml", "urn:x"), ("x", XML_NAMESPACE), ("xmlns", "urn:x"), ("x", XMLNS_NAMESPACE), ("x", "")]
        {
            assert!(scopes.declare(1, prefix, namespace).is_err(), "{prefix}={namespace}");
        }
    }

    #[test]
    fn declarations_in_force_are_bounded() {
        let mut scopes = Scopes::default();
        for n in 0..BINDINGS_MAX {
            scopes.declare(n, &format!("p{n}"), "urn:x").unwrap();
        }
        assert!(matches!(scopes.declare(99, "q", "urn:x"), Err(XmlError::Limit(_))));
        scopes.leave(BINDINGS_MAX - 1);
        assert!(scopes.declare(99, "q", "urn:x").is_ok());
        assert!(scopes.declare(99, "r", &"x".repeat(NAMESPACE_BYTES_MAX + 1)).is_err());
    }
}
