//! `forebay pool files` and `forebay pool remove`, on a running instance.

use anyhow::{Result, bail};
use serde::Serialize;
use types::PoolId;

use super::number;
use crate::cli::PoolArguments;
use crate::control::{self, Request};
use crate::output;
use crate::questions::MemberQuestion;

#[derive(Serialize)]
struct Removed {
    removed: String,
}

/// A line for each, as they come: there may be millions.
pub fn files(arguments: &PoolArguments) -> Result<()> {
    let question = MemberQuestion::Files(number(&arguments.pool)?);
    let is_json = arguments.output.json;
    let mut count = 0_u64;
    let mut print = |file: serde_json::Value| {
        count += 1;
        match (is_json, &file) {
            (true, file) => {
                let before = if count == 1 { "{\"files\": [\n" } else { ",\n" };
                output::print_text(&format!("{before}  {file}"))
            }
            (false, serde_json::Value::String(path)) => output::print_text(&format!("{path}\n")),
            (false, file) => output::print_text(&format!("{file}\n")),
        }
    };
    let told = ask(arguments, question, &mut print)?;
    if is_json {
        output::print_text(if count == 0 { "{\"files\": []}\n" } else { "\n]}\n" })?;
    }
    match told.as_u64() {
        Some(sent) if sent != count => bail!("{sent} files were sent, and {count} came"),
        _ => Ok(()),
    }
}

pub fn remove(arguments: &PoolArguments) -> Result<()> {
    let pool = number(&arguments.pool)?;
    ask(arguments, MemberQuestion::Remove(pool), &mut |_| Ok(()))?;
    let removed = PoolId(pool).to_string();
    output::print(arguments.output, &Removed { removed }, |Removed { removed }| {
        format!("{removed} is off the list; no other pool gets its number\n")
    })
}

fn ask(
    arguments: &PoolArguments,
    question: MemberQuestion,
    take: &mut dyn FnMut(serde_json::Value) -> Result<()>,
) -> Result<serde_json::Value> {
    let data = arguments.place.config()?.data;
    match control::ask_items(&data, Request::Member(question), take)? {
        Some(answer) => Ok(answer),
        None => bail!("nothing runs on {} (start it: forebay up --cluster)", data.display()),
    }
}
