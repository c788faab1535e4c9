//! Every table whose rows are moved, with its columns: one list for all engines.
//!
//! A new table of the schema is added here, in both senses of the word: `tests` compare the list with both engines'
//! schemas. A value is kept as SQLite has it; numbers that PostgreSQL keeps with a sign and we do not are turned.

use bytes::BytesMut;
use postgres_types::{IsNull, ToSql, Type, to_sql_checked};
use rusqlite::types::{ToSqlOutput, ValueRef};

#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    pub name: &'static str,
    /// The first of them are the primary key, in its order.
    pub columns: &'static [Column],
    pub key_len: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: &'static str,
    pub kind: Kind,
}

/// As PostgreSQL has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `bigint`
    Long,
    /// `integer`, of 32 bits without sign
    Unsigned,
    /// `smallint`
    Short,
    /// `boolean`
    Flag,
    Text,
    Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    Null,
    Number(i64),
    Text(String),
    Bytes(Vec<u8>),
}

/// Kept by the copy itself and by the engine: what a start notes, the totals, which migrations were applied.
#[cfg(test)]
pub const APART: [&str; 3] = ["meta", "progress", "schema_version"];

const fn column(name: &'static str, kind: Kind) -> Column {
    Column { name, kind }
}

const fn long(name: &'static str) -> Column {
    column(name, Kind::Long)
}

const fn unsigned(name: &'static str) -> Column {
    column(name, Kind::Unsigned)
}

pub static INODES: Table = Table {
    name: "inodes",
    columns: &[
        long("id"),
        column("kind", Kind::Short),
        unsigned("mode"),
        unsigned("uid"),
        unsigned("gid"),
        unsigned("nlink"),
        long("size"),
        long("space_used"),
        long("parent"),
        long("atime_s"),
        unsigned("atime_ns"),
        long("mtime_s"),
        unsigned("mtime_ns"),
        long("ctime_s"),
        unsigned("ctime_ns"),
        long("birth_s"),
        unsigned("birth_ns"),
        long("change"),
        unsigned("epoch"),
        unsigned("major"),
        unsigned("minor"),
        column("verifier", Kind::Bytes),
        unsigned("extras"),
    ],
    key_len: 1,
};

pub static DENTRIES: Table = Table {
    name: "dentries",
    columns: &[long("parent"), column("name", Kind::Bytes), long("cookie"), long("inode")],
    key_len: 2,
};

pub static LOCATIONS: Table = Table {
    name: "locations",
    columns: &[long("inode"), unsigned("pool"), column("state", Kind::Short), long("since")],
    key_len: 2,
};

pub static SYMLINKS: Table =
    Table { name: "symlinks", columns: &[long("inode"), column("target", Kind::Bytes)], key_len: 1 };

static PROPERTIES: Table = Table {
    name: "properties",
    columns: &[long("inode"), column("name", Kind::Text), column("value", Kind::Bytes)],
    key_len: 2,
};

static XATTRS: Table = Table {
    name: "xattrs",
    columns: &[long("inode"), column("name", Kind::Bytes), long("cookie"), column("value", Kind::Bytes)],
    key_len: 2,
};

static ACLS: Table =
    Table { name: "acls", columns: &[long("inode"), column("acl", Kind::Bytes)], key_len: 1 };

pub static CHECKSUMS: Table = Table {
    name: "checksums",
    columns: &[long("inode"), column("kind", Kind::Text), column("value", Kind::Bytes)],
    key_len: 2,
};

pub static CLIENTS: Table = Table {
    name: "clients",
    columns: &[column("owner", Kind::Bytes), column("reclaim_complete", Kind::Flag)],
    key_len: 1,
};

static DIR_DELTAS: Table = Table {
    name: "dir_deltas",
    columns: &[
        long("inode"),
        long("groups"),
        long("nlink"),
        long("change"),
        long("time_s"),
        unsigned("time_ns"),
    ],
    key_len: 2,
};

pub static USAGE: Table = Table {
    name: "usage",
    columns: &[column("scope", Kind::Short), long("id"), long("files"), long("directories"), long("bytes")],
    key_len: 2,
};

static USAGE_JOURNAL: Table =
    Table { name: "usage_journal", columns: &[long("groups"), column("deltas", Kind::Bytes)], key_len: 1 };

static QUOTAS: Table = Table {
    name: "quotas",
    columns: &[
        column("scope", Kind::Short),
        long("id"),
        long("bytes_soft"),
        long("bytes_hard"),
        long("files_soft"),
        long("files_hard"),
        long("bytes_over_since"),
        long("files_over_since"),
    ],
    key_len: 2,
};

pub static TABLES: [&Table; 13] = [
    &INODES,
    &DENTRIES,
    &LOCATIONS,
    &SYMLINKS,
    &PROPERTIES,
    &XATTRS,
    &ACLS,
    &CHECKSUMS,
    &CLIENTS,
    &DIR_DELTAS,
    &USAGE,
    &USAGE_JOURNAL,
    &QUOTAS,
];

impl Table {
    pub fn width(&self) -> usize {
        self.columns.len()
    }

    pub fn key(&self) -> &'static [Column] {
        &self.columns[..self.key_len]
    }

    pub fn column_names(&self) -> String {
        names(self.columns)
    }

    /// A page of rows in the order of the key: all from the first, or those behind a key, whose values are the first
    /// parameters; the last parameter is the length. `mark` is what the engine writes before a parameter's number.
    pub fn page_sql(&self, mark: char, collate: &str, is_first: bool) -> String {
        let order: Vec<String> = self.key().iter().map(|column| ordered(column, collate)).collect();
        let order = order.join(", ");
        let (behind, limit) = if is_first {
            (String::new(), 1)
        } else {
            let marks: Vec<String> = (1..=self.key_len).map(|at| format!("{mark}{at}")).collect();
            (format!(" WHERE ({order}) > ({})", marks.join(", ")), self.key_len + 1)
        };
        let (columns, table) = (self.column_names(), self.name);
        format!("SELECT {columns} FROM {table}{behind} ORDER BY {order} LIMIT {mark}{limit}")
    }

    pub fn last_key_sql(&self, collate: &str) -> String {
        let order: Vec<String> =
            self.key().iter().map(|column| format!("{} DESC", ordered(column, collate))).collect();
        let keys = names(self.key());
        format!("SELECT {keys} FROM {} ORDER BY {} LIMIT 1", self.name, order.join(", "))
    }

    /// Of a column of this table.
    pub fn at(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }
}

fn names(columns: &[Column]) -> String {
    let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
    names.join(", ")
}

/// Texts are compared byte by byte, whatever language the database speaks.
fn ordered(column: &Column, collate: &str) -> String {
    match column.kind {
        Kind::Text => format!("{}{collate}", column.name),
        _ => column.name.to_owned(),
    }
}

impl Value {
    /// Of SQLite's, where a column holds what was put into it.
    pub fn from_sqlite(value: ValueRef<'_>, kind: Kind) -> Option<Value> {
        let bytes = |bytes: &[u8]| Some(Value::Bytes(bytes.to_vec()));
        match (value, kind) {
            (ValueRef::Null, _) => Some(Value::Null),
            (ValueRef::Integer(number), Kind::Long | Kind::Unsigned | Kind::Short | Kind::Flag) => {
                Some(Value::Number(number))
            }
            (ValueRef::Text(text), Kind::Text) => String::from_utf8(text.to_vec()).ok().map(Value::Text),
            (ValueRef::Blob(blob), Kind::Bytes) => bytes(blob),
            (ValueRef::Text(text), Kind::Bytes) => bytes(text),
            _ => None,
        }
    }
}

impl rusqlite::ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Null => ValueRef::Null,
            Value::Number(number) => ValueRef::Integer(*number),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

type ToSqlError = Box<dyn std::error::Error + Sync + Send>;

impl ToSql for Value {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, ToSqlError> {
        match self {
            Value::Null => Ok(IsNull::Yes),
            Value::Text(text) => text.to_sql(kind, out),
            Value::Bytes(bytes) => bytes.to_sql(kind, out),
            Value::Number(number) => match *kind {
                Type::INT4 => u32::try_from(*number)?.cast_signed().to_sql(kind, out),
                Type::INT2 => i16::try_from(*number)?.to_sql(kind, out),
                Type::BOOL => (*number != 0).to_sql(kind, out),
                _ => number.to_sql(kind, out),
            },
        }
    }

    fn accepts(kind: &Type) -> bool {
        [Type::INT8, Type::INT4, Type::INT2, Type::BOOL, Type::TEXT, Type::BYTEA].contains(kind)
    }

    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_asked_for_behind_a_key() {
        let sql = PROPERTIES.page_sql('$', " COLLATE \"C\"", false);
        assert_eq!(
            sql,
            "SELECT inode, name, value FROM properties WHERE (inode, name COLLATE \"C\") > ($1, $2) \
             ORDER BY inode, name COLLATE \"C\" LIMIT $3"
        );
        let sql = INODES.page_sql('?', "", true);
        assert!(sql.ends_with(" FROM inodes ORDER BY id LIMIT ?1"), "{sql}");
    }
}
