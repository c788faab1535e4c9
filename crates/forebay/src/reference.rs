//! The generated pages of `docs/reference/`: command line and configuration, from the declarations that parse them.
//!
//! The test fails where a page is not the one that the program would have now. `cargo xtask reference` writes the pages: it runs this
//! test with `FOREBAY_TEST_WRITE_REFERENCE` set. Nothing of this is in the program itself.

use std::fmt::Write;
use std::path::Path;

use clap::{Arg, Command, CommandFactory};

use crate::cli::Cli;
use crate::config;

const WRITE: &str = "FOREBAY_TEST_WRITE_REFERENCE";
const NOTE: &str = "<!-- Generated: `cargo xtask reference` writes this page. -->\n";
/// Words before the last part of a key's explanation: it says which values the key takes.
const KINDS: &[&str] = &[" Unit: ", " Values: ", " Type: "];

#[test]
fn the_generated_pages_are_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    let pages = [
        ("command-line.md", command_line()),
        ("configuration.md", configuration(&config::reference::text())),
    ];
    for (name, page) in pages {
        let path = folder.join(name);
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(written == page, "docs/reference/{name} is not current; run: cargo xtask reference");
    }
}

fn command_line() -> String {
    let mut program = Cli::command();
    program.build();
    let mut page = format!("{NOTE}\n# Command line\n\n");
    page.push_str("`forebay COMMAND --help` prints the same explanations.\n\n");
    put_text(&mut page, after_help(&program));
    let mut commands = Vec::new();
    collect(&program, &mut commands);
    page.push_str("| command | effect |\n|---|---|\n");
    for command in &commands {
        let name = name_of(command);
        writeln!(page, "| [`{name}`](#{}) | {} |", name.replace(' ', "-"), about(command)).unwrap();
    }
    for command in commands {
        put_command(&mut page, command);
    }
    page
}

/// The commands that do something, in the order of `--help`.
fn collect<'a>(command: &'a Command, found: &mut Vec<&'a Command>) {
    if !command.has_subcommands() {
        found.push(command);
    }
    let shown = command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help");
    for below in shown {
        collect(below, found);
    }
}

fn name_of(command: &Command) -> &str {
    command.get_bin_name().unwrap_or(command.get_name())
}

fn about(command: &Command) -> String {
    cell(&command.get_about().map(ToString::to_string).unwrap_or_default())
}

fn after_help(command: &Command) -> String {
    command.get_after_help().map(ToString::to_string).unwrap_or_default()
}

fn put_command(page: &mut String, command: &Command) {
    let usage = command.clone().render_usage().to_string();
    write!(page, "\n## {}\n\n{}.\n\n", name_of(command), about(command)).unwrap();
    put_text(page, usage.trim_start_matches("Usage: ").to_owned());
    put_text(page, after_help(command));
    let arguments: Vec<&Arg> =
        command.get_arguments().filter(|argument| !argument.is_hide_set() && !is_help(argument)).collect();
    if arguments.is_empty() {
        page.truncate(page.trim_end().len());
        page.push('\n');
        return;
    }
    page.push_str("| argument | meaning |\n|---|---|\n");
    for argument in arguments {
        writeln!(page, "| `{}` | {} |", cell(&argument.to_string()), cell(&meaning(argument))).unwrap();
    }
}

fn is_help(argument: &Arg) -> bool {
    matches!(argument.get_id().as_str(), "help" | "version")
}

/// The line of help, the default, and each value that may be given, where there is a choice.
fn meaning(argument: &Arg) -> String {
    let mut text = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let defaults: Vec<_> =
        argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if argument.get_action().takes_values() && !defaults.is_empty() {
        write!(text, " [default: {}]", defaults.join(", ")).unwrap();
    }
    if argument.get_action().takes_values() {
        for value in argument.get_possible_values().iter().filter(|value| !value.is_hide_set()) {
            let help = value.get_help().map(|help| format!(": {help}")).unwrap_or_default();
            write!(text, "<br>`{}`{help}", value.get_name()).unwrap();
        }
    }
    text.trim_start_matches("<br>").to_owned()
}

/// A block of text, if there is any.
fn put_text(page: &mut String, text: String) {
    if !text.is_empty() {
        write!(page, "```text\n{}\n```\n\n", text.trim_end()).unwrap();
    }
}

/// `text` is what `forebay config reference` prints: sections, comments, and each key behind its comment.
fn configuration(text: &str) -> String {
    let mut page = format!("{NOTE}\n# Configuration\n\n");
    page.push_str("The configuration is a TOML file, named by `--config FILE`. Every key is optional.\n");
    page.push_str(
        "`forebay config reference` prints all keys with their defaults, as a file to start from.\n",
    );
    page.push_str("`forebay config check FILE` checks a file. Options of the command line override keys.\n");
    let (mut section, mut comment, mut is_in_table) = (String::new(), String::new(), false);
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = format!("{name}.");
            write!(page, "\n## {name}\n").unwrap();
            is_in_table = false;
        } else if let Some(more) = line.strip_prefix("# ") {
            comment.push_str(more);
            comment.push(' ');
        } else if let Some((key, default)) = line.strip_prefix('#').and_then(|line| line.split_once(" = ")) {
            if !is_in_table {
                page.push_str("\n| key | default | values | meaning |\n|---|---|---|---|\n");
                is_in_table = true;
            }
            let (meaning, kind) = explained(&comment);
            let [meaning, kind, default] = [meaning, kind, default].map(cell);
            writeln!(page, "| `{section}{key}` | `{default}` | {kind} | {meaning} |").unwrap();
            comment.clear();
        } else {
            comment.clear();
        }
    }
    page
}

/// The meaning of a key, and the values that it takes.
fn explained(comment: &str) -> (&str, &str) {
    let comment = comment.trim_end();
    let found = KINDS.iter().filter_map(|kind| Some((comment.rfind(kind)?, kind.len()))).max();
    match found {
        Some((at, len)) => (&comment[..at], comment[at + len..].trim_end_matches('.')),
        None => (comment, ""),
    }
}

/// Text of one cell of a table.
fn cell(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}

#[test]
fn a_table_of_the_configuration_has_key_default_values_and_meaning() {
    let text = "# Forebay configuration. Every key.\n\n# Kept here. Unit: path.\n#data = \"./d\"\n\n[nfs]\n\n\
                # One of these.\n# More of it. Values: a|b.\n#mode = (a, else b)\n\n# No kind.\n#free = []\n";
    let page = configuration(text);
    let (_, tables) = page.split_once("override keys.\n").unwrap();
    assert_eq!(
        tables,
        "\n| key | default | values | meaning |\n|---|---|---|---|\n\
         | `data` | `\"./d\"` | path | Kept here. |\n\
         \n## nfs\n\
         \n| key | default | values | meaning |\n|---|---|---|---|\n\
         | `nfs.mode` | `(a, else b)` | a\\|b | One of these. More of it. |\n\
         | `nfs.free` | `[]` |  | No kind. |\n"
    );
}

#[test]
fn the_page_of_the_command_line_has_every_command_with_its_arguments() {
    let page = command_line();
    for part in [
        "## forebay namespace backup\n",
        "\n```text\nforebay pool list [OPTIONS]\n```\n",
        "| `--data <DIR>` | ",
        "`strong`: ",
        "<br>`weak`: ",
        " [default: 90]",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("--help` |") && !page.contains("## forebay help"), "{page}");
}
