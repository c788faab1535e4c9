"""The jobs: each runs one kind of request on one side and says how long it took and what CPU the server used."""
import base64, concurrent.futures, http.client, os, re, statistics, subprocess, threading, time

from macro import machine
from . import servers

HERE = os.path.dirname(os.path.realpath(__file__))
SMALL_BYTES = 10 << 10
RANGE_BYTES = 100
WRITERS = 16
# Fewer than a pool of ours keeps open (pools.open_files_max), so that what opening costs can be told apart.
HOT_FILES = 3000


class Kit:
    """Files that all jobs use: the large file, and the names of the small ones."""

    def __init__(self, large):
        self.large, self.uploads = large, 0


def prepare(opt, sides, scratch):
    kit = Kit(os.path.join(scratch, "large"))
    with open(kit.large, "wb") as f:
        for _ in range(opt.size):
            f.write(os.urandom(1 << 20))
    for side in sides:
        put(side, kit.large, "large")
        if any(name.startswith(("small", "hot")) for name in opt.jobs):
            fill(side, opt.files)
    return kit


def fill(side, files):
    """Through the door on both sides. Sixteen writers, for a durable answer takes its time."""
    local, content = threading.local(), os.urandom(SMALL_BYTES)
    login = base64.b64encode(("%s:%s" % (servers.USER, servers.PASSWORD)).encode()).decode()

    def write(number):
        if not hasattr(local, "connection"):
            local.connection = http.client.HTTPConnection("127.0.0.1", side.port)
            local.connection.sock = side.connect()
        local.connection.request("PUT", "/small-%05d" % number, content, {"Authorization": "Basic " + login})
        answer = local.connection.getresponse()
        answer.read()
        if answer.status not in (201, 204):
            raise SystemExit("%s: PUT of a small file: %d" % (side.name, answer.status))
    with concurrent.futures.ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, range(files)))


def put(side, path, name):
    curl(side.trust + side.credential + ["-T", path, side.url + "/" + name], "20[14]")


def curl(argv, status):
    argv = servers.NICE + ["curl", "-s", "-S", "-o", "/dev/null", "-w", "%{http_code}\n"] + argv
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)
    if not re.fullmatch("(%s\n)+" % status, done.stdout):
        raise SystemExit("%s: status %s" % (" ".join(argv), done.stdout))


def timed(side, action):
    cpu, start = side.cpu_s(), time.monotonic()
    action()
    seconds = time.monotonic() - start
    return dict(seconds=seconds, cpu_s=side.cpu_s() - cpu)


def said(result):
    return "  ".join("%s %.4g" % pair for pair in result.items() if not isinstance(pair[1], str))


class Get:
    """The large file by so many connections at once, each a curl that throws it away."""

    unit, cpu_unit = "MiB/s", "s/GiB"

    def __init__(self, connections):
        self.connections = connections

    def run(self, side, opt, _kit):
        argv = servers.NICE + ["curl", "-s", "-S", "-o", "/dev/null"] + side.trust + [side.url + "/large"]

        def fetch():
            clients = [subprocess.Popen(argv) for _ in range(self.connections)]
            if any([client.wait() for client in clients]):
                raise SystemExit("%s: GET failed" % side.name)
        mib, result = opt.size * self.connections, timed(side, fetch)
        return dict(rate=mib / result["seconds"], cpu=result["cpu_s"] * 1024 / mib)


class Put:
    """The large file under a new name, by curl, which waits for 100 Continue. `durable` counts the peer's fsync in.

    In blocks: one upload that is not counted, then BLOCK without a pause, of which the median counts; before each, memory
    is brought back from the host of a virtual machine."""

    unit, cpu_unit = "MiB/s", "s/GiB"
    BLOCK = 3

    def __init__(self, durable):
        self.durable = durable

    def run(self, side, opt, kit):
        self.upload(side, opt, kit)
        results = [self.upload(side, opt, kit) for _ in range(self.BLOCK)]
        seconds, cpu = (statistics.median(r[key] for r in results) for key in ("seconds", "cpu_s"))
        return dict(rate=opt.size / seconds, cpu=cpu * 1024 / opt.size)

    def upload(self, side, opt, kit):
        kit.uploads += 1
        name = "upload-%d" % kit.uploads
        machine.back_memory(4 * opt.size)

        def send():
            put(side, kit.large, name)
            if self.durable:
                side.make_durable(name)
        result = timed(side, send)
        curl(side.trust + side.credential + ["-X", "DELETE", side.url + "/" + name], "20[0-9]")
        return result


class Small:
    """Files of 10 KiB in turn, by wrk with so many connections: all of them, or only so many."""

    unit, cpu_unit = "req/s", "us/req"

    def __init__(self, connections, files=None):
        self.connections, self.files = connections, files

    def run(self, side, opt, _kit):
        argv = servers.NICE + ["wrk", "-t1", "-c%d" % self.connections, "-d%ds" % opt.seconds, "-s", HERE + "/small.lua", side.url, "--", str(min(opt.files, self.files or opt.files))]
        cpu = side.cpu_s()
        done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout
        cpu = side.cpu_s() - cpu
        if "Non-2xx" in done or "Socket errors" in done:
            raise SystemExit("%s: %s" % (side.name, done))
        requests = int(re.search(r"(\d+) requests in", done).group(1))
        rate = float(re.search(r"Requests/sec:\s*([\d.]+)", done).group(1))
        return dict(rate=rate, cpu=cpu * 1e6 / requests)


class Vector:
    """Many small parts of the large file: in one request, or in as many, one after the other on one connection. By a
    client that costs next to nothing, or by curl as people use it."""

    unit, cpu_unit = "parts/s", "us/part"

    def __init__(self, at_once, by_curl):
        self.at_once, self.by_curl = at_once, by_curl

    def run(self, side, opt, kit):
        step = (opt.size << 20) // opt.ranges
        parts = ["%d-%d" % (i * step, i * step + RANGE_BYTES - 1) for i in range(opt.ranges)]
        asked = [",".join(parts)] if self.at_once else parts
        if self.by_curl:
            argv = servers.NICE + ["curl", "-s", "-S"] + side.trust + (curl_at_once if self.at_once else curl_one_by_one)(side, kit, asked)
            return self.repeated(side, opt, lambda: subprocess.run(argv, check=True))
        requests = ["GET /large HTTP/1.1\r\nHost: bench\r\nRange: bytes=%s\r\n\r\n" % ranges for ranges in asked]
        requests = [request.encode() for request in requests]
        return self.repeated(side, opt, lambda: exchange(side, requests))

    def repeated(self, side, opt, action):
        """One request is over in a few ticks of the clock that CPU time is counted with: so ten, one after the other."""
        times = 10 if self.at_once else 1
        result = timed(side, lambda: [action() for _ in range(times)])
        return dict(rate=times * opt.ranges / result["seconds"], cpu=result["cpu_s"] * 1e6 / opt.ranges / times)


def curl_at_once(side, kit, asked):
    """The header comes from a file: it is longer than an argument or a line of a configuration may be."""
    with open(kit.large + ".header", "w") as f:
        f.write("Range: bytes=%s\n" % asked[0])
    return ["-f", "-o", "/dev/null", "-H", "@" + f.name, side.url + "/large"]


def curl_one_by_one(side, kit, asked):
    with open(kit.large + ".config", "w") as f:
        f.write("next\n".join('url = "%s/large"\nrange = "%s"\noutput = "/dev/null"\nsilent\nfail\n%s' % (side.url, part, "insecure\nhttp1.1\n" if side.tls else "") for part in asked))
    return ["-K", f.name]


def exchange(side, requests):
    """By hand, so that the client costs little: the server is what is measured."""
    with side.connect() as connection:
        for request in requests:
            connection.sendall(request)
            received = connection.recv(1 << 20)
            while b"\r\n\r\n" not in received:
                received += connection.recv(1 << 20)
            if not received.startswith(b"HTTP/1.1 206"):
                raise SystemExit("%s: %s" % (side.name, received[:200]))
            head, _, body = received.partition(b"\r\n\r\n")
            left = int(re.search(rb"(?i)content-length: (\d+)", head).group(1)) - len(body)
            while left > 0:
                left -= len(connection.recv(1 << 20)) or left + 1
            if left < 0:
                raise SystemExit("%s: body is cut" % side.name)


JOBS = {"get": Get(1), "get8": Get(8), "put": Put(False), "put-disk": Put(True), "small1": Small(1), "small16": Small(16), "small64": Small(64), "hot64": Small(64, HOT_FILES),
        "vector": Vector(True, False), "parts": Vector(False, False), "vector-curl": Vector(True, True), "parts-curl": Vector(False, True)}
