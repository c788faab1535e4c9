//! The simulator: the product's own rules under faults that follow from a seed.
//!
//! [`rules`] runs the rules of a head and its pools (`cluster-state`, `api::TermFloor`) over a network that delays, stalls and
//! resets, and asks a model of what happened after each step.

pub mod dice;
pub mod rules;
