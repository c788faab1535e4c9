//! Walks over a tree, as DELETE, COPY, MOVE and PROPFIND make them: their bounds, the way down, and the members that failed.

use std::sync::Arc;

use types::Name;

use crate::lock_table::Path;
use crate::refusal::Refusal;

/// Entries of a directory that are looked at together.
pub(crate) const PAGE: usize = 512;
/// Failures that a 207 answer lists; what follows is left out.
pub(crate) const FAILURES_MAX: usize = 100;

/// Directories below each other that a walk enters. Paths of requests are not as deep, but trees may be moved deeper.
pub(crate) const DEPTH_MAX: usize = 1_024;

/// Members of a collection for which a request failed, and why.
pub(crate) type Failures = Vec<(Path, Refusal)>;

/// The way down from where a walk began. Descents of one walk share what they have in common.
#[derive(Clone, Default)]
pub(crate) struct Descent(Option<Arc<Step>>);

struct Step {
    above: Descent,
    name: Name,
    depth: usize,
}

impl Descent {
    pub fn name(&self) -> Option<&Name> {
        self.0.as_ref().map(|step| &step.name)
    }

    pub fn depth(&self) -> usize {
        self.0.as_ref().map_or(0, |step| step.depth)
    }

    /// Refused beyond [`DEPTH_MAX`]: however directories are nested, a walk stays bounded.
    pub fn down(&self, name: &Name) -> Result<Descent, Refusal> {
        let depth = self.depth() + 1;
        if depth > DEPTH_MAX {
            return Err(Refusal::conflict(format!("directories are nested deeper than {DEPTH_MAX}")));
        }
        Ok(Descent(Some(Arc::new(Step { above: self.clone(), name: name.clone(), depth }))))
    }

    /// The whole path, for a walk that began at `top`.
    pub fn path(&self, top: &[Name]) -> Path {
        let mut names: Vec<&Name> = Vec::with_capacity(self.depth());
        let mut here = self;
        while let Some(step) = &here.0 {
            names.push(&step.name);
            here = &step.above;
        }
        top.iter().chain(names.into_iter().rev()).cloned().collect()
    }
}

pub(crate) fn extended(path: &[Name], name: &Name) -> Path {
    path.iter().chain([name]).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descent_is_a_path_below_where_it_began_and_ends_at_its_bound() {
        let name = |text: &str| Name::new(text.as_bytes()).unwrap();
        let names = |text: &str| text.split('/').map(name).collect::<Path>();
        let above = Descent::default().down(&name("b")).unwrap();
        let (left, right) = (above.down(&name("c")).unwrap(), above.down(&name("d")).unwrap());
        assert_eq!((left.path(&names("a")), left.depth()), (names("a/b/c"), 2));
        assert_eq!(right.path(&[]), names("b/d"));
        let mut here = Descent::default();
        for _ in 0..DEPTH_MAX {
            here = here.down(&name("x")).unwrap();
        }
        assert!(here.down(&name("x")).is_err());
    }
}
