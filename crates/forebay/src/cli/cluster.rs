//! `forebay cluster`.

use clap::Subcommand;

use super::{InstanceArguments, OutputArguments, notes};

#[derive(Subcommand)]
pub enum ClusterCommand {
    /// Make a token with which hosts may join as pools, and print the command for it
    #[command(after_help = notes::CLUSTER_TOKEN)]
    Token {
        #[command(flatten)]
        place: InstanceArguments,
        /// Time for which hosts may join by the token
        #[arg(long, value_name = "H", default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=8_760))]
        hours: u32,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// List the pools of other hosts, whether they answer, their leases, and the keys of the cluster
    #[command(after_help = notes::CLUSTER_STATUS)]
    Status {
        #[command(flatten)]
        place: InstanceArguments,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Replace the key of the cluster's authority and those of all pool hosts
    #[command(after_help = notes::CLUSTER_ROTATE_KEYS)]
    RotateKeys {
        #[command(flatten)]
        place: InstanceArguments,
        /// Rotate nothing: from now on refuse the keys before the last rotation, also of pool hosts that have no others
        #[arg(long)]
        end_overlap: bool,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Shut a pool host out: refuse its keys, and end its connections
    #[command(after_help = notes::CLUSTER_SHUT_OUT)]
    ShutOut {
        #[command(flatten)]
        place: InstanceArguments,
        /// Pool of the host: pool-1, pool-2, …
        #[arg(value_name = "POOL")]
        pool: String,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Make a token with which the host of a pool joins again, by a new key
    #[command(after_help = notes::CLUSTER_READMIT)]
    Readmit {
        #[command(flatten)]
        place: InstanceArguments,
        /// Pool of the host: pool-1, pool-2, …
        #[arg(value_name = "POOL")]
        pool: String,
        /// Time for which the host may join by the token
        #[arg(long, value_name = "H", default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=8_760))]
        hours: u32,
        #[command(flatten)]
        output: OutputArguments,
    },
}
