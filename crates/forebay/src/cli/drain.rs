//! `forebay pool drain`: a pool that is emptied, or closed only.

use clap::Args;

use super::{PoolArguments, ProgressArguments};

#[derive(Args)]
pub struct DrainArguments {
    #[command(flatten)]
    pub pool: PoolArguments,
    /// Move no files: the head serves them where they are, until the pool is enabled again
    #[arg(long)]
    pub keep_files: bool,
    /// Wait until the pool is empty, or none of the files that are left can be moved
    #[arg(long, conflicts_with = "keep_files")]
    pub wait: bool,
    #[command(flatten)]
    pub progress: ProgressArguments,
}
