//! The project's own chores: `cargo xtask <verb>`.
//!
//! `tidy` reads the tree as text, without the network, and is done in a second or two, so it can run before every commit;
//! it holds what the compiler and clippy cannot say: the floors, the sizes, the banned calls, the docs. The other verbs
//! check what is linked, and make the parts of packages that come from the tree.

mod deny;
mod floors;
mod handbook;
mod licences;
mod notices;
mod packages;
mod reference;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

const VERBS: &str = "\
usage: cargo xtask <verb>

  tidy           check floors, sizes, banned calls, module heads and documents
  floors         print the floors and what each crate may import
  dependencies   check licences, sources and duplicates of packages by deny.toml
  notices FILE   write the licences of the packages that are linked
  handbook DIR   write the documents as packages bring them
  reference      write the generated pages of docs/reference";

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => tidy::run(&workspace_root()?),
        ["floors"] => {
            print!("{}", floors::table());
            Ok(ExitCode::SUCCESS)
        }
        ["reference"] => reference::run(&workspace_root()?),
        ["dependencies"] => deny::run(&workspace_root()?),
        ["notices", file] => notices::run(&workspace_root()?, Path::new(file)),
        ["handbook", folder] => handbook::run(&workspace_root()?, Path::new(folder)),
        [] | ["help" | "--help" | "-h"] => {
            println!("{VERBS}");
            Ok(ExitCode::SUCCESS)
        }
        other => {
            eprintln!("unknown verb: {}\n\n{VERBS}", other.join(" "));
            Ok(ExitCode::from(2))
        }
    }
}

/// The folder above this crate; `cargo xtask` may be called from anywhere below it.
fn workspace_root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(here.parent().context("find the workspace above xtask")?.to_path_buf())
}
