//! Changes of accounts by one group, as a row of the journal holds them.
//!
//! A byte that says in which form, then for each account its scope, its id and three counts, as numbers of as many bytes
//! as they need, seven bits each.

use api::{Account, Counted};

const FORM: u8 = 1;

pub fn encode<'a>(changes: impl Iterator<Item = (&'a Account, &'a Counted)>) -> Vec<u8> {
    let mut row = vec![FORM];
    for (account, counted) in changes {
        row.push(super::scope_number(account.scope) as u8);
        put(&mut row, account.id);
        for count in [counted.files, counted.directories, counted.bytes] {
            // Small numbers of either sign are short.
            put(&mut row, ((count << 1) ^ (count >> 63)).cast_unsigned());
        }
    }
    row
}

/// `None`: no row of ours.
pub fn decode(row: &[u8]) -> Option<Vec<(Account, Counted)>> {
    let (form, mut rest) = row.split_first()?;
    if *form != FORM {
        return None;
    }
    let mut changes = Vec::new();
    while let Some((scope, after)) = rest.split_first() {
        rest = after;
        let scope = super::scope_of((*scope).into())?;
        let account = Account { scope, id: take(&mut rest)? };
        let mut count = || {
            let folded = take(&mut rest)?;
            Some((folded >> 1).cast_signed() ^ -(folded & 1).cast_signed())
        };
        changes.push((account, Counted { files: count()?, directories: count()?, bytes: count()? }));
    }
    Some(changes)
}

fn put(row: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        row.push(number as u8 | 0x80);
        number >>= 7;
    }
    row.push(number as u8);
}

fn take(row: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = row.split_first()?;
        *row = rest;
        let bits = u64::from(byte & 0x7f);
        number |= bits << shift;
        if byte & 0x80 == 0 {
            // The tenth byte has room for one bit.
            return (shift < 63 || bits <= 1).then_some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Scope;
    use proptest::prelude::*;

    fn account() -> impl Strategy<Value = Account> {
        let scope = prop::sample::select(vec![Scope::User, Scope::Group, Scope::Tree]);
        (scope, any::<u64>()).prop_map(|(scope, id)| Account { scope, id })
    }

    proptest! {
        #[test]
        fn a_row_says_what_was_written(
            changes in prop::collection::vec((account(), any::<i64>(), any::<i64>(), any::<i64>()), 0..20)
        ) {
            let changes: Vec<(Account, Counted)> = changes
                .into_iter()
                .map(|(account, files, directories, bytes)| (account, Counted { files, directories, bytes }))
                .collect();
            let row = encode(changes.iter().map(|(account, counted)| (account, counted)));
            prop_assert_eq!(decode(&row), Some(changes));
        }

        #[test]
        fn no_row_is_too_strange(row in prop::collection::vec(any::<u8>(), 0..40)) {
            decode(&row);
        }
    }

    #[test]
    fn a_create_takes_few_bytes() {
        let one = Counted { files: 1, directories: 0, bytes: 0 };
        let accounts = [Account::user(1000), Account::group(1000), Account::tree(types::FileId(123_456))];
        assert_eq!(encode(accounts.iter().map(|account| (account, &one))).len(), 1 + 6 + 6 + 7);
    }
}
