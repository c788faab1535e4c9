"""gathered.py WHAT -- records of two clients in turn, sent and not committed; both run this, $KC_INDEX tells which one it is."""
import ctypes, mmap, os, random, subprocess, sys

ME = int(os.environ["KC_INDEX"])
WHAT = sys.argv[1]
RECORD, RECORDS = 11 * 4096, 240
SIZE = RECORD * RECORDS
WAIT, WRITE = 1, 2                  # of sync_file_range; both in one call would send stable writes
KEEP_SIZE, PUNCH_HOLE = 1, 2
LIBC = ctypes.CDLL(None, use_errno=True)


def meet(name):
    subprocess.run(["kc-barrier", "%s.%s" % (WHAT, name)], check=True, cwd="/")


def hook(*words):
    subprocess.run(["kc-hook", *words], check=True, cwd="/", env=dict(os.environ, PWD="/"))


def call(name, *arguments):
    if getattr(LIBC, name)(*arguments):
        raise OSError(ctypes.get_errno(), name)


def send(file):
    """The server has all of it, without COMMIT."""
    for how in (WRITE, WAIT):
        call("sync_file_range", file, ctypes.c_int64(0), ctypes.c_int64(0), how)


def content(record):
    return bytes([record % 251 + 1]) * RECORD


def write(file, records, between=lambda count: None):
    """In windows, out of order, and sent after every eighth."""
    records = list(records)
    rng = random.Random(ME)
    for at in range(0, len(records), 24):
        window = records[at:at + 24]
        rng.shuffle(window)
        for n, record in enumerate(window):
            os.pwrite(file, content(record), record * RECORD)
            if n % 8 == 7:
                send(file)
        between(at)
    send(file)


def read(name):
    """Past the cache of this client."""
    file = os.open(name, os.O_RDONLY | os.O_DIRECT)
    buffer, found = mmap.mmap(-1, 1 << 20), bytearray()
    while len(found) < SIZE:
        n = os.preadv(file, [buffer], len(found))
        if n == 0:
            break
        found += buffer[:n]
    os.close(file)
    return bytes(found)


def check(name, expected):
    found = read(name)
    assert len(found) == len(expected), "%s: %d bytes, want %d" % (name, len(found), len(expected))
    for record in range(RECORDS):
        at = slice(record * RECORD, (record + 1) * RECORD)
        assert found[at] == expected[at], "%s: record %d is wrong" % (name, record)


def expect(records):
    expected = bytearray(SIZE)
    for record in records:
        expected[record * RECORD:(record + 1) * RECORD] = content(record)
    return expected


def opened():
    """As long as it will be, so that no client has to learn its length."""
    if ME == 0:
        with open("f", "wb") as f:
            f.truncate(SIZE)
    meet("made")
    return os.open("f", os.O_RDWR)


def mine():
    return range(ME, RECORDS, 2)


def end(file, expected):
    os.fsync(file)
    os.close(file)
    meet("closed")
    check("f", expected)


def read_back():
    file = opened()
    write(file, mine())
    meet("sent")
    check("f", expect(range(RECORDS)))
    meet("read")
    end(file, expect(range(RECORDS)))


def ranges():
    """Client 0 writes a part of the records, client 1 does the rest."""
    file = opened()
    written = [record for record in range(RECORDS) if record % 16 < 8 and record % 4 != 3]
    expected = expect(written)
    if ME == 0:
        write(file, written)
    meet("sent")
    if ME == 1:
        at, holes = 0, 0
        while at < SIZE:
            hole = os.lseek(file, at, os.SEEK_HOLE)
            if hole >= SIZE:
                break
            try:
                at = os.lseek(file, hole, os.SEEK_DATA)
            except OSError:         # ENXIO: no more data
                at = SIZE
            assert not any(expected[hole:at]), "a hole from %d to %d" % (hole, at)
            holes += at - hole
        assert holes > SIZE // 4, "%d bytes of holes" % holes
    meet("searched")
    if ME == 0:
        write(file, [record + 1 for record in written])
    for record in written:
        expected[(record + 1) * RECORD:(record + 2) * RECORD] = content(record + 1)
    meet("sent again")
    if ME == 1:
        target, done = os.open("copy", os.O_RDWR | os.O_CREAT, 0o644), 0
        while done < SIZE:
            copied = os.copy_file_range(file, target, SIZE - done, done, done)
            assert copied > 0
            done += copied
        os.close(target)
    meet("copied")
    check("copy", expected)
    start, length = 33 * RECORD + 100, 2 * RECORD
    if ME == 1:
        call("fallocate64", file, PUNCH_HOLE | KEEP_SIZE, ctypes.c_int64(start), ctypes.c_int64(length))
    expected[start:start + length] = bytes(length)
    meet("freed")
    check("f", expected)
    meet("checked")
    if ME == 1:
        end(file, expected)
    else:
        os.close(file)
        meet("closed")
        check("f", expected)


def cut():
    file = opened()
    write(file, mine())
    meet("sent")
    size = 100 * RECORD + 12345
    if ME == 1:
        os.truncate("f", size)
    meet("cut")
    expected = expect(range(RECORDS))[:size]
    assert os.stat("f").st_size == size or ME == 0, "the client that cut it"
    check("f", expected)
    meet("read")
    end(file, expected)


def kill():
    file = opened()

    def between(at):
        if ME == 0 and at in (24, 72):
            hook("server-kill")
            hook("server-start")

    write(file, mine(), between)
    end(file, expect(range(RECORDS)))


{"read": read_back, "ranges": ranges, "cut": cut, "kill": kill}[WHAT]()
