"""lost_locks.py WHAT -- a client is cut off with a lock and pages in memory, another gets the lock; both run this."""
import errno, fcntl, os, subprocess, sys, time

HOLDER, NEXT = 0, 1              # who loses the lock, and who gets it
ME = int(os.environ["KC_INDEX"])
LEASE_S, GRACE_S = int(os.environ["LEASE_S"]), int(os.environ["GRACE_S"])
HOLDER_IP = "10.77.0.11"
WHAT = sys.argv[1]
FILES = ["f", "g"]               # over a restart Linux asks to reclaim one of them, and takes the refusal for all
SIZE, KEPT = 1000000, 900000     # of a file, and what the holder has in memory when it is cut off
WAIT_S = 100


def meet(name):
    """As kc-barrier, without another process: a child closes what is open here, and a close writes what is in memory."""
    here = "%s/shared/barrier.%s.%s" % (os.environ["KC_IO"], WHAT, name)
    os.makedirs(here, exist_ok=True)
    open("%s/%d" % (here, ME), "w").close()
    end = time.monotonic() + WAIT_S
    while len(os.listdir(here)) < int(os.environ["KC_CLIENTS"]):
        assert time.monotonic() < end, "the other one does not come to " + name
        time.sleep(0.02)


def hook(*words):
    subprocess.run(["kc-hook", *words], check=True, cwd="/", env=dict(os.environ, PWD="/"))


def opened(name):
    return os.open(name, os.O_RDWR | os.O_CREAT, 0o644)


def lock(fd):
    """When it is granted: another client's lock stands in the way as long as its lease."""
    end = time.monotonic() + WAIT_S
    while True:
        try:
            return fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            assert e.errno in (errno.EAGAIN, errno.EACCES), e
        assert time.monotonic() < end, "the lock is never free"
        time.sleep(0.25)


def told(what, act):
    """The error, which must be EIO."""
    try:
        act()
    except OSError as e:
        assert e.errno == errno.EIO, "%s: %s" % (what, e)
        return
    raise AssertionError("%s succeeded with a lock that is another client's" % what)


def content(name):
    """Past the cache of this client."""
    read = subprocess.run(["dd", "if=" + name, "iflag=direct", "bs=1M", "status=none"], stdout=subprocess.PIPE, check=True)
    return {letter: read.stdout.count(letter) for letter in (b"A", b"B")}


def locked_and_written(letter):
    """Both files, locked by this process, and full of this letter."""
    fds = [opened(name) for name in FILES]
    for fd in fds:
        lock(fd)
        os.pwrite(fd, letter * SIZE, 0)
        os.fsync(fd)
    return fds


def holder():
    fds = locked_and_written(b"A")
    meet("locked")
    meet("cut")
    for fd in fds:
        os.pwrite(fd, b"A" * KEPT, 0)        # stays in memory
    meet("written")
    meet("back")
    for fd in fds:
        told("fsync", lambda: os.fsync(fd))

        def write():
            os.pwrite(fd, b"A" * KEPT, 0)
            os.fsync(fd)
        told("write", write)
    for fd in fds:
        try:
            os.close(fd)
        except OSError as e:
            assert e.errno == errno.EIO, e
    meet("closed")
    meet("compared")
    # By locks of its own everything is as ever.
    for fd in locked_and_written(b"A"):
        os.close(fd)
    meet("again")


def next_one(restarts):
    meet("locked")
    hook("client-cut", HOLDER_IP)
    meet("cut")
    meet("written")
    if restarts:
        hook("server-kill")
        hook("server-start")
    t0 = time.monotonic()
    fds = locked_and_written(b"B")
    print("locked after %.1f s (lease %d s, grace %d s)" % (time.monotonic() - t0, LEASE_S, GRACE_S))
    hook("client-back")
    meet("back")
    meet("closed")
    for name in FILES:
        assert content(name) == {b"A": 0, b"B": SIZE}, "%s is a mixture: %s" % (name, content(name))
    for fd in fds:
        os.close(fd)
    meet("compared")
    meet("again")
    for name in FILES:
        assert content(name) == {b"A": SIZE, b"B": 0}, content(name)


if ME == HOLDER:
    holder()
else:
    next_one(WHAT == "restarted")
