"""Shared by scenarios without guests: the server on free ports of loopback as a user starts it, and their runner."""
import contextlib, itertools, os, random, re, shutil, signal, socket, subprocess, threading, time

from .report import Result
from .server import FAULT, Forebay, own_variables

USER = 4321      # neither root nor the nobody that root is squashed to
WAIT_S = 15
# Below the range from which the kernel takes the ports of connections, so that none of these takes a server's.
PORTS = range(10000, 32000)


class FreePorts:
    """Gives each port once in a run: a server that is about to start holds its ports only by having been given them."""

    def __init__(self, ports):
        self.lock, begin = threading.Lock(), random.randrange(len(ports))
        self.ports = itertools.chain(ports[begin:], ports[:begin])

    def take(self, count=1):
        """The first of `count` ports in a row that nobody listens on."""
        row = []
        with self.lock:
            for port in self.ports:
                with contextlib.closing(socket.socket()) as probe:
                    try:
                        probe.bind(("127.0.0.1", port))
                    except OSError:
                        row = []
                        continue
                row = (row if row and row[-1] == port - 1 else []) + [port]
                if len(row) == count:
                    return row[0]
        raise Failed("no %d ports in a row are left of %r" % (count, PORTS))


FREE_PORTS = FreePorts(PORTS)


class Failed(Exception):
    pass


class Skipped(Exception):
    """The scenario cannot say anything on this machine."""


def check(fact, says):
    if not fact:
        raise Failed(says)


def same(what, have, want):
    check(have == want, "%s: have %.300r, want %.300r" % (what, have, want))


def within(limit_s, fact, says):
    """Waits until `fact()` holds; `says` is text or makes it."""
    end = time.monotonic() + limit_s
    while True:
        found = fact()
        if found:
            return found
        if time.monotonic() > end:
            raise Failed("not within %s s: %s" % (limit_s, says() if callable(says) else says))
        time.sleep(0.02)


class Up:
    """`forebay up` on free ports of loopback, stopped when the scenario is over."""

    def __init__(self, place, *extra, data=None, user=None, port=None, config="", pools=1, login=None, scheme="http"):
        self.place, self.data = place, data or os.path.join(place.dir, "data")
        self.port, self.http, self.pool = port or place.free_port(), place.free_port(), place.free_port(pools)
        self.scheme, self.given_login = scheme, login
        number = len(os.listdir(place.dir))
        self.log = os.path.join(place.dir, "log.%d" % number)
        argv = [place.binary, "up", "--data", self.data, "--nfs-port", str(self.port), "--pool-port", str(self.pool),
                "--http-port", str(self.http)]
        if pools > 1:
            argv += ["--pools", str(pools)]
        if "--config" in extra:
            self.config = extra[extra.index("--config") + 1]
        else:
            self.config = os.path.join(place.dir, "config.%d.toml" % number)
            with open(self.config, "w") as f:
                f.write(config)
            argv += ["--config", self.config]
        if user:
            argv = ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups"] + argv
        own = own_variables(os.path.join(place.dir, self.config))
        env = {name: value for name, value in os.environ.items() if name not in own}
        with open(self.log, "w") as f:
            self.process = subprocess.Popen(argv + list(extra), stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT,
                                            cwd=place.dir, env=env)
        place.servers.append(self)

    @property
    def url(self):
        return "%s://127.0.0.1:%d" % (self.scheme, self.http)

    @property
    def login(self):
        """(user, password) of the first start."""
        if not self.given_login:
            found = within(WAIT_S, lambda: re.search(r"^  login .* the password is in (.+)$", self.said(), re.M), "the banner names no login")
            with open(found.group(1)) as f:
                self.given_login = tuple(f.read().strip().split(":", 1))
        return self.given_login

    def said(self):
        with open(self.log, errors="replace") as f:
            return f.read()

    def ready(self):
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            check(self.process.poll() is None, "ended with %s before it listened:\n%s" % (self.process.returncode, self.said()))
            # The ports are taken before anything else is done; the banner is what says that all of it runs.
            if re.search(r"^  stop ", self.said(), re.M):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                    return self
            time.sleep(0.02)
        raise Failed("does not listen after %d s:\n%s" % (WAIT_S, self.said()))

    def stop(self, sig=signal.SIGTERM):
        """Seconds that it took to stop."""
        t0 = time.monotonic()
        self.process.send_signal(sig)
        try:
            self.process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Failed("still runs %d s after signal %d:\n%s" % (WAIT_S, sig, self.said()))
        return time.monotonic() - t0

    def refuses(self, *words):
        """It must end by itself, not with success, and say why in one line that names one of `words`."""
        try:
            code = self.process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            raise Failed("started although it should refuse:\n" + self.said())
        said = self.said().strip()
        check(code not in (0, None) and code > 0, "exit status %s, said: %s" % (code, said))
        check("panicked" not in said, "it panicked: " + said)
        check(any(w in said.lower() for w in words), "says nothing of %s: %s" % (" or ".join(words), said))
        check(len(said.splitlines()) <= 2, "more than one clear line:\n" + said)

    def memory(self, what="VmRSS"):
        """KiB of the process; `VmHWM` is the most that it ever had."""
        with open("/proc/%d/status" % self.process.pid) as f:
            return int(re.search(what + r":\s+(\d+)", f.read()).group(1))

    def replicas(self):
        """Files with data under the pools, named or not."""
        pools = os.path.join(self.data, "pools")
        return [os.path.join(top, f) for pool in os.listdir(pools) for top, _, files in os.walk(os.path.join(pools, pool, "data"))
                for f in files]


class ScratchDirectory:
    """A scratch directory with the binary where any user can execute it."""

    def __init__(self, path, binary):
        self.dir, self.servers, self.undo, self.allowed_log = path, [], [], ()
        os.makedirs(path)
        os.chmod(path, 0o777)
        self.binary = binary

    def free_port(self, count=1):
        """The first of `count` ports in a row that nobody listens on and no server of this run was given."""
        return FREE_PORTS.take(count)

    def path(self, name):
        return os.path.join(self.dir, name)

    def run(self, *argv, user=None):
        pre = ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups"] if user else []
        return subprocess.run(pre + [self.binary] + list(argv), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=30, cwd=self.dir)

    def end_well(self):
        """After any scenario the servers stop when told, logged nothing unannounced, and left sound data."""
        running = [s for s in self.servers if s.process.poll() is None]
        for server in running:
            server.stop()
            same("exit status of the server", server.process.returncode, 0)
        for server in self.servers:
            bad = [l for l in server.said().splitlines() if FAULT.search(l) and not any(a in l for a in self.allowed_log)]
            check(not bad, "the server logged:\n" + "\n".join(bad[:20]))
        for data, config in {s.data: s.config for s in running}.items():
            fsck = self.run("fsck", "--data", data, "--config", config)
            check(fsck.returncode == 0, "fsck: " + fsck.stdout)

    def close(self):
        for server in self.servers:
            if server.process.poll() is None:
                server.process.kill()
                server.process.wait()
        for step in reversed(self.undo):
            step()


def run(group, scenarios, chosen, scratch, ends_well=True, keeps=False):
    """Yields one Result per chosen scenario. Each has a directory and servers of its own. The directory is removed: the journals
    of the servers of all scenarios would take some 20 GB."""
    chosen = [s for s in scenarios if s.__name__ in chosen]
    if not chosen:
        return
    binary = os.path.join(scratch, "forebay")
    if not os.path.exists(binary):
        shutil.copy(Forebay(scratch).binary, binary)
        os.chmod(binary, 0o755)
    for scenario in chosen:
        place = ScratchDirectory(os.path.join(scratch, group, scenario.__name__), binary)
        t0, word, why = time.monotonic(), "ok", ""
        try:
            scenario(place)
            if ends_well:
                place.end_well()
        except Skipped as e:
            word, why = "skipped", str(e)
        except Failed as e:
            word, why = "FAILED", str(e)
        except Exception as e:
            word, why = "FAILED", "%s: %s" % (type(e).__name__, e)
        try:
            place.close()
            if not keeps:
                shutil.rmtree(place.dir, ignore_errors=True)
        except Exception as e:
            word, why = "FAILED", "%s%sclosing: %s: %s" % (why, "; " if why else "", type(e).__name__, e)
        yield Result("%s/%s" % (group, scenario.__name__), word, time.monotonic() - t0, why)
