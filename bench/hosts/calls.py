"""Calls of the head to pools on other hosts for each operation of a client, from `forebay cluster status --json`."""
import time

from . import client as nfs
from .report import at_most

FILE_BYTES = 4096
# The head frees removed files some seconds later; then it calls the pool for many at once.
REMOVAL_S = 10


class Scene:
    """Files of this figure, and a client that has nothing of them open."""

    def __init__(self, cluster, count):
        self.cluster, self.count = cluster, count
        self.mount = nfs.Mount(cluster)
        self.parent = self.mount.head.directory(self.mount.head.root(), "calls")
        self.names = ["f%d" % n for n in range(count)]
        self.handles = [self.mount.write_file(self.parent, name, bytes(FILE_BYTES)) for name in self.names]


def opens(scene):
    for name in scene.names:
        handle, stateid = scene.mount.head.opened(scene.parent, name)
        scene.mount.head.call(nfs.put_fh(handle), nfs.close_file(stateid))


def opens_with_layout(scene):
    for name in scene.names:
        scene.mount.opened(scene.parent, name, nfs.READING).close()


def reads_at_pool(scene):
    for name in scene.names:
        file = scene.mount.opened(scene.parent, name, nfs.READING)
        assert len(file.read(0, FILE_BYTES)) == FILE_BYTES
        file.close()


def reads_through_head(scene):
    for name in scene.names:
        handle, stateid = scene.mount.head.opened(scene.parent, name)
        assert len(scene.mount.head.patient(nfs.put_fh(handle), nfs.read(stateid, 0, FILE_BYTES))[-1]) == FILE_BYTES
        scene.mount.head.call(nfs.put_fh(handle), nfs.close_file(stateid))


def stats(scene):
    for name in scene.names:
        scene.mount.head.call(nfs.put_fh(scene.parent), nfs.look_up(name), nfs.words(nfs.GETFH), nfs.get_attributes())


def lists(scene):
    for _ in scene.names:
        entries, is_last = scene.mount.head.call(nfs.put_fh(scene.parent), nfs.read_directory())[-1]
        assert is_last and len(entries) >= scene.count


def lists_while_one_is_written(scene):
    other = nfs.Mount(scene.cluster)
    file = other.opened(scene.parent, scene.names[0], nfs.WRITING)
    file.write(0, bytes(FILE_BYTES))
    lists(scene)
    file.close(FILE_BYTES)
    other.close()


def creates(scene):
    for n in range(scene.count):
        handle, stateid = scene.mount.head.opened(scene.parent, "c%d" % n, nfs.TO_READ_AND_WRITE, makes=True)
        scene.mount.head.call(nfs.put_fh(handle), nfs.close_file(stateid))


def first_layouts(scene):
    for n in range(scene.count):
        scene.mount.opened(scene.parent, "c%d" % n, nfs.WRITING).close()


def writes_of_new_files(scene):
    for n in range(scene.count):
        scene.mount.write_file(scene.parent, "w%d" % n, bytes(FILE_BYTES))


def rewrites(scene):
    for name in scene.names:
        file = scene.mount.opened(scene.parent, name, nfs.WRITING)
        file.write(0, bytes(FILE_BYTES))
        file.close(FILE_BYTES)


def truncates(scene):
    for handle in scene.handles:
        scene.mount.head.patient(nfs.put_fh(handle), nfs.set_size(nfs.ANONYMOUS, 100))


def renames(scene):
    for name in scene.names:
        scene.mount.head.patient(nfs.put_fh(scene.parent), nfs.words(nfs.SAVEFH), nfs.rename(name, name + "r"))


def removes(scene):
    for name in scene.names:
        scene.mount.head.patient(nfs.put_fh(scene.parent), nfs.remove(name + "r"))
    time.sleep(REMOVAL_S)


def nothing(_scene):
    time.sleep(REMOVAL_S)


# Of the first four of an existing file, the head must call no pool.
OPERATIONS = {"open": (opens, 0), "open-with-layout": (opens_with_layout, 0), "read": (reads_at_pool, 0), "stat": (stats, 0), "list": (lists, None),
              "list-while-one-is-written": (lists_while_one_is_written, None), "read-through-head": (reads_through_head, None), "create": (creates, None),
              "first-layout": (first_layouts, None), "write-new": (writes_of_new_files, None), "rewrite": (rewrites, None), "truncate": (truncates, None), "rename": (renames, None),
              "remove": (removes, None), "nothing": (nothing, None)}


def measure(cluster, count):
    """{operation: calls in all, calls per operation, by procedure}, of `count` operations each."""
    scene, found = Scene(cluster, count), {}
    for name, (operate, bound) in OPERATIONS.items():
        before = cluster.calls()
        operate(scene)
        found[name] = row(before, cluster.calls(), count, bound)
    scene.mount.close()
    return found


def row(before, after, count, bound):
    by_procedure = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
    total = sum(by_procedure.values())
    out = {"operations": count, "calls": total, "per_operation": total / count, "by_procedure": by_procedure}
    return out if bound is None else dict(out, **at_most(total, bound))
