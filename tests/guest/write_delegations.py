"""write_delegations.py WHAT -- files that one kernel has to itself; both run this, $KC_INDEX tells which one it is."""
import errno, fcntl, os, sys, time

from rpcs import OPENS, asked, since

WRITER, OTHER = 0, 1
ME = int(os.environ["KC_INDEX"])
WHAT = sys.argv[1]
PATIENCE_S = 5                   # of who wants what a writer that is well has; without it a lease, which is twice that


def meet(name):
    """As kc-barrier, without another process: a child closes what is open here, and a close writes what is in memory."""
    here = "%s/shared/barrier.%s.%s" % (os.environ["KC_IO"], WHAT, name)
    os.makedirs(here, exist_ok=True)
    open("%s/%d" % (here, ME), "w").close()
    end = time.monotonic() + 110
    while len(os.listdir(here)) < int(os.environ["KC_CLIENTS"]):
        assert time.monotonic() < end, "the other one does not come to " + name
        time.sleep(0.02)


def hold(name, data):
    """A new file with data on the disk, open, and delegated to write."""
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(fd, data)
    os.fsync(fd)
    before = asked()
    os.close(os.open(name, os.O_RDWR))
    assert not any(op in since(before) for op in OPENS), "%s is not delegated to who alone has it open" % name
    return fd


STATE = OPENS + ("CLOSE", "OPEN_DOWNGRADE", "LOCK", "LOCKT", "LOCKU")


def unasked(what, act):
    """The directory may be looked at, and bytes written."""
    before = asked()
    act()
    calls = {op: n for op, n in since(before).items() if op in STATE}
    assert calls == {}, "%s asked %s" % (what, calls)


def took(limit_s, what, act):
    t0 = time.monotonic()
    got = act()
    seconds = time.monotonic() - t0
    assert seconds < limit_s, "%s took %.1f s, want less than %d s" % (what, seconds, limit_s)
    return got


def got(name):
    with open(name, "rb") as f:
        return f.read()


def alone():
    if ME == WRITER:
        fd = hold("f", b"x" * 1000)

        def reopen():
            for _ in range(200):
                again = os.open("f", os.O_RDWR)
                os.close(again)

        def lock():
            for _ in range(50):
                fcntl.lockf(fd, fcntl.LOCK_EX, 100, 0)
                fcntl.lockf(fd, fcntl.LOCK_UN, 100, 0)

        def append():
            for _ in range(50):
                with open("f", "ab") as f:
                    f.write(b"y" * 10)
        unasked("opening and closing", reopen)
        unasked("locking", lock)
        unasked("appending", append)
        os.close(fd)
        assert got("f") == b"x" * 1000 + b"y" * 500
    meet("end")


def unwritten():
    if ME == WRITER:
        fd = hold("f", b"")
        before = asked()
        os.write(fd, b"a" * 300000)
    meet("modified")
    if ME == OTHER:
        first = took(PATIENCE_S, "the look", lambda: os.stat("f"))
        assert first.st_size == 300000, first
        listed = {e.name: e.stat().st_size for e in os.scandir(".")}
        assert listed["f"] == 300000, listed
    meet("seen")
    if ME == WRITER:
        assert "WRITE" not in since(before), "written before it was looked at: %s" % since(before)
        os.pwrite(fd, b"b" * 1000, 5000)
    meet("again")
    if ME == OTHER:
        second = os.stat("f")
        assert second.st_size == 300000 and second.st_ctime_ns > first.st_ctime_ns, (first, second)
    meet("seen again")
    if ME == WRITER:
        os.close(fd)
    meet("closed")
    if ME == OTHER:
        third = os.stat("f")
        assert third.st_size == 300000 and os.stat("f").st_ctime_ns == third.st_ctime_ns, "it is not at rest"
        assert got("f") == b"a" * 5000 + b"b" * 1000 + b"a" * 294000
    meet("read")


def appended():
    if ME == WRITER:
        fd = hold("f", b"")
    for i in range(20):
        if ME == WRITER:
            with open("f", "ab") as f:
                f.write(b"%3d " % i * 250)
        meet("written%d" % i)
        if ME == OTHER:
            assert os.stat("f").st_size == 1000 * (i + 1), "after round %d" % i
        meet("seen%d" % i)
    if ME == WRITER:
        os.close(fd)
    meet("end")


def read():
    """The other reads files that were closed. Linux keeps data of open files over a recall (nfs_end_delegation_return)."""
    slowest = 0
    for i in range(10):
        data, name = b"round %2d " % i * 20000, "f%d" % i
        if ME == WRITER:
            fd = hold(name, b"")
            with open(name, "r+b") as f:
                f.write(data)
        meet("closed%d" % i)
        if ME == OTHER:
            t0 = time.monotonic()
            assert took(PATIENCE_S, "reading", lambda: got(name)) == data, "in round %d" % i
            slowest = max(slowest, time.monotonic() - t0)
        meet("read%d" % i)
        if ME == WRITER:
            os.pwrite(fd, b"changed", 0)
            os.close(fd)
        meet("changed%d" % i)
        if ME == OTHER:
            assert got(name)[:7] == b"changed", "by a descriptor that was open all the time, in round %d" % i
        meet("seen%d" % i)
    if ME == OTHER:
        print("the slowest of 10 readers took %.2f s" % slowest)


def locked():
    if ME == WRITER:
        fd = hold("f", b"x" * 1000)
        unasked("locking", lambda: fcntl.lockf(fd, fcntl.LOCK_EX, 100, 0))
    meet("locked")
    if ME == OTHER:
        other = took(PATIENCE_S, "opening", lambda: os.open("f", os.O_RDWR))
        try:
            fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB, 100, 0)
            assert False, "two have the lock"
        except OSError as e:
            assert e.errno in (errno.EAGAIN, errno.EACCES), e
    meet("refused")
    if ME == WRITER:
        fcntl.lockf(fd, fcntl.LOCK_UN, 100, 0)
    meet("unlocked")
    if ME == OTHER:
        took(PATIENCE_S, "locking", lambda: fcntl.lockf(other, fcntl.LOCK_EX, 100, 0))
    meet("end")


def times():
    """As cp -p and tar set them: long past, after writing, before or after the close, or with nothing written at all."""
    long_past = 10**9
    ways = [(written, synced, closed) for written in (0, 1) for synced in (0, 1) for closed in (0, 1)]
    names = ["written%d_synced%d_closed%d" % way for way in ways]
    if ME == WRITER:
        for name, (written, synced, closed) in zip(names, ways):
            fd = hold(name, b"")
            if written:
                os.write(fd, b"x" * 5000)
            if synced:
                os.fsync(fd)
            if closed:
                os.close(fd)
            os.utime(name if closed else fd, (long_past, long_past))
            if not closed:
                os.close(fd)
    for who in (WRITER, OTHER):
        if ME == who:
            for name in names:
                for look in range(2):
                    assert os.stat(name).st_mtime == long_past, "%s, look %d" % (name, look)
        meet("seen by %d" % who)


def http():
    from web import Door
    if ME == WRITER:
        fd, door = hold("f", b""), Door()
        data = b"not written yet " * 10000
        os.write(fd, data)               # PROPFIND sees what is in memory, GET what was synced
        said = door.ask("PROPFIND", "f", headers={"Depth": "0"}, want=(207,))
        assert b"getcontentlength>%d<" % len(data) in said, said
        os.fsync(fd)
        assert took(PATIENCE_S, "GET", lambda: door.get("f")) == data
        os.close(fd)
    meet("end")


{"alone": alone, "unwritten": unwritten, "appended": appended, "read": read, "locked": locked, "times": times,
 "http": http}[WHAT]()
