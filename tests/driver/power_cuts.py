"""Power cuts: clients change files by HTTP, the disk loses what was not flushed, and the next start must have what was acknowledged.

Each cut keeps none, some or all of the unflushed blocks, in turn. FOREBAY_TEST_CUTS is the number of cuts of a scenario [3].
"""
import glob, os, random, shutil, time

from .acknowledged import WORKERS, Bench, ModeWorker, Postgres, Worker, disk_of, prepare
from .disks import KEEP
from .loopback import Failed, Skipped, check, within

CUTS = int(os.environ.get("FOREBAY_TEST_CUTS", "3"))
INTERVAL_S = 1.0
INTERVAL = '[namespace]\nsync = "interval"\n'
NAMES = '[namespace]\nsync = "names"\n'


def work_until(workers, power_fails):
    for worker in workers:
        worker.start()
    within(30, lambda: any(w.fault for w in workers) or all(len(w.states) > 5 for w in workers), "the workers get nothing done")
    time.sleep(random.uniform(0.2, 1.5))       # how long they worked matters to nobody
    for worker in workers:
        if worker.fault:
            raise worker.fault
        worker.ends.set()                       # what is answered from here on does not count as acknowledged
    when = time.monotonic()
    power_fails()
    return when


def repaired(place, bench, up):
    """Creates answered within the interval may have left replicas without a name: fsck moves them to /lost+found."""
    up.stop()
    mended = place.run("fsck", "--repair", "--yes", "--data", bench.data, "--config", up.config)
    check(mended.returncode == 0, "fsck --repair: " + mended.stdout)
    up = bench.start()
    return up, place.run("fsck", "--data", bench.data, "--config", up.config)


def cuts(place, bench, may_lose_s=0.0, kind=Worker):
    up = bench.start()
    prepare(up)
    states, acknowledged = [{} for _ in range(WORKERS)], 0
    # The directories and the login are no part of what a cut may take.
    time.sleep(2 * may_lose_s)
    for cut in range(CUTS):
        workers = [kind(up, n, "%s %d %d" % (place.dir.rsplit("/", 1)[-1], cut, n), states[n]) for n in range(WORKERS)]
        keep = KEEP[cut % len(KEEP)]
        when = work_until(workers, lambda: bench.cut(up, keep, cut))
        for worker in workers:
            worker.join(40)
            check(not worker.is_alive(), "a request hangs although the server is gone")
        up = bench.again()
        acknowledged += sum(len(w.states) - 1 for w in workers)
        try:
            states = [worker.verify(up, when - may_lose_s) for worker in workers]
        except Failed as failed:
            raise Failed("cut %d, which kept %d %% of the unflushed blocks: %s\n%s" % (cut + 1, 100 * keep, failed, bench.disk.mended))
        fsck = place.run("fsck", "--data", bench.data, "--config", up.config)
        if fsck.returncode and may_lose_s:
            up, fsck = repaired(place, bench, up)
            states = [worker.verify(up, when - may_lose_s) for worker in workers]
        check(fsck.returncode == 0, "fsck after cut %d, which kept %d %%: %s" % (cut + 1, 100 * keep, fsck.stdout))
    applied = sum(b"write journal applied" in open(log, "rb").read() for log in glob.glob(place.path("log.*")))
    is_off = os.environ.get("FOREBAY_POOLS_JOURNAL") == "off"
    check(applied > 0 or is_off, "no start found anything in the write journal of a pool")
    print("   %d cuts, %d changes acknowledged, %d journals applied" % (CUTS, acknowledged, applied), flush=True)


def sync_always_keeps_every_acknowledged_change(place):
    disk = disk_of(place)
    cuts(place, Bench(place, os.path.join(disk.mount, "data"), disk))


def synced(path, data):
    with open(path, "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())


def files_that_fsync_loses(disk):
    """How many of 400 files in new directories are lost, each synced before the cut, with no server in between."""
    kept, base = [], os.path.join(disk.mount, "probe")
    os.mkdir(base)
    os.sync()
    for n in range(600):
        folder = os.path.join(base, str(n // 200), str(n // 60))
        os.makedirs(folder, exist_ok=True)
        kept.append(os.path.join(folder, "%016x" % n))
        synced(kept[-1], b"x" * (1 + n * 37 % 70_000))
        if n % 3 == 2:
            os.unlink(kept.pop(-3))
    disk.cut(0, 0)
    disk.power_off()
    disk.power_on()
    lost = sum(not os.path.exists(path) for path in kept)
    shutil.rmtree(base, ignore_errors=True)
    return lost


def sync_always_keeps_every_acknowledged_change_on_ext4_without_journal(place):
    """Linux 6.18 does not write the inodes of directories that grew when a file in them is fsynced there: no server can help that."""
    disk = disk_of(place, journal=False)
    lost = files_that_fsync_loses(disk)
    if lost:
        raise Skipped("this kernel's ext4 without journal loses %d of 400 fsynced files by itself" % lost)
    cuts(place, Bench(place, os.path.join(disk.mount, "data"), disk))


def sync_interval_keeps_what_is_older_than_the_interval_and_never_mixes(place):
    # Repairs put into /lost+found what the last interval wrote before each cut.
    disk = disk_of(place, mib=1280 + 20 * CUTS)
    cuts(place, Bench(place, os.path.join(disk.mount, "data"), disk, config=INTERVAL), may_lose_s=3 * INTERVAL_S)


def sync_names_keeps_every_name_and_no_change_overtakes_another(place):
    disk = disk_of(place)
    cuts(place, Bench(place, os.path.join(disk.mount, "data"), disk, config=NAMES), kind=ModeWorker)


def pools_that_lose_power_while_the_namespace_does_not_keep_every_acknowledged_change(place):
    disk = disk_of(place)
    data = place.path("data")
    os.makedirs(data, mode=0o700)
    os.symlink(disk.mount, os.path.join(data, "pools"))
    cuts(place, Bench(place, data, disk))


def postgresql_keeps_every_acknowledged_change(place):
    disk = disk_of(place)
    postgres = Postgres(place, disk.mount)
    place.undo.append(postgres.kill)
    cuts(place, Bench(place, os.path.join(disk.mount, "data"), disk, beside=postgres))


def sync_names_on_postgresql_keeps_every_name_and_no_change_overtakes_another(place):
    disk = disk_of(place)
    postgres = Postgres(place, disk.mount)
    place.undo.append(postgres.kill)
    cuts(place, Bench(place, os.path.join(disk.mount, "data"), disk, config=NAMES, beside=postgres), kind=ModeWorker)


SCENARIOS = [sync_always_keeps_every_acknowledged_change, sync_always_keeps_every_acknowledged_change_on_ext4_without_journal,
             sync_interval_keeps_what_is_older_than_the_interval_and_never_mixes,
             sync_names_keeps_every_name_and_no_change_overtakes_another,
             pools_that_lose_power_while_the_namespace_does_not_keep_every_acknowledged_change,
             postgresql_keeps_every_acknowledged_change,
             sync_names_on_postgresql_keeps_every_name_and_no_change_overtakes_another]
