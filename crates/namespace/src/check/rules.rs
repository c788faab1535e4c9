//! Rules as queries: each row of a result is a problem.

use api::ReplicaState;

use super::{Kind, PROBLEMS_MAX, Problem, counts};
use crate::accounts::counting::is_counting;
use crate::inode::Extras;
use crate::locality::{Placement, state_number};
use crate::session::{Fields, Session, placement_by_rows};
use crate::store::StoreResult;

/// Tables whose rows hang on files, with the bit by which a file says that it has any.
pub const ATTACHED: [(&str, u32); 4] = [
    ("checksums", Extras::CHECKSUMS),
    ("properties", Extras::PROPERTIES),
    ("xattrs", Extras::XATTRS),
    ("acls", Extras::ACL),
];

struct Rule {
    sql: String,
    problem: Box<OfRow>,
}

type OfRow = dyn Fn(&dyn Fields) -> Problem;

/// In the order of the first two columns, whatever the engine.
fn rule(sql: &str, problem: impl Fn(&dyn Fields) -> Problem + 'static) -> Rule {
    Rule { sql: format!("{sql} ORDER BY 1, 2 LIMIT {PROBLEMS_MAX}"), problem: Box::new(problem) }
}

fn rule_of_files(sql: &str, problem: impl Fn(&dyn Fields) -> Problem + 'static) -> Rule {
    Rule { sql: format!("{sql} ORDER BY 1 LIMIT {PROBLEMS_MAX}"), problem: Box::new(problem) }
}

/// Problems of a kind, as many as are reported at once.
pub fn find(session: &mut dyn Session, kind: Kind) -> StoreResult<Vec<Problem>> {
    let rules = match kind {
        Kind::Database => {
            return Ok(session.complaints()?.into_iter().map(Problem::Database).collect());
        }
        Kind::NoRoot => return counts::root(session),
        Kind::Unreachable => return counts::unreachable(session),
        Kind::Totals => return counts::totals(session),
        Kind::Usage => return counts::usage(session),
        Kind::Names => names(),
        Kind::DirectoryNames => directory_names(),
        Kind::Parents => parents(),
        Kind::Unnamed => unnamed(),
        Kind::Symlinks => symlinks(),
        Kind::Nameless => nameless(),
        Kind::Locations => locations(),
        Kind::Placements => placements(),
        Kind::Attachments => ATTACHED.iter().flat_map(|(table, bit)| attachments(table, *bit)).collect(),
        // Where nothing is counted, files need no home.
        Kind::Homes if !is_counting(session)? => Vec::new(),
        Kind::Homes => homes(),
        Kind::LinkCounts => link_counts(),
        Kind::Deltas => deltas(),
        Kind::Accounts => {
            accounts("a quota", "quotas").into_iter().chain(accounts("a count", "usage")).collect()
        }
    };
    let mut problems = Vec::new();
    for rule in rules {
        problems.extend(session.rows(&rule.sql, rule.problem)?);
    }
    Ok(problems)
}

fn names() -> Vec<Rule> {
    vec![
        rule(
            "SELECT d.parent, d.name, d.inode FROM dentries d LEFT JOIN inodes i ON i.id = d.inode \
             WHERE i.id IS NULL",
            |row| Problem::NameOfNothing { dir: row.id(0), name: row.bytes(1), file: row.id(2) },
        ),
        rule(
            "SELECT d.parent, d.name FROM dentries d LEFT JOIN inodes i ON i.id = d.parent \
             WHERE i.kind IS NULL OR i.kind != 1",
            |row| Problem::NameInNoDirectory { dir: row.id(0), name: row.bytes(1) },
        ),
    ]
}

fn directory_names() -> Vec<Rule> {
    vec![rule(
        "SELECT i.id, count(d.inode) FROM inodes i LEFT JOIN dentries d ON d.inode = i.id \
         WHERE i.kind = 1 AND i.id != 1 GROUP BY i.id HAVING count(d.inode) != 1",
        |row| Problem::DirectoryNames { dir: row.id(0), names: row.count(1) },
    )]
}

fn parents() -> Vec<Rule> {
    vec![rule(
        "SELECT i.id, i.parent, d.parent FROM dentries d JOIN inodes i ON i.id = d.inode \
         WHERE i.kind = 1 AND i.parent != d.parent",
        |row| Problem::WrongParent { dir: row.id(0), parent: row.id(1), named_in: row.id(2) },
    )]
}

fn unnamed() -> Vec<Rule> {
    vec![rule(
        "SELECT i.id, i.nlink FROM inodes i WHERE i.extras & 4 != 0 AND (i.nlink != 0 OR i.kind != 0)",
        |row| Problem::Unnamed { file: row.id(0), nlink: row.count(1) },
    )]
}

fn symlinks() -> Vec<Rule> {
    vec![rule_of_files(
        "SELECT i.id FROM inodes i LEFT JOIN symlinks s ON s.inode = i.id \
         WHERE i.kind = 2 AND s.inode IS NULL",
        |row| Problem::SymlinkWithoutTarget { file: row.id(0) },
    )]
}

/// An unlinked file has no name either, but its link count is zero.
fn nameless() -> Vec<Rule> {
    vec![rule(
        "SELECT i.id, i.nlink FROM inodes i LEFT JOIN dentries d ON d.inode = i.id \
         WHERE i.kind != 1 AND i.nlink != 0 AND d.inode IS NULL",
        |row| Problem::Nameless { file: row.id(0), nlink: row.count(1) },
    )]
}

fn locations() -> Vec<Rule> {
    let known = ReplicaState::ALL.map(|state| state_number(state).to_string());
    vec![
        rule(
            "SELECT l.inode, l.pool FROM locations l LEFT JOIN inodes i ON i.id = l.inode \
             WHERE i.id IS NULL OR i.kind != 0",
            |row| Problem::LocationOfNothing { file: row.id(0), pool: row.pool(1) },
        ),
        rule(
            &format!(
                "SELECT l.inode, l.pool, l.state FROM locations l WHERE l.state NOT IN ({})",
                known.join(", ")
            ),
            |row| Problem::StrangeReplica { file: row.id(0), pool: row.pool(1), state: row.number(2) },
        ),
    ]
}

fn placements() -> Vec<Rule> {
    let (shift, mask, found) = (Placement::SHIFT, Placement::MASK, placement_by_rows("i"));
    vec![rule(
        &format!(
            "SELECT t.id, t.noted, t.found FROM (SELECT i.id AS id, (i.extras >> {shift}) & {mask} AS noted, \
             {found} AS found FROM inodes i) t WHERE t.noted != t.found"
        ),
        |row| Problem::Placement { file: row.id(0), noted: row.count(1), found: row.count(2) },
    )]
}

fn attachments(table: &'static str, bit: u32) -> Vec<Rule> {
    vec![
        rule_of_files(
            &format!(
                "SELECT DISTINCT r.inode FROM {table} r LEFT JOIN inodes i ON i.id = r.inode \
                 WHERE i.id IS NULL OR i.extras & {bit} = 0"
            ),
            move |row| Problem::RowsOfNothing { table, file: row.id(0) },
        ),
        rule_of_files(
            &format!(
                "SELECT i.id FROM inodes i WHERE i.extras & {bit} != 0 \
                 AND NOT EXISTS (SELECT 1 FROM {table} r WHERE r.inode = i.id)"
            ),
            move |row| Problem::RowsMissing { table, file: row.id(0) },
        ),
    ]
}

fn homes() -> Vec<Rule> {
    let problem = |row: &dyn Fields| Problem::WrongHome { file: row.id(0), home: row.id(1) };
    vec![
        rule(
            "SELECT i.id, i.parent FROM inodes i LEFT JOIN dentries d ON d.inode = i.id AND d.parent = i.parent \
             WHERE i.kind != 1 AND i.parent != 0 AND d.inode IS NULL",
            problem,
        ),
        rule(
            "SELECT i.id, i.parent FROM inodes i WHERE i.kind != 1 AND i.parent = 0 \
             AND EXISTS (SELECT 1 FROM dentries d WHERE d.inode = i.id)",
            problem,
        ),
    ]
}

/// Of a directory the truth is its row with what is pending.
fn link_counts() -> Vec<Rule> {
    let problem =
        |row: &dyn Fields| Problem::LinkCount { file: row.id(0), nlink: row.count(1), counted: row.count(2) };
    vec![
        rule(
            "SELECT i.id, i.nlink, coalesce(n.names, 0) AS counted FROM inodes i \
             LEFT JOIN (SELECT inode, count(*) AS names FROM dentries GROUP BY inode) n ON n.inode = i.id \
             WHERE i.kind != 1 AND i.nlink != coalesce(n.names, 0) AND n.names IS NOT NULL",
            problem,
        ),
        rule(
            "SELECT t.id, t.nlink, t.counted FROM (SELECT i.id AS id, \
              CAST(i.nlink + coalesce(p.pending, 0) AS bigint) AS nlink, 2 + coalesce(n.children, 0) AS counted \
              FROM inodes i LEFT JOIN \
              (SELECT d.parent, count(*) AS children FROM dentries d JOIN inodes c ON c.id = d.inode AND c.kind = 1 \
               GROUP BY d.parent) n ON n.parent = i.id LEFT JOIN \
              (SELECT inode, sum(nlink) AS pending FROM dir_deltas GROUP BY inode) p ON p.inode = i.id \
              WHERE i.kind = 1) t WHERE t.nlink != t.counted",
            problem,
        ),
    ]
}

fn deltas() -> Vec<Rule> {
    vec![rule_of_files(
        "SELECT DISTINCT p.inode FROM dir_deltas p LEFT JOIN inodes i ON i.id = p.inode AND i.kind = 1 \
         WHERE i.id IS NULL",
        |row| Problem::DeltaOfNothing { dir: row.id(0) },
    )]
}

fn accounts(shown: &'static str, table: &'static str) -> Vec<Rule> {
    vec![rule_of_files(
        &format!(
            "SELECT a.id FROM {table} a LEFT JOIN inodes i ON i.id = a.id AND i.kind = 1 \
             WHERE a.scope = 2 AND i.id IS NULL"
        ),
        move |row| Problem::AccountOfNothing { table: shown, dir: row.id(0) },
    )]
}
