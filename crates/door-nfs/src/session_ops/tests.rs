//! Sessions over a database that may fail.
