"""The two sides: one process with its own pools, and a head with pools of pool hosts. Both have as many pools, on the same disk.

Pool 0 of each is drained, so that all files of the side `cluster` lie on pool hosts, and those of `one` on as many pools.
"""
import json, os, re, signal, subprocess, time

from streams.sides import CPUCLOCK_SCHED, go_first
from web import servers
from .client import PNFS_DS, Session

NFS_PORT, POOL_PORT = 2049, 20491
START_S = 60
PERIOD_S = 0.1
# Hosts of all sides in the network.
CLIENT, ONE, AGAIN, HEAD = "client", "one", "again", "head"


def addresses(pools):
    """The number of each host's address."""
    return {CLIENT: 2, ONE: 10, AGAIN: 11, HEAD: 20, **{host_of(n): 20 + n for n in range(1, pools + 1)}}


def host_of(number):
    return "host%d" % number


class Process:
    """A server that is started, killed and asked for its CPU."""

    def __init__(self, network, host, argv, log):
        self.network, self.host, self.argv, self.log, self.process = network, host, argv, log, None

    def start(self, ready, extra=()):
        """`ready`: a line of its banner, as a pattern."""
        before = len(re.findall(ready, self.said(), re.M))
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.network.at(self.host) + servers.NICE + self.argv + list(extra),
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        end = time.monotonic() + START_S
        while len(re.findall(ready, self.said(), re.M)) == before:
            if self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit("bench/cluster: %s does not start:\n%s" % (" ".join(self.argv), self.said()[-2000:]))
            time.sleep(0.01)
        go_first(self.process)

    def said(self):
        if not os.path.exists(self.log):
            return ""
        with open(self.log, errors="replace") as f:
            return f.read()

    def send(self, signal_number):
        self.process.send_signal(signal_number)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()

    def cpu_s(self):
        """By the CPU clock of the process, in nanoseconds."""
        return time.clock_gettime(~self.process.pid << 3 | CPUCLOCK_SCHED)


class Setup:
    """A server for clients, at `address`, with `pools` pools besides the drained one."""

    def __init__(self, network, scratch, binary, pools):
        self.network, self.binary, self.pools = network, binary, pools
        self.home = os.path.join(scratch, self.name)
        os.makedirs(self.home)
        self.data = os.path.join(self.home, "data")
        self.config = os.path.join(self.home, "forebay.toml")
        self.address = network.address(self.host), NFS_PORT
        self.pool_processes = []

    def head_command(self, more, lines=""):
        with open(self.config, "w") as f:
            f.write("[http]\nenabled = false\n" + lines)
        argv = [self.binary, "up", "--data", self.data, "--listen", self.address[0], "--nfs-port", str(NFS_PORT), "--pool-port", str(POOL_PORT),
                "--no-root-squash", "--config", self.config]
        self.head = Process(self.network, self.host, argv + more, os.path.join(self.home, "head.log"))

    def start_head(self):
        self.head.start(r"^  stop ")

    def forebay(self, *argv):
        """What a command says as JSON."""
        done = subprocess.run([self.binary, *argv, "--data", self.data, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise SystemExit("bench/cluster: forebay %s: %s%s" % (" ".join(argv), done.stdout, done.stderr))
        return json.loads(done.stdout)

    def place_on(self, numbers):
        """New files go to these pools and to no other."""
        for pool in self.forebay("pool", "list")["pools"]:
            is_wanted = int(pool["name"].rpartition("-")[2]) in numbers
            if pool["drained"] == is_wanted:
                told = subprocess.run([self.binary, "pool", "enable" if is_wanted else "drain", pool["name"], "--data", self.data],
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                if told.returncode:
                    raise SystemExit("bench/cluster: " + told.stdout)

    def place_on_all(self):
        self.place_on(range(1, self.pools + 1))

    def session(self, **how):
        return Session(lambda: self.network.connect(CLIENT, self.address), **how)

    def pool_session(self, address, layout):
        """A session at the pool of a layout, with the layout's user."""
        return Session(lambda: self.network.connect(CLIENT, address), flags=PNFS_DS, user=(layout.user, layout.group))

    def cpu_s(self):
        """Of the process that clients mount."""
        return self.head.cpu_s()

    def pools_cpu_s(self):
        return sum(process.cpu_s() for process in self.pool_processes)

    def stop(self):
        for process in [getattr(self, "head", None)] + self.pool_processes:
            if process:
                process.stop()


class OneProcess(Setup):
    name = host = ONE
    about = "one process, forebay up, with its own pools"

    def start(self):
        self.head_command(["--pools", str(self.pools + 1)])
        self.start_head()
        self.place_on_all()

    def processes_of_pools(self):
        return [self.head]

    def restart(self):
        self.head.stop()
        self.start_head()


class Control(OneProcess):
    name = host = AGAIN
    about = "a second process as `one`: the two differ by the noise of the run"


class Cluster(Setup):
    name, host = "cluster", HEAD
    about = "a head, forebay up --cluster, and a pool host for each pool"

    def start(self):
        self.head_command(["--cluster"], '[cluster]\naddress = "%s"\n' % self.address[0])
        self.start_head()
        for number in range(1, self.pools + 1):
            argv = [self.binary, "pool", "up", "--data", os.path.join(self.home, host_of(number)), "--listen", self.network.address(host_of(number))]
            process = Process(self.network, host_of(number), argv, os.path.join(self.home, host_of(number) + ".log"))
            self.pool_processes.append(process)
            process.start(POOL_IS_READY, ["--join", self.forebay("cluster", "token")["token"]])
        self.wait_until_ready()
        self.place_on_all()

    def processes_of_pools(self):
        return self.pool_processes

    def restart(self):
        self.stop()
        self.start_head()
        for number in range(1, self.pools + 1):
            self.start_pool(number)
        self.wait_until_ready()

    def start_pool(self, number):
        """Again, after it was killed."""
        self.pool_processes[number - 1].start(POOL_IS_READY)

    def status(self):
        """By the number of the pool, as `forebay cluster status` tells."""
        return {int(p["name"].rpartition("-")[2]): p for p in self.forebay("cluster", "status")["pools"]}

    def wait_until_ready(self, limit_s=START_S):
        began = time.monotonic()
        while any(p["standing"] != "ready" or p["lease_s"] <= 0 for p in self.status().values()):
            if time.monotonic() > began + limit_s:
                raise SystemExit("bench/cluster: the pools are not ready: %s" % self.status())
            time.sleep(PERIOD_S)
        return time.monotonic() - began

    def calls(self):
        """Calls of the head to all pools so far, by procedure."""
        total = {}
        for pool in self.status().values():
            for procedure, count in pool["calls"].items():
                total[procedure] = total.get(procedure, 0) + count
        return total


POOL_IS_READY = r"^  pool +pool-\d+ of "
