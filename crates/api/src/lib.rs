//! The seams: what services and doors know of each other.
