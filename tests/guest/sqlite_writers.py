"""sqlite_writers.py DB -- two processes write one SQLite database under its own locks; no row may be lost."""
import os, sqlite3, sys

ROWS = 60


def write(path, who):
    db = sqlite3.connect(path, timeout=60, isolation_level=None)
    for i in range(ROWS):
        db.execute("BEGIN IMMEDIATE")
        (last,) = db.execute("SELECT total FROM counter").fetchone()
        db.execute("INSERT INTO row VALUES (?, ?, ?)", (who, i, "x" * 500))
        db.execute("UPDATE counter SET total = ?", (last + 1,))
        db.execute("COMMIT")
    db.close()


def main():
    path = sys.argv[1]
    db = sqlite3.connect(path)
    db.executescript("CREATE TABLE row (who INT, i INT, pad TEXT, UNIQUE (who, i));"
                     "CREATE TABLE counter (total INT); INSERT INTO counter VALUES (0);")
    db.close()
    children = []
    for who in range(2):
        pid = os.fork()
        if pid == 0:
            write(path, who)
            os._exit(0)
        children.append(pid)
    for pid in children:
        _, status = os.waitpid(pid, 0)
        assert status == 0, "a writer ended with status %d" % status
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert db.execute("SELECT count(*) FROM row").fetchone() == (2 * ROWS,)
    assert db.execute("SELECT total FROM counter").fetchone() == (2 * ROWS,)


main()
