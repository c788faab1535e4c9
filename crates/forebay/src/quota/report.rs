//! Reports of accounts for people and for programs.

use api::{Account, Counted, Limit, Scope, Standing};
use serde::{Deserialize, Serialize};
use types::display::ShortSize;

use crate::table::{Column, Table};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AccountReport {
    scope: String,
    /// A uid, a gid, or a directory's number.
    id: u64,
    /// Of a tree.
    path: Option<String>,
    files: i64,
    directories: i64,
    bytes: u64,
    bytes_limits: LimitReport,
    files_limits: LimitReport,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct LimitReport {
    soft: Option<u64>,
    hard: Option<u64>,
    /// Bytes or files that the account may still add.
    left: Option<u64>,
    /// Seconds since 1970; since when it is above `soft`.
    over_since: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UsageReport {
    path: String,
    files: i64,
    directories: i64,
    bytes: u64,
}

#[derive(Serialize)]
pub struct AccountList {
    pub quotas: Vec<AccountReport>,
}

#[derive(Serialize)]
pub struct UsageList {
    pub usage: Vec<UsageReport>,
}

impl AccountReport {
    pub fn of(standing: &Standing) -> AccountReport {
        let limits = |limit: Limit, left| LimitReport {
            soft: limit.soft,
            hard: limit.hard,
            left,
            over_since: limit.over_since,
        };
        AccountReport {
            bytes_limits: limits(standing.quota.bytes, standing.bytes_left),
            files_limits: limits(standing.quota.files, standing.files_left),
            ..AccountReport::without_quota(standing.account, standing.used)
        }
    }

    pub fn without_quota(account: Account, used: Counted) -> AccountReport {
        let scope = match account.scope {
            Scope::User => "user",
            Scope::Group => "group",
            Scope::Tree => "tree",
        };
        AccountReport {
            scope: scope.to_owned(),
            id: account.id,
            path: None,
            files: used.files,
            directories: used.directories,
            bytes: used.bytes(),
            bytes_limits: LimitReport::default(),
            files_limits: LimitReport::default(),
        }
    }

    pub fn with_path(self, path: Option<String>) -> AccountReport {
        AccountReport { path, ..self }
    }

    pub fn name(&self) -> String {
        match &self.path {
            Some(path) => format!("{} {path}", self.scope),
            None => format!("{} {}", self.scope, self.id),
        }
    }
}

impl UsageReport {
    pub fn of(path: String, counted: Counted) -> UsageReport {
        let Counted { files, directories, .. } = counted;
        UsageReport { path, files, directories, bytes: counted.bytes() }
    }

    pub fn of_file(path: String, size: u64) -> UsageReport {
        UsageReport { path, files: 1, directories: 0, bytes: size }
    }
}

pub fn table(accounts: &[AccountReport]) -> String {
    use Column::{Number, Text};
    let mut table = Table::new([
        Number("bytes"),
        Number("soft"),
        Number("hard"),
        Number("files"),
        Number("soft"),
        Number("hard"),
        Text("account"),
    ]);
    for account in accounts {
        let bytes = |limit: Option<u64>| limit.map_or("-".to_owned(), |limit| ShortSize(limit).to_string());
        let files = |limit: Option<u64>| limit.map_or("-".to_owned(), |limit| limit.to_string());
        // A star as `quota` has it: the soft limit is passed.
        let mark = |limits: &LimitReport| if limits.over_since.is_some() { "*" } else { "" };
        table.row([
            ShortSize(account.bytes).to_string() + mark(&account.bytes_limits),
            bytes(account.bytes_limits.soft),
            bytes(account.bytes_limits.hard),
            (account.files + account.directories).to_string() + mark(&account.files_limits),
            files(account.files_limits.soft),
            files(account.files_limits.hard),
            account.name(),
        ]);
    }
    table.to_string()
}

pub fn usage(lines: &[UsageReport]) -> String {
    use Column::{Number, Text};
    let mut table = Table::new([Number("bytes"), Number("files"), Number("directories"), Text("path")]);
    for line in lines {
        let (files, directories) = (line.files.to_string(), line.directories.to_string());
        table.row([ShortSize(line.bytes).to_string(), files, directories, line.path.clone()]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_line_for_each_account_and_a_star_at_what_is_passed() {
        let quota = api::Quota {
            bytes: Limit { soft: Some(1 << 20), hard: Some(1 << 30), over_since: Some(7) },
            files: Limit::default(),
        };
        let used = Counted { files: 3, directories: 1, bytes: 2 << 20 };
        let (bytes_left, files_left) = (Some(1), None);
        let standing = Standing { account: Account::user(10), quota, used, bytes_left, files_left };
        let text = table(&[AccountReport::of(&standing)]);
        let words: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(words, ["2M*", "1M", "1G", "4", "-", "-", "user", "10"]);
    }
}
