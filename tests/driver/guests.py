"""Runs one group: a server, one or more booted clients, and the group's cases in them."""
import json, os, re, subprocess, time

from .report import Result
from .server import FAULT, LEASE_S, GRACE_S, POOL_PORT, ROOT, SERVERS

TESTS = os.path.join(ROOT, "tests")
KERNEL_CLIENT = os.path.join(TESTS, "kernel-client/kernel-client")

# Host commands that every job may call with kc-hook, run in the servers' network namespace.
HOOKS = {
    # bytes that clients have sent to and got from a pool's port over connections that are open now
    "pool-bytes": r"""ss -tinH state established "( sport = :$1 )" | grep -o 'bytes_[sr][a-z]*:[0-9]*' |
        awk -F: '{n += $2} END {print n + 0}'""",
    "pool-clients": r"""ss -tnH state established "( sport = :$1 )" | wc -l""",
    # drop: as if the machine had gone; reject: as if the process had gone
    "port-drop": "iptables -A INPUT -p tcp --dport $1 -j DROP",
    "port-reject": "iptables -A INPUT -p tcp --dport $1 -j REJECT --reject-with tcp-reset; ss -K sport = :$1 >/dev/null",
    "port-open": "iptables -F INPUT",
    # a client that nobody hears any more, and its return
    "client-cut": "iptables -A INPUT -s $1 -j DROP; iptables -A OUTPUT -d $1 -j DROP",
    "client-back": "iptables -F INPUT; iptables -F OUTPUT",
}


def case_names(job):
    """The cases of a job file, in the order in which they stand there."""
    with open(os.path.join(TESTS, "guest", job + ".sh")) as f:
        return re.findall(r"^case_(\w+)\(\)", f.read(), re.M)


def read(path):
    try:
        with open(path, errors="replace") as f:
            return "\n".join(f.read().splitlines())
    except OSError:
        return ""


class Run:
    """Logs and files of a group, for the checks after it."""

    def __init__(self, group, server, out, report):
        self.group, self.server, self.out, self.json = group, server, out, report

    def server_log(self):
        return read(os.path.join(self.out, "server0.log"))

    def from_guest(self, name, guest=0):
        return read(os.path.join(self.out, "guest%d/out/%s" % (guest, name)))


def command(group, server, cases, scratch, out):
    hooks = dict(HOOKS, **{n: c.format(data=server.data, scratch=scratch, forebay=getattr(server, "binary", "false"))
                           for n, c in group.hooks.items()})
    job = ". %s/guest/lib.sh; JOB=%s/guest/%s.sh; run_cases" % (TESTS, TESTS, group.job)
    argv = [KERNEL_CLIENT, "--quiet", "--no-mount", "--server-wait", "60", "--server-cmd", server.command(), "--port", str(server.port),
            "--clients", str(group.clients), "--timeout", str(group.limit_s()), "--out", out, "--json", out + ".json",
            "--mem", group.mem,
            # The card's driver spins for ever when it finds no 64 KiB in one piece for what arrives: leave it some.
            "--sysctl", "vm.min_free_kbytes=%d" % (group.min_free_mib << 10)]
    env = dict(CASES=" ".join("case_" + c for c in cases), OPTS=group.opts, TREE=os.path.join(os.path.dirname(scratch), "tree.tar"),
               POOLS=group.pools, POOL_PORT=POOL_PORT, LEASE_S=LEASE_S, GRACE_S=GRACE_S, SERVER=server.name,
               CASE_LIMIT_S=group.case_limit_s, SPEC="10.77.0.1:%d:/" % server.port)
    env.update({n: v.replace("{scratch}", scratch) for n, v in group.env.items()})
    for name, value in env.items():
        argv += ["--env", "%s=%s" % (name, value)]
    for host in group.hosts:
        argv += ["--host", host.format(data=server.data, scratch=scratch, forebay=getattr(server, "binary", "false"))]
    for name, text in hooks.items():
        argv += ["--hook", "%s=%s" % (name, text)]
    for module in group.modules:
        argv += ["--module", module]
    if not group.layout_driver:
        argv.append("--no-layout-driver")
    if os.environ.get("FOREBAY_TEST_KERNEL"):      # another one than the machine's: the file and its modules
        kernel, modules = os.environ["FOREBAY_TEST_KERNEL"].split(":")
        argv += ["--kernel", kernel, "--modules", modules]
    if os.environ.get("FOREBAY_TEST_PCAP"):
        argv += ["--pcap", out + ".pcap"]
    return argv + ["--", job]


def guest_words(out, guest):
    """{case: (word, seconds)} as one guest reported it, and the case during which it ended, if any."""
    words = {}
    for line in read(os.path.join(out, "guest%d/out/results" % guest)).splitlines():
        word, name, seconds = line.split()
        words[name.removeprefix("case_")] = (word, float(seconds))
    return words, read(os.path.join(out, "guest%d/out/current" % guest)).removeprefix("case_")


def without_call_traces(log):
    """The last lines of a case's log, with the names of the kernel's blocked tasks but not their call traces. --keep keeps it whole."""
    return "\n".join([l for l in log.splitlines() if not re.match(r"\[ *\d+\.\d+\]", l) or "task:" in l][-18:])


def collect(group, cases, out, said):
    """One Result per case: the worst word of all guests, with the logs of those that failed."""
    guests = [guest_words(out, g) for g in range(group.clients)]
    for case in cases:
        words, logs, seconds = [], [], 0.0
        for g, (reported, current) in enumerate(guests):
            word, s = reported.get(case, ("FAILED", 0.0))
            if case not in reported and g in group.mortal and current == case:
                word = "ok"          # the job had this guest killed in this case
            words.append(word)
            seconds = max(seconds, s)
            log = without_call_traces(read(os.path.join(out, "guest%d/out/case_%s.log" % (g, case))))
            if word != "ok":
                note = "" if case in reported else ("the guest ended during this case\n" if current == case else "the guest did not get here\n")
                logs.append("[guest %d] %s%s" % (g, note, log))
        word = "FAILED" if "FAILED" in words else "skipped" if "skipped" in words else "ok"
        evidence = "\n".join(logs)
        if word == "FAILED":
            faults = [l for l in read(os.path.join(out, "server0.log")).splitlines() if FAULT.search(l)][-6:]
            evidence += "".join("\nserver: " + l for l in faults)
            if not any(r for r, _ in guests):
                evidence += "\n" + said[-2500:]
        yield Result("%s/%s" % (group.name, case), word, seconds, evidence)


def after(group, server, out, checks):
    report = {}
    try:
        with open(out + ".json") as f:
            report = json.load(f)
    except (OSError, ValueError):
        pass
    run = Run(group, server, out, report)
    for name, check in checks:
        t0 = time.monotonic()
        try:
            fault = check(run)
        except Exception as e:      # a check that cannot look has not seen that all is well
            fault = "%s: %s" % (type(e).__name__, e)
        yield Result("%s/%s" % (group.name, name), "FAILED" if fault else "ok", time.monotonic() - t0, fault or "")


def run_group(group, cases, checks, kind, scratch_root):
    """Boots, runs and yields the Results of one group."""
    scratch = os.path.join(scratch_root, group.name)
    os.makedirs(scratch)
    os.chmod(scratch, 0o777 if group.user else 0o755)
    out = os.path.join(scratch, "out")
    server = SERVERS[kind](scratch, group.pools, group.server_args, group.config.replace("{scratch}", scratch), group.user, group.port)
    undo = group.prepare(server) if group.prepare else None
    try:
        r = subprocess.run(command(group, server, cases, scratch, out), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True, errors="replace")
        yield from collect(group, cases, out, r.stdout)
        if kind == "forebay":
            yield from after(group, server, out, checks)
    finally:
        if undo:
            undo()
