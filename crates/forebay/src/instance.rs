//! An instance at a place: the process that runs there, or the namespace that a stopped one left.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Result;
use namespace::SqlNamespace;
use serde::de::DeserializeOwned;
use types::PoolId;

use crate::cli::{InstanceArguments, ProgressArguments};
use crate::control::{Request, ask_showing};
use crate::data_dir::DataDir;
use crate::marks::{self, Marks};
use crate::progress::{Meter, Shown};
use crate::services::open_namespace;
use crate::system::{SystemClock, SystemRandom};

/// Asks the process that runs at a place. If none runs, `answer` gets the namespace, as a head that starts has it.
pub fn ask_or_open<T: DeserializeOwned>(
    place: &InstanceArguments,
    request: Request,
    arguments: ProgressArguments,
    answer: impl AsyncFnOnce(&Arc<SqlNamespace>, &Meter) -> Result<T>,
) -> Result<T> {
    let config = place.config()?;
    if let Some(found) = ask_showing(&config.data, request, arguments)? {
        return Ok(found);
    }
    let meter = Meter::new();
    let _shown = Shown::of(&meter, arguments);
    meter.begin("opening the namespace");
    let data = DataDir::open_existing(&config.data, &SystemRandom)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let noted = marks::noted(&data)?;
    let behind = marks::pools_behind(&noted);
    let clock = Arc::new(SystemClock::new());
    let namespace = Arc::new(open_namespace(&data, &config, clock, noted)?);
    let noting: BTreeSet<_> = (0..data.pools).map(PoolId).filter(|pool| !behind.contains(pool)).collect();
    namespace.keep_marks(Arc::new(Marks::new(&data, move || noting.clone())))?;
    runtime.block_on(async {
        let found = answer(&namespace, &meter).await;
        namespace.close().await;
        found
    })
}
