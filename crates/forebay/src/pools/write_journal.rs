//! The write journal of a pool, as `forebay pool iostat` shows it.

use pool::JournalReport;
use serde::{Deserialize, Serialize};
use types::display::Size;

use crate::output::counted;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteJournal {
    /// These five since the start, or in an interval.
    pub records: u64,
    /// Of the writes in these records.
    pub record_bytes: u64,
    pub syncs: u64,
    /// Writes that were synced with their file, since the journal was full or had failed.
    pub refused: u64,
    /// Syncs of files whose writes the journal already had.
    pub written_back: u64,
    /// Files with records that a restart would apply.
    pub files: u64,
    pub used_bytes: u64,
    pub room_bytes: u64,
    /// It takes nothing until the next start.
    pub failed: bool,
}

impl WriteJournal {
    pub fn since(self, earlier: WriteJournal) -> WriteJournal {
        // Of a server that was started anew meanwhile.
        let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        WriteJournal {
            records: since(self.records, earlier.records),
            record_bytes: since(self.record_bytes, earlier.record_bytes),
            syncs: since(self.syncs, earlier.syncs),
            refused: since(self.refused, earlier.refused),
            written_back: since(self.written_back, earlier.written_back),
            ..self
        }
    }

    /// Without a line end.
    pub fn line(&self) -> String {
        let failed = if self.failed { "failed, off until the next start; " } else { "" };
        let records = counted(self.records, "record", "records");
        let syncs = counted(self.syncs, "sync", "syncs");
        let each = match self.syncs {
            0 => String::new(),
            syncs => format!(" ({:.1} a sync)", self.records as f64 / syncs as f64),
        };
        let (written, used) = (Size(self.record_bytes), Size(self.used_bytes));
        let synced = counted(self.written_back, "file", "files");
        let (refused, to_sync, room) = (self.refused, self.files, Size(self.room_bytes));
        format!(
            "{failed}{records} in {syncs}{each}, {written}; {refused} refused; {synced} synced, {to_sync} to sync, \
             {used} of {room} in use"
        )
    }
}

impl From<JournalReport> for WriteJournal {
    fn from(report: JournalReport) -> WriteJournal {
        let JournalReport { records, record_bytes, refused, syncs, written_back, .. } = report;
        let JournalReport { live_files: files, used_bytes, room_bytes, has_failed: failed, .. } = report;
        WriteJournal {
            records,
            record_bytes,
            syncs,
            refused,
            written_back,
            files,
            used_bytes,
            room_bytes,
            failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: WriteJournal = WriteJournal {
        records: 1240,
        record_bytes: 12 << 20,
        syncs: 310,
        refused: 3,
        written_back: 900,
        files: 118,
        used_bytes: 4 << 20,
        room_bytes: 64 << 20,
        failed: false,
    };

    #[test]
    fn the_line_has_all_counts_and_says_first_that_the_journal_failed() {
        let line = "1240 records in 310 syncs (4.0 a sync), 12.0 MiB; 3 refused; 900 files synced, 118 to sync, \
                    4.0 MiB of 64.0 MiB in use";
        assert_eq!(NOW.line(), line);
        let failed = WriteJournal { failed: true, ..NOW };
        assert_eq!(failed.line(), format!("failed, off until the next start; {line}"));
        let idle = WriteJournal { room_bytes: 64 << 20, ..WriteJournal::default() };
        let line = "0 records in 0 syncs, 0 B; 0 refused; 0 files synced, 0 to sync, 0 B of 64.0 MiB in use";
        assert_eq!(idle.line(), line);
    }

    #[test]
    fn an_interval_has_the_differences_of_counts_and_the_present_use() {
        let before = WriteJournal { records: 1200, syncs: 300, files: 7, used_bytes: 1, ..NOW };
        let shown = NOW.since(before);
        let counts =
            WriteJournal { records: 40, syncs: 10, record_bytes: 0, refused: 0, written_back: 0, ..NOW };
        assert_eq!(shown, counts);
        let restarted =
            WriteJournal { records: 5, record_bytes: 9, syncs: 2, refused: 1, written_back: 4, ..NOW };
        assert_eq!(restarted.since(NOW), restarted);
    }
}
