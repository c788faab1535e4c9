//! The front of the door, asked without a connection.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod ground;
mod races;
mod redirects;
mod uploads;
