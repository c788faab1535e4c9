"""locks_of_two.py WHAT -- byte-range locks seen by two kernels; both run this, $KC_INDEX tells which one it is."""
import errno, fcntl, os, subprocess, sys, time

ME = int(os.environ["KC_INDEX"])
LEASE_S = int(os.environ["LEASE_S"])
WHAT = sys.argv[1]
OTHER_IP = "10.77.0.%d" % (12 - ME)


def meet(name):
    subprocess.run(["kc-barrier", "%s.%s" % (WHAT, name)], check=True)


def hook(*words):
    # Not from the mount: a shell looks at its directory when it starts, and would wait for a server that is down.
    subprocess.run(["kc-hook", *words], check=True, cwd="/", env=dict(os.environ, PWD="/"))


def opened(name):
    return os.open(name, os.O_RDWR | os.O_CREAT, 0o644)


def lock(fd, start=0, length=0, wait=False, kind=fcntl.LOCK_EX):
    """True when granted; without `wait` False when another holds it."""
    try:
        fcntl.lockf(fd, kind | (0 if wait else fcntl.LOCK_NB), length, start)
        return True
    except OSError as e:
        assert e.errno in (errno.EAGAIN, errno.EACCES), e
        return False


def unlock(fd, start=0, length=0):
    fcntl.lockf(fd, fcntl.LOCK_UN, length, start)


def exclude():
    fd = opened("l")
    meet("open")
    if ME == 0:
        assert lock(fd, 0, 100)
    meet("locked")
    if ME == 1:
        assert not lock(fd, 50, 10) and not lock(fd, 99, 1) and not lock(fd)
        assert lock(fd, 100, 10), "the byte after the range"
        unlock(fd, 100, 10)
        assert not lock(fd, 0, 1, kind=fcntl.LOCK_SH)
    meet("tried")
    if ME == 0:
        unlock(fd, 40, 20)           # a hole in the middle
    meet("hole")
    if ME == 1:
        assert lock(fd, 40, 20) and not lock(fd, 39, 1) and not lock(fd, 60, 1)
        unlock(fd, 40, 20)
    meet("waiting")
    if ME == 1:
        t0 = time.monotonic()
        assert lock(fd, 0, 100, wait=True)
        assert os.path.exists("freed"), "granted while the other client held it"
        print("the waiter had it after %.2f s" % (time.monotonic() - t0))
    else:
        time.sleep(2)
        open("freed", "w").close()
        unlock(fd)
    meet("got")
    if ME == 0:
        assert not lock(fd, 0, 1), "the waiter's lock does not exclude"
    meet("end")
    os.close(fd)
    shared = opened("s")
    assert lock(shared, kind=fcntl.LOCK_SH), "two readers"
    meet("shared")
    if ME == 1:
        assert not lock(shared), "a writer beside a reader"
    meet("done")


def counter():
    fd = opened("counter")
    meet("open")
    for _ in range(25):
        lock(fd, wait=True)
        n = int(os.pread(fd, 20, 0) or b"0")
        os.pwrite(fd, b"%d" % (n + 1), 0)
        unlock(fd)
        time.sleep(0.02)            # let the other one have it
    meet("counted")
    lock(fd, wait=True)             # the lock is what makes the client ask anew
    assert os.pread(fd, 20, 0) == b"50", os.pread(fd, 20, 0)
    unlock(fd)
    meet("end")


def locks_asked():
    """LOCK calls of this client to the head."""
    with open("/proc/self/mountstats") as f:
        return sum(int(line.split()[1]) for line in f if line.strip().startswith("LOCK:"))


def held_by(holder):
    """The file, open on both, and locked by one of them."""
    fd = opened("l")
    meet("open")
    if ME == holder:
        assert lock(fd)
    meet("locked")
    return fd


def told():
    # A client that polls comes after 1, 3, 7, 15, 31 s, one that relies on being told every 30 s: released at 18 s, each
    # would have the lock more than 10 s later.
    fd = held_by(0)
    if ME == 1:
        asked = locks_asked()
        assert lock(fd, wait=True)
        after_s = time.time() - float(open("freed").read())
        asked = locks_asked() - asked
        print("the waiter had it after %.2f s and %d LOCK calls" % (after_s, asked))
        assert after_s < 5, "nobody told the waiter"
        assert asked <= 3, "the waiter polled"
    else:
        time.sleep(18)
        with open("freed", "w") as f:
            f.write("%f" % time.time())
        unlock(fd)
    meet("end")


def restart():
    fd = opened("l")
    meet("open")
    if ME == 0:
        assert lock(fd, 0, 10)
        os.pwrite(fd, b"before", 0)
        os.fsync(fd)
    meet("locked")
    if ME == 0:
        hook("server-kill")
        hook("server-start")
    else:
        # Refused or blocked (grace) as long as the other holds it; never granted.
        while "released-soon" not in os.listdir("."):     # opening the directory asks anew
            assert not lock(fd, 0, 10), "the lock was stolen over the restart"
            time.sleep(0.1)
    if ME == 0:
        os.pwrite(fd, b"after ", 10)
        os.fsync(fd)
        assert os.pread(fd, 16, 0) == b"before\0\0\0\0after ", os.pread(fd, 16, 0)
        other = opened("new-after-restart")     # waits for the end of grace
        os.close(other)
        open("released-soon", "w").close()
    meet("after")
    if ME == 1:
        assert not lock(fd, 0, 10), "the reclaimed lock does not exclude"
    meet("excluded")
    if ME == 0:
        unlock(fd)
    meet("freed")
    if ME == 1:
        assert lock(fd, 0, 10)
    meet("end")


def freed_in_time(fd):
    """The lock of a client that went silent: held for a while yet, free at twice the lease at the latest."""
    t0 = time.monotonic()
    while not lock(fd):
        assert time.monotonic() - t0 < 3 * LEASE_S + 5, "still locked after %d s" % (3 * LEASE_S + 5)
        time.sleep(0.25)
    print("free after %.1f s (lease %d s)" % (time.monotonic() - t0, LEASE_S))


def silent():
    fd = opened("l")
    meet("open")
    if ME == 1:
        assert lock(fd)
        os.pwrite(fd, b"mine", 0)
        os.fsync(fd)
    meet("locked")
    if ME == 0:
        hook("client-cut", OTHER_IP)
        freed_in_time(fd)
        os.pwrite(fd, b"theirs", 0)
        os.fsync(fd)
        hook("client-back")
    meet("free")
    if ME == 1:
        # The client comes back. This process has lost its lock and may be told EIO; another one sees what is true. It
        # reads past the cache: as long as the file is open for writing, the client trusts its own pages.
        deadline = time.monotonic() + 60
        while True:
            got = subprocess.run(["dd", "if=l", "iflag=direct", "bs=4096", "status=none"], stdout=subprocess.PIPE)
            if got.returncode == 0:
                break
            assert time.monotonic() < deadline, "the client does not come back"
            time.sleep(0.5)
        assert got.stdout == b"theirs", got.stdout
    meet("end")


def killed():
    fd = held_by(1)
    if ME == 1:
        time.sleep(600)             # until its machine is gone
    hook("guest-kill", "1")
    freed_in_time(fd)
    os.pwrite(fd, b"free", 0)
    os.fsync(fd)


{"exclude": exclude, "counter": counter, "told": told, "restart": restart, "silent": silent, "killed": killed}[WHAT]()
