"""Calls that this client has made to all its servers, data servers included, by procedure."""
import os, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../kernel-client"))
from rpc_counters import client_procedures, parse_mountstats

OPENS = ("OPEN", "OPEN_NOATTR")
FRAME_BYTES = 128 << 10


def asked():
    with open("/proc/net/rpc/nfs") as f:
        numbers = next(line for line in f if line.startswith("proc4 ")).split()[2:]
    with open("/proc/self/mountstats") as f:
        return dict(zip(client_procedures(f.read()), map(int, numbers)))


def since(before):
    """{procedure: how often}. A SEQUENCE alone keeps a lease that nothing else renews: it belongs to no file."""
    return {op: n - before[op] for op, n in asked().items() if n > before[op] and op != "SEQUENCE"}


def at_the_head():
    """Of the mount's own counters: {operation: how often}."""
    with open("/proc/self/mountstats") as f:
        mounts = parse_mountstats(f.read())
    return {op: counted["ops"] for mount in mounts.values() for op, counted in mount["ops"].items()}


def frames(names, passes=1, cached=False):
    """Opens each file, reads its one frame and closes it. Like fio --loops, it gives the pages up first unless `cached`."""
    for _ in range(passes):
        for name in names:
            fd = os.open(name, os.O_RDONLY)
            if not cached:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            got = os.pread(fd, FRAME_BYTES, 0)
            os.close(fd)
            assert len(got) == FRAME_BYTES, "%s: %d bytes" % (name, len(got))


def make(count, size=FRAME_BYTES):
    names = ["frame%04d" % i for i in range(count)]
    for i, name in enumerate(names):
        with open(name, "wb") as f:
            f.write(bytes([i % 256]) * size)
    return names


def delegated(name):
    """Whether the client may open the file without asking."""
    before = asked()
    os.close(os.open(name, os.O_RDONLY))
    return not any(op in since(before) for op in OPENS)
