//! The one conflict table: share modes, byte ranges, layouts, recalls, of every door.
