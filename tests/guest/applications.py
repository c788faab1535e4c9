"""applications.py postgresql|sqlite|files ARGUMENT -- real programs on the mount while its server is killed and cut off.

  postgresql STOP   a server of its own on the mount; one row a transaction until the file STOP is there; then it is killed, the
                    cache dropped, the server started again: every acknowledged row is there, and all checksums hold
  sqlite STOP       one row a transaction in a database with a rollback journal; every acknowledged row is there, and it is sound
  files SECONDS     two clients change the same files in turn, each change under a lock; whatever one left the other finds
"""
import ctypes, fcntl, hashlib, mmap, os, random, sqlite3, subprocess, sys, time

INDEX = os.environ["KC_INDEX"]


def drop_caches():
    subprocess.run(["kc-drop"], check=True)


# PostgreSQL

class Postgres:
    def __init__(self):
        programs = "/usr/lib/postgresql"
        self.programs = os.path.join(programs, sorted(d for d in os.listdir(programs) if d.isdigit())[-1], "bin")
        self.dir = os.path.join(os.getcwd(), "cluster")
        os.makedirs("/run/pg", exist_ok=True)
        for path in (".", "/run/pg"):
            subprocess.run(["chown", "postgres:postgres", path], check=True)

    def run(self, program, *argv, **how):
        as_postgres = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
        return subprocess.Popen(as_postgres + [os.path.join(self.programs, program)] + list(argv), **how)

    def must(self, program, *argv):
        assert self.run(program, *argv).wait() == 0, "%s %s failed" % (program, " ".join(argv))

    def start(self):
        self.must("pg_ctl", "-D", self.dir, "-w", "-t", "120", "-l", "/run/pg/log", "-o",
                  "-c unix_socket_directories=/run/pg -c listen_addresses= -c shared_buffers=16MB", "start")

    def session(self):
        return self.run("psql", "-h", "/run/pg", "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "postgres", stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE, text=True, bufsize=1)

    def ask(self, session, sql):
        session.stdin.write(sql + ";\n")
        session.stdin.flush()
        return session.stdout.readline().strip()


def postgresql(stop):
    postgres = Postgres()
    postgres.must("initdb", "-D", postgres.dir, "--data-checksums", "--auth=trust", "--no-instructions")
    postgres.start()
    session = postgres.session()
    assert postgres.ask(session, "CREATE TABLE row (i int PRIMARY KEY, pad text)") == "CREATE TABLE"
    acknowledged = 0
    while not os.path.exists(stop):
        said = postgres.ask(session, "INSERT INTO row VALUES (%d, repeat('x', 500))" % acknowledged)
        assert said == "INSERT 0 1", "row %d: %r" % (acknowledged, said)
        acknowledged += 1
        if acknowledged == 1:
            open(os.path.join(os.environ["KC_OUT"], "postgresql.begun"), "w").close()
    session.kill()
    postgres.must("pg_ctl", "-D", postgres.dir, "-m", "immediate", "stop")
    drop_caches()
    postgres.start()
    session = postgres.session()
    count = int(postgres.ask(session, "SELECT count(*) FROM row WHERE i < %d AND length(pad) = 500" % acknowledged))
    assert count == acknowledged, "%d of %d acknowledged rows are there" % (count, acknowledged)
    session.stdin.close()
    postgres.must("pg_ctl", "-D", postgres.dir, "-m", "fast", "stop")
    postgres.must("pg_checksums", "--check", "-D", postgres.dir)
    print("%d rows acknowledged and there" % acknowledged)


# SQLite

def sqlite(stop):
    db = sqlite3.connect("db", timeout=120, isolation_level=None)
    db.execute("PRAGMA journal_mode = DELETE")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE row (i INTEGER PRIMARY KEY, pad TEXT)")
    acknowledged = 0
    while not os.path.exists(stop):
        db.execute("INSERT INTO row VALUES (?, ?)", (acknowledged, "x" * 500))
        acknowledged += 1
    db.close()
    drop_caches()
    db = sqlite3.connect("db")
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    (count,) = db.execute("SELECT count(*) FROM row WHERE length(pad) = 500").fetchone()
    assert count == acknowledged, "%d of %d acknowledged rows are there" % (count, acknowledged)
    print("%d rows acknowledged and there" % acknowledged)


# Files of two clients

FILES, SIZE_MAX = 6, 200_000
KEEP_SIZE, PUNCH_HOLE = 1, 2
LIBC = ctypes.CDLL(None, use_errno=True)


class SharedFile:
    """A file, and beside it what it holds: number of the change, length and digest. Both under one lock."""

    def __init__(self, name, rng):
        self.name, self.rng, self.acknowledged = name, rng, 0
        self.data = os.open(name, os.O_RDWR | os.O_CREAT, 0o666)
        self.record = os.open(name + ".record", os.O_RDWR | os.O_CREAT, 0o666)

    def read(self):
        said = os.pread(self.record, 200, 0).decode().split()
        number, length, digest = (int(said[0]), int(said[1]), said[2]) if said else (0, 0, hashlib.sha256().hexdigest())
        assert number >= self.acknowledged, "%s: change %d is gone, it is at %d" % (self.name, self.acknowledged, number)
        have = os.fstat(self.data).st_size
        content = bytearray(os.pread(self.data, SIZE_MAX * 2, 0))
        assert have == length == len(content), "%s after change %d: length %d, read %d, want %d" % (self.name, number, have, len(content), length)
        assert hashlib.sha256(content).hexdigest() == digest, "%s after change %d: %s" % (self.name, number, self.told(content))
        return number, content

    def told(self, content):
        return "%d bytes with other content, %d of them zero" % (len(content), content.count(0))

    def change(self):
        # A lock is what makes an NFS client look at a file anew: both need one.
        fcntl.lockf(self.data, fcntl.LOCK_EX)
        fcntl.lockf(self.record, fcntl.LOCK_EX)
        number, content = self.read()
        WAYS[self.rng.randrange(len(WAYS))](self, content)
        os.fsync(self.data)
        line = "%d %d %s" % (number + 1, len(content), hashlib.sha256(content).hexdigest())
        os.pwrite(self.record, line.encode().ljust(200), 0)
        os.fsync(self.record)
        self.acknowledged = number + 1
        fcntl.lockf(self.record, fcntl.LOCK_UN)
        fcntl.lockf(self.data, fcntl.LOCK_UN)

    def place(self, length_max):
        at = self.rng.randrange(SIZE_MAX - length_max)
        return at, self.rng.randint(1, length_max)

    def put(self, content, at, data):
        content.extend(bytes(max(0, at + len(data) - len(content))))
        content[at:at + len(data)] = data

    def write(self, content):
        at, length = self.place(50_000)
        data = self.rng.randbytes(length)
        os.pwrite(self.data, data, at)
        self.put(content, at, data)

    def append(self, content):
        if len(content) < SIZE_MAX:
            data = self.rng.randbytes(self.rng.randint(1, 5000))
            os.pwrite(self.data, data, len(content))
            content.extend(data)

    def truncate(self, content):
        length = self.rng.randrange(SIZE_MAX)
        os.ftruncate(self.data, length)
        content.extend(bytes(max(0, length - len(content))))
        del content[length:]

    def punch(self, content):
        at, length = self.place(30_000)
        if LIBC.fallocate64(self.data, KEEP_SIZE | PUNCH_HOLE, ctypes.c_int64(at), ctypes.c_int64(length)):
            raise OSError(ctypes.get_errno(), "fallocate of %s" % self.name)
        end = min(at + length, len(content))
        content[at:end] = bytes(max(0, end - at))

    def allocate(self, content):
        at, length = self.place(30_000)
        os.posix_fallocate(self.data, at, length)
        content.extend(bytes(max(0, at + length - len(content))))

    def copy(self, content):
        at, length = self.place(30_000)
        to = at + length + self.rng.randrange(1000)
        if to + length > SIZE_MAX or at >= len(content):
            return
        copied = os.copy_file_range(self.data, self.data, length, at, to)
        self.put(content, to, bytes(content[at:at + copied]))

    def map(self, content):
        if len(content) > 10:
            with mmap.mmap(self.data, len(content)) as pages:
                at = self.rng.randrange(len(content))
                data = self.rng.randbytes(min(9000, len(content) - at))
                pages[at:at + len(data)] = data
                pages.flush()
            content[at:at + len(data)] = data


WAYS = [SharedFile.write, SharedFile.write, SharedFile.append, SharedFile.truncate, SharedFile.punch,
        SharedFile.allocate, SharedFile.copy, SharedFile.map]


def files(seconds):
    rng = random.Random("files " + INDEX)
    shared, end = [SharedFile("f%d" % i, rng) for i in range(FILES)], time.monotonic() + float(seconds)
    changes = 0
    while time.monotonic() < end:
        rng.choice(shared).change()
        changes += 1
    print("%d changes" % changes)


def verify_files():
    drop_caches()
    for i in range(FILES):
        SharedFile("f%d" % i, None).read()


{"postgresql": postgresql, "sqlite": sqlite, "files": files, "verify_files": lambda *_: verify_files()}[sys.argv[1]](*sys.argv[2:])
