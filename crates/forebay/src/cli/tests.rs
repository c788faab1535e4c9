//! Walks over the command line.

use clap::builder::PossibleValue;
use clap::{Arg, Command, CommandFactory, Parser};

use super::Cli;

/// Commands that print no facts.
const WITHOUT_JSON: [&str; 5] = [
    "forebay up",
    "forebay pool up",
    "forebay user remove",
    "forebay generate man",
    "forebay generate completions",
];

/// Commands that may take longer than two seconds, besides those of `forebay namespace`.
const LONG: [&str; 6] = [
    "forebay fsck",
    "forebay du",
    "forebay dir set-consistency",
    "forebay dir set-io",
    "forebay pool drain",
    "forebay pool scrub",
];

/// A line of help begins with a verb or a noun.
const NO_BEGINNINGS: [&str; 12] =
    ["Who", "What", "Which", "Where", "How", "Whoever", "Whether", "Likewise", "Also", "May", "The", "All"];

/// All commands with their full names, those with subcommands too.
fn commands(command: &Command, above: &str) -> Vec<(String, Command)> {
    let name = format!("{above}{}", command.get_name());
    let below = command.get_subcommands().flat_map(|below| commands(below, &format!("{name} ")));
    let mut all: Vec<_> = below.collect();
    all.insert(0, (name, command.clone()));
    all
}

fn all() -> Vec<(String, Command)> {
    commands(&Cli::command(), "")
}

/// Commands that do something.
fn leaves() -> Vec<(String, Command)> {
    all().into_iter().filter(|(_, command)| !command.has_subcommands()).collect()
}

fn has(command: &Command, option: &str) -> bool {
    command.get_arguments().any(|argument| argument.get_long() == Some(option))
}

fn mistake(help: Option<String>) -> Option<String> {
    let Some(help) = help.filter(|help| !help.is_empty()) else { return Some("has no help".to_owned()) };
    let first = help.split([' ', ',']).next().unwrap_or("");
    if NO_BEGINNINGS.contains(&first) || help.ends_with('.') || help.contains('\n') {
        return Some(format!("has no line of help that begins with a verb or noun: {help:?}"));
    }
    None
}

#[test]
fn every_command_argument_and_value_has_a_line_of_help() {
    let mut mistakes = Vec::new();
    for (name, command) in all() {
        mistakes
            .extend(mistake(command.get_about().map(ToString::to_string)).map(|it| format!("{name} {it}")));
        for argument in command.get_arguments() {
            let told = mistake(argument.get_help().map(ToString::to_string));
            mistakes.extend(told.map(|it| format!("{name} {argument} {it}")));
            // Shells are named by clap, and need no explanation.
            for value in values(argument).iter().filter(|_| name != "forebay generate completions") {
                let told = mistake(value.get_help().map(ToString::to_string));
                mistakes.extend(told.map(|it| format!("{name} {argument} {} {it}", value.get_name())));
            }
        }
    }
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
}

fn values(argument: &Arg) -> Vec<PossibleValue> {
    if argument.get_action().takes_values() { argument.get_possible_values() } else { Vec::new() }
}

/// clap takes the comment of a group of arguments for the help of the command, if the group has one.
#[test]
fn a_group_of_arguments_does_not_replace_the_help_of_its_command() {
    let about = |wanted: &str| {
        let found = all().into_iter().find(|(name, _)| name == wanted).unwrap();
        found.1.get_about().unwrap().to_string()
    };
    assert_eq!(
        about("forebay quota set"),
        "Set limits of a user, a group or a directory tree; limits that are not named stay"
    );
    assert_eq!(about("forebay pool list"), "List all pools and their states");
}

#[test]
fn every_command_that_prints_facts_has_json() {
    let without: Vec<String> =
        leaves().into_iter().filter(|(_, command)| !has(command, "json")).map(|(name, _)| name).collect();
    assert_eq!(without, WITHOUT_JSON, "a command prints facts, or is named above");
}

#[test]
fn every_command_that_may_take_long_shows_progress() {
    for (name, command) in leaves() {
        let is_long = LONG.contains(&name.as_str()) || name.starts_with("forebay namespace ");
        assert_eq!(has(&command, "progress"), is_long, "{name}");
    }
}

#[test]
fn exit_codes_are_documented_and_true() {
    let root = Cli::command().render_help().to_string();
    for line in ["Exit codes:", "  0  ", "  1  ", "  2  The command line is not valid"] {
        assert!(root.contains(line), "no {line:?} in {root}");
    }
    let wrong = Cli::try_parse_from(["forebay", "quota", "show"]).err().unwrap();
    assert_eq!(wrong.exit_code(), 2);
    for (name, mut command) in leaves() {
        let checks = ["fsck", "check", "copy", "backup", "restore", "scrub"];
        let is_check = checks.iter().any(|check| name.ends_with(&format!(" {check}")));
        let told = command.render_help().to_string().contains("no problem found\n  1  Problems were found");
        assert_eq!(told, is_check, "{name}");
    }
}

/// Commands whose help names no state of an instance.
const WITHOUT_INSTANCE: [&str; 4] =
    ["forebay cert ", "forebay config ", "forebay generate ", "forebay pool up"];

#[test]
fn help_says_in_which_state_an_instance_must_be() {
    for (name, command) in leaves() {
        let told = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let says_state = told.contains("The instance m") || told.contains("must not be in use");
        let has_none = WITHOUT_INSTANCE.iter().any(|without| name.starts_with(without));
        assert_eq!(says_state, !has_none, "{name}: {told}");
    }
}

#[test]
fn examples_are_valid_command_lines() {
    let mut examples = 0;
    for (name, command) in leaves() {
        let told = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for example in told.lines().filter_map(|line| line.strip_prefix("  forebay ")) {
            let words = std::iter::once("forebay").chain(example.split(' '));
            let parsed = Cli::try_parse_from(words);
            assert!(parsed.is_ok(), "{example}: {}", parsed.err().unwrap());
            assert!(
                format!("forebay {example} ").starts_with(&format!("{name} ")),
                "{name} has an example of another: {example}"
            );
            examples += 1;
        }
    }
    assert!(examples > 15, "{examples}");
}

#[test]
fn lines_of_notes_have_120_columns_at_most() {
    for (name, command) in all() {
        let told = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let longest = told.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        assert!(longest <= 120, "{name}: {longest}");
    }
}
