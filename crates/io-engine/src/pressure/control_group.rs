//! The control group (version 2) that this process runs in, and the groups above it.

use crate::system_files::{SystemFiles, value_of};

const MOUNT: &str = "sys/fs/cgroup";
/// Groups below each other that are looked at, from the innermost on. A kernel has no bound by default.
const LEVELS_MAX: usize = 32;

/// The memory that the limits of the groups leave to this process. Empty without a control group.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ControlGroup {
    /// `memory.pressure` of the innermost group that has one.
    pub stalls: Option<String>,
    /// The limited group that is nearest to its limit.
    pub tightest: Option<Usage>,
    /// Pages of the innermost group that accounts for memory.
    pub pages: Option<Pages>,
    /// Bytes up to the nearest limit of any group.
    pub free_bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    pub limit_bytes: u64,
    pub used_bytes: u64,
    /// All but clean file pages and slab that the kernel can reclaim.
    pub unreclaimable_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pages {
    /// File pages on the kernel's lists. Pages of tmpfs are not among them.
    pub file_bytes: u64,
    pub dirty_bytes: u64,
    pub writeback_bytes: u64,
    slab_reclaimable_bytes: u64,
}

impl ControlGroup {
    pub fn read(files: &SystemFiles) -> ControlGroup {
        let mut group = ControlGroup::default();
        let Some(path) = innermost(files) else { return group };
        let mut path = path.as_str();
        for _ in 0..LEVELS_MAX {
            group.add(files, &format!("{MOUNT}{path}"));
            match path.rsplit_once('/') {
                Some((above, _)) => path = above,
                None => break,
            }
        }
        group
    }

    fn add(&mut self, files: &SystemFiles, dir: &str) {
        if self.stalls.is_none() {
            self.stalls = files.read(&format!("{dir}/memory.pressure"));
        }
        // The root of the hierarchy has none.
        let Some(used_bytes) = files.number(&format!("{dir}/memory.current")) else { return };
        // "max" is no number, and no limit.
        let limit_bytes = ["memory.max", "memory.high"]
            .into_iter()
            .filter_map(|name| files.number(&format!("{dir}/{name}")))
            .min();
        if limit_bytes.is_none() && self.pages.is_some() {
            return;
        }
        let pages = files.read(&format!("{dir}/memory.stat")).and_then(|text| Pages::parse(&text));
        self.pages = self.pages.or(pages);
        let Some(limit_bytes) = limit_bytes else { return };
        let free_bytes = limit_bytes.saturating_sub(used_bytes);
        self.free_bytes = Some(self.free_bytes.map_or(free_bytes, |known| known.min(free_bytes)));
        // Without its pages, nothing of the group counts as unreclaimable: a full cache alone is not tight.
        let unreclaimable_bytes =
            pages.map_or(0, |pages| used_bytes.saturating_sub(pages.reclaimable_bytes()));
        let usage = Usage { limit_bytes, used_bytes, unreclaimable_bytes };
        self.tightest = Some(match self.tightest {
            Some(known) if known.is_tighter_than(usage) => known,
            _ => usage,
        });
    }
}

impl Usage {
    pub fn used_percent(self) -> f64 {
        percent(self.used_bytes, self.limit_bytes)
    }

    pub fn unreclaimable_percent(self) -> f64 {
        percent(self.unreclaimable_bytes, self.limit_bytes)
    }

    fn is_tighter_than(self, other: Usage) -> bool {
        let key = |usage: Usage| (usage.unreclaimable_percent(), usage.used_percent());
        key(self) > key(other)
    }
}

impl Pages {
    fn parse(stat: &str) -> Option<Pages> {
        Some(Pages {
            file_bytes: value_of(stat, "inactive_file")?.saturating_add(value_of(stat, "active_file")?),
            dirty_bytes: value_of(stat, "file_dirty")?,
            writeback_bytes: value_of(stat, "file_writeback")?,
            // Not in every kernel.
            slab_reclaimable_bytes: value_of(stat, "slab_reclaimable").unwrap_or(0),
        })
    }

    fn reclaimable_bytes(self) -> u64 {
        let unclean_bytes = self.dirty_bytes.saturating_add(self.writeback_bytes);
        self.file_bytes.saturating_sub(unclean_bytes).saturating_add(self.slab_reclaimable_bytes)
    }
}

/// A limit of zero is used up.
pub(super) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 100.0 } else { part as f64 / whole as f64 * 100.0 }
}

/// The path of this process's group below the mount, empty for the root. `None`: no hierarchy of version 2 alone, or a
/// group outside of what this process sees mounted.
fn innermost(files: &SystemFiles) -> Option<String> {
    if !files.exists(&format!("{MOUNT}/cgroup.controllers")) {
        return None;
    }
    let text = files.read("proc/self/cgroup")?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?.trim_end_matches('/');
    let is_inside = path.is_empty() || path.starts_with('/');
    (is_inside && !path.split('/').any(|part| part == "..")).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system_files::invented::InventedFiles;

    fn group(
        invented: InventedFiles,
        dir: &str,
        max: &str,
        current: u64,
        file: u64,
        dirty: u64,
    ) -> InventedFiles {
        let stat = format!(
            "anon 1\nfile 9\ninactive_file {file}\nactive_file 0\nfile_dirty {dirty}\nfile_writeback 0\n"
        );
        invented
            .with(&format!("{MOUNT}{dir}/memory.max"), &format!("{max}\n"))
            .with(&format!("{MOUNT}{dir}/memory.high"), "max\n")
            .with(&format!("{MOUNT}{dir}/memory.current"), &format!("{current}\n"))
            .with(&format!("{MOUNT}{dir}/memory.stat"), &stat)
    }

    fn hierarchy(own: &str) -> InventedFiles {
        InventedFiles::new()
            .with(&format!("{MOUNT}/cgroup.controllers"), "cpu memory\n")
            .with("proc/self/cgroup", &format!("0::{own}\n"))
    }

    #[test]
    fn the_tightest_ancestor_counts() {
        let invented = group(hierarchy("/a/b/c"), "/a/b/c", "max", 50, 10, 3);
        let invented = group(invented, "/a/b", "1000", 900, 100, 0);
        let invented = group(invented, "/a", "2000", 1950, 1000, 0);
        let found = ControlGroup::read(&invented.files());
        let tightest = Usage { limit_bytes: 1000, used_bytes: 900, unreclaimable_bytes: 800 };
        assert_eq!(found.tightest, Some(tightest));
        assert_eq!(found.free_bytes, Some(50), "the nearest limit is another one");
        let pages = found.pages.unwrap();
        assert_eq!((pages.file_bytes, pages.dirty_bytes), (10, 3), "these are of the innermost group");
    }

    #[test]
    fn dirty_pages_are_not_reclaimable_and_the_lower_of_both_limits_counts() {
        let invented = group(hierarchy("/a"), "/a", "1000", 500, 400, 150)
            .with(&format!("{MOUNT}/a/memory.high"), "800");
        let usage = ControlGroup::read(&invented.files()).tightest.unwrap();
        assert_eq!(usage, Usage { limit_bytes: 800, used_bytes: 500, unreclaimable_bytes: 250 });
    }

    #[test]
    fn the_root_of_a_container_is_a_group_with_a_limit() {
        let invented = group(hierarchy("/"), "", "1000", 10, 0, 0);
        assert_eq!(ControlGroup::read(&invented.files()).tightest.unwrap().limit_bytes, 1000);
    }

    #[test]
    fn version_1_and_paths_outside_the_mount_are_no_group() {
        let hybrid = InventedFiles::new()
            .with("proc/self/cgroup", "4:memory:/x\n0::/\n")
            .with(&format!("{MOUNT}/unified/cgroup.controllers"), "hugetlb\n")
            .with(&format!("{MOUNT}/memory.current"), "5\n");
        assert_eq!(ControlGroup::read(&hybrid.files()), ControlGroup::default());
        for path in ["/../other", "relative", "/a/../../etc"] {
            let outside = group(hierarchy(path), "/a", "10", 10, 0, 0);
            assert_eq!(ControlGroup::read(&outside.files()), ControlGroup::default(), "{path}");
        }
        assert_eq!(ControlGroup::read(&InventedFiles::new().files()), ControlGroup::default());
    }

    #[test]
    fn a_path_of_many_levels_is_looked_at_up_to_a_bound() {
        let deep = "/x".repeat(LEVELS_MAX);
        let invented = group(hierarchy(&deep), "", "1000", 10, 0, 0);
        assert_eq!(ControlGroup::read(&invented.files()).tightest, None);
        let invented = group(invented, &deep, "1000", 10, 0, 0);
        assert!(ControlGroup::read(&invented.files()).tightest.is_some());
    }

    #[test]
    fn a_damaged_file_is_an_unknown_and_a_limit_of_zero_is_used_up() {
        let invented = group(hierarchy("/a"), "/a", "1000", 990, 0, 0)
            .with(&format!("{MOUNT}/a/memory.stat"), "inactive_file many\n");
        let found = ControlGroup::read(&invented.files());
        assert_eq!(found.pages, None);
        assert_eq!(found.tightest.unwrap().unreclaimable_bytes, 0);
        let zero = group(hierarchy("/a"), "/a", "0", 10, 0, 0);
        assert_eq!(ControlGroup::read(&zero.files()).tightest.unwrap().unreclaimable_percent(), 100.0);
    }
}
