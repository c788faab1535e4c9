//! Numbers that are never given twice: file ids and listing cookies, reserved in blocks.
//!
//! A block is durable before its first number is used, in either sync mode: a pool keeps data by file id, and a number
//! used twice would show one file's bytes in another. What a crash leaves of a block is skipped.

use rusqlite::Connection;

use crate::schema::{meta, set_meta};
use crate::sqlite::{Durability, set_durability};

const BLOCK_LEN: u64 = 1024;
/// The root is 1; cookies 0 to 2 mean something in NFS (RFC 8881 §18.23.3).
const FIRST: u64 = 3;

pub struct Ids {
    pub files: Block,
    pub cookies: Block,
}

pub struct Block {
    key: &'static str,
    next: u64,
    end: u64,
}

impl Block {
    pub fn take(&mut self) -> Option<u64> {
        let id = (self.next < self.end).then_some(self.next)?;
        self.next += 1;
        Some(id)
    }

    /// Every number ever given lies below.
    pub fn end(&self) -> u64 {
        self.end
    }

    fn open(connection: &Connection, key: &'static str) -> rusqlite::Result<Block> {
        let next = meta(connection, key)?.map_or(FIRST, i64::cast_unsigned);
        Ok(Block { key, next, end: next })
    }
}

impl Ids {
    pub fn open(connection: &Connection) -> rusqlite::Result<Ids> {
        Ok(Ids {
            files: Block::open(connection, "next_file")?,
            cookies: Block::open(connection, "next_cookie")?,
        })
    }

    /// Makes sure that `needed` numbers of each kind are at hand.
    pub fn reserve(
        &mut self,
        connection: &Connection,
        needed: u64,
        mode: Durability,
    ) -> rusqlite::Result<()> {
        if self.blocks().iter().all(|block| block.end - block.next >= needed) {
            return Ok(());
        }
        if mode == Durability::Deferred {
            set_durability(connection, Durability::EachCommit)?;
        }
        let reserved = self.reserve_durably(connection, needed);
        if mode == Durability::Deferred {
            set_durability(connection, Durability::Deferred)?;
        }
        reserved
    }

    fn reserve_durably(&mut self, connection: &Connection, needed: u64) -> rusqlite::Result<()> {
        let transaction = connection.unchecked_transaction()?;
        let grown = self.blocks().map(|block| block.end + BLOCK_LEN.max(needed));
        for (block, end) in self.blocks().into_iter().zip(grown) {
            set_meta(&transaction, block.key, end.cast_signed())?;
        }
        transaction.commit()?;
        let [files, cookies] = grown;
        self.files.end = files;
        self.cookies.end = cookies;
        Ok(())
    }

    fn blocks(&self) -> [&Block; 2] {
        [&self.files, &self.cookies]
    }
}
