//! The entries of a directory as one page of the view shows them.
//!
//! A directory of up to [`SORTED_MAX`] entries is read whole and sorted. A larger one is shown in its own order, a part
//! at a time, so that a million names cost no more than what is shown.

use std::cmp::Ordering;

use api::{Cookie, DirEntry, Namespace};
use http_wire::target::Query;
use types::{FileId, Identity, Name};

use crate::refusal::Refusal;

pub(super) const SORTED_MAX: usize = 10_000;
/// Entries in one page of the view.
pub(super) const SHOWN: usize = 500;
/// Entries asked of the namespace at a time.
const STEP: usize = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Name,
    Size,
    Modified,
}

/// How the view is to be sorted, and which part of it is to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    pub key: Key,
    pub is_descending: bool,
    /// From zero.
    pub page: usize,
    /// Of a directory that is too large to be sorted.
    pub after: Option<Cookie>,
}

impl View {
    /// Ignores parameters that make no sense: an address may be old, or made by hand.
    pub fn of(query: &Query) -> View {
        let number = |name: &str| query.first(name).and_then(|text| text.parse::<u64>().ok());
        View {
            key: match query.first("sort") {
                Some("size") => Key::Size,
                Some("modified") => Key::Modified,
                _ => Key::Name,
            },
            is_descending: query.first("order") == Some("desc"),
            page: number("page").and_then(|page| usize::try_from(page.saturating_sub(1)).ok()).unwrap_or(0),
            after: number("after").map(Cookie),
        }
    }

    /// As the query of an address, without `?`; empty for what is shown anyway.
    pub fn query(&self) -> String {
        let mut parts = Vec::new();
        if let Some(Cookie(after)) = self.after {
            parts.push(format!("after={after}"));
        } else {
            match self.key {
                Key::Name => {}
                Key::Size => parts.push("sort=size".to_owned()),
                Key::Modified => parts.push("sort=modified".to_owned()),
            }
            if self.is_descending {
                parts.push("order=desc".to_owned());
            }
            if self.page > 0 {
                parts.push(format!("page={}", self.page + 1));
            }
        }
        parts.join("&")
    }
}

pub(super) enum Entries {
    /// All are known; `shown` is the wanted part.
    Sorted { shown: Vec<DirEntry>, count: usize, file_bytes: u64, pages: usize, page: usize },
    /// `next` is where the following part begins.
    Unsorted { shown: Vec<DirEntry>, next: Option<Cookie> },
}

pub(super) async fn read(
    namespace: &dyn Namespace,
    who: &Identity,
    dir: FileId,
    view: &View,
) -> Result<Entries, Refusal> {
    if let Some(after) = view.after {
        return part(namespace, who, dir, after).await;
    }
    let mut all: Vec<DirEntry> = Vec::new();
    loop {
        let after = all.last().map_or(Cookie::START, |last| last.cookie);
        let page = namespace.list(who, dir, after, STEP).await?;
        let is_over = page.is_last || page.entries.is_empty();
        all.extend(page.entries);
        if is_over {
            break;
        }
        if all.len() >= SORTED_MAX {
            return part(namespace, who, dir, Cookie::START).await;
        }
    }
    let (count, file_bytes) = (all.len(), sum(&all));
    sort(&mut all, view.key, view.is_descending);
    let pages = count.div_ceil(SHOWN).max(1);
    let page = view.page.min(pages - 1);
    let shown = all.into_iter().skip(page * SHOWN).take(SHOWN).collect();
    Ok(Entries::Sorted { shown, count, file_bytes, pages, page })
}

async fn part(
    namespace: &dyn Namespace,
    who: &Identity,
    dir: FileId,
    after: Cookie,
) -> Result<Entries, Refusal> {
    let page = namespace.list(who, dir, after, SHOWN).await?;
    let next = page.entries.last().filter(|_| !page.is_last).map(|last| last.cookie);
    Ok(Entries::Unsorted { shown: page.entries, next })
}

fn sum(entries: &[DirEntry]) -> u64 {
    let files = entries.iter().filter(|entry| entry.attributes.kind.is_regular());
    files.fold(0, |sum, entry| sum.saturating_add(entry.attributes.size))
}

/// Folders first in either order; the name decides among equals.
fn sort(entries: &mut [DirEntry], key: Key, is_descending: bool) {
    entries.sort_by(|a, b| {
        let is_file = |entry: &DirEntry| !entry.attributes.kind.is_directory();
        let by_key = match key {
            Key::Name => natural(&a.name, &b.name),
            // The size of a folder says nothing about what is in it.
            Key::Size if !is_file(a) => Ordering::Equal,
            Key::Size => a.attributes.size.cmp(&b.attributes.size),
            Key::Modified => a.attributes.mtime.cmp(&b.attributes.mtime),
        };
        let by_key = if is_descending { by_key.reverse() } else { by_key };
        is_file(a).cmp(&is_file(b)).then(by_key).then_with(|| natural(&a.name, &b.name))
    });
}

/// As people count: `run9` before `run10`, `B` between `a` and `c`. Names that differ are never equal.
fn natural(a: &Name, b: &Name) -> Ordering {
    let (mut x, mut y) = (a.as_bytes(), b.as_bytes());
    while let (Some(p), Some(q)) = (x.first(), y.first()) {
        let order = if p.is_ascii_digit() && q.is_ascii_digit() {
            let ((n, after_n), (m, after_m)) = (digits(x), digits(y));
            (x, y) = (after_n, after_m);
            // Without leading zeros the longer number is the larger one.
            n.len().cmp(&m.len()).then_with(|| n.cmp(m))
        } else {
            let order = p.to_ascii_lowercase().cmp(&q.to_ascii_lowercase());
            (x, y) = (&x[1..], &y[1..]);
            order
        };
        if order.is_ne() {
            return order;
        }
    }
    x.len().cmp(&y.len()).then_with(|| a.cmp(b))
}

/// The number at the beginning without its leading zeros, and what follows it.
fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let zeros = text[..end].iter().position(|byte| *byte != b'0').unwrap_or(end);
    (&text[zeros..end], &text[end..])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sorted(names: &[&str]) -> Vec<String> {
        let mut names: Vec<Name> = names.iter().map(|name| Name::new(name.as_bytes()).unwrap()).collect();
        names.sort_by(natural);
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_are_sorted_as_people_count() {
        let expected = ["a", "B", "c", "run1", "run9", "run009b", "run10", "run010", "run11", "z"];
        let mut given = expected;
        given.reverse();
        // Equal numbers: what follows decides, then the bytes.
        assert_eq!(
            sorted(&given),
            ["a", "B", "c", "run1", "run9", "run009b", "run010", "run10", "run11", "z"]
        );
    }

    #[test]
    fn a_query_that_makes_no_sense_shows_the_first_page_by_name() {
        let first = View { key: Key::Name, is_descending: false, page: 0, after: None };
        for text in ["", "sort=colour&order=up", "page=-1", "page=0", "page=x", "after=", "after=-3"] {
            assert_eq!(View::of(&Query::parse(text).unwrap()), first, "{text}");
        }
        assert_eq!(first.query(), "");
    }

    proptest! {
        #[test]
        fn the_order_of_names_is_total(
            names in prop::collection::vec("[aAb019]{1,6}", 3),
        ) {
            let names: Vec<Name> = names.iter().map(|name| Name::new(name.as_bytes()).unwrap()).collect();
            let (a, b, c) = (&names[0], &names[1], &names[2]);
            prop_assert_eq!(natural(a, b), natural(b, a).reverse());
            prop_assert_eq!(natural(a, b) == Ordering::Equal, a == b);
            if natural(a, b).is_le() && natural(b, c).is_le() {
                prop_assert!(natural(a, c).is_le());
            }
        }

        #[test]
        fn a_view_survives_its_own_address(size: bool, is_descending: bool, page in 0..1000usize, after: Option<u64>) {
            let key = if size { Key::Size } else { Key::Modified };
            let view = match after {
                Some(after) => View { key: Key::Name, is_descending: false, page: 0, after: Some(Cookie(after)) },
                None => View { key, is_descending, page, after: None },
            };
            prop_assert_eq!(View::of(&Query::parse(&view.query()).unwrap()), view);
        }
    }
}
