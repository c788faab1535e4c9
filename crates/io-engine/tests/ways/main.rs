//! The ways of a request to the disk, mixed on one file.

#![allow(clippy::unwrap_used)]

mod file;
mod measure;
mod model;
mod read_ahead;
mod steps;
mod threads;
