-- One create as Chimera does it: three statements in one transaction, each waiting for the answer of the one before.
-- The row of the parent stays locked from its update to the commit, thus over the sync of the log.
-- own = 0: all creators in one directory; own = 1: one for each creator.
\set parent 1 + :client_id * :own
\set serial :serial + 1
BEGIN;
INSERT INTO inodes (pnfs_id, type, mode, nlink, uid, gid, size, io, ctime, atime, mtime, crtime, generation)
VALUES ('F' || lpad(:client_id::text, 5, '0') || lpad(:serial::text, 30, '0'), 32768, 420, 1, 0, 0, 0, 1, now(), now(), now(), now(), 0)
RETURNING number AS number \gset
INSERT INTO dentries (parent, name, child)
VALUES (:parent, 'file.' || :client_id::text || '.' || :serial::text, :number) ON CONFLICT DO NOTHING;
UPDATE inodes SET nlink = nlink + 1, mtime = now(), ctime = now(), generation = generation + 1 WHERE number = :parent;
COMMIT;
