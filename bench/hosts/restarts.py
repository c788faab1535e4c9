"""A pool that is killed and started again at once, and the head: how long a writer and a creator wait. One process is killed beside it."""
import sys, time

from macro import machine
from . import client as nfs
from .report import summary
from .writers import Creator, Writer

POOL = 1
BEFORE_S, SETTLE_S, AFTER_S = 2, 150, 2


def restart_pool(cluster):
    process = cluster.pool_processes[POOL - 1]
    process.kill()
    cluster.start_pool(POOL)


def restart_head(setup):
    setup.head.kill()
    setup.start_head()


# By name: the side, and how it is killed and started.
EVENTS = {"pool": ("cluster", restart_pool), "head": ("cluster", restart_head), "one": ("one", restart_head)}


def measure(sides, opt):
    by_name, runs, calm = {side.name: side for side in sides}, {name: [] for name in EVENTS}, []
    for side in sides:
        forget_clients(side)
    for number in range(opt.restarts):
        for name, (side, restart) in EVENTS.items():
            busy = machine.wait_for_quiet(opt.quiet)
            calm.append({"figure": "restarts", "event": name, "round": number, "busy_before": busy, "load": machine.load()})
            runs[name].append(one(by_name[side], restart, "%s%d" % (name, number)))
            waits = "  ".join("%s %.2f s" % (key, value) for key, value in runs[name][-1].items() if key != "refusals")
            print("round %d restart %-5s busy before %.2f  %s" % (number + 1, name, busy, waits), file=sys.stderr, flush=True)
    return {name: summarised(rounds) for name, rounds in runs.items()}, calm


def forget_clients(setup):
    """A client that has left something open would hold up the end of each grace period. After one without it, it is not waited for again."""
    restart_head(setup)
    mount = nfs.Mount(setup)
    root = mount.head.root()
    handle, stateid = mount.head.opened(root, "forgotten", nfs.TO_READ_AND_WRITE, makes=True, limit_s=SETTLE_S)
    mount.head.call(nfs.put_fh(handle), nfs.close_file(stateid))
    mount.close()


def one(setup, restart, name):
    """Seconds: how long the process was away, and how long each client waited."""
    mount = nfs.Mount(setup)
    parent = mount.head.directory(mount.head.root(), name)
    setup.place_on([POOL])
    for through in ("pool", "head"):
        mount.write_file(parent, through, bytes(4096))
    setup.place_on_all()
    mount.close()
    workers = {"writer_at_pool_s": Writer(setup, parent, "pool"), "writer_through_head_s": Writer(setup, parent, "head", through="head"),
               "creator_s": Creator(setup, parent)}
    for worker in workers.values():
        worker.start()
    time.sleep(BEFORE_S)
    for key, worker in workers.items():
        if not worker.successes:
            raise SystemExit("bench/cluster: %s of %s does not begin: %s" % (key, name, worker.refusals))
    began = time.monotonic()
    restart(setup)
    away = time.monotonic() - began
    end = began + SETTLE_S
    while not all(worker.has_succeeded_since(began + away) for worker in workers.values()):
        if time.monotonic() > end:
            break
        time.sleep(0.05)
    time.sleep(AFTER_S)
    found = {key: worker.wait_s(began) for key, worker in workers.items()}
    refusals = {key: worker.refusals for key, worker in workers.items()}
    for worker in workers.values():
        worker.end()
    return {"away_s": away, **found, "refusals": refusals}


def summarised(rounds):
    out = {key: summary([each[key] for each in rounds]) for key in rounds[0] if key != "refusals"}
    out["refusals"] = rounds[-1]["refusals"]
    return out
