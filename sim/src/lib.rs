//! The simulator: the product's own code under faults that follow from a seed.
//!
//! [`rules`] runs the rules of a head and its pools (`cluster-state`, `api::TermFloor`) over a network that delays, stalls and
//! resets, and asks a model of what happened after each step. [`world`] runs the real head and pool hosts of `cluster` on one
//! runtime whose time is simulated, over such a network and disks that lose and fail. [`histories`] is common to both.

pub mod dice;
pub mod histories;
pub mod rules;
pub mod world;
