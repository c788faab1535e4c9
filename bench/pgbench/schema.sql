-- As much of Chimera's schema (dCache's namespace) as a create touches: an inode by number and by its 36 letters, an
-- entry by parent and name and by child.
DROP TABLE IF EXISTS dentries, inodes;

CREATE TABLE inodes (
    number     bigserial PRIMARY KEY,
    pnfs_id    varchar(36) NOT NULL UNIQUE,
    type       integer NOT NULL,
    mode       integer NOT NULL,
    nlink      integer NOT NULL,
    uid        integer NOT NULL,
    gid        integer NOT NULL,
    size       bigint NOT NULL,
    io         integer NOT NULL,
    ctime      timestamptz NOT NULL,
    atime      timestamptz NOT NULL,
    mtime      timestamptz NOT NULL,
    crtime     timestamptz NOT NULL,
    generation bigint NOT NULL
);

CREATE TABLE dentries (
    parent bigint NOT NULL REFERENCES inodes (number),
    name   varchar(255) NOT NULL,
    child  bigint NOT NULL REFERENCES inodes (number),
    PRIMARY KEY (parent, name)
);
CREATE INDEX dentries_by_child ON dentries (child);

-- The directories, numbered from 1: the shared one, or one for each creator.
INSERT INTO inodes (pnfs_id, type, mode, nlink, uid, gid, size, io, ctime, atime, mtime, crtime, generation)
SELECT 'D' || lpad(n::text, 35, '0'), 16384, 493, 2, 0, 0, 512, 0, now(), now(), now(), now(), 0
FROM generate_series(1, 64) AS n;

-- A plan that was made for empty tables and is kept would read them from end to end.
ANALYZE;
CHECKPOINT;
