//! A client lost to its door keeps its state only until another wants the file; here its door is asked to end it.

use std::time::Duration;

use file_state::{Holder, Want};
use types::FileId;

use crate::{Files, FilesError};

impl Files {
    /// For a caller that was refused `want` of a file. `true`: the lost holders that stood in the way are gone, and a
    /// retry may succeed. `false`: no holder in the way was lost. `Recalled`: they are not all gone after `patience`.
    pub async fn dislodge(&self, file: FileId, want: Want, patience: Duration) -> Result<bool, FilesError> {
        if !self.asks_to_go(file, want) {
            return Ok(false);
        }
        self.once_returned(patience, || Ok((!self.asks_to_go(file, want)).then_some(true))).await
    }

    fn asks_to_go(&self, file: FileId, want: Want) -> bool {
        let in_the_way: Vec<Holder> = self.table().file(file).in_the_way_of(want).into_iter().collect();
        let mut is_any_going = false;
        for (recaller, of_door) in self.by_door(&in_the_way, |holder| *holder) {
            is_any_going |= recaller.dislodge(&of_door);
        }
        is_any_going
    }
}
