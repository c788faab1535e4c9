//! The kernel, the file system and the device that a calibration was measured on. On another platform it is void.

use std::os::fd::AsFd;

use rustix::fs::{fstat, fstatfs, major, minor};
use rustix::io::Errno;
use rustix::system::uname;
use serde::{Deserialize, Serialize};

use crate::system_files::SystemFiles;

/// Sectors of `/sys/block/*/size`, whatever the device has.
const SECTOR_BYTES: u64 = 512;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Platform {
    pub kernel: String,
    pub file_system: String,
    /// `None`: a file system without a block device of its own.
    pub device: Option<Device>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    pub major: u32,
    pub minor: u32,
    /// Virtual disks have none.
    pub model: Option<String>,
    pub is_rotational: Option<bool>,
    pub size_bytes: Option<u64>,
}

impl Platform {
    /// That of the file system which `dir` lies in.
    pub fn of(files: &SystemFiles, dir: impl AsFd) -> Result<Platform, Errno> {
        let number = fstat(&dir)?.st_dev;
        Ok(Platform {
            kernel: uname().release().to_string_lossy().into_owned(),
            file_system: file_system_name(fstatfs(&dir)?.f_type as u64),
            device: Device::read(files, major(number), minor(number)),
        })
    }

    /// Whether the files are in memory, so that no read of them is cold.
    pub fn is_in_memory(&self) -> bool {
        matches!(self.file_system.as_str(), "tmpfs" | "ramfs")
    }
}

impl Device {
    fn read(files: &SystemFiles, major: u32, minor: u32) -> Option<Device> {
        let dir = format!("sys/dev/block/{major}:{minor}");
        let sectors = files.number(&format!("{dir}/size"));
        if sectors.is_none() && !files.exists(&dir) {
            return None;
        }
        // A partition has no queue and no model; the disk that it lies on is the directory above.
        let of_disk = |name: &str| {
            ["", "../"].into_iter().find_map(|above| files.read(&format!("{dir}/{above}{name}")))
        };
        Some(Device {
            major,
            minor,
            model: of_disk("device/model").map(|model| model.trim().to_owned()),
            is_rotational: of_disk("queue/rotational").map(|flag| flag.trim() == "1"),
            size_bytes: sectors.and_then(|sectors| sectors.checked_mul(SECTOR_BYTES)),
        })
    }
}

/// By the numbers of linux/magic.h, and of those that stand elsewhere in the kernel.
fn file_system_name(magic: u64) -> String {
    // The field is signed, of 32 bits on some machines.
    let name = match magic & 0xffff_ffff {
        0xef53 => "ext",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0xf2f5_2010 => "f2fs",
        0x2fc1_2fc1 => "zfs",
        0xca45_1a4e => "bcachefs",
        0x0102_1994 => "tmpfs",
        0x8584_58f6 => "ramfs",
        0x794c_7630 => "overlay",
        0x6573_5546 => "fuse",
        0x6969 => "nfs",
        other => return format!("{other:#x}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system_files::invented::InventedFiles;

    #[test]
    fn a_disk_is_known_by_its_model_kind_and_size() {
        let invented = InventedFiles::new()
            .with("sys/dev/block/8:0/size", "2048\n")
            .with("sys/dev/block/8:0/device/model", "SPINNING RUST   \n")
            .with("sys/dev/block/8:0/queue/rotational", "1\n");
        let disk = Device {
            major: 8,
            minor: 0,
            model: Some("SPINNING RUST".to_owned()),
            is_rotational: Some(true),
            size_bytes: Some(1 << 20),
        };
        assert_eq!(Device::read(&invented.files(), 8, 0), Some(disk));
        assert_eq!(Device::read(&invented.files(), 0, 45), None);
    }

    #[test]
    fn a_partition_has_the_model_of_its_disk_and_its_own_size() {
        let invented = InventedFiles::new()
            .with("sys/devices/sda/device/model", "FLASH\n")
            .with("sys/devices/sda/queue/rotational", "0\n")
            .with("sys/devices/sda/sda1/size", "8\n");
        let links = invented.path().join("sys/dev/block");
        std::fs::create_dir_all(&links).unwrap();
        std::os::unix::fs::symlink("../../devices/sda/sda1", links.join("8:1")).unwrap();
        let partition = Device::read(&invented.files(), 8, 1).unwrap();
        assert_eq!(partition.model.as_deref(), Some("FLASH"));
        assert_eq!((partition.is_rotational, partition.size_bytes), (Some(false), Some(4096)));
    }

    #[test]
    fn a_platform_is_the_same_at_every_look() {
        let dir = tempfile::tempdir().unwrap();
        let open = std::fs::File::open(dir.path()).unwrap();
        let platform = Platform::of(&SystemFiles::default(), &open).unwrap();
        assert_eq!(Platform::of(&SystemFiles::default(), &open).unwrap(), platform);
        assert!(!platform.kernel.is_empty());
        assert_eq!(file_system_name(0x0102_1994), "tmpfs");
        assert_eq!(file_system_name(0xffff_ffff_9123_683e), "btrfs", "sign-extended");
        assert_eq!(file_system_name(0x1234), "0x1234");
    }
}
