//! `forebay why`: the reasons of a running instance.

use clap::{Args, Subcommand};

use super::{InstanceArguments, OutputArguments, notes};

#[derive(Subcommand)]
pub enum WhyCommand {
    /// Show the last decisions about modes of I/O for a file, with their inputs
    #[command(after_help = notes::WHY_IO)]
    Io(WhyIoArguments),
}

#[derive(Args)]
pub struct WhyIoArguments {
    #[command(flatten)]
    pub place: InstanceArguments,
    /// Path of the file from the root of the namespace
    #[arg(value_name = "PATH")]
    pub path: String,
    /// Decide the same inputs again with this threshold, and show the result beside the decision; repeat the option for more
    #[arg(long = "with-threshold", value_name = "KEY=VALUE")]
    pub with_thresholds: Vec<String>,
    #[command(flatten)]
    pub output: OutputArguments,
}
