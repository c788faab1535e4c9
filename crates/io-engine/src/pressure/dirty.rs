//! How many bytes may become dirty before the kernel makes writers wait.
//!
//! mm/page-writeback.c: writers run freely up to the middle between the background and the hard limit
//! (`dirty_freerun_ceiling`). The limits are parts of the memory that may hold file pages, or set in bytes. A control
//! group has limits of its own: the same parts of its own memory (`mdtc_calc_avail`).
//!
//! The reserves of the zones, which the kernel takes off, are not in `/proc/meminfo`: the result is a little too large.

use super::control_group::ControlGroup;
use crate::system_files::{SystemFiles, value_of};

#[derive(Clone, Copy, Debug)]
enum Limit {
    Bytes(u64),
    Percent(u64),
}

/// Memory that may hold file pages, and how much of it waits for write-back.
#[derive(Clone, Copy, Debug)]
struct Domain {
    available_bytes: u64,
    dirty_bytes: u64,
}

/// `None`: a file is absent.
pub(super) fn headroom_bytes(files: &SystemFiles, meminfo: &str, group: &ControlGroup) -> Option<u64> {
    let limit = |name| Limit::read(files, name);
    let (hard, background) = (limit("dirty")?, limit("dirty_background")?);
    let machine = Domain::of_machine(meminfo)?;
    let whole_bytes = machine.available_bytes;
    let of = |domain: Domain| domain.headroom_bytes(hard, background, whole_bytes);
    let in_group = Domain::of_group(group, machine).map(of);
    Some(in_group.map_or(of(machine), |bytes| bytes.min(of(machine))))
}

impl Limit {
    fn read(files: &SystemFiles, name: &str) -> Option<Limit> {
        match files.number(&format!("proc/sys/vm/{name}_bytes"))? {
            0 => Some(Limit::Percent(files.number(&format!("proc/sys/vm/{name}_ratio"))?)),
            bytes => Some(Limit::Bytes(bytes)),
        }
    }

    /// A limit in bytes is for the whole machine: a group has its share.
    fn bytes_of(self, available_bytes: u64, whole_bytes: u64) -> u64 {
        let part = |numerator: u64, denominator: u64| {
            let bytes = u128::from(available_bytes) * u128::from(numerator) / u128::from(denominator.max(1));
            u64::try_from(bytes).unwrap_or(u64::MAX)
        };
        match self {
            Limit::Bytes(bytes) => part(bytes, whole_bytes),
            Limit::Percent(percent) => part(percent, 100),
        }
    }
}

impl Domain {
    fn of_machine(meminfo: &str) -> Option<Domain> {
        let bytes = |key| Some(value_of(meminfo, key)?.saturating_mul(1 << 10));
        let sum = |a: u64, b: u64| a.saturating_add(b);
        Some(Domain {
            available_bytes: sum(bytes("MemFree:")?, sum(bytes("Active(file):")?, bytes("Inactive(file):")?)),
            dirty_bytes: sum(bytes("Dirty:")?, bytes("Writeback:")?),
        })
    }

    fn of_group(group: &ControlGroup, machine: Domain) -> Option<Domain> {
        let (pages, free_bytes) = (group.pages?, group.free_bytes?);
        let clean_bytes = pages.file_bytes.saturating_sub(pages.dirty_bytes);
        let machine_clean_bytes = machine.available_bytes.saturating_sub(machine.dirty_bytes);
        let elsewhere_bytes = machine_clean_bytes.saturating_sub(clean_bytes);
        Some(Domain {
            available_bytes: pages.file_bytes.saturating_add(free_bytes.min(elsewhere_bytes)),
            dirty_bytes: pages.dirty_bytes.saturating_add(pages.writeback_bytes),
        })
    }

    fn headroom_bytes(self, hard: Limit, background: Limit, whole_bytes: u64) -> u64 {
        let hard_bytes = hard.bytes_of(self.available_bytes, whole_bytes);
        let background_bytes = background.bytes_of(self.available_bytes, whole_bytes);
        // As the kernel does where the two are set the wrong way round.
        let background_bytes = if background_bytes >= hard_bytes { hard_bytes / 2 } else { background_bytes };
        let free_run_bytes = background_bytes + (hard_bytes - background_bytes) / 2;
        free_run_bytes.saturating_sub(self.dirty_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::control_group::ControlGroup;
    use super::*;
    use crate::system_files::invented::InventedFiles;

    fn limits(hard: (u64, u64), background: (u64, u64)) -> InventedFiles {
        InventedFiles::new()
            .with("proc/sys/vm/dirty_bytes", &hard.0.to_string())
            .with("proc/sys/vm/dirty_ratio", &hard.1.to_string())
            .with("proc/sys/vm/dirty_background_bytes", &background.0.to_string())
            .with("proc/sys/vm/dirty_background_ratio", &background.1.to_string())
    }

    /// 1,000 KiB that may hold file pages.
    fn meminfo(dirty_kib: u64, writeback_kib: u64) -> String {
        format!(
            "MemFree: 500 kB\nActive(file): 300 kB\nInactive(file): 200 kB\nDirty: {dirty_kib} kB\n\
             Writeback: {writeback_kib} kB\n"
        )
    }

    fn headroom_kib(invented: &InventedFiles, meminfo: &str, group: &ControlGroup) -> Option<u64> {
        headroom_bytes(&invented.files(), meminfo, group).map(|bytes| bytes >> 10)
    }

    #[test]
    fn writers_run_freely_up_to_the_middle_of_both_limits() {
        let none = ControlGroup::default();
        let ratios = limits((0, 20), (0, 10));
        assert_eq!(headroom_kib(&ratios, &meminfo(0, 0), &none), Some(150));
        assert_eq!(headroom_kib(&ratios, &meminfo(40, 10), &none), Some(100));
        assert_eq!(headroom_kib(&ratios, &meminfo(400, 10), &none), Some(0));
        let bytes = limits((400 << 10, 0), (200 << 10, 0));
        assert_eq!(headroom_kib(&bytes, &meminfo(0, 0), &none), Some(300));
        let reversed = limits((0, 20), (0, 60));
        assert_eq!(headroom_kib(&reversed, &meminfo(0, 0), &none), Some(150));
    }

    #[test]
    fn a_control_group_has_the_same_parts_of_its_own_memory() {
        let invented = limits((0, 20), (0, 10))
            .with("sys/fs/cgroup/cgroup.controllers", "memory")
            .with("proc/self/cgroup", "0::/a\n")
            .with("sys/fs/cgroup/a/memory.max", "409600")
            .with("sys/fs/cgroup/a/memory.current", "307200")
            .with(
                "sys/fs/cgroup/a/memory.stat",
                "inactive_file 102400\nactive_file 0\nfile_dirty 10240\nfile_writeback 0\n",
            );
        let group = ControlGroup::read(&invented.files());
        // 100 KiB of file pages and 100 KiB up to the limit: 15 % of both, and 10 KiB of that are used.
        assert_eq!(headroom_kib(&invented, &meminfo(0, 0), &group), Some(20));
        assert_eq!(headroom_kib(&invented, &meminfo(145, 0), &group), Some(5), "the machine has less");
    }

    #[test]
    fn an_absent_file_makes_it_unknown() {
        let none = ControlGroup::default();
        assert_eq!(headroom_kib(&InventedFiles::new(), &meminfo(0, 0), &none), None);
        assert_eq!(headroom_kib(&limits((0, 20), (0, 10)), "MemFree: 500 kB\n", &none), None);
        let absurd = limits((u64::MAX, 0), (u64::MAX, 0));
        assert!(headroom_kib(&absurd, &meminfo(0, 0), &none).is_some());
    }
}
