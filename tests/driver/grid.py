"""Shared by the grid scenarios: curl and its answers, COPY and its markers, sites with logins and macaroons."""
import json, os, re, shutil, signal, subprocess, threading, time, zlib

from .loopback import Skipped, Up, check, same, within

MIB = 1 << 20
LIMIT_S = 60
CURL = ["curl", "-sS", "--max-time", str(LIMIT_S), "--noproxy", "*"]


class Answer:
    """The last answer that curl saw. `failure` is curl's own, when there was none."""

    def __init__(self, ran, heads, body):
        self.failure = ran.stderr.strip() if ran.returncode else ""
        self.body = body
        last = [h for h in re.split(r"\r?\n\r?\n", heads) if h.startswith("HTTP/")]
        lines = last[-1].splitlines() if last else ["HTTP/0 0"]
        self.version, self.status = lines[0].split()[0], int(lines[0].split()[1])
        self.headers = {k.strip().lower(): v.strip() for k, v in (l.split(":", 1) for l in lines[1:] if ":" in l)}

    @property
    def text(self):
        return self.body.decode(errors="replace")

    @property
    def last_line(self):
        """Of a COPY: how it ended."""
        lines = self.text.strip().splitlines()
        return lines[-1].strip() if lines else ""

    def __repr__(self):
        return "%s %.200s [...] %s %s" % (self.status, self.text, self.last_line, self.failure)


def curl(place, *argv, headers=()):
    """Runs curl. `headers` are whole lines."""
    name = place.path("answer.%d.%d" % (threading.get_ident(), time.monotonic_ns()))
    more = [w for h in headers for w in ("-H", h)]
    ran = subprocess.run(CURL + ["-D", name + ".head", "-o", name] + more + list(argv), stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True, timeout=LIMIT_S + 10)
    parts = []
    for path in (name + ".head", name):
        try:
            with open(path, "rb") as f:
                parts.append(f.read())
            os.unlink(path)
        except FileNotFoundError:
            parts.append(b"")
    return Answer(ran, parts[0].decode("latin1"), parts[1])


class Site:
    """A running instance and one who may do everything there."""

    def __init__(self, place, name, config="", **more):
        self.place = place
        self.up = Up(place, data=place.path(name), config=config, **more).ready()
        # curl 7.88 drops the answer to an upload whose HTTP/2 stream the server closes early.
        self.tls = ["--cacert", place.path("ca.pem")] if self.up.scheme == "https" else []

    def url(self, path):
        return self.up.url + path

    def curl(self, *argv, headers=(), path="/", auth=True):
        """As the site's admin, as nobody, or with a bearer token (`auth` is then its text)."""
        who = ["-u", "%s:%s" % self.up.login] if auth is True else ["-H", "Authorization: Bearer " + auth] if auth else []
        return curl(self.place, *self.tls, *who, *argv, self.url(path), headers=headers)

    def put(self, path, data):
        name = self.place.path("upload.%d" % time.monotonic_ns())
        with open(name, "wb") as f:
            f.write(data)
        answer = self.curl("-T", name, path=path)
        os.unlink(name)
        check(answer.status in (201, 204), "PUT %s: %r" % (path, answer))

    def head(self, path, auth=True):
        return self.curl("-I", headers=["Want-Digest: adler32"], path=path, auth=auth)

    def is_there(self, path):
        status = self.head(path).status
        check(status in (200, 404), "HEAD %s: %s" % (path, status))
        return status == 200

    def holds(self, path, data):
        """The file with the size and the adler32 that its bytes have, and these bytes."""
        head = self.head(path)
        same("HEAD " + path, head.status, 200)
        same("size of " + path, int(head.headers["content-length"]), len(data))
        same("digest of " + path, head.headers.get("digest"), "adler32=%08x" % zlib.adler32(data))
        check(self.curl(path=path).body == data, "other bytes came back from " + path)

    def macaroon(self, path, activities, validity="PT10M"):
        wish = json.dumps({"caveats": ["activity:" + activities], "validity": validity})
        answer = self.curl("-X", "POST", "-d", wish, headers=["Content-Type: application/macaroon-request"], path=path)
        same("asking for a macaroon", answer.status, 200)
        return json.loads(answer.text)["macaroon"]

    def copy(self, path, *lines, auth=True):
        return self.curl("-X", "COPY", headers=lines, path=path, auth=auth)

    def pull(self, path, source, *lines):
        return self.copy(path, "Source: " + source, *lines)

    def push(self, path, destination, *lines):
        return self.copy(path, "Destination: " + destination, *lines)

    def begin(self, path, *lines):
        """A COPY that goes on in the background."""
        return Running(self, path, lines)

    def has_no_data_left(self, files=0):
        """No pool keeps more replicas than there are files; what failed is taken away soon, if not at once."""
        within(20, lambda: len(self.up.replicas()) <= files,
               lambda: "%d replicas for %d files: %s" % (len(self.up.replicas()), files, self.up.replicas()))


def two(place, config=""):
    return Site(place, "one", config), Site(place, "two", config)


def need(program):
    if not shutil.which(program):
        raise Skipped(program + " is not installed")


class Running:
    """curl with a COPY that is not over yet."""

    def __init__(self, site, path, lines):
        self.out = site.place.path("copy.%d" % time.monotonic_ns())
        argv = CURL + site.tls + ["-N", "-u", "%s:%s" % site.up.login, "-X", "COPY", "-o", self.out]
        argv += [w for l in lines for w in ("-H", l)] + [site.url(path)]
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        site.place.undo.append(self.hang_up)

    def said(self):
        try:
            with open(self.out) as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def is_running(self):
        return self.process.poll() is None

    def hang_up(self):
        if self.is_running():
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def ends(self, limit_s):
        within(limit_s, lambda: not self.is_running(), lambda: "the copy goes on: " + self.said())
        lines = self.said().strip().splitlines()
        return lines[-1].strip() if lines else ""


def bearer(token):
    return "TransferHeaderAuthorization: Bearer " + token


def succeeds(what, answer):
    same("%s: status of %r" % (what, answer), answer.status, 202)
    check(answer.last_line.startswith("success:"), "%s: %r" % (what, answer))
    check_markers(answer)


def fails(what, answer, *words):
    """A copy that began and ended with one line that says why."""
    same("%s: status of %r" % (what, answer), answer.status, 202)
    check(answer.last_line.startswith("failure:"), "%s: %r" % (what, answer))
    check(any(w in answer.last_line.lower() for w in words), "%s: the line names none of %s: %s" % (what, words, answer.last_line))


def check_markers(answer):
    """At least one, each as davix and FTS read it; the last says where the bytes came from or went."""
    same("content type", answer.headers.get("content-type"), "text/perf-marker-stream")
    markers = re.findall(r"Perf Marker\n(.*?)\nEnd\n", answer.text, re.S)
    check(markers, "no marker: %r" % answer)
    for marker in markers:
        keys = [l.strip().split(":", 1)[0] for l in marker.splitlines()]
        for key in ("Timestamp", "Stripe Index", "Stripe Bytes Transferred", "Total Stripe Count"):
            check(key in keys, "a marker without %s: %s" % (key, marker))
    check("RemoteConnections: tcp:" in markers[-1], "the last marker names no connection: " + markers[-1])
    return markers


def bytes_moved(answer):
    """The sum over the stripes of the last markers."""
    stripes = {}
    for marker in check_markers(answer):
        found = dict(l.strip().split(": ", 1) for l in marker.splitlines() if ": " in l)
        stripes[found["Stripe Index"]] = int(found["Stripe Bytes Transferred"])
    return sum(stripes.values()), len(stripes)
