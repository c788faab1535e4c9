//! A statement of a batch, with its values.

use postgres_types::ToSql;

pub struct Change {
    pub sql: &'static str,
    pub values: Vec<Box<dyn ToSql + Sync + Send>>,
}

pub fn remove_all(changes: &mut Vec<Change>, sql: &'static str, files: Vec<i64>) {
    if !files.is_empty() {
        changes.push(Change { sql, values: vec![Box::new(files)] });
    }
}
