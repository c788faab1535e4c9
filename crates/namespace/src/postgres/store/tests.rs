//! How many statements a group becomes at the most.

use std::collections::BTreeSet;

use api::{Quota, ReplicaRef};
use types::{Checksum, ChecksumKind, FileKind, PoolId, SymlinkTarget, Timestamp};

use super::*;
use crate::inode::{Instance, new_inode};
use crate::store::{Attached, Totals, XattrRow};

const FILES: [FileId; 3] = [FileId(7), FileId(8), FileId(9)];

/// One row that is put, one that is removed, and a file that loses all.
fn attached<K: Ord + Clone, V>(key: K, value: V) -> Attached<K, V> {
    let mut rows = Attached::default();
    rows.put(FILES[0], key.clone(), value);
    rows.remove(FILES[1], key);
    rows.clear(FILES[2]);
    rows
}

/// With something in each of its parts, that comes and that goes.
fn full() -> Batch {
    let [file, other, dir] = FILES;
    let name = |text: &str| Name::new(text.as_bytes()).unwrap();
    let inode = new_inode(file, FileKind::Regular, Timestamp::EPOCH, Instance { start: 1 });
    let (user, group) = (Account::user(1), Account::user(2));
    let checksum = Checksum::new(ChecksumKind::Adler32, &[0; 4]).unwrap();
    // Each by its name, so that a new part of a batch does not compile without a place here.
    Batch {
        sequence: 5,
        is_durable: true,
        totals: Totals::default(),
        inodes: [(file, InodeChange::Insert(inode)), (other, InodeChange::Remove)].into(),
        names: [
            ((dir, name("a")), NameChange::Put { cookie: 1, child: file }),
            ((dir, name("b")), NameChange::Repoint { child: file }),
            ((dir, name("c")), NameChange::Remove),
        ]
        .into(),
        locations: attached(PoolId(0), ReplicaRef::good(PoolId(0), Timestamp::EPOCH)),
        properties: attached("{DAV:}colour".to_owned(), "red".into()),
        xattrs: attached(XattrName::new(b"x").unwrap(), XattrRow { cookie: 1, value: "y".into() }),
        acls: [(file, Some(Acl::default())), (other, None)].into(),
        checksums: attached(ChecksumKind::Adler32, checksum),
        targets: [(file, Some(SymlinkTarget::new(b"to").unwrap())), (other, None)].into(),
        clients: [(b"one".to_vec(), Some(true)), (b"two".to_vec(), None)].into(),
        dir_deltas: [(dir, DirDelta { nlink: 1, change: 1, time: Timestamp::EPOCH })].into(),
        folded: BTreeSet::from([dir]),
        closed_accounts: BTreeSet::from([user]),
        usage: [(user, Counted::default())].into(),
        journal: Some(Vec::new()),
        ends_journal: true,
        quotas: [(user, Some(Quota::default())), (group, None)].into(),
    }
}

#[test]
fn a_group_with_everything_in_it_has_as_many_statements_as_keep_their_order() {
    let changes = changes(&full(), 1);
    assert_eq!(changes.len(), CHANGES_MAX);
    assert_eq!(changes[0].sql, MOVE_ON, "nothing is done to a database that is not as it was left");
}

/// Where the data is costs a create nothing: it is noted in the rows of the inode and of the replica.
#[test]
fn a_create_with_a_replica_is_a_statement_for_each_of_three_tables() {
    let [file, _, dir] = FILES;
    let mut inode = new_inode(file, FileKind::Regular, Timestamp::EPOCH, Instance { start: 1 });
    inode.extras.placement = crate::locality::Placement::Replicas;
    let mut batch = Batch::default();
    batch.inodes.insert(file, InodeChange::Insert(inode));
    batch.names.insert((dir, Name::new(b"a").unwrap()), NameChange::Put { cookie: 1, child: file });
    batch.locations.put(file, PoolId(0), ReplicaRef::good(PoolId(0), Timestamp::EPOCH));
    let tables: Vec<&str> = changes(&batch, 1)[1..]
        .iter()
        .map(|change| change.sql.strip_prefix("INSERT INTO ").unwrap().split(' ').next().unwrap())
        .collect();
    assert_eq!(tables, ["inodes", "dentries", "locations"]);
}
