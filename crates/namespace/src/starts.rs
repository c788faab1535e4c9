//! Notes about each start, and the consequences of how the one before ended.

use types::{Clock, FileId, FileKind};

use crate::inode::{ChangeFloor, Inode, Instance, new_inode};

/// Kept in `meta`, a number under each key; zero where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    values: [i64; Notes::KEYS.len()],
}

impl Notes {
    pub const KEYS: [&str; 5] =
        ["starts", "clean_end", "deferred", "change_floor_regular", "change_floor_any"];

    pub fn get(&self, key: &str) -> i64 {
        Notes::KEYS.iter().zip(self.values).find(|(of, _)| **of == key).map_or(0, |(_, value)| value)
    }

    pub fn set(&mut self, key: &str, value: i64) {
        for (of, slot) in Notes::KEYS.iter().zip(&mut self.values) {
            if *of == key {
                *slot = value;
            }
        }
    }

    /// At least so often, as somebody else knows.
    pub fn have_started(&mut self, starts: u64) {
        self.set("starts", self.get("starts").max(starts.cast_signed()));
    }

    /// `None`: there have been as many starts as can be counted.
    pub fn next_start(&self, is_deferred: bool) -> Option<(Instance, ChangeFloor, Notes)> {
        let start = self.get("starts") + 1;
        let instance = Instance { start: u32::try_from(start).ok()? };
        let mut floor = ChangeFloor {
            regular: self.get("change_floor_regular").cast_unsigned(),
            any: self.get("change_floor_any").cast_unsigned(),
        };
        let was_unclean = start > 1 && self.get("clean_end") == 0;
        if was_unclean {
            floor.regular = instance.first_change();
            if self.get("deferred") == 1 {
                floor.any = instance.first_change();
            }
        }
        let mut after = Notes::default();
        after.set("starts", start);
        after.set("deferred", i64::from(is_deferred));
        after.set("change_floor_regular", floor.regular.cast_signed());
        after.set("change_floor_any", floor.any.cast_signed());
        Some((instance, floor, after))
    }
}

/// Of a namespace that has nothing yet.
pub fn new_root(clock: &dyn Clock, owner: (u32, u32), instance: Instance) -> Inode {
    let mut root = new_inode(FileId::ROOT, FileKind::Directory, clock.now(), instance);
    root.attributes.mode = 0o755;
    (root.attributes.uid, root.attributes.gid) = owner;
    root
}
