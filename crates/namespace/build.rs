//! Fails the build if the SQLite that is linked was compiled without `fdatasync`.
//!
//! SQLite calls `fsync` unless it is told that `fdatasync` works; every commit then writes the inode of its log, too.
//! libsqlite3-sys takes flags for SQLite from the environment only, and `.cargo/config.toml` of the workspace sets them.
//! A build that does not see that file would be correct and slow, so it is refused.

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

const ADVICE: &str =
    "build in the workspace, with its .cargo/config.toml, or set LIBSQLITE3_FLAGS=-DHAVE_FDATASYNC";

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=build.rs");
    let Some(folder) = env::var_os("DEP_SQLITE3_LIB_DIR") else {
        println!("cargo::error=libsqlite3-sys has built no SQLite; its feature `bundled` is needed");
        return ExitCode::FAILURE;
    };
    let library = Path::new(&folder).join("libsqlite3.a");
    println!("cargo::rerun-if-changed={}", library.display());
    let calls = match fs::read(&library) {
        Ok(bytes) => names(&bytes, b"fdatasync"),
        Err(error) => {
            println!("cargo::error=cannot read {}: {error}", library.display());
            return ExitCode::FAILURE;
        }
    };
    if !calls {
        println!("cargo::error=the bundled SQLite was compiled without fdatasync; {ADVICE}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Whether the archive names a symbol: one that is called stands in its table of strings.
fn names(archive: &[u8], symbol: &[u8]) -> bool {
    archive.windows(symbol.len()).any(|bytes| bytes == symbol)
}
