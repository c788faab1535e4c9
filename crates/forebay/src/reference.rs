//! The generated pages of `docs/reference/`: command line and configuration, from the declarations that parse them.
//!
//! The test fails where a page is not the one that the program would have now. `cargo xtask reference` writes the pages: it runs this
//! test with `FOREBAY_TEST_WRITE_REFERENCE` set. Nothing of this is in the program itself.

use std::fmt::Write;
use std::path::Path;

use clap::{Arg, Command, CommandFactory};

use crate::cli::Cli;
use crate::config::reference::{Key, SECTIONS, Section};
use crate::pools::{PoolList, PoolState};

const WRITE: &str = "FOREBAY_TEST_WRITE_REFERENCE";
const NOTE: &str = "<!-- Generated: `cargo xtask reference` writes this page. -->\n";

#[test]
fn the_generated_pages_are_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    let pages = [("command-line.md", command_line()), ("configuration.md", configuration())];
    for (name, page) in pages {
        let path = folder.join(name);
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(written == page, "docs/reference/{name} is not current; run: cargo xtask reference");
    }
}

const STATES: &str = "\
The column *instance* names the state in which the instance must be. *New* means that the command creates it. A command
with an empty cell needs no instance.

";

const JSON: &str = "\
**JSON.** With `--json`, members have the names of the HTTP API, as far as it has them. A list is a member of the object.
`forebay pool list --json` prints:

";

/// An option in so many commands has its row once, above them.
const COMMON: usize = 4;

fn command_line() -> String {
    let mut program = Cli::command();
    program.build();
    let mut commands = Vec::new();
    collect(&program, &mut commands);
    let common = common_options(&commands);
    let mut page = format!("{NOTE}\n# Command line\n\n");
    page.push_str(
        "`forebay COMMAND --help` prints the same explanations. `forebay --version` prints the version.\n\n",
    );
    put_notes(&mut page, &after_help(&program));
    page.push_str(STATES);
    page.push_str("| command | effect | instance |\n|---|---|---|\n");
    for command in &commands {
        let (name, effect, state) = (name_of(command), about(command), state_of_instance(command));
        writeln!(page, "| [`{name}`](#{}) | {effect} | {state} |", name.replace(' ', "-")).unwrap();
    }
    page.push_str("\n## Common options\n\nSeveral commands take these options. The section of a command names those that it takes.\n\n");
    put_arguments(&mut page, common.iter());
    page.push('\n');
    put_json(&mut page);
    page.truncate(page.trim_end().len());
    page.push('\n');
    for command in commands {
        put_command(&mut page, command, &common);
    }
    page
}

/// Rows of options that mean the same in several commands.
fn common_options(commands: &[&Command]) -> Vec<Row> {
    let options = |command: &&Command| rows(command).into_iter().filter(|(name, _)| name.starts_with("--"));
    let rows: Vec<Row> = commands.iter().flat_map(options).collect();
    let mut common: Vec<Row> = Vec::new();
    for row in &rows {
        if !common.contains(row) && rows.iter().filter(|other| *other == row).count() >= COMMON {
            common.push(row.clone());
        }
    }
    common
}

/// An argument and its meaning.
type Row = (String, String);

fn rows(command: &Command) -> Vec<Row> {
    let shown = command.get_arguments().filter(|argument| !argument.is_hide_set() && !is_help(argument));
    shown.map(|argument| (cell(&argument.to_string()), cell(&meaning(argument)))).collect()
}

/// As the notes of the command have it.
fn state_of_instance(command: &Command) -> &'static str {
    let notes = after_help(command);
    let has = |words: &str| notes.contains(words);
    match () {
        () if has("with --repair it must be stopped") => "running or stopped; with `--repair` stopped",
        () if has("The instance must be running") => "running",
        () if has("but may run with --dry-run") => "stopped; with `--dry-run` running or stopped",
        () if has("The instance must be stopped; a new one is created") => "stopped or new",
        () if has("The instance must be stopped") => "stopped",
        () if has("The instance must be new") || has("The target must not be in use") => "new",
        () if has("The instance may be running or stopped") => "running or stopped",
        () => "",
    }
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

fn put_command(page: &mut String, command: &Command, common: &[Row]) {
    let usage = command.clone().render_usage().to_string();
    write!(page, "\n## {}\n\n{}.\n\n", name_of(command), about(command)).unwrap();
    put_text(page, usage.trim_start_matches("Usage: "));
    let (shared, own): (Vec<Row>, Vec<Row>) = rows(command).into_iter().partition(|row| common.contains(row));
    if !own.is_empty() {
        put_arguments(page, own.iter());
        page.push('\n');
    }
    if !shared.is_empty() {
        let names: Vec<String> = shared.iter().map(|(argument, _)| format!("`{argument}`")).collect();
        write!(page, "[Common options](#common-options): {}.\n\n", names.join(", ")).unwrap();
    }
    put_notes(page, &after_help(command));
    page.truncate(page.trim_end().len());
    page.push('\n');
}

fn put_arguments<'a>(page: &mut String, rows: impl Iterator<Item = &'a Row>) {
    page.push_str("| argument | meaning |\n|---|---|\n");
    for (argument, meaning) in rows {
        writeln!(page, "| `{argument}` | {meaning} |").unwrap();
    }
}

/// The form of the objects, by an example.
fn put_json(page: &mut String) {
    let pool = PoolState {
        name: "pool-0".to_owned(),
        drained: Some(false),
        slow: Some(false),
        ..PoolState::default()
    };
    let object = serde_json::to_string_pretty(&PoolList { pools: vec![pool] }).unwrap();
    write!(page, "{JSON}```json\n{object}\n```\n\n").unwrap();
}

/// Prose, and lists with a title as blocks.
fn put_notes(page: &mut String, notes: &str) {
    for note in notes.split("\n\n").filter(|note| !note.is_empty()) {
        if note.contains(":\n  ") {
            put_text(page, note);
        } else {
            write!(page, "{note}\n\n").unwrap();
        }
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

/// A block of text.
fn put_text(page: &mut String, text: &str) {
    write!(page, "```text\n{}\n```\n\n", text.trim_end()).unwrap();
}

const CONFIGURATION: &str = "\
# Configuration

The configuration is a TOML file. `--config FILE` names it. Every key is optional.

| command | use |
|---|---|
| `forebay config reference` | prints all keys with their defaults, as a file to start from |
| `forebay config check FILE` | checks a file, and names the first mistake: the line of a syntax error, an unknown key or a wrong type, or the key of a value that is not allowed |

**Order.** A value comes from the file, then from the environment, then from an option of the command line. The last one
wins.

**Environment.** The variable of a key is `FOREBAY_`, section and key in capitals, joined by `_`: `FOREBAY_HTTP_PORT` sets
`http.port`. Text needs no quotes there. A list is written as in the file: `FOREBAY_HTTP_NAMES='[\"files.example.org:443\"]'`.
`nfs.export` and `auth.issuers` are lists of inline tables.
The server refuses an unknown name with this prefix.

**Changes.** The column *takes effect* says when a change of the file is used: *reload* is `systemctl reload forebay` or
SIGHUP, *restart* is a restart of the server. After a reload the log names the keys that wait for a restart. The server
also reads some files that keys name again when they change; their rows say so.
";

fn configuration() -> String {
    let mut page = format!("{NOTE}\n{CONFIGURATION}");
    for section in SECTIONS {
        match section.repeated {
            None if section.name.is_empty() => page.push_str("\n## Instance\n\n"),
            None => write!(page, "\n## {}\n\n", section.name).unwrap(),
            Some(meaning) => write!(page, "\n## {0}\n\n`[[{0}]]`: {meaning}\n\n", section.name).unwrap(),
        }
        put_keys(&mut page, section);
    }
    page
}

fn put_keys(page: &mut String, section: &Section) {
    // Of a repeated table, all keys take effect together.
    let (header, line) = match section.repeated {
        None => (" takes effect |", "---|"),
        Some(_) => ("", ""),
    };
    writeln!(page, "| key | default | type | unit or values |{header} meaning |").unwrap();
    writeln!(page, "|---|---|---|---|{line}---|").unwrap();
    for key in section.keys {
        let effect = match section.repeated {
            None => format!(" {} |", key.takes_effect()),
            Some(_) => String::new(),
        };
        let [default, values, meaning] =
            [default(key).as_str(), unit_or_values(key).as_str(), key.meaning].map(cell);
        let (name, kind) = (key.name, key.type_name());
        writeln!(page, "| `{name}` | {default} | {kind} | {values} |{effect} {meaning} |").unwrap();
    }
}

/// The unit of a number with its range, or the values of a choice.
fn unit_or_values(key: &Key) -> String {
    let unit = key.unit().map(str::to_owned);
    let parts = unit.into_iter().chain(key.range()).chain(key.values().map(|values| values.join(", ")));
    parts.collect::<Vec<_>>().join(", ")
}

/// A value as code, a description as text.
fn default(key: &Key) -> String {
    let described = key.default.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
    described.map_or_else(|| format!("`{}`", key.default), str::to_owned)
}

/// Text of one cell of a table.
fn cell(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}

#[test]
fn the_page_of_the_configuration_has_each_key_with_default_type_unit_and_effect() {
    let page = configuration();
    for row in [
        "| `nfs.lease_s` | `90` | integer | seconds, 1 to 3600 | restart | Lease. ",
        "| `nfs.port` | 2049 as root, else 20490 | port |  | restart | ",
        "| `http.redirect` | `\"auto\"` | choice | never, auto, always | restart | ",
        "| `log.level` | `\"warn\"` | choice | error, warn, info, debug, trace | reload | ",
        "\n## nfs.export\n\n`[[nfs.export]]`: Directories ",
        "| `anonymous_uid` | `65534` | integer | uid | User id ",
    ] {
        assert!(page.contains(row), "no {row:?} in {page}");
    }
}

#[test]
fn the_page_of_the_command_line_has_every_command_with_its_arguments() {
    let page = command_line();
    for part in [
        "## forebay namespace backup\n",
        "\n```text\nforebay pool list [OPTIONS]\n```\n",
        "## Common options\n",
        "| `--data <DIR>` | Data directory of the instance; ",
        "| `--data <DIR>` | Data directory: ",
        "[Common options](#common-options): `--data <DIR>`, `--config <FILE>`, `--json`.\n",
        "| [`forebay namespace copy`](#forebay-namespace-copy) | Copy the namespace to another data directory or database | stopped |",
        "```text\nExamples:\n  forebay du /projects --depth 1\n```\n",
        "`strong`: ",
        "\n```json\n{\n  \"pools\": [\n",
        "| [`forebay up`](#forebay-up) | Run a head and its pools | stopped or new |",
        "forebay namespace restore [OPTIONS] --to <PLACE> <--from <FILE>|--in-place>\n",
        "<br>`weak`: ",
        " [default: 90]",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("--help` |") && !page.contains("## forebay help"), "{page}");
    assert_eq!(page.matches("| `--json` | ").count(), 1, "{page}");
}
