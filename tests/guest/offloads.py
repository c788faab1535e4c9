"""offloads.py WHAT -- copies that go on in the server; both guests run this, $KC_INDEX tells which one it is."""
import hashlib, json, os, signal, subprocess, sys, time

from rpcs import asked

ME = int(os.environ["KC_INDEX"])
LEASE_S, GRACE_S = int(os.environ["LEASE_S"]), int(os.environ["GRACE_S"])
WHAT = sys.argv[1]
SEED = 16 << 20
COPIER = """
import os, sys
a, b = os.open("big", os.O_RDONLY), os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
done, size = 0, os.fstat(a).st_size
while done < size:
    n = os.copy_file_range(a, b, size - done, done, done)
    assert n > 0, done
    done += n
os.close(b)
"""


def meet(name):
    subprocess.run(["kc-barrier", "%s.%s" % (WHAT, name)], check=True, env=dict(os.environ, KC_BARRIER_S="110"))


def hook(*words):
    env = dict(os.environ, PWD="/")
    return subprocess.run(["kc-hook", *words], check=True, cwd="/", env=env, stdout=subprocess.PIPE).stdout


def clients():
    return len(json.loads(hook("status"))["clients"])


def digest(name):
    h = hashlib.sha256()
    with open(name, "rb") as f:
        while part := f.read(1 << 20):
            h.update(part)
            # Or the guest is full of it, and its network card finds no room for what comes next.
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return h.hexdigest()


def big(times):
    """A file of so many seeds, which the server puts together; the digest of it."""
    seed = os.urandom(SEED)
    with open("seed", "wb") as f:
        f.write(seed)
        os.fsync(f.fileno())
    # Of two files: within one the client copies by itself.
    a, b = os.open("seed", os.O_RDONLY), os.open("big", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    h = hashlib.sha256()
    for i in range(times):
        done = 0
        while done < SEED:
            done += os.copy_file_range(a, b, SEED - done, done, i * SEED + done)
        h.update(seed)
    os.close(a)
    os.close(b)
    os.unlink("seed")
    return h.hexdigest()


def copier(name):
    return subprocess.Popen(["/usr/bin/python3", "-Bc", COPIER, name])


def stays(name):
    """Nobody writes to it any more: a copy takes less than this for a piece."""
    time.sleep(1)
    size = os.stat(name).st_size
    time.sleep(2)
    assert os.stat(name).st_size == size, "the copy goes on"
    print("%d of %d bytes" % (size, os.stat("big").st_size))


def whole():
    if ME == 1:
        return
    want = big(16)
    before = asked()["COPY"]
    a, b = os.open("big", os.O_RDONLY), os.open("copy", os.O_WRONLY | os.O_CREAT)
    n = os.copy_file_range(a, b, 16 * SEED)
    os.close(b)
    assert n == 16 * SEED, "the client was answered with %d bytes only" % n
    questions = asked()["COPY"] - before
    # An answer at once could not have been of all: the server is told to answer after the first piece.
    assert questions == 1, "%d COPYs" % questions
    subprocess.run(["kc-drop"], check=True)
    assert digest("copy") == want
    os.unlink("big")
    os.unlink("copy")


def interrupted():
    """The process that waits gets a signal: the client tells the server to stop."""
    if ME == 1:
        return
    big(48)
    before = asked()["OFFLOAD_CANCEL"]
    for attempt in range(40):
        child = copier("copy")
        time.sleep(0.05 + 0.05 * attempt)
        child.send_signal(signal.SIGKILL)
        child.wait()
        if asked()["OFFLOAD_CANCEL"] > before:
            break
    assert asked()["OFFLOAD_CANCEL"] > before, "the copy was never waited for"
    print("cancelled in attempt %d" % attempt)
    stays("copy")
    # The next operations of the same client succeed.
    os.unlink("copy")
    os.unlink("big")


def server_killed():
    """The client finds its session gone, reclaims, and asks for the copy anew."""
    if ME == 1:
        return
    want = big(48)
    t0 = time.monotonic()
    child = copier("copy")
    while "copy" not in os.listdir("."):
        time.sleep(0.05)
    time.sleep(0.1)
    running = child.poll() is None
    hook("server-kill")
    hook("server-start")
    assert child.wait(timeout=3 * LEASE_S + GRACE_S + 60) == 0
    print("interrupted: %s; the copy took %.1f s with the server killed in it" % (running, time.monotonic() - t0))
    subprocess.run(["kc-drop"], check=True)
    assert digest("copy") == want
    os.unlink("big")
    os.unlink("copy")


def killed():
    if ME == 1:
        big(48)
        meet("made")
        copier("copy").wait()
        time.sleep(110)
        return
    meet("made")
    while "copy" not in os.listdir("."):     # however long the other guest's Python takes to start
        time.sleep(0.05)
    time.sleep(0.3)
    hook("guest-kill", "1")
    deadline = time.monotonic() + 3 * LEASE_S + 10
    while clients() > 1:
        assert time.monotonic() < deadline, "the client outlives its lease"
        time.sleep(0.5)
    stays("copy")
    os.unlink("copy")
    os.unlink("big")


globals()[WHAT]()
