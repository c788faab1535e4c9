//! Threads of the namespace, by name.

use std::io;
use std::thread::{Builder, JoinHandle};

pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.to_owned()).spawn(run)
}
