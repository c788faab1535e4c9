"""directory_attributes.py change DIR | look DIR MODE -- one client changes the names in a directory, the other looks.

The client that looks asks the server each time and never sees mtime or ctime go back. As soon as the last change is answered,
its listing, which the client keeps under the directory's change attribute, holds the names left (in a weak directory a while
later).
"""
import ctypes, os, sys, time

AT_FDCWD, AT_STATX_FORCE_SYNC, STATX_BASIC_STATS = -100, 0x2000, 0x7ff
CHANGES, KEPT_EVERY, LOOKS_MIN = 600, 20, 1000
WEAK_LIMIT_S = 20
libc = ctypes.CDLL(None, use_errno=True)


def look(path):
    """(mtime, ctime, links) as the server says now."""
    buffer = (ctypes.c_char * 256)()
    if libc.statx(AT_FDCWD, path.encode(), AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, buffer):
        raise OSError(ctypes.get_errno(), path)
    # struct statx: four times of (seconds s64, nanoseconds u32, s32) from offset 64 on: access, birth, change, modification.
    moment = lambda at: (ctypes.c_int64.from_buffer(buffer, at).value, ctypes.c_uint32.from_buffer(buffer, at + 8).value)
    return moment(112), moment(96), ctypes.c_uint32.from_buffer(buffer, 16).value


def kept():
    return {"f%d" % i for i in range(0, CHANGES, KEPT_EVERY)} | {"d%d" % i for i in range(0, CHANGES, KEPT_EVERY)}


def change(path):
    for i in range(CHANGES):
        os.close(os.open("%s/new" % path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        os.rename("%s/new" % path, "%s/f%d" % (path, i))
        os.mkdir("%s/d%d" % (path, i))
        if i % KEPT_EVERY:
            os.unlink("%s/f%d" % (path, i))
            os.rmdir("%s/d%d" % (path, i))
    open("changed.all", "w").close()


def watch(path, mode):
    """Until the other client is done and there were looks enough."""
    last, looks, moved, listings, is_over = look(path), 0, 0, 0, False
    while not is_over or looks < LOOKS_MIN:
        now = look(path)
        assert now[0] >= last[0] and now[1] >= last[1], "look %d: (mtime, ctime, links) from %s to %s" % (looks, last, now)
        assert now[2] >= 2, now
        moved += now != last
        last, looks = now, looks + 1
        if looks % 50 == 0:
            names = os.listdir(path)
            assert len(names) == len(set(names)), "names listed twice"
            listings += 1
            is_over = "changed.all" in os.listdir(".")
    print("%d looks, %d of them after a change, and %d listings" % (looks, moved, listings))
    end = time.monotonic() + (WEAK_LIMIT_S if mode == "weak" else 0)
    while set(os.listdir(path)) != kept() or look(path)[2] != 2 + CHANGES // KEPT_EVERY:
        assert time.monotonic() < end, "links %d, and names that should not be there or should: %s" % (
            look(path)[2], sorted(set(os.listdir(path)) ^ kept())[:10])
        time.sleep(0.1)
    return moved


def main():
    if sys.argv[1] == "change":
        change(sys.argv[2])
    else:
        assert watch(sys.argv[2], sys.argv[3]) > 0, "nothing was seen to change"


main()
