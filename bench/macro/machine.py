"""The machine, its load, and the best figures of its disk: the bounds of the run."""
import contextlib, mmap, os, platform, re, shutil, statistics, subprocess, sys, tempfile, time

# Without a journal ext4 does not take inodes again that were freed in the last 60 to 360 s, and passes over each of them
# (recently_deleted in fs/ext4/ialloc.c).
FREED_S = 360
# Room for the data of all rounds.
IMAGE_MIB = 8192


def read(path):
    with open(path) as f:
        return f.read()


def describe(scratch):
    cpu = re.search(r"model name\s*: (.*)", read("/proc/cpuinfo"))
    mounts = [line.split() for line in read("/proc/self/mounts").splitlines()]
    under = max((m for m in mounts if os.path.realpath(scratch).startswith(m[1])), key=lambda m: len(m[1]))
    return {"cpu": cpu.group(1) if cpu else platform.machine(), "cores": os.cpu_count(), "kernel": platform.release(),
            "memory_gib": round(int(read("/proc/meminfo").split()[1]) / 2**20, 1), "file_system": under[2], "file_system_options": under[3]}


def load():
    return [float(x) for x in read("/proc/loadavg").split()[:3]]


def busy_share(seconds=1.0):
    def ticks():
        t = [int(x) for x in read("/proc/stat").split("\n")[0].split()[1:9]]
        return t[3] + t[4], sum(t)
    idle0, all0 = ticks()
    time.sleep(seconds)
    idle1, all1 = ticks()
    return 1 - (idle1 - idle0) / max(1, all1 - all0)


def wait_for_quiet(limit_s, share=0.1, sample_s=1.0):
    """Other programs make every figure worse, and not equally: wait until they rest. Returns the busy share seen last."""
    end = time.monotonic() + limit_s
    while (busy := busy_share(sample_s)) > share and time.monotonic() < end:
        pass
    return round(busy, 2)


def scratch_base():
    return os.environ.get("FOREBAY_TEST_DIR", "/var/tmp")


def removed():
    return os.path.join(scratch_base(), "forebay-bench-removed")


def wait_for_freed(place=None):
    """Files that an earlier run removed make creating slower for a while: waits until that has passed. Not if `place` is a
    file system of its own."""
    if place and os.path.ismount(place):
        return
    since = time.time() - os.stat(removed()).st_mtime if os.path.exists(removed()) else FREED_S
    if since < FREED_S:
        print("waiting %d s for the file system to forget the files of an earlier run" % (FREED_S - since), file=sys.stderr)
        time.sleep(FREED_S - since)


def has_no_journal(path):
    """Whether the path is on an ext4 without a journal, as the driver says."""
    device = os.stat(path).st_dev
    link = "/sys/dev/block/%d:%d" % (os.major(device), os.minor(device))
    if not os.path.exists(link):
        return False
    task = "/sys/fs/ext4/%s/journal_task" % os.path.basename(os.path.realpath(link))
    return os.path.exists(task) and read(task).strip() == "<none>"


@contextlib.contextmanager
def journalled(place):
    """An ext4 with a journal at `place`, in a file on the same disk: where the disk's own has none, dirsync flushes nothing."""
    image = place + ".image"
    try:
        with open(image, "wb", buffering=0) as f:
            for _ in range(IMAGE_MIB):
                f.write(bytes(1 << 20))      # so that a flush finds no extent to write down
            os.fsync(f.fileno())
        subprocess.run(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", image], check=True)
        device = subprocess.run(["losetup", "--find", "--show", "--direct-io=on", image], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        try:
            subprocess.run(["mount", "-o", "nodiscard", device, place], check=True)
            try:
                os.rmdir(os.path.join(place, "lost+found"))
                os.chmod(place, 0o755)
                yield
            finally:
                subprocess.run(["umount", "--lazy", place], check=True)
        finally:
            subprocess.run(["losetup", "--detach", device], check=True)
    finally:
        os.unlink(image)


@contextlib.contextmanager
def scratch(needs_journal=False):
    """Where the data of all sides are; when they were removed is noted, for `wait_for_freed`."""
    place = tempfile.mkdtemp(prefix="forebay-bench-", dir=scratch_base())
    os.chmod(place, 0o755)
    try:
        if needs_journal and has_no_journal(place):
            with journalled(place):
                yield place
        else:
            yield place
    finally:
        if os.listdir(place):
            shutil.rmtree(place, ignore_errors=True)
            with contextlib.suppress(OSError), open(removed(), "w"):
                os.utime(removed())
        else:
            os.rmdir(place)


def back_memory(mib):
    """A virtual machine may have handed its free memory back to its host; each page that is used again then costs a fault
    there, which is ten times the copy of a page. So much of it is asked for again, as far as there is so much."""
    mib = min(mib, os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // (2 << 20))
    with mmap.mmap(-1, max(1, mib) << 20) as memory:
        for at in range(0, len(memory), mmap.PAGESIZE):
            memory[at] = 1


def disk_bounds(scratch):
    """The same disk without any network: 4 KiB made durable, appended and in place, one durable create, streaming with fsync."""
    path = os.path.join(scratch, "bound")
    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
    append = timed(300, lambda i: (os.write(fd, bytes(4096)), os.fdatasync(fd)))
    rewrite = timed(300, lambda i: (os.pwrite(fd, bytes(4096), i << 12), os.fdatasync(fd)))
    os.close(fd)
    directory = os.open(scratch, os.O_RDONLY)
    create = timed(300, lambda i: (os.close(os.open("%s.%d" % (path, i), os.O_CREAT | os.O_EXCL)), os.fsync(directory)))
    os.close(directory)
    block, t0 = bytes(1 << 20), time.monotonic()
    with open(path, "wb", buffering=0) as f:
        for _ in range(1024):
            f.write(block)
        os.fsync(f.fileno())
    rate = 1024 / (time.monotonic() - t0)
    for i in range(300):
        os.unlink("%s.%d" % (path, i))
    os.unlink(path)
    return {"append_4k_fdatasync_us": append, "rewrite_4k_fdatasync_us": rewrite, "create_fsync_directory_us": create, "stream_write_fsync_mib_s": round(rate)}


def timed(n, action):
    values = []
    for i in range(n):
        t0 = time.monotonic()
        action(i)
        values.append(time.monotonic() - t0)
    return round(1e6 * statistics.median(values))
