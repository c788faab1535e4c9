"""A head and hosts with pools: what the group with guests needs, and scenarios of joining on loopback without any guest."""
import contextlib, glob, json, os, re, shutil, signal, socket, subprocess, threading

from .loopback import WAIT_S, Up, check, same, within
from .server import FAULT
from .web import a_file, ask, content, expect

HOSTS = (1, 2, 3)
# Log lines of a head and its hosts when one of them is gone.
ALLOWED = ("a client could not use a pool", "pool is without its head", "the connection of a pool is lost", "pool is refused")
# Further lines where clients have layouts there: they are told to wait, and layouts end when a host or a client does not answer.
ALLOWED_UNDER_CLIENTS = ("pools did not fence off in time a client", "revoked a layout that was not returned", "client is told to try again",
                         'of="forebay_door_nfs::status"',       # the same, more than 10 times in 10 s
                         "cannot end the tickets to write of before the restart, will try again")
HOOKS = {"hosts": "python3 -B %s {forebay} {data} {scratch} $*" % os.path.join(os.path.dirname(os.path.realpath(__file__)), "pool_hosts.py")}


def host_command(number):
    """A host joins by the token that `pool_hosts.py` left in a file, if there is one."""
    return ("{forebay} pool up --data {scratch}/pool-%d --listen 10.77.0.%d --no-http $(cat {scratch}/join.%d 2>/dev/null)"
            " >>{scratch}/host.%d.log 2>&1" % (number, 20 + number, number, number))


def logs_are_clean(run):
    """A check: the hosts logged nothing that the group has not announced."""
    bad = []
    for path in sorted(glob.glob(os.path.join(run.server.scratch, "host.*.log"))):
        with open(path, errors="replace") as f:
            bad += ["%s: %s" % (os.path.basename(path), l.rstrip()) for l in f
                    if FAULT.search(l) and not any(a in l for a in run.group.allowed_log)]
    return "\n".join(bad[:20]) or None


class PoolHost(Up):
    """`forebay pool up` on a free port of loopback, stopped when the scenario is over. With `http`, a port, it serves HTTP there."""

    def __init__(self, place, *extra, data=None, http=None):
        self.place, self.data, self.http = place, data or place.path("host.%d" % place.free_port()), http
        self.port = place.free_port()
        self.log = place.path("log.%d" % len(os.listdir(place.dir)))
        argv = [place.binary, "pool", "up", "--data", self.data, "--listen", "127.0.0.1", "--pool-port", str(self.port)]
        argv += ["--http-port", str(http)] if http else ["--no-http"]
        with open(self.log, "w") as f:
            self.process = subprocess.Popen(argv + list(extra), stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT, cwd=place.dir)
        place.undo.append(self.end)

    def ready(self):
        def joined():
            check(self.process.poll() is None, "ended with %s before it was admitted:\n%s" % (self.process.returncode, self.said()))
            return re.search(r"^  pool +(pool-\d+) of ", self.said(), re.M)
        self.name = within(2 * WAIT_S, joined, lambda: "a banner of " + self.said()).group(1)
        return self

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def stop_well(self):
        self.stop()
        same("exit status of the host", self.process.returncode, 0)
        bad = [l for l in self.said().splitlines() if FAULT.search(l) and not any(a in l for a in ALLOWED)]
        check(not bad, "the host logged:\n" + "\n".join(bad))


class Head(Up):
    """`forebay up --cluster`, with HTTP."""

    def __init__(self, place, data=None, again=None, cluster_port=None):
        place.allowed_log = ALLOWED
        self.cluster_port = again.cluster_port if again else cluster_port or place.free_port()
        config = '[cluster]\nport = %d\naddress = "127.0.0.1"\n' % self.cluster_port
        if again:
            super().__init__(place, data=again.data, login=again.login, config=config)
        else:
            super().__init__(place, "--cluster", data=data, config=config)

    def ask(self, *argv):
        said = self.place.run(*argv, "--data", self.data, "--json")
        check(said.returncode == 0, "%s: %s" % (" ".join(argv), said.stdout))
        return json.loads(said.stdout)

    def token(self):
        return self.ask("cluster", "token")["token"]

    def standings(self):
        return {p["name"]: p["standing"] for p in self.ask("cluster", "status")["pools"]}

    def becomes(self, name, *standings):
        within(20, lambda: self.standings().get(name) in standings, lambda: "%s is %s: %s" % (name, " or ".join(standings), self.standings()))


def a_host_joins_by_a_token_and_comes_back_without_it(place):
    head = Head(place).ready()
    said = head.said()
    check(re.search(r"^  cluster +port %d; .*forebay cluster token" % head.cluster_port, said, re.M),
          "the banner does not say how a host joins:\n" + said)
    host = PoolHost(place, "--join", head.token()).ready()
    banner = host.said()
    for what in (r"^Forebay \d", r"^  pool +pool-1 of cluster [0-9a-f]{4}", r"^  head +127\.0\.0\.1:%d" % head.cluster_port,
                 r"^  NFS +127\.0\.0\.1:%d" % host.port):
        check(re.search(what, banner, re.M), "the banner of the host lacks %s:\n%s" % (what, banner))
    head.becomes("pool-1", "ready")
    names = [p["name"] for p in head.ask("pool", "list")["pools"]]
    same("pools", sorted(names), ["pool-0", "pool-1"])
    host.stop_well()
    head.becomes("pool-1", "out", "suspect")
    for how in (signal.SIGTERM, signal.SIGKILL):
        host = PoolHost(place, data=host.data).ready()
        same("name after a restart", host.name, "pool-1")
        head.becomes("pool-1", "ready")
        host.stop(how)
    host = PoolHost(place, data=host.data).ready()
    head.becomes("pool-1", "ready")
    second = PoolHost(place, "--join", head.token()).ready()
    same("name of the second host", second.name, "pool-2")
    same("all", head.standings(), {"pool-1": "ready", "pool-2": "ready"})


def a_stop_in_order_of_a_host_and_of_the_head_warns_of_nothing(place):
    head = Head(place).ready()
    host = PoolHost(place, "--join", head.token()).ready()
    head.becomes("pool-1", "ready")
    host.stop_well()
    host = PoolHost(place, data=host.data).ready()
    head.becomes("pool-1", "ready")
    head.stop()
    bad = [l for l in head.said().splitlines() if FAULT.search(l)]
    check(not bad, "the head logged:\n" + "\n".join(bad))
    host.stop_well()


def a_mistyped_token_is_refused_in_one_line(place):
    head = Head(place).ready()
    token = head.token()
    at = token.rindex(".") + 3
    wrong = token[:at] + ("a" if token[at] != "a" else "b") + token[at + 1:]
    for text in (wrong, token[:-1], token + "A", token[:at], "fb1.", "fb1", "", "fb1.127.0.0.1:%d." % head.cluster_port, "x" * 100_000):
        PoolHost(place, "--join", text).refuses("token")
    same("pools", head.standings(), {})
    PoolHost(place, "--join", token).ready()


def a_token_is_asked_for_with_hours(place):
    head = Head(place).ready()
    for hours in ("0", "-1", "x", "1000000000000000000000"):
        said = place.run("cluster", "token", "--data", head.data, "--hours", hours)
        check(said.returncode in (1, 2) and "panicked" not in said.stdout, "--hours %s: %r" % (hours, said))
    said = place.run("cluster", "token", "--data", head.data, "--hours", "1")
    check(said.returncode == 0 and "fb1." in said.stdout, "--hours 1: %r" % said)


def a_token_of_another_cluster_is_refused(place):
    other = Head(place, data=place.path("other")).ready()
    token = other.token()
    check("127.0.0.1:%d" % other.cluster_port in token, "the token does not name the address: " + token)
    other.stop()
    # Another cluster has taken the address.
    head = Head(place, cluster_port=other.cluster_port).ready()
    PoolHost(place, "--join", token).refuses("cluster", "certificate", "token")
    host = PoolHost(place, "--join", head.token()).ready()
    host.stop_well()
    PoolHost(place, "--join", token, data=host.data).refuses("cluster", "joined", "member")
    PoolHost(place, data=host.data).ready()
    same("pools", list(head.standings()), ["pool-1"])


def a_second_process_on_the_same_directory_is_refused(place):
    head = Head(place).ready()
    host = PoolHost(place, "--join", head.token()).ready()
    PoolHost(place, data=host.data).refuses("another", "in use", "lock", "runs")
    PoolHost(place, "--join", head.token(), data=host.data).refuses("another", "in use", "lock", "runs", "joined", "member")
    same("pools", head.standings(), {"pool-1": "ready"})
    # Nor is a head's directory a pool's, and the other way round.
    PoolHost(place, "--join", head.token(), data=head.data).refuses("data directory", "head", "in use", "another", "runs")
    Up(place, data=host.data).refuses("pool", "lock", "in use", "another", "runs")


def a_copy_of_the_directory_of_a_running_host_is_refused(place):
    """Two processes with one certificate, as after a cloned machine: one of them serves all the time."""
    head = Head(place).ready()
    host = PoolHost(place, "--join", head.token()).ready()
    host.stop_well()
    shutil.copytree(host.data, host.data + ".copy", ignore=shutil.ignore_patterns("control.sock"))
    host = PoolHost(place, data=host.data).ready()
    head.becomes("pool-1", "ready")
    copy = PoolHost(place, data=host.data + ".copy")
    within(WAIT_S, lambda: copy.process.poll() is not None or any(" refuses: " in h.said() for h in (host, copy)),
           lambda: "a refusal of one of them; the host said:\n%s\nand the copy:\n%s" % (host.said(), copy.said()))


def strangers_that_say_nothing_do_not_keep_a_host_out(place):
    head = Head(place).ready()
    host = PoolHost(place, "--join", head.token()).ready()
    host.stop(signal.SIGKILL)
    with contextlib.ExitStack() as crowd:
        for _ in range(200):
            crowd.enter_context(socket.create_connection(("127.0.0.1", head.cluster_port)))
        PoolHost(place, data=host.data).ready()
        head.becomes("pool-1", "ready")


def a_host_without_a_token_is_refused(place):
    PoolHost(place).refuses("--join", "token")


def a_directory_without_a_cluster_gives_no_tokens(place):
    Up(place).ready()
    for command in ("token", "status"):
        said = place.run("cluster", command, "--data", place.path("data"))
        check(said.returncode == 1 and "--cluster" in said.stdout and len(said.stdout.splitlines()) <= 2, "%s: %r" % (command, said))


def a_head_goes_on_as_a_cluster(place):
    head = Head(place).ready()
    host = PoolHost(place, "--join", head.token()).ready()
    head.login
    head.stop()
    head = Head(place, again=head).ready()
    check(re.search(r"^  cluster +port ", head.said(), re.M), "no cluster in the banner:\n" + head.said())
    head.becomes(host.name, "ready")
    head.stop(signal.SIGKILL)
    head = Head(place, again=head).ready()
    head.becomes(host.name, "ready")


def files_put_by_http_lie_on_the_host_and_outlive_it(place):
    head = Head(place).ready()
    host = PoolHost(place, "--join", head.token()).ready()
    head.becomes(host.name, "ready")
    drained = place.run("pool", "drain", "pool-0", "--keep-files", "--data", head.data)
    check(drained.returncode == 0, drained.stdout)
    files = {"/f%d" % i: a_file(place, "in/f%d" % i, 700_000 * i + i) for i in range(5)}
    for path, file in files.items():
        expect(201, head, "PUT", path, content(file))
    same("replicas at the head", head.replicas(), [])
    for how in (None, signal.SIGTERM, signal.SIGKILL):
        if how:
            host.stop(how)
            host = PoolHost(place, data=host.data).ready()
            head.becomes(host.name, "ready")
        for path, file in files.items():
            check(expect(200, head, "GET", path).body == content(file), "%s is not what was put after %s" % (path, how))
    fsck = place.run("fsck", "--data", head.data)
    check(fsck.returncode == 0, "beside the running head: " + fsck.stdout)


def a_pool_host_says_how_it_is_and_sends_other_questions_to_its_head(place):
    head = Head(place).ready()
    host = PoolHost(place, "--join", head.token()).ready()
    head.becomes(host.name, "ready")

    def ask(*argv):
        said = place.run(*argv, "--data", host.data, "--json")
        check(said.returncode == 0, "%s: %s" % (" ".join(argv), said.stdout))
        return json.loads(said.stdout)
    within(WAIT_S, lambda: ask("status")["lease_s"] > 0, lambda: "no lease: %s" % ask("status"))
    status = ask("status")
    same("pool", (status["pool"], status["head"]["connected"], status["problems"]), (host.name, True, []))
    same("list", [p["name"] for p in ask("pool", "list")["pools"]], [host.name])
    same("iostat", [p["name"] for p in ask("pool", "iostat")["pools"]], [host.name])
    same("scrub", ask("pool", "scrub", host.name)["problems"], [])
    before = sorted(os.listdir(host.data))
    for argv in (["fsck"], ["dir", "show", "/"], ["user", "list"], ["cluster", "token"], ["keys", "renew"], ["quota", "list"], ["pool", "drain", host.name],
                 ["namespace", "backup", "--to", place.path("dump")]):
        said = place.run(*argv, "--data", host.data)
        check(said.returncode == 1 and "ask its head, 127.0.0.1:%d" % head.cluster_port in said.stdout and len(said.stdout.splitlines()) == 1,
              "%s: %r" % (argv, said))
    same("files", sorted(os.listdir(host.data)), before)
    head.stop()
    within(WAIT_S, lambda: [p["kind"] for p in ask("status")["problems"]][:1] == ["head-away"], lambda: "no head-away: %s" % ask("status"))
    head = Head(place, again=head).ready()
    head.becomes(host.name, "ready")
    host.stop_well()
    within(WAIT_S, lambda: head.ask("cluster", "status")["pools"][0]["connections"] == 0, lambda: "connections: %s" % head.ask("cluster", "status"))


def a_token_in_a_file_is_used_once(place):
    head = Head(place).ready()
    path = place.path("join-token")
    with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
        f.write(head.token() + "\n")
    host = PoolHost(place, "--join-file", path).ready()
    check(not os.path.exists(path), "the token is there still")
    host.stop_well()
    PoolHost(place, "--join-file", path, data=host.data).ready()
    head.becomes(host.name, "ready")


class Writer:
    """Puts files one after the other until it is stopped. A host whose keys are rotated connects anew, and 503 tells clients to come again."""

    def __init__(self, place, head):
        self.head, self.file, self.written, self.failed = head, a_file(place, "in/written", 300_000), [], []
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.write, daemon=True)
        self.thread.start()

    def write(self):
        while not self.stopped.is_set():
            path = "/w%d" % len(self.written)
            try:
                status = ask(self.head, "PUT", path, content(self.file)).status
            except OSError as error:
                status = error
            if status in (201, 204):
                self.written.append(path)
            elif status != 503:
                self.failed.append((path, status))
                return

    def stop(self):
        self.stopped.set()
        self.thread.join()
        same("failed writes", self.failed, [])


def keys_are_rotated_under_a_writer_and_a_host_is_shut_out_and_readmitted(place):
    head = Head(place).ready()
    place.allowed_log = ALLOWED + ("pool host is shut out",)
    hosts = [PoolHost(place, "--join", head.token()).ready() for _ in range(2)]
    names = [host.name for host in hosts]
    for name in names:
        head.becomes(name, "ready")
    check(place.run("pool", "drain", "pool-0", "--data", head.data).returncode == 0, "pool-0 is not drained")
    stolen = hosts[1].data + ".stolen"
    shutil.copytree(hosts[1].data, stolen, ignore=shutil.ignore_patterns("control.sock", "lock"))
    writer = Writer(place, head)
    within(WAIT_S, lambda: len(writer.written) > 3, lambda: "files: %s" % writer.written)
    keys = head.ask("cluster", "rotate-keys")
    same("keys", (keys["generation"], keys["overlap"], keys["lagging"]), (1, False, []))
    before = len(writer.written)
    within(WAIT_S, lambda: len(writer.written) > before + 3, lambda: "files: %s" % writer.written)
    writer.stop()
    for path in writer.written:
        check(expect(200, head, "GET", path).body == content(writer.file), path)
    # A copy of the directory from before the rotation has keys that open nothing.
    thief = PoolHost(place, data=stolen)
    within(WAIT_S, lambda: "keys of the cluster were rotated" in thief.said(), thief.said)
    thief.end()
    head.becomes(names[1], "ready")
    for number, host in enumerate(hosts):
        host.stop(signal.SIGKILL)
        hosts[number] = PoolHost(place, data=host.data).ready()
        head.becomes(names[number], "ready")

    def seen(name):
        return next(p for p in head.ask("cluster", "status")["pools"] if p["name"] == name)
    head.ask("cluster", "shut-out", names[1])
    within(2, lambda: seen(names[1])["connections"] == 0, lambda: "connections: %s" % seen(names[1]))
    within(WAIT_S, lambda: "%s was shut out" % names[1] in hosts[1].said(), hosts[1].said)
    check(seen(names[1])["shut_out"], "it is not shown as shut out: %s" % seen(names[1]))
    head.becomes(names[1], "out")
    there = head.ask("pool", "files", names[1])["files"]
    check(there and set(there) < set(writer.written), "files of %s: %s" % (names[1], there))
    said = place.run("pool", "remove", names[1], "--data", head.data)
    check(said.returncode == 1 and "pool files %s" % names[1] in said.stdout and len(said.stdout.splitlines()) == 1, "removal with files: %r" % said)
    token = head.ask("cluster", "readmit", names[1])["token"]
    PoolHost(place, "--join", token, data=place.path("empty")).refuses("token is for %s" % names[1])
    hosts[1].end()
    hosts[1] = PoolHost(place, "--join", token, data=hosts[1].data).ready()
    head.becomes(names[1], "ready")
    for path in there:
        check(expect(200, head, "GET", path).body == content(writer.file), path)
    for path in writer.written:
        expect(204, head, "DELETE", path)
    replicas = lambda: [p["replicas"] for p in head.ask("status")["pools"]]
    within(2 * WAIT_S, lambda: not any(replicas()), lambda: "replicas of removed files: %s" % replicas())
    hosts[0].stop_well()
    head.becomes(names[0], "out")
    removed = head.ask("pool", "remove", names[0])
    same("removed", removed["removed"], names[0])
    same("pools", list(head.standings()), [names[1]])
    gone = PoolHost(place, data=hosts[0].data)
    within(WAIT_S, lambda: "does not belong to this cluster any more" in gone.said(), gone.said)
    third = PoolHost(place, "--join", head.token()).ready()
    same("a further host", third.name, "pool-3")


SCENARIOS = [a_host_joins_by_a_token_and_comes_back_without_it, a_stop_in_order_of_a_host_and_of_the_head_warns_of_nothing,
             a_mistyped_token_is_refused_in_one_line, a_token_is_asked_for_with_hours,
             a_token_of_another_cluster_is_refused, a_second_process_on_the_same_directory_is_refused,
             a_copy_of_the_directory_of_a_running_host_is_refused, strangers_that_say_nothing_do_not_keep_a_host_out, a_host_without_a_token_is_refused,
             a_directory_without_a_cluster_gives_no_tokens, a_head_goes_on_as_a_cluster, files_put_by_http_lie_on_the_host_and_outlive_it,
             a_pool_host_says_how_it_is_and_sends_other_questions_to_its_head, a_token_in_a_file_is_used_once,
             keys_are_rotated_under_a_writer_and_a_host_is_shut_out_and_readmitted]
