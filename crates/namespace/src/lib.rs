//! Names, attributes and locations in SQL, with a group committer and an authoritative cache.
