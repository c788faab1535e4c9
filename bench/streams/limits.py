"""A limit of memory for a server: a control group of its own, of version 2 or, where the machine has no memory controller there, of version 1."""
import os, time

MOUNT = "/sys/fs/cgroup"
TRIES, RETRY_S = 50, 0.1


class CannotLimit(Exception):
    """No control group can be made here."""


class MemoryGroup:
    """Holds one process. The kernel counts there what the process allocates from now on, and the pages of files that it touches first."""

    def __init__(self, pid, name):
        parent, self.file, self.unlimited = place()
        self.path = os.path.join(parent, name)
        try:
            os.mkdir(self.path)
            write(self.path, "cgroup.procs", pid)
        except OSError as error:
            raise CannotLimit("cannot make the control group %s: %s" % (self.path, error))

    def described(self, mib):
        return {"mib": mib, "by": self.file, "seen_by_pools": self.file == "memory.max"}

    def limit(self, mib):
        """The kernel takes pages of files away for it. Where the process itself needs more than that, it would be killed."""
        own_mib = own_bytes(read(os.path.join(self.path, "memory.stat"))) >> 20
        if 2 * own_mib > mib:
            raise SystemExit("bench/engine: the server itself uses %d MiB of memory: --memory must be at least %d" % (own_mib, 2 * own_mib))
        for attempt in range(TRIES):
            try:
                return write(self.path, self.file, mib << 20)
            except OSError as error:
                if attempt == TRIES - 1:
                    raise SystemExit("bench/engine: cannot limit the memory of %s: %s" % (self.path, error))
                time.sleep(RETRY_S)

    def lift(self):
        write(self.path, self.file, self.unlimited)

    def remove(self):
        """After the process has ended."""
        for _ in range(TRIES):
            try:
                return os.rmdir(self.path)
            except OSError:
                time.sleep(RETRY_S)


def place(mount=MOUNT, own="/proc/self/cgroup"):
    """Where groups are made, the file that limits them, and its value without a limit."""
    controllers = os.path.join(mount, "cgroup.controllers")
    if os.path.exists(controllers) and "memory" in read(controllers).split():
        # Groups directly below the root: any other group that holds processes may have no groups with controllers below it.
        write(mount, "cgroup.subtree_control", "+memory")
        return mount, "memory.max", "max"
    for line in read(own).splitlines():
        _, names, path = line.split(":", 2)
        if "memory" in names.split(","):
            return os.path.join(mount, "memory") + path.rstrip("/"), "memory.limit_in_bytes", -1
    raise CannotLimit("this machine has no memory controller of control groups")


def own_bytes(stat):
    """Memory that is no page of a file, in `memory.stat` of version 2 or 1."""
    values = dict(line.split() for line in stat.splitlines())
    return int(values.get("anon", values.get("rss", 0)))


def read(path):
    with open(path) as f:
        return f.read()


def write(place, name, value):
    with open(os.path.join(place, name), "w") as f:
        f.write("%s\n" % value)
