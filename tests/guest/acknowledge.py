"""acknowledge.py write|verify LOG -- work whose acknowledged steps are logged, and the proof that all of them hold.

Workers (one process each, so that calls of all kinds are under way when the server dies):
  names    create, mkdir, rename, link, unlink: each is durable when it returned (NFS: metadata calls are synchronous)
  files    new files of 1 B to 2 MiB, written and fsynced
  log      one file appended to with fsync after every record
  patches  one file of 16 MiB overwritten in place at random places, fsync after each
Log lines: `kind|arguments`, after the call returned.
"""
import hashlib, os, random, sys

STOP = os.path.join(os.path.dirname(sys.argv[2]), "stop")
PATCH, SLOTS = 4096, 4096


class Log:
    def __init__(self, kind):
        self.f = open("%s.%s" % (sys.argv[2], kind), "a", buffering=1)

    def say(self, *words):
        self.f.write("|".join(str(w) for w in words) + "\n")


def once(call, *args, done):
    """A call whose answer died with the server is sent again after the restart, when it has already been done: the
    new server knows no reply of the old one (RFC 8881 2.10.6.5, without persistent sessions). The client then hears
    ENOENT or EEXIST; `done` tells whether that is why."""
    try:
        call(*args)
    except (FileNotFoundError, FileExistsError):
        if not done():
            raise


def names(log):
    os.makedirs("names", exist_ok=True)
    i = 0
    while not os.path.exists(STOP):
        d = "names/d%d" % (i // 40)
        if i % 40 == 0:
            once(os.mkdir, d, done=lambda: os.path.isdir(d))
            log.say("there", d)
        path = "%s/n%d" % (d, i)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600 + i % 64))
        log.say("mode", path, oct(0o600 + i % 64))
        if i % 4 == 1:
            once(os.rename, path, path + ".renamed", done=lambda: os.path.exists(path + ".renamed"))
            log.say("gone", path)
            log.say("there", path + ".renamed")
        elif i % 4 == 2:
            once(os.link, path, path + ".link", done=lambda: os.path.samefile(path, path + ".link"))
            log.say("there", path + ".link")
        elif i % 4 == 3:
            once(os.unlink, path, done=lambda: not os.path.exists(path))
            log.say("gone", path)
        i += 1


def content(seed, size):
    return random.Random(seed).randbytes(size)


def files(log):
    os.makedirs("files", exist_ok=True)
    i = 0
    while not os.path.exists(STOP):
        data = content(i, random.Random(i).choice([1, 100, 4096, 70_000, 500_000, 2 << 20]))
        path = "files/f%d" % i
        with open(path, "wb", buffering=0) as f:
            f.write(data)
            os.fsync(f.fileno())
        log.say("bytes", path, hashlib.sha256(data).hexdigest())
        i += 1


def append(log):
    fd = os.open("log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    i = 0
    while not os.path.exists(STOP):
        os.write(fd, b"%07d\n" % i)
        os.fsync(fd)
        log.say("records", "log", i + 1)
        i += 1


def patches(log):
    fd = os.open("patched", os.O_CREAT | os.O_RDWR)
    os.ftruncate(fd, PATCH * SLOTS)
    rng, i = random.Random(99), 0
    while not os.path.exists(STOP):
        slot = rng.randrange(SLOTS)
        log.say("begun", slot, i)
        os.pwrite(fd, content(i, PATCH), slot * PATCH)
        os.fsync(fd)
        log.say("patch", slot, i)
        i += 1


def write():
    children = {}
    for kind, work in (("names", names), ("files", files), ("append", append), ("patches", patches)):
        pid = os.fork()
        if pid == 0:
            log = Log(kind)
            try:
                work(log)
            except BaseException as e:
                log.say("error", kind, type(e).__name__, e)
                os._exit(1)
            os._exit(0)
        children[pid] = kind
    failed = []
    while children:
        pid, status = os.wait()
        kind = children.pop(pid)
        if status:
            failed.append(kind)
    assert not failed, "workers failed: %s" % failed


def lines(kind):
    with open("%s.%s" % (sys.argv[2], kind)) as f:
        for line in f:
            yield line.rstrip("\n").split("|")


def verify_names():
    state = {}
    for words in lines("names"):
        state[words[1]] = words
    for path, words in state.items():
        assert os.path.lexists(path) == (words[0] != "gone"), "%s: logged '%s'" % (path, words[0])
        if words[0] == "mode":
            have = oct(os.stat(path).st_mode & 0o7777)
            # umask 022 takes group and other write away
            assert have == oct(int(words[2], 8) & ~0o022), "%s has mode %s, created with %s" % (path, have, words[2])
    return len(state)


def verify_files():
    n = 0
    for _, path, digest in lines("files"):
        with open(path, "rb") as f:
            assert hashlib.sha256(f.read()).hexdigest() == digest, "%s has other bytes than were fsynced" % path
        n += 1
    return n


def verify_append():
    last = 0
    for _, _, count in lines("append"):
        last = int(count)
    with open("log", "rb") as f:
        have = f.read()
    want = b"".join(b"%07d\n" % i for i in range(last))
    assert have[:len(want)] == want, "log: record %d is wrong or missing" % next(
        i for i in range(last) if have[8 * i:8 * i + 8] != want[8 * i:8 * i + 8])
    return last


def verify_patches():
    sure, begun = {}, {}
    for what, slot, i in lines("patches"):
        if what == "patch":
            sure[int(slot)] = int(i)
        begun.setdefault(int(slot), []).append(int(i))
    with open("patched", "rb") as f:
        for slot, i in sure.items():
            f.seek(slot * PATCH)
            have = f.read(PATCH)
            # a later patch that was begun and not acknowledged may be there too
            allowed = [content(j, PATCH) for j in begun[slot] if j >= i]
            assert have in allowed, "patch %d in slot %d is not there" % (i, slot)
    return len(sure)


if sys.argv[1] == "write":
    write()
else:
    print("names %d, files %d, records %d, patches %d" % (verify_names(), verify_files(), verify_append(), verify_patches()))
