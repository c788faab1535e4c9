//! `forebay quota` and `forebay du`: usage and limits of accounts, on a running instance or a stopped one.

mod report;

use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use api::{Account, Cookie, Limit, Namespace, Paths, Quota, Quotas, Scope};
use door_nfs::OwnerKind;
use namespace::SqlNamespace;
use serde::de::DeserializeOwned;
use serde_json::Value;
use types::{FileId, Identity};

use crate::cli::{
    DuArguments, InstanceArguments, LimitArguments, ProgressArguments, QuotaCommand, WhoseArguments,
};
use crate::control::Request;
use crate::dir::find;
use crate::instance::ask_or_open;
use crate::output;
use crate::progress::Meter;
use crate::questions::{Limits, QuotaQuestion, Whose};
use crate::system_names::number_of;
use report::{AccountList, AccountReport, UsageList, UsageReport};

/// Lines of `forebay du`.
const LINES_MAX: usize = 100_000;
/// Entries asked for at once.
const PAGE_LEN: usize = 1000;

pub fn run(command: &QuotaCommand) -> Result<ExitCode> {
    match command {
        QuotaCommand::Set { place, whose, limits, output } => {
            let limits = limits_of(limits)?;
            let account: AccountReport =
                ask(place, QuotaQuestion::Set(account_of(whose)?, limits), ProgressArguments::default())?;
            output::print(*output, &account, |account| report::table(std::slice::from_ref(account)))?;
        }
        QuotaCommand::Remove { place, whose, output } => {
            let account: AccountReport =
                ask(place, QuotaQuestion::Remove(account_of(whose)?), ProgressArguments::default())?;
            output::print(*output, &account, |account| format!("{} has no quota\n", account.name()))?;
        }
        QuotaCommand::Show { place, whose, output } => {
            let account: AccountReport =
                ask(place, QuotaQuestion::Show(account_of(whose)?), ProgressArguments::default())?;
            output::print(*output, &account, |account| report::table(std::slice::from_ref(account)))?;
        }
        QuotaCommand::List { place, output } => {
            let quotas = ask(place, QuotaQuestion::List, ProgressArguments::default())?;
            output::print(*output, &AccountList { quotas }, |list| report::table(&list.quotas))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub fn run_du(arguments: &DuArguments) -> Result<ExitCode> {
    let question = QuotaQuestion::Usage { path: arguments.path.clone(), depth: arguments.depth };
    let usage = ask(&arguments.place, question, arguments.progress)?;
    output::print(arguments.output, &UsageList { usage }, |list| report::usage(&list.usage))?;
    Ok(ExitCode::SUCCESS)
}

fn ask<T: DeserializeOwned>(
    place: &InstanceArguments,
    question: QuotaQuestion,
    progress: ProgressArguments,
) -> Result<T> {
    ask_or_open(place, Request::Quota(question.clone()), progress, async |namespace, meter| {
        Ok(serde_json::from_value(answer(namespace, question, meter).await?)?)
    })
}

pub async fn answer(namespace: &SqlNamespace, question: QuotaQuestion, meter: &Meter) -> Result<Value> {
    Ok(match question {
        QuotaQuestion::Set(whose, limits) => {
            let account = find_account(namespace, &whose).await?;
            let quota = namespace.standing(account).await?.map(|standing| standing.quota).unwrap_or_default();
            let quota = Quota {
                bytes: changed(quota.bytes, limits.bytes_soft, limits.bytes_hard)?,
                files: changed(quota.files, limits.files_soft, limits.files_hard)?,
            };
            namespace.set_quota(account, Some(quota)).await.context("quota cannot be set")?;
            serde_json::to_value(show(namespace, account).await?)?
        }
        QuotaQuestion::Remove(whose) => {
            let account = find_account(namespace, &whose).await?;
            namespace.set_quota(account, None).await.context("quota cannot be removed")?;
            serde_json::to_value(show(namespace, account).await?)?
        }
        QuotaQuestion::Show(whose) => {
            serde_json::to_value(show(namespace, find_account(namespace, &whose).await?).await?)?
        }
        QuotaQuestion::List => serde_json::to_value(list(namespace).await?)?,
        QuotaQuestion::Usage { path, depth } => {
            serde_json::to_value(usage(namespace, &path, depth, meter).await?)?
        }
    })
}

fn changed(known: Limit, soft: Option<u64>, hard: Option<u64>) -> Result<Limit> {
    let given = |given: Option<u64>, known: Option<u64>| match given {
        Some(0) => None,
        Some(limit) => Some(limit),
        None => known,
    };
    let limit = Limit { soft: given(soft, known.soft), hard: given(hard, known.hard), ..known };
    match (limit.soft, limit.hard) {
        (Some(soft), Some(hard)) if soft > hard => {
            bail!("soft limit {soft} is above the hard one, {hard}: it would never be reached")
        }
        _ => Ok(limit),
    }
}

async fn find_account(namespace: &SqlNamespace, whose: &Whose) -> Result<Account> {
    Ok(match whose {
        Whose::User(uid) => Account::user(*uid),
        Whose::Group(gid) => Account::group(*gid),
        Whose::Tree(path) => {
            let dir = find(namespace, path).await.with_context(|| path.clone())?;
            if !namespace.attributes(dir).await?.kind.is_directory() {
                bail!("{path} is no directory");
            }
            Account::tree(dir)
        }
    })
}

async fn show(namespace: &SqlNamespace, account: Account) -> Result<AccountReport> {
    let report = match namespace.standing(account).await? {
        Some(standing) => AccountReport::of(&standing),
        None => AccountReport::without_quota(account, namespace.counted(account).await?),
    };
    Ok(report.with_path(path_of(namespace, account).await?))
}

async fn list(namespace: &SqlNamespace) -> Result<Vec<AccountReport>> {
    let mut accounts = Vec::new();
    for standing in namespace.quotas().await? {
        let path = path_of(namespace, standing.account).await?;
        accounts.push(AccountReport::of(&standing).with_path(path));
    }
    Ok(accounts)
}

async fn path_of(namespace: &SqlNamespace, account: Account) -> Result<Option<String>> {
    if account.scope != Scope::Tree {
        return Ok(None);
    }
    let found = namespace.paths(&[FileId(account.id)]).await?.into_iter().next().flatten();
    Ok(found.map(|names| {
        let names = names.iter().map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned());
        format!("/{}", names.collect::<Vec<_>>().join("/"))
    }))
}

/// Nothing is walked but the directories that are told of.
async fn usage(namespace: &SqlNamespace, path: &str, depth: u32, meter: &Meter) -> Result<Vec<UsageReport>> {
    let top = find(namespace, path).await.with_context(|| path.to_owned())?;
    let attributes = namespace.attributes(top).await?;
    if !attributes.kind.is_directory() {
        return Ok(vec![UsageReport::of_file(path.to_owned(), attributes.size)]);
    }
    let mut lines = Vec::new();
    meter.begin_items("counting in directories", None);
    let mut waiting = vec![(top, path.trim_end_matches('/').to_owned(), 0)];
    while let Some((dir, path, level)) = waiting.pop() {
        let counted = namespace.counted(Account::tree(dir)).await?;
        meter.add(1);
        lines.push(UsageReport::of(if path.is_empty() { "/".to_owned() } else { path.clone() }, counted));
        if lines.len() + waiting.len() > LINES_MAX {
            bail!("more than {LINES_MAX} directories are within this depth; choose a smaller --depth");
        }
        if level < depth {
            let mut below = subdirectories(namespace, dir).await?;
            below.reverse();
            waiting.extend(below.into_iter().map(|(dir, name)| (dir, format!("{path}/{name}"), level + 1)));
        }
    }
    Ok(lines)
}

async fn subdirectories(namespace: &SqlNamespace, dir: FileId) -> Result<Vec<(FileId, String)>> {
    let mut found = Vec::new();
    let mut after = Cookie::START;
    loop {
        let page = namespace.list(&Identity::root(), dir, after, PAGE_LEN).await?;
        let directories = page.entries.iter().filter(|entry| entry.attributes.kind.is_directory());
        found.extend(directories.map(|entry| {
            (entry.attributes.file, String::from_utf8_lossy(entry.name.as_bytes()).into_owned())
        }));
        match page.entries.last() {
            Some(last) if !page.is_last && found.len() <= LINES_MAX => after = last.cookie,
            _ => break,
        }
    }
    found.sort_unstable_by(|(_, a), (_, b)| a.cmp(b));
    Ok(found)
}

fn account_of(arguments: &WhoseArguments) -> Result<Whose> {
    match (&arguments.user, &arguments.group, &arguments.tree) {
        (Some(user), ..) => Ok(Whose::User(number_of(OwnerKind::User, user)?)),
        (_, Some(group), _) => Ok(Whose::Group(number_of(OwnerKind::Group, group)?)),
        (.., Some(path)) => Ok(Whose::Tree(path.clone())),
        _ => bail!("give --user, --group or --tree"),
    }
}

fn limits_of(arguments: &LimitArguments) -> Result<Limits> {
    let LimitArguments { bytes_soft, bytes_hard, files_soft, files_hard } = arguments;
    if [bytes_soft, bytes_hard, files_soft, files_hard].iter().all(|limit| limit.is_none()) {
        bail!("give a limit, for example --bytes-hard 10G or --files-soft 100000; 0 removes a limit");
    }
    let parse = |limit: &Option<String>| limit.as_deref().map(parse_amount).transpose();
    Ok(Limits {
        bytes_soft: parse(bytes_soft)?,
        bytes_hard: parse(bytes_hard)?,
        files_soft: parse(files_soft)?,
        files_hard: parse(files_hard)?,
    })
}

/// `10G` is ten times 2³⁰.
pub fn parse_amount(text: &str) -> Result<u64> {
    let upper = text.trim().to_ascii_uppercase();
    let upper = upper.strip_suffix("IB").or(upper.strip_suffix('B')).unwrap_or(&upper);
    let (digits, shift) = match upper.find(|c: char| !c.is_ascii_digit()) {
        None => (upper, 0),
        Some(at) => {
            let shift = match &upper[at..] {
                "K" => 10,
                "M" => 20,
                "G" => 30,
                "T" => 40,
                "P" => 50,
                _ => bail!("{text:?} is not an amount; write it as 500, 100k, 10G or 2T"),
            };
            (&upper[..at], shift)
        }
    };
    let number: u64 =
        digits.parse().map_err(|_| anyhow!("{text:?} is not an amount; write it as 500, 100k, 10G or 2T"))?;
    let amount = number.checked_mul(1 << shift).filter(|amount| i64::try_from(*amount).is_ok());
    amount.ok_or_else(|| anyhow!("{text:?} is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_binary_units() {
        for (text, amount) in
            [("0", 0), ("700", 700), ("10G", 10 << 30), ("3 kib".replace(' ', "").as_str(), 3072)]
        {
            assert_eq!(parse_amount(text).unwrap(), amount);
        }
        for text in ["", "G", "-1", "1.5G", "10X", "9000000P"] {
            assert!(parse_amount(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_limit_stays_unless_another_is_given() {
        let known = Limit { soft: Some(5), hard: Some(9), over_since: None };
        assert_eq!(changed(known, None, Some(7)).unwrap(), Limit { hard: Some(7), ..known });
        assert_eq!(changed(known, Some(0), None).unwrap(), Limit { soft: None, ..known });
        assert!(changed(known, None, Some(4)).is_err());
    }
}
