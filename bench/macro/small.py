"""The tree, repository and wheel that bench/small unpacks, clones and installs; and its report."""
import glob, os, statistics, subprocess, sys

from .results import SCHEMA
from .sides import PAIRS, ROOT

TREE_FILES, REPOSITORY_FILES, COMMITS = 5000, 3000, 3
WHEEL = "numpy"
PYTHON = "/usr/bin/python3"      # the guest's
# Settings that git may not take from the user who runs the bench.
GIT = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "bench", "GIT_AUTHOR_EMAIL": "bench@localhost",
       "GIT_COMMITTER_NAME": "bench", "GIT_COMMITTER_EMAIL": "bench@localhost", "GIT_AUTHOR_DATE": "1600000000 +0000",
       "GIT_COMMITTER_DATE": "1600000000 +0000"}


def prepare(opt, scratch):
    """{name: path} for the guest; the wheel is fetched only if a job needs it."""
    tree = os.path.join(scratch, "tree.tar")
    make_tree(tree, TREE_FILES)
    kit = {"TREE": tree, "REPOSITORY": repository(scratch) if "clone" in opt.jobs else ""}
    kit["WHEEL"] = (opt.wheel or wheel()) if "pip" in opt.jobs else ""
    return kit


def make_tree(path, files):
    subprocess.run([sys.executable, os.path.join(ROOT, "tests/guest/make_tree.py"), path, str(files)], check=True)


def repository(scratch):
    """A bare repository of one pack, the same bytes every time."""
    tar, work, bare = (os.path.join(scratch, name) for name in ("repository.tar", "work", "repository.git"))
    make_tree(tar, REPOSITORY_FILES)
    os.makedirs(work)
    subprocess.run(["tar", "-xf", tar, "-C", work], check=True)
    git = lambda *words: subprocess.run(["git", "-C", work, *words], check=True, env=dict(os.environ, **GIT))
    git("init", "-q", "-b", "main")
    for number in range(COMMITS):
        with open(os.path.join(work, "tree/changes"), "a") as f:
            f.write("change %d\n" % number)
        git("add", "-A")
        git("commit", "-q", "-m", "change %d" % number)
    git("clone", "-q", "--bare", work, bare)
    git("--git-dir", bare, "repack", "-q", "-a", "-d")
    return bare


def wheel():
    """From where pip gets it, kept for the next run."""
    cache = os.environ.get("FOREBAY_BENCH_CACHE", "/var/tmp/forebay-bench")
    found = glob.glob(os.path.join(cache, WHEEL + "-*.whl"))
    if not found:
        version = subprocess.run([PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], check=True,
                                 stdout=subprocess.PIPE, text=True).stdout.strip()
        done = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:",
                               "--python-version", version, "-d", cache, WHEEL])
        found = glob.glob(os.path.join(cache, WHEEL + "-*.whl"))
        if done.returncode or not found:
            sys.exit("bench/small: pip cannot get %s's wheel; give one with --wheel, or leave the job out" % WHEEL)
    return found[0]


def summarise(runs, syncs, opt):
    """{job: {unit, sides: {side: ...}, ratios}}; runs: {side: [phases of a round, ...]}, syncs: {side: phases} or {}."""
    out = {}
    for job in opt.jobs:
        sides = {}
        for side, rounds in runs.items():
            seconds = [r[job]["seconds"] for r in rounds]
            last = rounds[-1][job]
            sides[side] = {"seconds": [round(s, 2) for s in seconds], "median": round(statistics.median(seconds), 2),
                           "server_cpu_s": round(statistics.median(r[job]["mark"] for r in rounds), 2), "files": last["files"],
                           "rpcs": last["rpcs"], "head_rtt_us": last["rtt_us"], "spent": spent(rounds, job)}
            if side in syncs:
                sides[side]["server_syncs"] = int(syncs[side][job]["mark"])
            if "counters" in last:
                sides[side]["counters"] = last["counters"]
        ratios = {"%s / %s" % (a, b): round(sides[b]["median"] / sides[a]["median"], 2)
                  for a, b, _ in PAIRS if a in sides and b in sides}
        out[job] = {"unit": "s", "sides": sides, "ratios": ratios}
    return out


def spent(rounds, job):
    """Seconds that the client's requests to the mounted server took together, by operation, in the median round. Those that
    nobody waited for count as well, so the sum may be more than the job took."""
    at = sorted(rounds, key=lambda r: r[job]["seconds"])[len(rounds) // 2][job]
    times = {op: us * at["rpcs"].get(op, 0) / 1e6 for op, us in at["rtt_us"].items()}
    return {op: round(s, 2) for op, s in sorted(times.items(), key=lambda t: -t[1]) if s >= 0.005}


def table(jobs, sides):
    width = max(len(s) for s in sides) + 2
    head = "%-7s" % "job" + "".join(s.rjust(width) for s in sides)
    row = lambda job, text: "%-7s" % job + "".join(text(jobs[job]["sides"][s]).rjust(width) for s in sides)
    lines = ["median seconds (less is better)", head]
    lines += [row(job, lambda side: "%.1f" % side["median"]) for job in jobs]
    lines += ["", "server CPU, ms per name made", head]
    lines += [row(job, lambda side: "%.2f" % (1e3 * side["server_cpu_s"] / side["files"])) for job in jobs]
    lines += ["", "RPCs per name made, those to data servers included", head]
    lines += [row(job, lambda side: "%.1f" % (sum(side["rpcs"].values()) / side["files"])) for job in jobs]
    if any("server_syncs" in s for j in jobs.values() for s in j["sides"].values()):
        lines += ["", "fsync, fdatasync, ... calls of the server per name made (the file system's own dirsync is no call)", head]
        lines += [row(job, lambda side: "%.2f" % (side["server_syncs"] / side["files"])) for job in jobs]
    lines += ["", "where the client waited for the mounted server: seconds by operation, of the job's"]
    for job, j in jobs.items():
        for name in sides:
            side = j["sides"][name]
            top = "  ".join("%s %.1f" % t for t in list(side["spent"].items())[:6])
            lines.append("%-7s%-18s of %5.1f  %s" % (job, name, side["median"], top))
    lines += ["", "how much faster (1.00 = as fast as the peer)"]
    for a, b, what in PAIRS:
        pair = "%s / %s" % (a, b)
        cells = ["%s %.2f" % (job, j["ratios"][pair]) for job, j in jobs.items() if pair in j["ratios"]]
        if cells:
            lines.append("%-34s %s   (%s)" % (pair, "  ".join(cells), what))
    return "\n".join(lines)
