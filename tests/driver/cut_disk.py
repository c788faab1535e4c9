"""A disk in user space that loses its cache at a power cut, and fails as told.

    cut_disk.py FILE SIZE IMAGE

serves FILE (an empty file, over which it is mounted by FUSE) as a disk of SIZE bytes; a loop device over FILE makes it a block
device. A write is kept in memory until the file system flushes the disk (FUSE_FSYNC, which the loop driver sends for
REQ_OP_FLUSH); then it goes to IMAGE. A power cut therefore leaves IMAGE, and of each block that was written since the
last flush either the old content or one of the new ones.

Commands, one line each on standard input, answered by `ok` or a line of numbers; the first line says that the disk is there:

    cut KEEP SEED    the power fails: each unflushed block survives with probability KEEP (0 to 1); all requests fail from now on
    fail WHAT...     requests of these kinds (read, write, flush) fail with EIO; `fail` alone ends that
    counts           writes, flushes, unflushed blocks

It speaks the kernel's protocol itself (linux/fuse.h, version 7.31): one file, seven requests, nothing to install.
"""
import ctypes, errno, os, random, stat, struct, sys, threading

BLOCK = 4096
VERSIONS_MAX = 4                # of one block that are remembered between two flushes
WRITE_MAX = 1 << 20
HEADER = struct.Struct("<IIQQIIII")                  # fuse_in_header
INIT, DESTROY, FORGET, INTERRUPT, BATCH_FORGET = 26, 38, 2, 36, 42
GETATTR, SETATTR, OPEN, READ, WRITE, STATFS, RELEASE, FSYNC, FLUSH = 3, 4, 14, 15, 16, 17, 18, 20, 25
UNANSWERED = (FORGET, INTERRUPT, BATCH_FORGET)
ASYNC_READ, BIG_WRITES, MAX_PAGES = 1 << 0, 1 << 5, 1 << 22
DIRECT_IO = 1
PR_SET_IO_FLUSHER = 57


class Blocks:
    """Blocks on the medium, and blocks that are only in the disk's cache."""

    def __init__(self, image, size):
        self.image, self.size = os.open(image, os.O_RDWR | os.O_CREAT, 0o600), size
        os.ftruncate(self.image, size)
        self.cache = {}                     # block number: its contents since the last flush, the oldest first
        self.failing, self.is_cut = set(), False
        self.writes = self.flushes = 0
        self.lock = threading.Lock()

    def check(self, kind):
        if self.is_cut or kind in self.failing:
            raise OSError(errno.EIO, "injected")

    def block(self, number):
        versions = self.cache.get(number)
        return versions[-1] if versions else os.pread(self.image, BLOCK, number * BLOCK)

    def read(self, offset, length):
        with self.lock:
            self.check("read")
            length = max(0, min(length, self.size - offset))
            first, last = offset // BLOCK, (offset + length + BLOCK - 1) // BLOCK
            if not any(n in self.cache for n in range(first, last)):
                return os.pread(self.image, length, offset)
            data = b"".join(self.block(n) for n in range(first, last))
            return data[offset - first * BLOCK:][:length]

    def write(self, offset, data):
        with self.lock:
            self.check("write")
            self.writes += 1
            at = 0
            while at < len(data):
                number, within = divmod(offset + at, BLOCK)
                part = data[at:at + BLOCK - within]
                if len(part) == BLOCK:
                    whole = bytes(part)
                else:
                    old = self.block(number)
                    whole = old[:within] + bytes(part) + old[within + len(part):]
                versions = self.cache.setdefault(number, [])
                versions.append(whole)
                del versions[:-VERSIONS_MAX]
                at += len(part)

    def settle(self, pick):
        for number, versions in self.cache.items():
            chosen = pick(versions)
            if chosen is not None:
                os.pwrite(self.image, chosen, number * BLOCK)
        self.cache.clear()

    def flush(self):
        with self.lock:
            self.check("flush")
            self.flushes += 1
            self.settle(lambda versions: versions[-1])

    def cut(self, keep, seed):
        rng = random.Random(seed)
        with self.lock:
            self.is_cut = True
            # A whole cache that survives is the last content of each block; else any that was sent may be the one on the medium.
            self.settle((lambda versions: versions[-1]) if keep >= 1 else
                        (lambda versions: rng.choice(versions) if rng.random() < keep else None))


class Fuse:
    """The kernel's requests for the one file."""

    def __init__(self, path, blocks):
        self.blocks = blocks
        self.device = os.open("/dev/fuse", os.O_RDWR)
        libc = ctypes.CDLL(None, use_errno=True)
        options = "fd=%d,rootmode=%o,user_id=0,group_id=0,allow_other" % (self.device, stat.S_IFREG)
        if libc.mount(b"cut_disk", path.encode(), b"fuse.cut_disk", 0, options.encode()):
            raise OSError(ctypes.get_errno(), "cannot mount over " + path)

    def attributes(self):
        size = self.blocks.size
        return struct.pack("<QII6Q10I", 0, 0, 0, 1, size, size // 512, 0, 0, 0, 0, 0, 0, stat.S_IFREG | 0o600, 1, 0, 0, 0, BLOCK, 0)

    def answer(self, opcode, body):
        if opcode == INIT:
            return struct.pack("<IIIIHHIIHHI7I", 7, 31, 0, ASYNC_READ | BIG_WRITES | MAX_PAGES, 16, 12, WRITE_MAX, 1,
                               WRITE_MAX // BLOCK, 0, 0, *[0] * 7)
        if opcode in (GETATTR, SETATTR):
            return self.attributes()
        if opcode == OPEN:
            return struct.pack("<QII", 0, DIRECT_IO, 0)
        if opcode == READ:
            _, offset, length = struct.unpack_from("<QQI", body)
            return self.blocks.read(offset, length)
        if opcode == WRITE:
            _, offset, length = struct.unpack_from("<QQI", body)
            self.blocks.write(offset, body[40:40 + length])
            return struct.pack("<II", length, 0)
        if opcode == FSYNC:
            self.blocks.flush()
            return b""
        if opcode == STATFS:
            return struct.pack("<5Q4I6I", 0, 0, 0, 0, 0, BLOCK, 255, BLOCK, 0, *[0] * 6)
        if opcode in (FLUSH, RELEASE, DESTROY):
            return b""
        raise OSError(errno.ENOSYS, "request %d" % opcode)

    def serve(self):
        while True:
            try:
                request = os.read(self.device, WRITE_MAX + 4096)
            except OSError as error:
                if error.errno == errno.ENODEV:      # unmounted
                    return
                if error.errno in (errno.EINTR, errno.ENOENT):
                    continue
                raise
            _, opcode, unique, *_ = HEADER.unpack_from(request)
            if opcode in UNANSWERED:
                continue
            try:
                said, fault = self.answer(opcode, memoryview(request)[HEADER.size:]), 0
            except OSError as error:
                said, fault = b"", -error.errno
            os.write(self.device, struct.pack("<IiQ", 16 + len(said), fault, unique) + said)


def obey(blocks, line):
    word, *rest = line.split()
    if word == "cut":
        blocks.cut(float(rest[0]), int(rest[1]))
    elif word == "fail":
        blocks.failing = set(rest)
    elif word == "counts":
        return "%d %d %d" % (blocks.writes, blocks.flushes, len(blocks.cache))
    else:
        return "unknown command"
    return "ok"


def control(blocks):
    print("ready", flush=True)
    for line in sys.stdin:
        print(obey(blocks, line), flush=True)


def main():
    path, size, image = sys.argv[1:]
    # Writes to the image must not wait until less memory is dirty: that may wait for this disk (prctl(2), PR_SET_IO_FLUSHER).
    ctypes.CDLL(None).prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0)
    blocks = Blocks(image, int(size))
    fuse = Fuse(path, blocks)
    threading.Thread(target=control, args=(blocks,), daemon=True).start()
    fuse.serve()


if __name__ == "__main__":
    main()
