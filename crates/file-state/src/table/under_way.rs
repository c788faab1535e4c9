//! The recalls under way of all files: by their deadlines, those of one question, those that were not heard.

use std::collections::BTreeSet;
use std::time::Duration;

use types::FileId;

use super::at_once::AtOnce;
use super::unheard::Unheard;
use crate::{GrantKind, Holder};

#[derive(Debug, Default)]
pub(super) struct UnderWay {
    pub deadlines: BTreeSet<(Duration, FileId, Holder, GrantKind)>,
    /// Of whom all layouts are asked for by one question, and which of them are wanted back.
    pub at_once: AtOnce,
    /// Those whose holder could not be told.
    pub unheard: Unheard,
}

impl UnderWay {
    pub fn is_empty(&self) -> bool {
        self.deadlines.is_empty() && self.at_once.is_empty() && self.unheard.is_empty()
    }

    /// A grant has gone, and with it its recall if it had one.
    pub fn end(&mut self, file: FileId, holder: Holder, kind: GrantKind, deadline: Option<Duration>) {
        if let Some(deadline) = deadline {
            self.deadlines.remove(&(deadline, file, holder, kind));
        }
        self.unheard.remove(file, holder, kind);
    }

    /// The deadline of a recall is another from now on.
    pub fn postpone(
        &mut self,
        file: FileId,
        holder: Holder,
        kind: GrantKind,
        before: Duration,
        deadline: Duration,
    ) {
        self.deadlines.remove(&(before, file, holder, kind));
        self.deadlines.insert((deadline, file, holder, kind));
    }
}
