"""delegations_of_two.py WHAT -- files that one kernel keeps to itself; both run this, $KC_INDEX tells which one it is."""
import errno, json, os, stat, subprocess, sys, threading, time

from rpcs import delegated, make

WRITER, READER = 0, 1            # the reader is the one that may be killed
ME = int(os.environ["KC_INDEX"])
LEASE_S, GRACE_S = int(os.environ["LEASE_S"]), int(os.environ["GRACE_S"])
WHAT = sys.argv[1]
PATIENCE_S = 2                   # of who changes what a reader that is well has
STORM = 1000


def meet(name):
    subprocess.run(["kc-barrier", "%s.%s" % (WHAT, name)], check=True, env=dict(os.environ, KC_BARRIER_S="110"))


def hook(*words):
    # Not from the mount: a shell looks at its directory, and at what $PWD says it is, and would wait for a server that is down.
    env = dict(os.environ, PWD="/")
    return subprocess.run(["kc-hook", *words], check=True, cwd="/", env=env, stdout=subprocess.PIPE).stdout


def delegations():
    """Of all clients, as `forebay status` tells it."""
    return json.loads(hook("status"))["delegations"]


def put(name, data, flags=os.O_CREAT | os.O_TRUNC):
    fd = os.open(name, os.O_WRONLY | flags, 0o644)
    os.write(fd, data)
    os.fsync(fd)
    os.close(fd)


def got(name):
    with open(name, "rb") as f:
        return f.read()


def hold(name):
    """Open, read and delegated."""
    fd = os.open(name, os.O_RDONLY)
    os.pread(fd, 1 << 20, 0)
    assert delegated(name), "%s is not delegated to who alone has it open" % name
    return fd


def took(limit_s, what, act):
    t0 = time.monotonic()
    act()
    seconds = time.monotonic() - t0
    assert seconds < limit_s, "%s took %.1f s, want less than %d s" % (what, seconds, limit_s)
    return seconds


def gone(name):
    try:
        os.stat(name)
        return False
    except OSError as e:
        return e.errno == errno.ENOENT


def writer():
    """The open of a writer is what recalls; in place and to the same length, so that only the recall can tell the reader."""
    slowest = 0
    for i in range(20):
        old, new, name = b"old %2d " % i * 3000, b"new %2d " % i * 3000, "f%d" % (i % 4)
        if ME == WRITER:
            put(name, old)
        meet("made%d" % i)
        if ME == READER:
            fd = hold(name)
            assert os.pread(fd, 1 << 20, 0) == old
        meet("held%d" % i)
        if ME == WRITER:
            slowest = max(slowest, took(PATIENCE_S, "open, write and close in round %d" % i, lambda: put(name, new, 0)))
        meet("written%d" % i)
        if ME == READER:
            assert got(name) == new, "opened anew in round %d" % i
            assert os.pread(fd, 1 << 20, 0) == new, "by the descriptor that was open, in round %d" % i
            os.close(fd)
        meet("read%d" % i)
    if ME == WRITER:
        print("the slowest of 20 writers took %.2f s" % slowest)


CONTENT = b"as it was\n" * 1000


def seen(named, steps):
    """steps: [(what, act, check)]; the reader holds `what` when the writer acts on it, and checks right after."""
    for what, act, check in steps:
        if ME == WRITER:
            put(what, CONTENT)
        meet(what + ".made")
        if ME == READER:
            fd = hold(what)
            before = os.stat(what)
            assert (before.st_size, before.st_nlink, stat.S_IMODE(before.st_mode)) == (len(CONTENT), 1, 0o644)
        meet(what + ".held")
        if ME == WRITER:
            print("%s %s: %.2f s" % (named, what, took(PATIENCE_S, what, lambda: act(what))))
        meet(what + ".done")
        if ME == READER:
            assert check(what), "%s %s: not seen" % (named, what)
            os.close(fd)
        meet(what + ".seen")


def replace(name):
    put(name + ".new", b"another")
    os.rename(name + ".new", name)


def changes():
    seen("by the other client,", [
        ("chmod", lambda f: os.chmod(f, 0o600), lambda f: stat.S_IMODE(os.stat(f).st_mode) == 0o600),
        ("chown", lambda f: os.chown(f, 1, 2), lambda f: (os.stat(f).st_uid, os.stat(f).st_gid) == (1, 2)),
        ("utimes", lambda f: os.utime(f, (1, 2)), lambda f: os.stat(f).st_mtime == 2),
        ("truncate", lambda f: os.truncate(f, 5), lambda f: os.stat(f).st_size == 5 and got(f) == CONTENT[:5]),
        ("link", lambda f: os.link(f, f + ".too"), lambda f: os.stat(f).st_nlink == 2),
        ("rename", lambda f: os.rename(f, f + ".to"), lambda f: gone(f) and got(f + ".to") == CONTENT),
        ("replace", replace, lambda f: os.stat(f).st_size == 7 and got(f) == b"another"),
        ("unlink", os.unlink, gone),
    ])


def http():
    from web import Door
    door = Door()

    def move(name):
        door.ask("MOVE", name, headers={"Destination": os.path.join(os.environ["HTTP"], os.getcwd()[len("/mnt/nfs/"):], name + ".to")}, want=(201,))
    seen("by HTTP,", [
        ("PUT", lambda f: door.put(f, b"by HTTP"), lambda f: os.stat(f).st_size == 7 and got(f) == b"by HTTP"),
        ("MOVE", move, lambda f: gone(f) and got(f + ".to") == CONTENT),
        ("DELETE", lambda f: door.ask("DELETE", f, want=(204,)), gone),
    ])


def storm():
    os.makedirs("storm", exist_ok=True)
    os.chdir("storm")
    if ME == WRITER:
        make(STORM, 100)
    meet("made")
    if ME == READER:
        names, held = sorted(os.listdir()), 0
        # A client gives back by itself what it did not use for a lease: what is lost to slowness is taken again.
        for _ in range(5):
            for name in names:
                os.close(os.open(name, os.O_RDONLY))
            held = delegations()
            if held >= STORM:
                break
        assert len(names) == STORM and held >= STORM, "%d delegations for %d files" % (held, len(names))
    meet("held")
    if ME == WRITER:
        seconds = took(60, "removing %d files" % STORM, lambda: [os.unlink(name) for name in sorted(os.listdir())])
        print("%d delegated files were removed in %.1f s" % (STORM, seconds))
    meet("removed")
    if ME == READER:
        assert os.listdir() == [], os.listdir()
        # Left may be files of the cases before.
        assert delegations() <= held - STORM, "%d of %d delegations are left" % (delegations(), held)
    meet("end")


def server_killed():
    if ME == WRITER:
        put("f", b"old" * 1000)
        put("alive", b"")
    meet("made")
    if ME == READER:
        fd, over = hold("f"), threading.Event()
        # A client that has nothing to ask notices a restart too late to reclaim.
        asks = threading.Thread(target=lambda: [os.stat("alive") for _ in iter(lambda: over.wait(0.1), True)])
        asks.start()
    meet("held")
    if ME == WRITER:
        hook("link-down", str(READER))       # the recall stays out
        writing = threading.Thread(target=put, args=("f", b"new" * 1000, 0))
        writing.start()
        time.sleep(0.5)
        assert writing.is_alive(), "the writer did not wait for a recall that nobody answered"
        hook("server-kill")
        hook("link-up", str(READER))
        hook("server-start")
        t0 = time.monotonic()
        writing.join(60)
        assert not writing.is_alive(), "the writer waits for ever"
        print("the writer went on %.1f s after the restart (grace %d s)" % (time.monotonic() - t0, GRACE_S))
    meet("written")
    if ME == READER:
        over.set()
        asks.join()
        assert got("f") == b"new" * 1000, "opened anew"
        assert os.pread(fd, 1 << 20, 0) == b"new" * 1000, "by the descriptor that was open"
        os.close(fd)
    meet("read")


def killed():
    if ME == WRITER:
        put("f", b"old")
    meet("made")
    if ME == READER:
        fd = hold("f")
    meet("held")
    if ME == READER:
        time.sleep(600)                      # until its machine is gone
    hook("guest-kill", str(READER))
    # A client that retries waits longer each time, so that it comes up to twice as late as it might.
    seconds = took(3 * LEASE_S + 5, "the write", lambda: put("f", b"new", 0))
    print("the writer went on after %.1f s (lease %d s)" % (seconds, LEASE_S))
    assert seconds > 1, "taken from a client that had no time to answer"
    assert got("f") == b"new"


{"writer": writer, "changes": changes, "http": http, "storm": storm, "server_killed": server_killed, "killed": killed}[WHAT]()
