"""Disks that fail while clients work: requests are refused, no byte is wrong, and what was acknowledged is there once the disk is well."""
import contextlib, errno, json, os, time

from .acknowledged import CONFIG, WORKERS, Bench, ModeWorker, Worker, disk_of, prepare
from .disks import Disk, quietly
from .loopback import Failed, Up, check, within
from .web import ask


def work_until_refused(up, disk, kinds, seed, states, kind):
    """The workers end with the first request that the failing disk makes the server refuse."""
    workers = [kind(up, n, "%s %d" % (seed, n), states[n]) for n in range(WORKERS)]
    for worker in workers:
        worker.start()
    within(30, lambda: any(w.fault for w in workers) or all(len(w.states) > 8 for w in workers), "the workers get nothing done")
    for worker in workers:
        if worker.fault:
            raise worker.fault
    disk.say("fail", *kinds)
    within(30, lambda: not any(w.is_alive() for w in workers), "changes succeed, or hang, although the disk fails every %s" % kinds[0])
    return workers


def fails_and_is_well_again(place, *kinds, config="", kind=Worker):
    disk = disk_of(place)
    bench = Bench(place, os.path.join(disk.mount, "data"), disk, config=config)
    up = bench.start()
    prepare(up)
    states = [{} for _ in range(WORKERS)]
    for round in range(2):
        workers = work_until_refused(up, disk, kinds, "%s %d" % (kinds[0], round), states, kind)
        # The machine is started again with a disk that is well: what the file system could not write is lost.
        bench.cut(up, 1, round)
        up = bench.again()
        states = [worker.verify(up, time.monotonic()) for worker in workers]
        fsck = place.run("fsck", "--data", bench.data, "--config", up.config)
        check(fsck.returncode == 0, "fsck after a disk that failed: " + fsck.stdout)


def a_disk_that_fails_writes_loses_nothing_acknowledged(place):
    fails_and_is_well_again(place, "write")


def a_disk_that_fails_flushes_loses_nothing_acknowledged(place):
    fails_and_is_well_again(place, "flush")


def a_disk_that_fails_flushes_under_sync_names_loses_no_name_and_mixes_nothing(place):
    fails_and_is_well_again(place, "flush", config='[namespace]\nsync = "names"\n', kind=ModeWorker)


def a_disk_that_fails_everything_loses_nothing_acknowledged(place):
    fails_and_is_well_again(place, "read", "write", "flush")


def pool_on_a_disk(place, journal=True):
    """(disk, server): the pool is on a disk of its own, the namespace is not."""
    disk, data = disk_of(place, journal), place.path("data")
    os.makedirs(data, mode=0o700)
    os.symlink(disk.mount, os.path.join(data, "pools"))
    return disk, data


def a_disk_that_fails_reads_gives_an_error_and_never_other_bytes(place):
    disk, data = pool_on_a_disk(place)
    place.allowed_log = ("cannot read", "Input/output error")
    up = Up(place, data=data, config=CONFIG).ready()
    body = os.urandom(3 << 20)
    check(ask(up, "PUT", "/f", body).status == 201, "PUT")
    os.sync()
    quietly("sh", "-c", "echo 3 >/proc/sys/vm/drop_caches")
    disk.say("fail", "read")
    try:
        answer = ask(up, "GET", "/f")
        check(answer.status >= 500, "GET from a disk that cannot be read: %r" % answer)
    except (OSError, Exception) as error:      # cut off in the middle of the body: as good
        check("IncompleteRead" in repr(error) or isinstance(error, OSError), repr(error))
    disk.say("fail")
    answer = ask(up, "GET", "/f")
    check(answer.status == 200 and answer.body == body, "GET after the disk is well: %r" % answer)


def health(up):
    return json.dumps(json.loads(ask(up, "GET", "/health", login=False).body)).lower()


def refuses_new_files_and_says(place, up, word):
    refused = ask(up, "PUT", "/during", b"during")
    check(refused.status >= 500, "PUT to a pool that cannot write: %r" % refused)
    within(10, lambda: word in health(up), lambda: "/health says nothing of it: " + health(up))
    listed = place.run("pool", "list", "--data", up.data).stdout
    check(word in listed.lower(), "pool list says nothing of it: " + listed)
    answer = ask(up, "GET", "/before")
    check(answer.body == b"before", "what was there before cannot be read: %r" % answer)


def a_pool_whose_file_system_became_read_only_takes_no_new_files_and_says_why(place):
    disk, data = pool_on_a_disk(place)
    place.allowed_log = ("read-only", "Read-only", "cannot")
    up = Up(place, data=data, config=CONFIG).ready()
    check(ask(up, "PUT", "/before", b"before").status == 201, "PUT")
    quietly("mount", "-o", "remount,abort", disk.mount)
    refuses_new_files_and_says(place, up, "read-only")
    looked = place.run("fsck", "--data", up.data)
    check(looked.returncode == 0, "fsck of a server with a read-only pool: " + looked.stdout)
    up.process.kill()
    up.process.wait()
    disk.power_off()
    disk.power_on()
    up = Up(place, data=data, config=CONFIG, login=up.login).ready()
    check(ask(up, "GET", "/before").body == b"before", "what was there before is gone")
    check(ask(up, "GET", "/during").status == 404, "a PUT that was refused left a name")
    check(ask(up, "PUT", "/after", b"after").status == 201, "it takes no files after a new start")


def a_pool_whose_file_system_is_read_only_at_the_start_is_read_and_comes_back(place):
    disk, data = pool_on_a_disk(place)
    place.allowed_log = ("read-only", "Read-only", "cannot")
    up = Up(place, data=data, config=CONFIG).ready()
    check(ask(up, "PUT", "/before", b"before").status == 201, "PUT")
    for round, is_killed in enumerate((False, True)):
        check(ask(up, "PUT", "/doomed", b"doomed").status == 201, "PUT")
        if is_killed:
            up.process.kill()
            up.process.wait()
        else:
            up.stop()
        quietly("mount", "-o", "remount,ro", disk.mount)
        up = Up(place, data=data, config=CONFIG, login=up.login).ready()
        refuses_new_files_and_says(place, up, "read-only")
        check(ask(up, "DELETE", "/doomed").status == 204, "DELETE of a file on a read-only pool")
        looked = place.run("fsck", "--data", up.data)
        check("/during" not in looked.stdout, "fsck of a server with a read-only pool: " + looked.stdout)
        within(20, lambda: "cannot remove unlinked files" in up.said(), "the reaper says nothing")
        time.sleep(5)
        warned = up.said().count("cannot remove")
        check(warned == 1, "%d warnings that nothing can be removed" % warned)
        quietly("mount", "-o", "remount,rw", disk.mount)
        within(20, lambda: ask(up, "PUT", "/after%d" % round, b"after").status == 201, "it does not come back by itself")
        check(ask(up, "PUT", "/before", b"before").status == 204, "PUT over what was read while it could not be written")
        check(ask(up, "GET", "/during").status == 404, "a PUT that was refused left a name")
        # /before and what came after each round.
        within(60, lambda: len(up.replicas()) == 2 + round, "a removed file's replica does not go by itself")
        check("pool-read-only" not in problems(up), "/health: %s" % problems(up))


def a_data_directory_on_a_read_only_disk_is_told_of_in_one_line(place):
    disk = disk_of(place)
    data = os.path.join(disk.mount, "data")
    up = Up(place, data=data, config=CONFIG).ready()
    up.stop()
    quietly("mount", "-o", "remount,ro", disk.mount)
    refused = Up(place, data=data, config=CONFIG, login=up.login)
    refused.refuses("make it writable")
    said = refused.said().strip()
    check(len(said.splitlines()) == 1 and said.lower().count("read-only") == 1 and data in said, "not one clear line: " + said)
    quietly("mount", "-o", "remount,rw", disk.mount)
    Up(place, data=data, config=CONFIG, login=up.login).ready()


def a_pool_whose_disk_fails_writes_takes_no_new_files_and_comes_back_by_itself(place):
    disk, data = pool_on_a_disk(place, journal=False)       # a journal that cannot be written would shut the file system for good
    quietly("mount", "-o", "remount,errors=continue", disk.mount)
    place.allowed_log = ("input/output error", "Input/output error", "cannot")
    up = Up(place, data=data, config=CONFIG).ready()
    check(ask(up, "PUT", "/before", b"before").status == 201, "PUT")
    disk.say("fail", "write", "flush")
    refuses_new_files_and_says(place, up, "input/output error")
    disk.say("fail")
    within(20, lambda: ask(up, "PUT", "/after", b"after").status == 201, "it does not come back by itself")
    check(ask(up, "GET", "/after").body == b"after", "other bytes")
    check(ask(up, "GET", "/during").status == 404, "a PUT that was refused left a name")


def a_change_that_a_failing_disk_refused_is_not_there_after_a_kill(place):
    # A journal that fails would make it read-only.
    disk = disk_of(place, journal=False)
    bench = Bench(place, os.path.join(disk.mount, "data"), disk)
    up = bench.start()
    check(ask(up, "MKCOL", "/before").status == 201, "MKCOL /before")
    disk.say("fail", "flush")
    refused = [name for name in ("/d%d" % n for n in range(8)) if ask(up, "MKCOL", name).status >= 500]
    check(len(refused) == 8, "changes that a disk does not take are acknowledged: %d refused" % len(refused))
    # The machine goes on, and with it what its memory has of the log.
    up.process.kill()
    up.process.wait()
    place.servers.remove(up)                   # its last words are of a disk that failed
    disk.say("fail")
    up = bench.start()
    check(ask(up, "GET", "/before/").status == 200, "what was acknowledged is gone")
    there = [name for name in refused if ask(up, "PROPFIND", name, None, {"Depth": "0"}).status != 404]
    check(not there, "refused, and there after a kill: %s" % ", ".join(there))
    check(ask(up, "MKCOL", "/after").status == 201, "MKCOL /after")


def problems(up):
    """{kind: (what, advice)} of the problems that /health tells. A pool on the machine's own disk is as full as that disk."""
    told = json.loads(ask(up, "GET", "/health", login=False).body)
    return {p["kind"]: (p["what"], p["advice"]) for p in told.get("problems", []) if p["kind"] != "disk-nearly-full"}


def fill(disk):
    """To the last block, as another program on the same disk may."""
    path = os.path.join(disk.mount, "fill")
    with open(path, "ab", buffering=0) as f:
        for size in (1 << 20, 4096):
            try:
                while True:
                    os.write(f.fileno(), bytes(size))
            except OSError as error:
                check(error.errno == errno.ENOSPC, "filling the disk: %s" % error)
        with contextlib.suppress(OSError):
            os.fsync(f.fileno())
    return path


MADE = 200
REMOVAL = '<D:propertyupdate xmlns:D="DAV:" xmlns:E="urn:e"><D:remove><D:prop><E:p%d/></D:prop></D:remove></D:propertyupdate>'


def taken_until_full(up, prefix="d"):
    """Directories that a user made until there was no room for another."""
    for n in range(MADE, 8_000):
        answer = ask(up, "MKCOL", "/%s%d" % (prefix, n))
        if answer.status != 201:
            check(answer.status == 507, "MKCOL on a full disk: %r" % answer)
            return n
    raise Failed("a full disk takes directories without end")


def moved(up, source, target):
    return ask(up, "MOVE", source, None, {"Destination": up.url + target})


def only_what_needs_no_room_is_taken(up, removed, has_reserve=False):
    """`has_reserve`: the start found a whole reserve and perhaps no room for its note, so that no new file gets a number and names have room."""
    for answer in (ask(up, "MKCOL", "/more"), ask(up, "PUT", "/more", b"more"), moved(up, "/keep", "/more")):
        if has_reserve and answer.status == 201:
            answer = moved(up, "/more", "/keep")
            check(answer.status == 201, "MOVE back to the old name: %r" % answer)
        else:
            check(answer.status == 507, "on a full disk: %r" % answer)
    check(ask(up, "GET", "/keep").body == b"keep", "what was there before cannot be read")
    for n in removed:
        answer = ask(up, "DELETE", "/d%d" % n)
        check(answer.status == 204, "DELETE of /d%d on a full disk: %r" % (n, answer))
    what, advice = problems(up).get("namespace-full", ("", ""))
    check("by itself" in advice and "restart" not in advice, "/health: %s; %s" % (what, advice))


def well_again(up, path):
    os.unlink(path)
    within(20, lambda: not problems(up), lambda: "/health does not come back by itself: %s" % problems(up))
    check(ask(up, "MKCOL", "/more").status == 201, "MKCOL when there is room again")
    check(ask(up, "DELETE", "/more").status == 204, "DELETE when there is room again")
    check(ask(up, "PUT", "/again", b"again").status in (201, 204), "PUT when there is room again")


def full_disk(place, is_shared):
    disk = Disk(place.path("disk"), mib=128)
    place.undo.append(disk.close)
    data = os.path.join(disk.mount, "data")
    if not is_shared:
        os.makedirs(data, mode=0o700)
        os.makedirs(place.path("pools"))
        os.symlink(place.path("pools"), os.path.join(data, "pools"))
    place.allowed_log = ("cannot", "no room", "reserve", "No space", "no space", "is full", "in memory")
    config = CONFIG + "[pools]\nreserve_mib = 0\nreserve_files = 0\n"
    up = Up(place, data=data, config=config).ready()
    check(ask(up, "PUT", "/keep", b"keep").status == 201, "PUT")
    for n in range(MADE):
        check(ask(up, "MKCOL", "/d%d" % n).status == 201, "MKCOL")
    path = fill(disk)
    made = taken_until_full(up)
    only_what_needs_no_room_is_taken(up, range(0, 40))
    up = killed_and_started(place, up, config)
    only_what_needs_no_room_is_taken(up, range(40, 80))
    well_again(up, path)
    # Killed before it has noticed.
    path = fill(disk)
    up = killed_and_started(place, up, config)
    taken_until_full(up, "e")
    only_what_needs_no_room_is_taken(up, range(80, 120), has_reserve=True)
    # Others take what the reserve gave, too: nothing may be taken then, but it is said why, and passes.
    fill(disk)
    for n in range(1_000):
        answer = ask(up, "PROPPATCH", "/keep", REMOVAL % n)
        check(answer.status in (207, 507), "PROPPATCH on a disk without any room: %r" % answer)
    check(problems(up) and not any("restart" in advice for _, advice in problems(up).values()), "/health: %s" % problems(up))
    well_again(up, path)
    there = [n for n in range(made) if ask(up, "PROPFIND", "/d%d" % n, None, {"Depth": "0"}).status == 207]
    check(there == list(range(120, made)), "of %d directories %d are there" % (made, len(there)))
    fsck = place.run("fsck", "--data", data, "--config", up.config)
    check(fsck.returncode == 0, "fsck after a full disk: " + fsck.stdout)


def killed_and_started(place, up, config):
    up.process.kill()
    up.process.wait()
    return Up(place, data=up.data, config=config, login=up.login).ready()


def a_full_disk_of_namespace_and_pool_still_removes_and_starts(place):
    full_disk(place, True)


def a_full_disk_of_the_namespace_alone_still_removes_and_starts(place):
    full_disk(place, False)


def fill_but(disk, left_kib):
    path = fill(disk)
    with open(path, "r+b") as f:
        f.truncate(os.path.getsize(path) - (left_kib << 10))
        os.fsync(f.fileno())
    os.sync()
    return path


def a_full_disk_with_blocks_of_1_kib_ends_no_server(place):
    disk = Disk(place.path("disk"), mib=128, block_bytes=1024)
    place.undo.append(disk.close)
    data = os.path.join(disk.mount, "data")
    place.allowed_log = ("cannot", "no room", "reserve", "No space", "no space", "is full", "in memory")
    config = CONFIG + "[pools]\nreserve_mib = 0\nreserve_files = 0\n"
    up = Up(place, data=data, config=config).ready()
    check(ask(up, "PUT", "/keep", b"keep").status == 201, "PUT")
    for left_kib in (16, 24, 28, 32, 36, 48, 72):
        # Files are described for the first time, so that the database for that is made.
        path = fill_but(disk, left_kib)
        place.run("namespace", "describe", "--data", data)
        check(up.process.poll() is None, "with %d KiB left the server ended with %s: %s" % (left_kib, up.process.returncode, up.said()))
        check(ask(up, "GET", "/keep").body == b"keep", "what was there before cannot be read")
        up.process.kill()
        up.process.wait()
        # A start that finds no reserve reads the log all the same, or says why not.
        with open(os.path.join(data, "namespace", "reserve"), "wb") as reserve:
            os.fsync(reserve.fileno())
        # Nor the room of the index of its log, which a power cut may take.
        os.unlink(os.path.join(data, "namespace", "namespace.db-shm"))
        fill_but(disk, left_kib)
        full = Up(place, data=data, config=config, login=up.login)
        within(20, lambda: full.process.poll() is not None or "\n  stop " in full.said(), "it neither starts nor ends")
        if full.process.poll() is not None:
            full.refuses("no space", "full")
        else:
            full.process.kill()
            full.process.wait()
        os.unlink(path)
        for name in os.listdir(os.path.join(data, "pools", "pool-0")):
            if name.startswith("descriptions.db"):
                os.unlink(os.path.join(data, "pools", "pool-0", name))
        up = Up(place, data=data, config=config, login=up.login).ready()
    check(ask(up, "GET", "/keep").body == b"keep", "what was there before is gone")


def namespace_on_a_disk(place, journal):
    disk = disk_of(place, journal)
    data = os.path.join(disk.mount, "data")
    os.makedirs(data, mode=0o700)
    os.makedirs(place.path("pools"))
    os.symlink(place.path("pools"), os.path.join(data, "pools"))
    up = Up(place, data=data, config=CONFIG).ready()
    check(ask(up, "MKCOL", "/before").status == 201, "MKCOL")
    return disk, up


def a_namespace_whose_file_system_became_read_only_is_told_of(place):
    place.allowed_log = ("read-only", "Read-only", "readonly", "cannot")
    disk, up = namespace_on_a_disk(place, journal=True)
    quietly("mount", "-o", "remount,abort", disk.mount)
    refused = ask(up, "MKCOL", "/during")
    check(refused.status >= 500, "MKCOL on a read-only file system: %r" % refused)
    what, advice = problems(up).get("namespace-read-only", ("", ""))
    check("writable" in advice and "restart" not in advice, "/health: %s; %s" % (what, advice))
    check(ask(up, "PROPFIND", "/before", None, {"Depth": "0"}).status == 207, "what was there before cannot be read")
    login = up.login
    up.process.kill()
    up.process.wait()
    disk.power_off()
    disk.power_on()
    up = Up(place, data=up.data, config=CONFIG, login=login).ready()
    check(ask(up, "PROPFIND", "/before", None, {"Depth": "0"}).status == 207, "what was there before is gone")
    check(ask(up, "PROPFIND", "/during", None, {"Depth": "0"}).status == 404, "refused, and there after a new start")
    check(ask(up, "MKCOL", "/after").status == 201, "MKCOL after a new start")


def a_namespace_whose_disk_fails_writes_is_well_again_without_a_client(place):
    place.allowed_log = ("input/output error", "Input/output error", "I/O error", "cannot")
    disk, up = namespace_on_a_disk(place, journal=False)
    quietly("mount", "-o", "remount,errors=continue", disk.mount)
    disk.say("fail", "write", "flush")
    refused = ask(up, "MKCOL", "/during")
    check(refused.status >= 500, "MKCOL on a disk that fails writes: %r" % refused)
    check("namespace-read-only" in problems(up), "/health says nothing of it: %s" % problems(up))
    disk.say("fail")
    within(20, lambda: not problems(up), lambda: "/health does not come back by itself: %s" % problems(up))
    check(ask(up, "MKCOL", "/after").status == 201, "MKCOL after the disk is well")
    check(ask(up, "PROPFIND", "/during", None, {"Depth": "0"}).status == 404, "refused, and there afterwards")


SCENARIOS = [a_disk_that_fails_writes_loses_nothing_acknowledged, a_disk_that_fails_flushes_loses_nothing_acknowledged,
             a_disk_that_fails_flushes_under_sync_names_loses_no_name_and_mixes_nothing,
             a_disk_that_fails_everything_loses_nothing_acknowledged, a_disk_that_fails_reads_gives_an_error_and_never_other_bytes,
             a_pool_whose_file_system_became_read_only_takes_no_new_files_and_says_why,
             a_pool_whose_file_system_is_read_only_at_the_start_is_read_and_comes_back,
             a_data_directory_on_a_read_only_disk_is_told_of_in_one_line,
             a_pool_whose_disk_fails_writes_takes_no_new_files_and_comes_back_by_itself,
             a_full_disk_with_blocks_of_1_kib_ends_no_server,
             a_change_that_a_failing_disk_refused_is_not_there_after_a_kill,
             a_full_disk_of_namespace_and_pool_still_removes_and_starts, a_full_disk_of_the_namespace_alone_still_removes_and_starts,
             a_namespace_whose_file_system_became_read_only_is_told_of,
             a_namespace_whose_disk_fails_writes_is_well_again_without_a_client]
