"""One side, once: a fresh data directory, a server, one kernel client, all phases."""
import json, os, subprocess

from .sides import ROOT

KERNEL_CLIENT = os.path.join(ROOT, "tests/kernel-client/kernel-client")
HERE = os.path.dirname(os.path.realpath(__file__))
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# user + system ticks of the server, all its threads; both servers are one process.
CPU_MARK = r"""sed 's/.*) //' /proc/$KC_SERVER_PID/stat | awk '{print $12 + $13}'"""
# The guest's virtual network card now and then sleeps over a packet until the next one comes. TCP would send again after
# 200 ms, which would outweigh thousands of RPCs; so the job has the servers' namespace send again after 2 ms, on every
# side alike.
NETWORK = "ip route change 10.77.0.0/24 dev kcbr0 proto kernel scope link src 10.77.0.1 rto_min 2ms"
# The card's driver spins for ever when it finds no 64 KiB in one piece for what arrives: leave it some.
MEMORY = ["--mem", "2560M", "--sysctl", "vm.min_free_kbytes=131072"]
# Server and guest before whatever else runs on the machine.
NICE = -15
SYNCS = ["fsync", "fdatasync", "sync_file_range", "syncfs", "sync", "msync"]


class Failed(Exception):
    pass


def run(side, scratch, opt, kit, script="job.sh", count_syncs=False):
    """{phase: {seconds, mark, rpcs, rtt_us, ...}}; mark is CPU seconds, or the number of syncs when those are counted.
    `kit` is what the script in the guest is given, by name."""
    os.makedirs(scratch)
    server = side.start_in(scratch)
    command, mark = server.command(), CPU_MARK
    if count_syncs:
        trace = os.path.join(scratch, "syncs")
        command = "strace -f -qq --seccomp-bpf -e trace=%s -o %s %s" % (",".join(SYNCS), trace, command)
        mark = r"grep -cE ' (%s)\(' %s || true" % ("|".join(SYNCS), trace)
    out = os.path.join(scratch, "out")
    argv = [KERNEL_CLIENT, "--quiet", "--export", "/", "--opts", opt.opts, "--server-cmd", command, "--out", out,
            "--json", out + ".json", "--timeout", str(opt.timeout), "--hook", "mark=" + mark, "--hook", "network=" + NETWORK]
    argv += MEMORY
    counters = os.path.join(scratch, "counters.")
    if side.metrics:
        argv += ["--hook", "metrics=curl -sf %s >%s$1" % (side.metrics, counters)]
    for name, value in dict(kit, JOBS=" ".join(opt.jobs), METRICS=side.metrics or "").items():
        argv += ["--env", "%s=%s" % (name, value)]
    if not side.layout_driver:
        argv.append("--no-layout-driver")
    argv = ["nice", "-n", str(NICE)] + argv + ["--", ". %s/%s" % (HERE, script)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise Failed("%s: status %d\n%s" % (side.name, done.returncode, done.stdout[-2000:]))
    with open(out + ".json") as f:
        stats = json.load(f)["guests"][0]["stats"]
    with open(os.path.join(out, "guest0/out/phases")) as f:
        return {p[0]: phase(p, stats, count_syncs, counters) for p in map(str.split, f)}


def phase(words, stats, count_syncs, counters):
    name, seconds, before, after = words[0], float(words[1]), int(words[2]), int(words[3])
    a, b = stats["before_" + name], stats["after_" + name]
    rpcs = {op: n - a["proc4"].get(op, 0) for op, n in b["proc4"].items() if n > a["proc4"].get(op, 0)}
    out = dict(seconds=seconds, mark=(after - before) / (1 if count_syncs else TICKS_PER_S), rpcs=rpcs, rtt_us=head_rtt(a, b))
    if len(words) > 4:
        out["files"] = int(words[4])
    if os.path.exists(counters + "after_" + name):
        out["counters"] = grown(counters + "before_" + name, counters + "after_" + name)
    return out


def grown(before, after):
    """Growth of the server's own counters over the phase: {series: increase}, without the buckets of histograms."""
    def series(path):
        with open(path) as f:
            words = (line.rsplit(None, 1) for line in f if line.strip() and not line.startswith("#"))
            return {name: float(value) for name, value in words if "_bucket" not in name}
    old = series(before)
    return {name: round(value - old.get(name, 0), 6) for name, value in series(after).items()
            if name.split("{")[0].endswith(("_total", "_sum", "_count")) and value > old.get(name, 0)}


def head_rtt(a, b):
    """Mean round trip per operation at the mounted server; data servers have no such counters in this kernel."""
    old, new = (next(iter(s["mounts"].values()))["ops"] for s in (a, b))
    out = {}
    for op, n in new.items():
        before = old.get(op, dict(ops=0, rtt_ms=0))
        if n["ops"] > before["ops"]:
            out[op] = round(1000 * (n["rtt_ms"] - before["rtt_ms"]) / (n["ops"] - before["ops"]))
    return out
