"""Level (c): mdtest through Linux kernel clients, one and two at once; each is a guest of its own, on one server.

Server and guests stay up for all figures of a mode. How the guests are asked is written in ../mdtest/job.sh.
"""
import csv, math, os, re, shutil, signal, statistics, subprocess, sys, time

from creates import modes
from macro import guest
from macro.sides import ForebaySide

sys.path.insert(0, os.path.dirname(guest.KERNEL_CLIENT))
from rpc_counters import parse_stats

JOB = os.path.join(modes.ROOT, "bench/mdtest")
# The output of ../mdtest/build.
MDTEST = os.environ.get("FOREBAY_BENCH_MDTEST", "/var/tmp/forebay-mdtest")
CLIENTS = [1, 2]
# mdtest counts files, not seconds; so many for each second that is asked for, whatever the rate, so that the directories
# of one run are equally large.
FILES_PER_S = 1000
ITEMS_MIN = 10
BOOT_S, FIGURE_S, ALL_S = 60, 180, 4 * 3600
# The guests' memory is taken from the host as they touch it. For the second option see macro/guest.py.
MEMORY = ["--mem", "1536M", "--sysctl", "vm.min_free_kbytes=131072"]


class Level:
    """A server and two guests; `run` answers a figure for one client and, with creators for both, one for two."""

    NAME, TITLE, MODES, CONSISTENCY = "c", "through kernel clients, mdtest", list(modes.SYNC), modes.CONSISTENCY

    def __init__(self, scratch, mode, consistency):
        self.consistency = consistency
        self.scratch, self.mode, self.process, self.starts = scratch, mode, None, 0

    @staticmethod
    def missing():
        if os.geteuid():
            return "level c needs root (network namespaces, tap devices)"
        if not shutil.which("linux.uml"):
            return "user-mode Linux is not installed (apt-get install user-mode-linux)"
        return modes.built(modes.binary(), "cargo build --release") or modes.built(os.path.join(MDTEST, "mdtest"), "bench/mdtest/build")

    def __enter__(self):
        home = os.path.join(self.scratch, "kernel-clients-%d" % self.starts)
        self.talk, self.out = os.path.join(home, "talk"), os.path.join(home, "output")
        self.asked, self.starts = 0, self.starts + 1
        os.makedirs(self.talk)
        server = ForebaySide("forebay", "", sync=modes.SYNC[self.mode], consistency=self.consistency).start_in(home)
        argv = ["setpriv", "--pdeathsig", "TERM", "nice", "-n", str(guest.NICE), guest.KERNEL_CLIENT, "--quiet", "--clients", str(max(CLIENTS)),
                "--export", "/", "--opts", "vers=4.2", "--server-cmd", server.command(), "--timeout", str(ALL_S), "--rw", self.talk,
                "--hook", "mark=" + guest.CPU_MARK, "--hook", "network=" + guest.NETWORK] + MEMORY
        for name, value in dict(TALK=self.talk, HERE=JOB, MDTEST=MDTEST).items():
            argv += ["--env", "%s=%s" % (name, value)]
        with open(self.out, "wb") as out:
            self.process = subprocess.Popen(argv + ["--", ". %s/job.sh" % JOB], stdout=out, stderr=out)
        return self

    def __exit__(self, *_):
        open(os.path.join(self.talk, "end"), "w").close()
        try:
            self.process.wait(BOOT_S)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait()

    def run(self, directories, creators, seconds):
        return [self.run_again(directories, creators, seconds, clients) for clients in CLIENTS if clients <= creators]

    def run_again(self, *what):
        """Once more with guests made anew, if they hung (their network driver can) or anything else failed."""
        try:
            return self.measure(*what)
        except guest.Failed as failed:
            print("once more: %s" % failed, file=sys.stderr, flush=True)
            self.__exit__()
            self.__enter__()
            try:
                return self.measure(*what)
            except guest.Failed as again:
                raise SystemExit("level c: %s" % again)

    def measure(self, directories, creators, seconds, clients):
        items = max(ITEMS_MIN, math.ceil(seconds * FILES_PER_S / creators))
        answer = self.ask("%s %d %d %d" % (directories, creators, items, clients))
        with open(os.path.join(answer, "said")) as f:
            said = f.read()
        if read(answer, "status") != "0":
            raise guest.Failed("mdtest ended with status %s:\n%s" % (read(answer, "status"), said[-2000:]))
        with open(os.path.join(answer, "ranks.csv")) as f:
            figure = figures(csv.DictReader(f), items * creators)
        return {"level": self.NAME, "clients": clients, "mode": self.mode, "directories": directories, "creators": creators, **figure,
                "errors": len(re.findall(r"WARNING|ERROR", said)), **spent(answer, items * creators)}

    def ask(self, what):
        """The directory with the answer, when it is there."""
        name, self.asked = str(self.asked), self.asked + 1
        put(self.talk, "ask." + name, what)
        answer, deadline = os.path.join(self.talk, name), time.monotonic() + FIGURE_S
        while not os.path.exists(os.path.join(answer, "status")):
            if self.process.poll() is not None or time.monotonic() > deadline:
                with open(self.out, errors="replace") as f:
                    raise guest.Failed("no answer to \"%s\"\n%s" % (what, f.read()[-2000:]))
            time.sleep(0.05)
        return answer


def put(directory, name, text):
    """Under its name when it is whole: somebody waits for the name."""
    path = os.path.join(directory, name)
    with open(path + ".tmp", "w") as f:
        f.write(text + "\n")
    os.rename(path + ".tmp", path)


def read(*path):
    with open(os.path.join(*path)) as f:
        return f.read().strip()


def figures(rows, creates):
    """Of mdtest's table by process: the rates from barrier to barrier, and what one create took its process."""
    rows = list(rows)
    everything = next(row for row in rows if row["rank"] == "all")
    of_all = lambda phase: float(everything["%s-File %s" % phase])
    own_s = [float(row["time-File creation"]) for row in rows if row["rank"] != "all"]
    return {"seconds": round(of_all(("time", "creation")), 3), "creates": creates, "rate": round(of_all(("rate", "creation")), 1),
            "mean_us": round(statistics.mean(own_s) * len(own_s) / creates * 1e6, 1),
            "stat_rate": round(of_all(("rate", "stat")), 1), "remove_rate": round(of_all(("rate", "removal")), 1)}


def spent(answer, creates):
    """From before the first create to before the first stat: the server's CPU time, and the RPCs of all clients by procedure."""
    ticks, rpcs = [], {}
    for client in sorted(name.partition(".")[2] for name in os.listdir(answer) if name.startswith("create.")):
        before, after = (os.path.join(answer, phase + "." + client) for phase in ("create", "stat"))
        if os.path.exists(os.path.join(before, "ticks")):
            ticks.append(int(read(after, "ticks")) - int(read(before, "ticks")))
        counted = parse_stats(before)["proc4"]
        for op, n in parse_stats(after)["proc4"].items():
            rpcs[op] = rpcs.get(op, 0) + n - counted.get(op, 0)
    return {"cpu_us_per_create": round(sum(ticks) / guest.TICKS_PER_S * 1e6 / creates, 1),
            "rpcs_per_create": {op: round(n / creates, 3) for op, n in rpcs.items() if n >= creates / 1000}}
