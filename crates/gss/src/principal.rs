//! Names of Kerberos: `ann@EXAMPLE.ORG`, `nfs/head.example.org@EXAMPLE.ORG` (RFC 4120 §6.2).

use std::fmt;

/// The most components of a name that are read.
pub(crate) const COMPONENTS_MAX: usize = 8;
/// The most bytes of a component or realm that are read.
pub(crate) const PART_BYTES_MAX: usize = 256;

/// Components and realm. The type of the name is a hint only (RFC 4120 §6.2) and not part of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Principal {
    pub components: Vec<String>,
    pub realm: String,
}

impl Principal {
    /// `service/host` of a service, `None` for names of any other form.
    pub fn service_and_host(&self) -> Option<(&str, &str)> {
        match self.components.as_slice() {
            [service, host] => Some((service, host)),
            _ => None,
        }
    }
}

/// As MIT's tools print it: what separates is escaped inside a part, so that no two principals look alike.
impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, component) in self.components.iter().enumerate() {
            if index > 0 {
                f.write_str("/")?;
            }
            escaped(f, component)?;
        }
        f.write_str("@")?;
        escaped(f, &self.realm)
    }
}

fn escaped(f: &mut fmt::Formatter<'_>, part: &str) -> fmt::Result {
    for c in part.chars() {
        match c {
            '/' | '@' | '\\' => write!(f, "\\{c}")?,
            c if c.is_control() => write!(f, "{}", c.escape_default())?,
            c => write!(f, "{c}")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(components: &[&str]) -> Principal {
        Principal { components: components.iter().map(|c| c.to_string()).collect(), realm: "R".into() }
    }

    #[test]
    fn principals_that_differ_never_look_alike() {
        assert_eq!(principal(&["nfs", "head"]).to_string(), "nfs/head@R");
        assert_eq!(principal(&["nfs/head"]).to_string(), "nfs\\/head@R");
        assert_eq!(principal(&["ann@R"]).to_string(), "ann\\@R@R");
        assert_eq!(principal(&["a\nb"]).to_string(), "a\\nb@R");
    }

    #[test]
    fn a_service_has_two_components() {
        assert_eq!(principal(&["nfs", "head"]).service_and_host(), Some(("nfs", "head")));
        assert_eq!(principal(&["ann"]).service_and_host(), None);
        assert_eq!(principal(&["a", "b", "c"]).service_and_host(), None);
    }
}
