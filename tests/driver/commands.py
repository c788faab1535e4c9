"""Scenarios of the command line: no guest, no namespace; the server on loopback as a user starts it."""
import contextlib, json, os, re, shutil, signal, socket, subprocess, time

from .report import Result
from .server import Forebay

USER = 4321      # neither root nor the nobody that root is squashed to
WAIT_S = 15


class Failed(Exception):
    pass


def check(fact, says):
    if not fact:
        raise Failed(says)


class Up:
    """`forebay up` on free ports of loopback, stopped when the scenario is over."""

    def __init__(self, place, *extra, data=None, user=None, port=None):
        self.data = data or os.path.join(place.dir, "data")
        self.port = port or place.free_port()
        self.log = os.path.join(place.dir, "log.%d" % len(os.listdir(place.dir)))
        argv = [place.binary, "up", "--data", self.data, "--nfs-port", str(self.port), "--pool-port", str(place.free_port()),
                "--http-port", str(place.free_port())]
        if user:
            argv = ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups"] + argv
        with open(self.log, "w") as f:
            self.process = subprocess.Popen(argv + list(extra), stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT,
                                            cwd=place.dir)
        place.servers.append(self)

    def said(self):
        with open(self.log, errors="replace") as f:
            return f.read()

    def ready(self):
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            check(self.process.poll() is None, "ended with %s before it listened:\n%s" % (self.process.returncode, self.said()))
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return self
            time.sleep(0.05)
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


class Place:
    """A scratch directory with the binary where any user can execute it."""

    def __init__(self, path, binary):
        self.dir, self.servers = path, []
        os.makedirs(path)
        os.chmod(path, 0o777)
        self.binary = binary

    def free_port(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            return s.getsockname()[1]

    def run(self, *argv, user=None):
        pre = ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups"] if user else []
        return subprocess.run(pre + [self.binary] + list(argv), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=30, cwd=self.dir)

    def close(self):
        for server in self.servers:
            if server.process.poll() is None:
                server.process.kill()
                server.process.wait()


def an_ordinary_user_can_start_it(place):
    up = Up(place, user=USER).ready()
    check(os.stat(up.data).st_uid == USER, "the data directory belongs to %d" % os.stat(up.data).st_uid)
    status = place.run("status", "--data", up.data, user=USER)
    check(status.returncode == 0, status.stdout)
    check(up.stop() < 5, "took longer than 5 s to stop")


def the_banner_tells_data_ports_mount_and_how_to_stop(place):
    up = Up(place).ready()
    time.sleep(0.3)
    said = up.said()
    for what in (up.data, str(up.port), "mount -t nfs", "127.0.0.1"):
        check(what in said, "the banner lacks %r:\n%s" % (what, said))
    check(re.search(r"ctrl.c|sigterm|stop", said, re.I), "the banner does not say how to stop:\n" + said)
    check(len(said.splitlines()) <= 20, "the banner is not short:\n" + said)
    with socket.socket() as s:
        s.settimeout(1)
        others = [a for a in subprocess.run(["hostname", "-I"], stdout=subprocess.PIPE, text=True).stdout.split() if "." in a]
        if others:
            check(s.connect_ex((others[0], up.port)) != 0, "listens on %s, not on loopback only" % others[0])


def another_address_squashes_root_and_says_what_auth_sys_means(place):
    up = Up(place, "--listen", "0.0.0.0").ready()
    time.sleep(0.3)
    said = up.said()
    check("AUTH_SYS" in said, "no line on AUTH_SYS:\n" + said)
    check(re.search(r"squash", said, re.I), "no word on root squash:\n" + said)


def sigterm_and_sigint_stop_it_within_five_seconds(place):
    for sig in (signal.SIGTERM, signal.SIGINT):
        up = Up(place).ready()
        took = up.stop(sig)
        check(took < 5, "signal %d: %.1f s" % (sig, took))
        check(up.process.returncode == 0, "signal %d: exit status %s\n%s" % (sig, up.process.returncode, up.said()))


def a_second_start_continues(place):
    Up(place).ready().stop()
    before = sorted(os.listdir(os.path.join(place.dir, "data")))
    up = Up(place).ready()
    up.stop()
    check(before and set(before) <= set(os.listdir(up.data)), "the data directory was made anew")
    fsck = place.run("fsck", "--data", up.data)
    check(fsck.returncode == 0, fsck.stdout)


def a_start_after_kill_9_continues(place):
    for _ in range(3):
        Up(place).ready().stop(signal.SIGKILL)
    up = Up(place).ready()
    fsck = place.run("fsck", "--data", up.data)
    check(fsck.returncode == 0, "fsck on the running server: " + fsck.stdout)


def a_second_process_on_the_same_data_is_refused(place):
    first = Up(place).ready()
    Up(place).refuses("in use", "running", "another", "locked")
    check(first.process.poll() is None, "the first one fell")
    Up(place, data=os.path.join(place.dir, "other")).ready()


def a_port_in_use_gets_one_clear_line(place):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        Up(place, port=taken.getsockname()[1]).refuses("in use")


def a_read_only_directory_gets_one_clear_line(place):
    ro = os.path.join(place.dir, "ro")
    os.makedirs(ro)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", ro], check=True)
    try:
        Up(place, data=os.path.join(ro, "data")).refuses("read-only")
    finally:
        subprocess.run(["umount", ro])


def a_directory_of_another_user_gets_one_clear_line(place):
    shut = os.path.join(place.dir, "shut")
    os.makedirs(shut, mode=0o700)
    Up(place, data=os.path.join(shut, "data"), user=USER).refuses("permission denied", "permission")


def a_full_disk_at_start_gets_one_clear_line(place):
    full = os.path.join(place.dir, "full")
    os.makedirs(full)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", full], check=True)
    try:
        subprocess.run("cat /dev/zero >%s/fill" % full, shell=True, stderr=subprocess.DEVNULL)
        Up(place, data=os.path.join(full, "data")).refuses("no space", "disk is full", "full", "space")
    finally:
        subprocess.run(["umount", "-l", full])


def raise_version(data):
    path = os.path.join(data, "instance.json")
    with open(path) as f:
        instance = json.load(f)
    instance["version"] += 1
    with open(path, "w") as f:
        json.dump(instance, f)


def data_of_a_newer_version_is_refused(place):
    up = Up(place).ready()
    up.stop()
    raise_version(up.data)
    Up(place).refuses("newer")


def status_tells_what_runs(place):
    up = Up(place, "--pools", "2").ready()
    text = place.run("status", "--data", up.data)
    check(text.returncode == 0 and text.stdout.strip(), text.stdout)
    answer = place.run("status", "--data", up.data, "--json")
    facts = json.loads(answer.stdout)
    flat = json.dumps(facts).lower()
    for word in ("uptime", "clients", "opens", "pools", "free"):
        check(word in flat, "status --json lacks %s: %s" % (word, flat))
    check(len(facts["pools"]) == 2, flat)
    up.stop()
    gone = place.run("status", "--data", up.data)
    check(gone.returncode != 0 and len(gone.stdout.strip().splitlines()) == 1, "of a stopped server: %r" % gone.stdout)


def fsck_tells_clean_data_from_none(place):
    up = Up(place).ready()
    up.stop()
    answer = place.run("fsck", "--data", up.data, "--json")
    check(answer.returncode == 0, answer.stdout)
    json.loads(answer.stdout)
    nothing = place.run("fsck", "--data", os.path.join(place.dir, "nothing"))
    check(nothing.returncode not in (0, 101), "of a directory that is not there: %s %s" % (nothing.returncode, nothing.stdout))


def config_reference_names_every_key_and_check_finds_mistakes(place):
    reference = place.run("config", "reference")
    check(reference.returncode == 0 and "lease_s" in reference.stdout and "grace_s" in reference.stdout, reference.stdout)
    good, bad = os.path.join(place.dir, "good.toml"), os.path.join(place.dir, "bad.toml")
    with open(good, "w") as f:
        f.write("[nfs]\nlease_s = 10\n")
    with open(bad, "w") as f:
        f.write("[nfs]\nleas_s = 10\n")
    check(place.run("config", "check", good).returncode == 0, "a good file: " + place.run("config", "check", good).stdout)
    answer = place.run("config", "check", bad)
    check(answer.returncode not in (0, 101) and "leas_s" in answer.stdout, "a misspelt key: " + answer.stdout)
    up = Up(place, "--config", bad)
    up.refuses("leas_s")


SCENARIOS = [an_ordinary_user_can_start_it, the_banner_tells_data_ports_mount_and_how_to_stop,
             another_address_squashes_root_and_says_what_auth_sys_means, sigterm_and_sigint_stop_it_within_five_seconds,
             a_second_start_continues, a_start_after_kill_9_continues, a_second_process_on_the_same_data_is_refused,
             a_port_in_use_gets_one_clear_line, a_read_only_directory_gets_one_clear_line,
             a_directory_of_another_user_gets_one_clear_line, a_full_disk_at_start_gets_one_clear_line,
             data_of_a_newer_version_is_refused, status_tells_what_runs, fsck_tells_clean_data_from_none,
             config_reference_names_every_key_and_check_finds_mistakes]


def names():
    return [s.__name__ for s in SCENARIOS]


def run(chosen, scratch):
    """Yields one Result per chosen scenario."""
    binary = os.path.join(scratch, "forebay")
    shutil.copy(Forebay(scratch).binary, binary)
    os.chmod(binary, 0o755)
    for scenario in SCENARIOS:
        if scenario.__name__ not in chosen:
            continue
        place = Place(os.path.join(scratch, "cli", scenario.__name__), binary)
        t0, fault = time.monotonic(), ""
        try:
            scenario(place)
        except Failed as e:
            fault = str(e)
        except Exception as e:
            fault = "%s: %s" % (type(e).__name__, e)
        finally:
            place.close()
        yield Result("command_line/" + scenario.__name__, "FAILED" if fault else "ok", time.monotonic() - t0, fault)
