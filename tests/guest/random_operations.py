"""random_operations.py SECONDS -- random operations on a small tree that another client works on as well.

Like fsstress: nothing is verified here, an operation may fail as another client's operations make it fail. At the end the
server's data must be consistent; `forebay fsck` of the stopped server checks that.
"""
import collections, ctypes, errno, fcntl, mmap, os, random, shutil, sys, time, traceback

INDEX = os.environ["KC_INDEX"]
NAMES, SIZE_MAX = 8, 6_000_000
KEEP_SIZE, PUNCH_HOLE = 1, 2
FICLONERANGE = 0x4020940D
LIBC = ctypes.CDLL(None, use_errno=True)
# Another client, or a chance of ours, was there first; or the file system cannot do it.
EXPECTED = {errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.ELOOP, errno.ESTALE,
            errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENODATA, errno.ETXTBSY, errno.EMLINK, errno.EBUSY, errno.ENXIO}


def fallocate(file, mode, at, length):
    if LIBC.fallocate64(file, mode, ctypes.c_int64(at), ctypes.c_int64(length)):
        raise OSError(ctypes.get_errno(), "fallocate")


class Worker:
    def __init__(self, seed):
        self.rng = random.Random("%s of %s" % (INDEX, seed))
        self.failed, self.done = collections.Counter(), collections.Counter()

    # Objects of the operations

    def directory(self):
        return self.rng.choice([".", ".", ".", ".", "d0", "d1", "d0/e"])

    def name(self):
        return "%s/f%d" % (self.directory(), self.rng.randrange(NAMES))

    def opened(self, flags=os.O_RDWR):
        return os.open(self.name(), flags | os.O_CREAT * (self.rng.random() < 0.8), 0o644)

    def with_file(self, work, flags=os.O_RDWR):
        file = self.opened(flags)
        try:
            work(file)
        finally:
            os.close(file)

    def place(self, length_max=200_000):
        # Mostly near the beginning, where others are at work, sometimes far behind any end.
        at = self.rng.randrange(self.rng.choice([4096, 100_000, SIZE_MAX]))
        return at, self.rng.randint(1, length_max)

    # The operations

    def create(self):
        os.close(os.open(self.name(), os.O_RDWR | os.O_CREAT | self.rng.choice([0, os.O_EXCL, os.O_TRUNC]), 0o644))

    def write(self):
        at, length = self.place()
        self.with_file(lambda file: os.pwrite(file, self.rng.randbytes(length), at))

    def write_stable(self):
        at, length = self.place(20_000)
        self.with_file(lambda file: os.pwrite(file, self.rng.randbytes(length), at), os.O_RDWR | os.O_DSYNC)

    def write_direct(self):
        page = mmap.mmap(-1, 8192)
        page[:] = self.rng.randbytes(8192)
        self.with_file(lambda file: os.pwritev(file, [page], self.rng.randrange(200) * 4096), os.O_RDWR | os.O_DIRECT)

    def append(self):
        self.with_file(lambda file: os.write(file, self.rng.randbytes(self.rng.randint(1, 9000))), os.O_WRONLY | os.O_APPEND)

    def map(self):
        def work(file):
            # In a process of its own: behind an end that another client moves, a store is a SIGBUS.
            child = os.fork()
            if not child:
                try:
                    with mmap.mmap(file, os.fstat(file).st_size) as pages:
                        at = self.rng.randrange(len(pages))
                        pages[at:at + 100] = bytes(min(100, len(pages) - at))
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
        self.with_file(work)

    def read(self):
        at, length = self.place()
        self.with_file(lambda file: os.pread(file, length, at))

    def truncate(self):
        self.with_file(lambda file: os.ftruncate(file, self.place()[0]))

    def truncate_by_name(self):
        os.truncate(self.name(), self.place()[0])

    def allocate(self):
        at, length = self.place()
        self.with_file(lambda file: fallocate(file, 0, at, length))

    def punch(self):
        at, length = self.place()
        self.with_file(lambda file: fallocate(file, KEEP_SIZE | PUNCH_HOLE, at, length))

    def copy(self):
        (at, length), (to, _) = self.place(), self.place()
        self.with_file(lambda source: self.with_file(lambda target: os.copy_file_range(source, target, length, at, to)))

    def clone(self):
        def work(source, target):
            place = [source, self.rng.randrange(10) * 4096, self.rng.randint(1, 10) * 4096, self.rng.randrange(1000) * 4096]
            fcntl.ioctl(target, FICLONERANGE, b"".join(n.to_bytes(8, "little") for n in place))
        self.with_file(lambda source: self.with_file(lambda target: work(source, target)))

    def sync(self):
        self.with_file(os.fsync)

    def lock_and_write(self):
        def work(file):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(file, self.rng.randbytes(5000), self.place()[0])
        try:
            self.with_file(work)
        except BlockingIOError:
            pass

    def unlink(self):
        os.unlink(self.name())

    def unlink_open(self):
        def work(file):
            os.unlink(self.name())
            os.pwrite(file, bytes(1000), self.place()[0])
        self.with_file(work)

    def rename(self):
        os.rename(self.name(), self.name())

    def link(self):
        os.link(self.name(), self.name())

    def symlink(self):
        os.symlink("f%d" % self.rng.randrange(NAMES), self.name())

    def make_directory(self):
        os.mkdir(self.rng.choice(["d0", "d1", "d0/e"]))

    def remove_directory(self):
        shutil.rmtree(self.rng.choice(["d0", "d1", "d0/e"]), ignore_errors=True)

    def move_directory(self):
        os.rename(*self.rng.sample(["d0", "d1", "d0/e"], 2))

    def list(self):
        for entry in os.scandir(self.directory()):
            entry.stat()

    def mode(self):
        os.chmod(self.name(), self.rng.choice([0o644, 0o600, 0o666]))

    def times(self):
        os.utime(self.name(), (self.rng.randrange(1 << 31), self.rng.randrange(1 << 31)))

    def attribute(self):
        os.setxattr(self.name(), "user.a%d" % self.rng.randrange(3), self.rng.randbytes(self.rng.randrange(300)))

    def attribute_away(self):
        os.removexattr(self.name(), "user.a%d" % self.rng.randrange(3))

    def step(self):
        operation = self.rng.choice(OPERATIONS)
        try:
            operation(self)
            self.done[operation.__name__] += 1
        except OSError as error:
            if error.errno not in EXPECTED:
                raise
            self.failed[errno.errorcode[error.errno]] += 1


W = Worker
OPERATIONS = [W.create, W.create, W.write, W.write, W.write_stable, W.write_direct, W.append, W.append, W.map, W.read, W.truncate,
              W.truncate, W.truncate_by_name, W.allocate, W.punch, W.copy, W.copy, W.clone, W.sync, W.lock_and_write, W.unlink,
              W.unlink_open, W.rename, W.link, W.symlink, W.make_directory, W.make_directory, W.remove_directory,
              W.move_directory, W.list, W.mode, W.times, W.attribute, W.attribute_away]


def work(seed, seconds):
    worker, end = Worker(seed), time.monotonic() + seconds
    while time.monotonic() < end:
        worker.step()
    done = sum(worker.done.values())
    # The pools' disks cannot share blocks, and a directory has room for another only where somebody removed one.
    never = {operation.__name__ for operation in OPERATIONS} - set(worker.done) - {"clone", "move_directory"}
    print("%d operations, %d refused (%s)" % (done, sum(worker.failed.values()), dict(worker.failed)), flush=True)
    assert not never or done < 2000, "never once succeeded: %s" % never


def main(seconds, processes):
    children = []
    for number in range(processes):
        child = os.fork()
        if not child:
            status = 1
            try:
                work(number, seconds)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        children.append(child)
    failed = [child for child in children if os.waitpid(child, 0)[1]]
    assert not failed, "%d of %d workers failed" % (len(failed), processes)


main(float(sys.argv[1]), 3)
