//! `forebay generate`: man pages and shell completions, from the declaration that parses the command line.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::cli::Cli;

const PROGRAM: &str = "forebay";

/// The end of forebay(1): it is about no command.
const FILES: &str = r".SH FILES
.TP
.I /etc/forebay/forebay.toml
Configuration of the service.
.B forebay config reference
explains every key.
.TP
.I /var/lib/forebay
Data directory of the service.
.TP
.I /usr/share/doc/forebay
Guide, reference and examples.
.SH SEE ALSO
.BR nfs (5),
.BR mount.nfs (8)
";

/// One page for each command: `forebay.1`, `forebay-up.1`, `forebay-pool-list.1` and so on.
pub fn man(dir: &Path) -> Result<ExitCode> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    write_pages(&program, dir)
        .and_then(|()| fs::OpenOptions::new().append(true).open(dir.join("forebay.1")))
        .and_then(|mut page| page.write_all(FILES.as_bytes()))
        .with_context(|| format!("cannot write man pages to {}", dir.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn write_pages(command: &Command, dir: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(below, dir)?;
    }
    let page = Man::new(command.clone()).source(concat!("forebay ", env!("CARGO_PKG_VERSION")));
    let page = page.manual("Forebay");
    let mut text = Vec::new();
    page.render(&mut text)?;
    // The section has what --help prints at its end.
    let text = String::from_utf8_lossy(&text).replace("\n.SH EXTRA\n", "\n.SH NOTES\n");
    fs::write(dir.join(page.get_filename()), text)
}

pub fn completions(shell: Shell) -> Result<ExitCode> {
    io::stdout().write_all(&completion_script(shell)).context("cannot print the completions")?;
    Ok(ExitCode::SUCCESS)
}

fn completion_script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), PROGRAM, &mut script);
    script
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn pages(command: &Command, prefix: &str, found: &mut BTreeSet<String>) {
        let name = format!("{prefix}{}", command.get_name());
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            pages(below, &format!("{name}-"), found);
        }
        found.insert(format!("{name}.1"));
    }

    #[test]
    fn each_command_has_a_man_page() {
        let dir = tempfile::tempdir().unwrap();
        man(dir.path()).unwrap();
        let mut expected = BTreeSet::new();
        pages(&Cli::command(), "", &mut expected);
        assert!(expected.contains("forebay-namespace-migrate.1"));
        let written: BTreeSet<String> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(written, expected);
        let page = fs::read_to_string(dir.path().join("forebay-up.1")).unwrap();
        assert!(
            page.contains(".TH forebay-up 1  \"forebay 0") && page.contains("no\\-root\\-squash"),
            "{page}"
        );
        assert!(page.contains("\n.SH NOTES\n") && !page.contains(".SH EXTRA"), "{page}");
        let first = fs::read_to_string(dir.path().join("forebay.1")).unwrap();
        assert!(first.contains("forebay\\-up(1)") && first.contains("/etc/forebay/forebay.toml"), "{first}");
    }

    #[test]
    fn completions_of_each_shell_know_commands_and_options() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = String::from_utf8(completion_script(shell)).unwrap();
            for word in ["self-signed", "no-root-squash", "migrate"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }
}
