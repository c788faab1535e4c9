#!/usr/bin/env python3
"""pgbench -- the peer of the create bench: the statements that dCache's Chimera sends for a create, by pgbench.

Makes a PostgreSQL cluster of its own with Debian's binaries, on a Unix socket only, runs ../pgbench/create.sql on fresh
tables and removes everything. `durable`: fsync and synchronous_commit are on, a create is answered when the log is on
disk. `interval`: synchronous_commit is off, the last three wal_writer_delay (0.6 s) may be lost by a power cut.
"""
import argparse, glob, json, math, os, pwd, re, shutil, signal, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
sys.dont_write_bytecode = True
from macro import machine

SCRIPTS = os.path.join(os.path.dirname(HERE), "pgbench")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
USER = "bench"
MODES = {"durable": "on", "interval": "off"}
DIRECTORIES_MAX = 64        # as many as schema.sql makes
# Large enough that no checkpoint falls into a run of seconds; everything else is PostgreSQL's default.
SETTINGS = {"listen_addresses": "", "fsync": "on", "shared_buffers": "512MB", "max_wal_size": "8GB", "checkpoint_timeout": "1h", "max_connections": "100"}


def installed():
    """The newest of Debian's PostgreSQL, or an end with a sentence."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/pgbench"), key=lambda path: int(path.split("/")[4]))
    if not found:
        raise SystemExit("pgbench: PostgreSQL is not installed (apt-get install postgresql-15)")
    return os.path.dirname(found[-1])


class Cluster:
    """A server with a data directory of its own; `with` starts it and removes it. PostgreSQL refuses to run as root."""

    def __init__(self, parent=None):
        self.programs, self.process = installed(), None
        self.home = tempfile.mkdtemp(prefix="forebay-bench-pg-", dir=parent or os.environ.get("FOREBAY_TEST_DIR", "/var/tmp"))
        self.drop = []
        if os.geteuid() == 0:
            account = pwd.getpwnam("postgres")
            os.chown(self.home, account.pw_uid, account.pw_gid)
            self.drop = ["setpriv", "--reuid=%d" % account.pw_uid, "--regid=%d" % account.pw_gid, "--clear-groups", "--"]

    def __enter__(self):
        try:
            data, log = os.path.join(self.home, "data"), os.path.join(self.home, "output")
            subprocess.run(self.drop + [self.program("initdb"), "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C"], check=True, stdout=subprocess.DEVNULL, cwd="/")
            settings = [word for pair in SETTINGS.items() for word in ("-c", "%s=%s" % pair)]
            # Should the bench be killed, the server ends as by `pg_ctl stop -m fast`.
            argv = ["setpriv", "--pdeathsig", "INT", "--", self.program("postgres"), "-D", data, "-k", self.home] + settings
            with open(log, "wb") as output:
                self.process = subprocess.Popen(self.drop + argv, stdout=output, stderr=output, cwd="/")
            self.wait_until_ready(log)
            return self
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.send_signal(signal.SIGQUIT)
                self.process.wait()
        shutil.rmtree(self.home, ignore_errors=True)

    def program(self, name):
        return os.path.join(self.programs, name)

    def wait_until_ready(self, log):
        deadline = time.monotonic() + 60
        while subprocess.run([self.program("pg_isready"), "-q", "-h", self.home]).returncode != 0:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("pgbench: PostgreSQL does not start:\n" + machine.read(log)[-2000:])
            time.sleep(0.05)

    def version(self):
        return subprocess.run([self.program("postgres"), "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()

    def url(self):
        return "postgres:///postgres?user=%s&host=%s" % (USER, self.home)

    def sql(self, *arguments):
        subprocess.run([self.program("psql"), "-q", "-X", "-v", "ON_ERROR_STOP=1", "-h", self.home, "-U", USER, "-d", "postgres"] + list(arguments),
                       check=True, env={**os.environ, "PGOPTIONS": "-c client_min_messages=warning"})

    def cpu_s(self):
        """User and system time of the server: of the processes that live and of those that the first one has waited for."""
        return sum(sum(ticks) for parent, pid, ticks in processes() if self.process.pid in (parent, pid)) / TICKS_PER_S

    def fdatasync_us(self):
        """The median of an append of 4 KiB and fdatasync on the same disk."""
        path = os.path.join(self.home, "appended")
        fd = os.open(path, os.O_CREAT | os.O_WRONLY)
        try:
            return machine.timed(100, lambda i: (os.write(fd, bytes(4096)), os.fdatasync(fd)))
        finally:
            os.close(fd)
            os.unlink(path)


def processes():
    """(parent, pid, ticks of itself and of its children that ended) of each."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = machine.read("/proc/%s/stat" % pid).rpartition(")")[2].split()
        except OSError:
            continue
        yield int(words[1]), int(pid), [int(word) for word in words[11:15]]


def run(cluster, mode, directories, creators, seconds):
    """One figure, with the keys of `forebay-load`."""
    if directories == "own" and creators > DIRECTORIES_MAX:
        raise SystemExit("pgbench: at most %d directories" % DIRECTORIES_MAX)
    cluster.sql("-f", os.path.join(SCRIPTS, "schema.sql"))
    before, logs = cluster.fdatasync_us(), tempfile.mkdtemp(prefix="logs-", dir=cluster.home)
    try:
        argv = [cluster.program("pgbench"), "-n", "-h", cluster.home, "-U", USER, "-M", "prepared", "-f", os.path.join(SCRIPTS, "create.sql"),
                "-c", str(creators), "-j", str(min(creators, 2)), "-T", str(seconds), "-D", "own=%d" % (directories == "own"), "-D", "serial=0",
                "-l", "--log-prefix=" + os.path.join(logs, "each"), "postgres"]
        cpu = cluster.cpu_s()
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PGOPTIONS": "-c synchronous_commit=" + MODES[mode]})
        cpu = cluster.cpu_s() - cpu
        if done.returncode != 0:
            raise SystemExit("pgbench: " + done.stderr)
        latencies = sorted(us for path in glob.glob(os.path.join(logs, "each*")) for us in logged(machine.read(path)))
    finally:
        shutil.rmtree(logs)
    creates, rate, errors = parse(done.stdout)
    return {"level": "pgbench", "mode": mode, "directories": directories, "creators": creators, "seconds": round(creates / rate, 3),
            "creates": creates, "rate": round(rate, 1), "mean_us": round(sum(latencies) / max(1, len(latencies)), 1),
            "p50_us": percentile(latencies, 0.5), "p99_us": percentile(latencies, 0.99), "max_us": latencies[-1] if latencies else 0, "errors": errors,
            "cpu_us_per_create": round(cpu * 1e6 / max(1, creates), 1), "fdatasync_us": {"before": before, "after": cluster.fdatasync_us()}}


def parse(text):
    """(transactions, per second, failed) out of what pgbench prints."""
    def number(pattern):
        found = re.search(pattern, text, re.M)
        if not found:
            raise SystemExit("pgbench says what this does not understand:\n" + text)
        return float(found.group(1))
    return (int(number(r"^number of transactions actually processed: (\d+)")), number(r"^tps = ([\d.]+) \(without"),
            int(number(r"^number of failed transactions: (\d+)")))


def logged(text):
    """Microseconds of each transaction that was logged: the third word of a line."""
    return [int(line.split()[2]) for line in text.splitlines()]


def percentile(ordered, share):
    """The smallest value that so large a share does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0


def main():
    p = argparse.ArgumentParser(prog="bench/creates/pgbench.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--creators", type=int, action="append", metavar="N", help="clients (repeatable) [32]")
    p.add_argument("--directory", action="append", choices=["shared", "own"], help="[both]")
    p.add_argument("--mode", action="append", choices=list(MODES), help="[durable]")
    p.add_argument("--seconds", type=int, default=10, metavar="S", help="length of each run [10]")
    opt = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))      # so that the server and its directory go
    with Cluster() as cluster:
        for mode in opt.mode or ["durable"]:
            for directories in opt.directory or ["shared", "own"]:
                for creators in opt.creators or [32]:
                    print(json.dumps(run(cluster, mode, directories, creators, opt.seconds)), flush=True)


if __name__ == "__main__":
    main()
