"""Clients that change files by HTTP and remember what was acknowledged, and servers on disks that fail under them."""
import base64, contextlib, http.client, os, random, shutil, signal, subprocess, threading, time

from .disks import Disk, quietly
from .loopback import Failed, Up, check, within

WORKERS, NAMES = 4, 10
SIZES = (1, 100, 4096, 70_000, 300_000)
CONFIG = "[nfs]\nlease_s = 2\ngrace_s = 2\n[log]\nlevel = \"info\"\n"


def content(seed):
    rng = random.Random(seed)
    return rng.randbytes(rng.choice(SIZES))


class Worker(threading.Thread):
    """Changes a few names of its own. Knows every state of them since the last check, and which of these were acknowledged when."""

    def __init__(self, up, number, seed, state):
        super().__init__(daemon=True)
        self.up, self.number, self.rng, self.ends = up, number, random.Random(seed), threading.Event()
        self.states = [(0.0, dict(state))]      # (when it was acknowledged, {name: seed of its content})
        self.begun = None                       # what the request under way would make of it
        self.fault = None

    def ask(self, connection, method, name, body=None, headers=()):
        login = base64.b64encode(":".join(self.up.login).encode()).decode()
        path = "/w%d/%s" % (self.number, name)
        connection.request(method, path, body, dict(headers, Authorization="Basic " + login))
        answer = connection.getresponse()
        return answer.status, answer.read()

    def step(self, connection):
        state, name = dict(self.states[-1][1]), "n%d" % self.rng.randrange(NAMES)
        what = self.rng.random()
        if name in state and what < 0.2:
            del state[name]
            request = ("DELETE", name)
        elif name in state and what < 0.35:
            to = "n%d" % self.rng.randrange(NAMES)
            if to == name:
                return
            state[to] = state.pop(name)
            request = ("MOVE", name, None, {"Destination": "/w%d/%s" % (self.number, to)})
        else:
            state[name] = self.rng.random()
            request = ("PUT", name, content(state[name]))
        self.begun = state
        status, said = self.ask(connection, *request)
        if self.ends.is_set():
            return
        if status not in (200, 201, 204):
            raise Failed("%s %s: %d %.200r" % (request[0], name, status, said))
        self.states.append((time.monotonic(), state))
        self.begun = None

    def run(self):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.up.http, timeout=30)
            while not self.ends.is_set():
                self.step(connection)
        except Exception as error:
            if not self.ends.is_set():
                self.fault = error

    def found(self, up):
        """The files that the server has now: {name: content}."""
        self.up, there = up, {}
        connection = http.client.HTTPConnection("127.0.0.1", up.http, timeout=30)
        for n in range(NAMES):
            name = "n%d" % n
            status, body = self.ask(connection, "GET", name)
            check(status in (200, 404), "GET /w%d/%s: %d %.200r" % (self.number, name, status, body))
            if status == 200:
                there[name] = body
        return there

    def verify(self, up, lost_since):
        """Finds the state that the server has; it must be the last one acknowledged before `lost_since`, or a later one."""
        there = self.found(up)
        allowed = [i for i, (_, _) in enumerate(self.states)
                   if i + 1 == len(self.states) or self.states[i + 1][0] > lost_since]
        states = [self.states[i][1] for i in allowed] + ([self.begun] if self.begun is not None else [])
        for state in reversed(states):
            if set(state) == set(there) and all(there[n] == content(s) for n, s in state.items()):
                return state
        raise Failed(self.differences(there, states))

    def differences(self, there, states):
        lines = ["/w%d is in none of the %d states that it may be in; against the last acknowledged:" % (self.number, len(states))]
        last = self.states[-1][1]
        for name in sorted(set(there) | set(last)):
            body, want = there.get(name), last.get(name)
            if want is None or body is None or body != content(want):
                lines.append("  %s: %s, want %s" % (name, self.told(body), "nothing" if want is None else "%d bytes" % len(content(want))))
        return "\n".join(lines)

    def told(self, body):
        if body is None:
            return "absent"
        if not body.strip(b"\0"):
            return "%d zero bytes" % len(body)
        for age, (_, state) in enumerate(reversed(self.states)):
            for name, seed in state.items():
                if body == content(seed):
                    return "%d bytes, which were %s's %d changes ago" % (len(body), name, age)
        return "%d bytes that were never written" % len(body)


EXECUTABLE = ('<propertyupdate xmlns="DAV:"><set><prop><executable xmlns="http://apache.org/dav/props/">%s</executable>'
              "</prop></set></propertyupdate>")
IS_EXECUTABLE = '<propfind xmlns="DAV:"><prop><executable xmlns="http://apache.org/dav/props/"/></prop></propfind>'


class ModeWorker(Worker):
    """Changes modes as well: {name: (seed of its content, whether it is executable)}. Programs may be made of files before that is on disk."""

    def __init__(self, *args):
        super().__init__(*args)
        self.kept = 0                           # the first state that may be found: the last change that waited for the disk made it

    def step(self, connection):
        state, name, what = dict(self.states[-1][1]), "n%d" % self.rng.randrange(NAMES), self.rng.random()
        seed, executable = state.get(name, (None, False))
        waits = True
        if name in state and what < 0.7:
            state[name] = (seed, not executable)
            request = ("PROPPATCH", name, EXECUTABLE % ("F" if executable else "T"))
            waits = executable                  # a right is taken away
        elif name in state and what < 0.8:
            del state[name]
            request = ("DELETE", name)
        else:
            state[name] = (self.rng.random(), executable)
            request = ("PUT", name, content(state[name][0]))
        self.begun = state
        status, said = self.ask(connection, *request)
        if self.ends.is_set():
            return
        if status not in (201, 204) and not (status == 207 and b"200 OK" in said):
            raise Failed("%s %s: %d %.200r" % (request[0], name, status, said))
        self.states.append((time.monotonic(), state))
        self.begun = None
        if waits:
            self.kept = len(self.states) - 1

    def verify(self, up, lost_since):
        """The state that the server has: that of the last change which waited, or a later one, and no mixture of two."""
        there, connection = {}, http.client.HTTPConnection("127.0.0.1", up.http, timeout=30)
        for name, body in self.found(up).items():
            status, said = self.ask(connection, "PROPFIND", name, IS_EXECUTABLE, {"Depth": "0"})
            check(status == 207, "PROPFIND /w%d/%s: %d %.200r" % (self.number, name, status, said))
            there[name] = (body, b">T<" in said)
        states = [state for _, state in self.states[self.kept:]] + ([self.begun] if self.begun is not None else [])
        for state in reversed(states):
            if there == {name: (content(seed), executable) for name, (seed, executable) in state.items()}:
                return state
        shown = lambda files: ", ".join("%s: %d bytes%s" % (n, len(b), " executable" if x else "") for n, (b, x) in sorted(files.items()))
        wanted = {name: (content(seed), executable) for name, (seed, executable) in states[-1].items()}
        raise Failed("/w%d is in none of the %d states that it may be in; it has %s; the last was %s"
                     % (self.number, len(states), shown(there), shown(wanted)))


def prepare(up):
    for n in range(WORKERS):
        worker = Worker(up, n, 0, {})
        status, said = worker.ask(http.client.HTTPConnection("127.0.0.1", up.http, timeout=30), "MKCOL", "")
        check(status == 201, "MKCOL /w%d: %d %r" % (n, status, said))


class Bench:
    """A server on a disk, and its next start after a cut."""

    def __init__(self, place, data, disk, config="", beside=None):
        self.place, self.data, self.disk, self.config, self.beside = place, data, disk, config, beside
        self.login = None
        if beside:
            self.config += ("" if "[namespace]" in config else "[namespace]\n") + 'database = "%s"\n' % beside.url

    def start(self):
        up = Up(self.place, data=self.data, config=CONFIG + self.config, login=self.login).ready()
        self.login = up.login
        return up

    def cut(self, up, keep, seed):
        """The power fails; everything that ran on the disk is gone, and the disk comes back."""
        self.disk.cut(keep, seed)
        up.process.kill()
        up.process.wait()
        self.place.servers.remove(up)          # its last words are of a disk that was gone
        if self.beside:
            self.beside.kill()

    def again(self):
        self.disk.power_off()
        self.disk.power_on()
        if self.beside:
            self.beside.start()
        return self.start()


class Postgres:
    """A PostgreSQL server of the test's own below a directory."""

    def __init__(self, place, below):
        found = sorted(d for d in os.listdir("/usr/lib/postgresql") if d.isdigit())
        self.programs = "/usr/lib/postgresql/%s/bin" % found[-1]
        self.dir, self.port, self.process = os.path.join(below, "postgres"), place.free_port(), None
        self.url = "postgres://forebay@127.0.0.1:%d/postgres" % self.port
        os.makedirs(self.dir)
        shutil.chown(self.dir, "postgres", "postgres")
        os.chmod(below, 0o755)
        self.run("initdb", "-D", self.dir, "-U", "forebay", "--auth=trust", "--no-sync")
        os.sync()
        self.start()

    def run(self, program, *argv):
        quietly("setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups", os.path.join(self.programs, program), *argv)

    def start(self):
        argv = [os.path.join(self.programs, "postgres"), "-D", self.dir, "-p", str(self.port), "-c", "unix_socket_directories=",
                "-c", "listen_addresses=127.0.0.1", "-c", "shared_buffers=16MB", "-c", "wal_init_zero=off"]
        with open(self.dir + ".log", "a") as log:
            self.process = subprocess.Popen(["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"] + argv,
                                            stdout=log, stderr=log, cwd="/", start_new_session=True)
        ready = [os.path.join(self.programs, "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        within(60, lambda: subprocess.run(ready).returncode == 0, "PostgreSQL does not start; see " + self.dir + ".log")

    def kill(self):
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            # Its children have groups of their own and end when they see that it is gone.
            within(20, lambda: subprocess.run(["pgrep", "-f", "postgres -D " + self.dir], stdout=subprocess.DEVNULL).returncode, "it still runs")
            self.process = None


def disk_of(place, journal=True, mib=1280):
    disk = Disk(place.path("disk"), journal=journal, mib=mib)
    place.undo.append(disk.close)
    return disk
