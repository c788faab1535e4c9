"""Every side once in each round, in turning order, each on a data directory of its own."""
import os, subprocess, sys

from . import guest, machine


def measure(opt, scratch, kit, script="job.sh"):
    """Data directories stay until the end: ext4 is slow to create where it has just deleted."""
    runs, syncs, calm = {s.name: [] for s in opt.sides}, {}, []
    for i in range(opt.rounds):
        turn = i % len(opt.sides)
        for side in opt.sides[turn:] + opt.sides[:turn]:
            subprocess.run(["sync"])
            busy = machine.wait_for_quiet(opt.quiet)
            phases = run_again(side, os.path.join(scratch, "%s-%d" % (side.name, i)), opt, kit, script=script)
            runs[side.name].append(phases)
            calm.append({"round": i, "side": side.name, "busy_before": busy, "load": machine.load()})
            print("round %d %-16s busy before %.2f  " % (i + 1, side.name, busy)
                  + "  ".join("%s %.2fs" % (j, p["seconds"]) for j, p in phases.items()), file=sys.stderr, flush=True)
    if not opt.no_syncs:
        for side in opt.sides:
            syncs[side.name] = run_again(side, os.path.join(scratch, side.name + "-syncs"), opt, kit, script=script, count_syncs=True)
    return runs, syncs, calm


def run_again(side, scratch, opt, kit, **how):
    """Once more if the guest hung (its network driver can) or anything else failed; twice is an error."""
    try:
        return guest.run(side, scratch, opt, kit, **how)
    except guest.Failed as failed:
        print("once more: %s" % failed, file=sys.stderr, flush=True)
        return guest.run(side, scratch + "-again", opt, kit, **how)


def missing_of(sides, scratch):
    """The first thing that a side lacks to start, or None; and the binary of ours, if it takes part."""
    probe = []
    for number, side in enumerate(sides):
        place = os.path.join(scratch, "probe-%d" % number)
        os.makedirs(place)
        probe.append(side.start_in(place))
    missing = next(filter(None, (server.missing() for server in probe)), None)
    return missing, next((server.binary for server in probe if server.name == "forebay"), None)
