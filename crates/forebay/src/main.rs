//! Forebay: one POSIX namespace over many data servers.
//!
//! The binary: command line, configuration, roles, wiring in reading order, shutdown. `up` is the place where all
//! parts meet; nowhere else is a service handed to a door.

mod access_log;
mod banner;
mod certificate;
mod cli;
mod cluster;
mod config;
mod control;
mod data_dir;
mod dir;
mod drains;
mod fsck;
mod generate;
mod import;
mod instance;
mod keys;
mod lengths;
mod marks;
mod namespace;
mod naming;
mod output;
mod pool_host;
mod pool_map;
mod pools;
mod process;
mod progress;
mod questions;
mod quota;
mod reaper;
mod rebuild;
#[cfg(test)]
mod reference;
mod report;
mod services;
mod status;
mod stderr;
mod system;
mod system_names;
mod system_users;
mod table;
mod terminal;
mod up;
mod users;
mod versioned;
mod why;

use std::process::ExitCode;

use clap::Parser;

/// A crowd of clients that has left gives its memory back (docs/decisions/0002-dependencies.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let outcome = match cli::Cli::parse().command {
        cli::Command::Up(arguments) => up::run(&arguments),
        cli::Command::Status(arguments) => status::run(&arguments),
        cli::Command::Fsck(arguments) => fsck::run(&arguments),
        cli::Command::Dir { command } => dir::run(&command),
        cli::Command::Pool { command } => pools::run(&command),
        cli::Command::Cluster { command } => cluster::command::run(&command),
        cli::Command::Why { command } => why::run(&command),
        cli::Command::Keys { command } => keys::command::run(&command),
        cli::Command::Quota { command } => quota::run(&command),
        cli::Command::Du(arguments) => quota::run_du(&arguments),
        cli::Command::Namespace { command } => namespace::run(&command),
        cli::Command::User { command } => users::run(&command),
        cli::Command::Cert { command } => certificate::run(&command),
        cli::Command::Config { command } => config::run(&command),
        cli::Command::Generate { command: cli::GenerateCommand::Man { dir } } => generate::man(&dir),
        cli::Command::Generate { command: cli::GenerateCommand::Completions { shell } } => {
            generate::completions(shell)
        }
    };
    outcome.unwrap_or_else(|error| {
        // One line for people: what, where, and what to do.
        stderr::fail(&error);
        ExitCode::FAILURE
    })
}
