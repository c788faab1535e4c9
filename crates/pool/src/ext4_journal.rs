//! Whether the pool's file system is an ext4 without a journal. Files on such a one that were synced may be lost when the power
//! is cut (seen with Linux 6.18), and no sync that a pool could ask for prevents it.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{fstat, fstatfs, major, minor};

const EXT4: i64 = 0xef53;

/// `false` also where nobody says so, as in a container without sysfs.
pub fn is_missing(root: impl AsFd) -> bool {
    let Ok(about) = fstatfs(&root) else { return false };
    about.f_type == EXT4 && fstat(&root).is_ok_and(|stat| lacks_journal(Path::new("/sys"), stat.st_dev))
}

/// The driver names the thread that writes the journal, or says that there is none.
fn lacks_journal(sys: &Path, device: u64) -> bool {
    let link = sys.join(format!("dev/block/{}:{}", major(device), minor(device)));
    let Some(name) = link.read_link().ok().and_then(|to| to.file_name().map(ToOwned::to_owned)) else {
        return false;
    };
    let task = std::fs::read_to_string(sys.join("fs/ext4").join(name).join("journal_task"));
    task.is_ok_and(|task| task.trim() == "<none>")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::makedev;

    use super::*;

    #[test]
    fn an_ext4_without_a_journal_is_known_by_what_the_driver_says() {
        let sys = tempfile::tempdir().unwrap();
        fs::create_dir_all(sys.path().join("dev/block")).unwrap();
        for (minor, name, task) in [(1, "sda1", "<none>\n"), (2, "sda2", "247\n")] {
            let link = sys.path().join(format!("dev/block/8:{minor}"));
            std::os::unix::fs::symlink(format!("../../devices/pci/sda/{name}"), link).unwrap();
            fs::create_dir_all(sys.path().join("fs/ext4").join(name)).unwrap();
            fs::write(sys.path().join("fs/ext4").join(name).join("journal_task"), task).unwrap();
        }
        assert!(lacks_journal(sys.path(), makedev(8, 1)));
        assert!(!lacks_journal(sys.path(), makedev(8, 2)));
        assert!(!lacks_journal(sys.path(), makedev(8, 3)), "no such device");
    }
}
