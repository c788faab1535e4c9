//! Layouts over all files: granting them, and taking them back.

use std::time::Duration;

use types::FileId;

use super::entries::Entries;
use super::under_way::UnderWay;
use crate::grants::Ended;
use crate::limits::Limits;
use crate::{FileStateError, GrantKind, Holder, LayoutMode, LayoutModes};

pub struct Layouts<'a> {
    pub(super) limits: &'a Limits,
    pub(super) entries: &'a mut Entries,
    pub(super) under_way: &'a mut UnderWay,
}

impl Layouts<'_> {
    pub fn grant(
        &mut self,
        file: FileId,
        holder: Holder,
        mode: LayoutMode,
        now: Duration,
    ) -> Result<(), FileStateError> {
        if self.under_way.at_once.has(holder) {
            return Err(FileStateError::RecallConflict);
        }
        let known = self.entries.of(file);
        known.judge_layout(holder, mode, now)?;
        let before = known.layout_of(holder);
        if before.is_empty() && self.entries.holders.held(holder).layouts >= self.limits.layouts_per_holder {
            return Err(FileStateError::Limit("layouts of a client"));
        }
        let layouts = &mut self.entries.enter(file).layouts;
        layouts.put(holder, before.with(mode));
        layouts.stamp(holder, now);
        self.entries.holders.enter(holder, file).layouts += usize::from(before.is_empty());
        Ok(())
    }

    /// Takes the layouts of these modes back and returns what is left. A recall ends when nothing is.
    pub fn give_back(&mut self, file: FileId, holder: Holder, modes: LayoutModes) -> LayoutModes {
        let before = self.entries.of(file).layout_of(holder);
        if before.is_empty() {
            return before;
        }
        let left = before.without(modes);
        let layouts = &mut self.entries.enter(file).layouts;
        if !left.is_empty() {
            layouts.put(holder, left);
            return left;
        }
        let deadline = layouts.remove(holder).and_then(|Ended { recall_deadline }| recall_deadline);
        self.under_way.end(file, holder, GrantKind::Layout, deadline);
        self.under_way.at_once.came_back(file, holder);
        self.entries.holders.enter(holder, file).layouts -= 1;
        self.entries.settle(file, holder);
        left
    }
}
