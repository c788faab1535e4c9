//! `forebay pool calibrate`: measures the modes of I/O on a pool's disk, on a running instance.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use api::Pool;
use pool::{Cancel, Crossover, IoSizes, LocalPool};
use serde::{Deserialize, Serialize};
use types::PoolId;
use types::display::Size;

use super::number;
use crate::cli::PoolArguments;
use crate::control::{self, Request};
use crate::output;
use crate::progress::Meter;
use crate::table::{Column, Table};

/// The sizes from which requests leave the page cache.
#[derive(Debug, Serialize, Deserialize)]
pub struct PoolSizes {
    /// `pool-0`.
    pub name: String,
    pub sizes: Vec<Sizes>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Sizes {
    /// `write`, `sequential read`, `random read`.
    pub access: String,
    /// `None`: at no size.
    pub uncached_from_bytes: Option<u64>,
    pub direct_from_bytes: Option<u64>,
}

pub fn run(arguments: &PoolArguments) -> Result<ExitCode> {
    let id = number(&arguments.pool)?;
    let data = arguments.place.config_of_any()?.data;
    let Some(measured) = control::ask::<PoolSizes>(&data, Request::Calibrate(id))? else {
        bail!("no instance runs on {}: only a running pool can be calibrated", data.display());
    };
    output::print(arguments.output, &measured, PoolSizes::text)?;
    Ok(ExitCode::SUCCESS)
}

/// Ends soon after it is dropped.
pub async fn answer(pool: &Arc<LocalPool>, meter: &Arc<Meter>) -> Result<PoolSizes> {
    meter.begin("measuring the disk");
    let cancel = Cancel::default();
    let _stop = CancelOnDrop(cancel.clone());
    let (id, pool) = (pool.id(), Arc::clone(pool));
    let sizes = tokio::task::spawn_blocking(move || pool.calibrate(&cancel)).await?;
    sizes
        .map(|sizes| PoolSizes::new(id, &sizes))
        .map_err(|stopped| anyhow!("cannot calibrate {id}: {stopped}"))
}

struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl PoolSizes {
    pub fn new(id: PoolId, sizes: &IoSizes) -> PoolSizes {
        let row = |access: &str, crossover: Crossover| Sizes {
            access: access.to_owned(),
            uncached_from_bytes: crossover.uncached_bytes_min,
            direct_from_bytes: crossover.direct_bytes_min,
        };
        let sizes = vec![
            row("write", sizes.write),
            row("sequential read", sizes.read_sequential),
            row("random read", sizes.read_random),
        ];
        PoolSizes { name: id.to_string(), sizes }
    }

    pub fn text(&self) -> String {
        let mut table = Table::new([
            Column::Text("access"),
            Column::Number("uncached from"),
            Column::Number("direct from"),
        ]);
        let from = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), |bytes| Size(bytes).to_string());
        for row in &self.sizes {
            table.row([row.access.clone(), from(row.uncached_from_bytes), from(row.direct_from_bytes)]);
        }
        format!("{}: sizes from which requests leave the page cache\n{table}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_is_never_reached_is_a_dash() {
        let direct =
            Crossover { small_bytes: 0, uncached_bytes_min: None, direct_bytes_min: Some(128 << 10) };
        let buffered = Crossover::buffered(32 << 10);
        let sizes = IoSizes { write: direct, read_sequential: buffered, read_random: buffered };
        let text = PoolSizes::new(PoolId(3), &sizes).text();
        let rows: Vec<Vec<&str>> =
            text.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
        assert!(text.starts_with("pool-3: "), "{text}");
        assert_eq!(rows[0], ["write", "-", "128", "KiB"]);
        assert_eq!(rows[1], ["sequential", "read", "-", "-"]);
    }
}
