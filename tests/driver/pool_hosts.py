#!/usr/bin/env python3
"""pool_hosts.py FOREBAY DATA SCRATCH VERB [ARG...] -- what the job `cluster` asks of the host about pools on other hosts.

It runs as a hook, in the head's network namespace. One call does all that it can: a hook costs a guest some 0.3 s.
"""
import hashlib, json, os, re, subprocess, sys, time

HEAD = "10.77.0.1"
POOL_PORT = 20491          # at each host: each has an address of its own
PERIOD_S = 0.2


class Hosts:
    def __init__(self, binary, data, scratch):
        self.binary, self.data, self.scratch = binary, data, scratch

    def forebay(self, *argv):
        return subprocess.run([self.binary, *argv, "--data", self.data], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def report(self, *argv):
        """What a command says as JSON; None if nothing runs."""
        told = self.forebay(*argv, "--json")
        return json.loads(told.stdout) if told.returncode == 0 else None

    def at(self, number, *argv):
        where = ["ip", "netns", "exec", "%s-%s" % (os.environ["KC_NETNS"], number)]
        return subprocess.run(where + list(argv), stdout=subprocess.PIPE, check=True, text=True).stdout

    def path(self, name, number):
        return os.path.join(self.scratch, "%s.%s" % (name, number))

    def banners(self, number):
        try:
            with open(self.path("host", number) + ".log") as f:
                return len(re.findall(r"^  pool +pool-%s of " % number, f.read(), re.M))
        except OSError:
            return 0

    def replicas(self, number, size):
        """Files of this size in the pool's directory."""
        top = os.path.join(self.data, "pools/pool-0") if number == 0 else os.path.join(self.scratch, "pool-%d" % number)
        found = []
        for directory, _, files in os.walk(top):
            if "/data" in directory:
                found += [p for p in (os.path.join(directory, f) for f in files) if os.stat(p).st_size == size]
        return found


def within(limit_s, fact, says):
    end, began = time.monotonic() + float(limit_s), time.monotonic()
    while not fact():
        if time.monotonic() > end:
            sys.exit("not within %s s: %s" % (limit_s, says()))
        time.sleep(PERIOD_S)
    return time.monotonic() - began


def begin(hosts, number):
    """Before a host's server is started: it joins by a token if it has not joined."""
    with open(hosts.path("banners", number), "w") as f:
        f.write(str(hosts.banners(number)))
    if not os.path.exists(hosts.path("joined", number)):
        token = hosts.report("cluster", "token") or sys.exit(hosts.forebay("cluster", "token").stdout)
        with open(hosts.path("join", number), "w") as f:
            f.write("--join " + token["token"])


def admitted(hosts, *numbers):
    """Each host, in turn, has printed a banner since it was begun."""
    for number in numbers:
        with open(hosts.path("banners", number)) as f:
            before = int(f.read())
        said = lambda: open(hosts.path("host", number) + ".log").read()[-1500:]
        within(40, lambda: hosts.banners(number) > before, said)
        if os.path.exists(hosts.path("join", number)):
            os.rename(hosts.path("join", number), hosts.path("joined", number))


def are(hosts, limit_s, standings, *numbers):
    """Waits until all of them have one of the standings, `ready` or `suspect,out`."""
    def now():
        report = hosts.report("cluster", "status") or {"pools": []}
        return {p["name"]: p["standing"] for p in report["pools"]}
    took = within(limit_s, lambda: all(now().get("pool-" + n) in standings.split(",") for n in numbers),
                  lambda: "want %s: %s" % (standings, hosts.forebay("cluster", "status").stdout))
    print("after %.1f s: %s" % (took, now()))


def place(hosts, *numbers):
    """New files go to these pools and to no other."""
    def listed():
        return {p["name"]: p for p in hosts.report("pool", "list")["pools"]}
    wanted = {"pool-%d" % n: str(n) not in numbers for n in range(4)}
    for name, pool in listed().items():
        if pool["drained"] != wanted[name]:
            told = hosts.forebay("pool", *(("drain", "--keep-files") if wanted[name] else ("enable",)), name)
            if told.returncode:
                sys.exit(told.stdout)
    within(60, lambda: all(not want or re.search(r"^%s +(\S+ +)?drained" % name, hosts.forebay("pool", "list").stdout, re.M)
                           for name, want in wanted.items()), lambda: hosts.forebay("pool", "list").stdout)


def pools_of(hosts, *sizes):
    """Where replicas of these sizes lie: a line for each."""
    for size in sizes:
        print(*[n for n in range(4) if hosts.replicas(n, int(size))])


def sizes_are_gone(hosts, limit_s, *sizes):
    left = lambda: [(n, s) for n in range(4) for s in sizes if hosts.replicas(n, int(s))]
    print("after %.1f s: the replicas are gone" % within(limit_s, lambda: not left(), lambda: "(pool, size): %s" % left()))


def replica_sum(hosts, number, size):
    for path in hosts.replicas(int(number), int(size)):
        with open(path, "rb") as f:
            print(hashlib.sha256(f.read()).hexdigest())


def client_bytes(hosts, *numbers):
    """What clients have sent to and got from the hosts' NFS ports over connections that are open now."""
    open_now = [hosts.at(n, "ss", "-tinH", "state", "established", "( sport = :%d )" % POOL_PORT) for n in numbers]
    print(sum(int(n) for n in re.findall(r"bytes_(?:sent|received):(\d+)", "\n".join(open_now))))


def cut(hosts, number):
    """The host and the head do not reach each other; clients reach both."""
    for words in (("INPUT", "-s"), ("OUTPUT", "-d")):
        hosts.at(number, "iptables", "-A", *words, HEAD, "-j", "DROP")


def heal(hosts, *numbers):
    for number in numbers:
        hosts.at(number, "iptables", "-F")


def status(hosts):
    print(hosts.forebay("cluster", "status").stdout, hosts.forebay("pool", "list").stdout, sep="")


def fsck(hosts):
    told = hosts.forebay("fsck")
    print(told.stdout)
    sys.exit(told.returncode)


VERBS = {v.__name__: v for v in (begin, admitted, are, place, pools_of, sizes_are_gone, replica_sum, client_bytes, cut, heal, status, fsck)}

if __name__ == "__main__":
    VERBS[sys.argv[4]](Hosts(*sys.argv[1:4]), *sys.argv[5:])
