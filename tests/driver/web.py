"""Speaking to the HTTP door: by the standard library, by raw bytes, and by programs that users have."""
import base64, http.client, json, os, random, shutil, socket, ssl, subprocess

from .loopback import Failed, Skipped, check, same

LIMIT_S = 60


def basic(up):
    return "Basic " + base64.b64encode(":".join(up.login).encode()).decode()


class Answer:
    def __init__(self, response):
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    def __repr__(self):
        return "%d %s %.300r" % (self.status, dict(self.headers), self.body)


def ask(up, method, path, body=None, headers=(), login=True, port=None):
    """One request on a connection of its own. Nothing is followed."""
    where, limit = ("127.0.0.1", port or up.http), dict(timeout=LIMIT_S)
    if up.scheme == "https":
        connection = http.client.HTTPSConnection(*where, context=ssl._create_unverified_context(), **limit)
    else:
        connection = http.client.HTTPConnection(*where, **limit)
    headers = dict(headers)
    if login:
        headers.setdefault("Authorization", basic(up))
    try:
        connection.request(method, path, body, headers)
        return Answer(connection.getresponse())
    finally:
        connection.close()


def expect(status, up, method, path, *args, **kw):
    answer = ask(up, method, path, *args, **kw)
    check(answer.status in (status if isinstance(status, tuple) else (status,)),
          "%s %.100s: want %s, have %r" % (method, path, status, answer))
    return answer


def raw(up, data, port=None, limit_s=LIMIT_S):
    """All that the server says to these bytes until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port or up.http), limit_s) as s:
        s.settimeout(limit_s)
        heard = b""
        try:
            s.sendall(data)
            while chunk := s.recv(65536):
                heard += chunk
        except (ConnectionResetError, BrokenPipeError):
            pass
        except TimeoutError:
            raise Failed("the connection is still open after %d s, heard %.200r" % (limit_s, heard))
        return heard


def macaroon(up, path="/"):
    body = json.dumps({"caveats": [], "validity": "PT30M"})
    answer = expect(200, up, "POST", path, body, {"Content-Type": "application/macaroon-request"})
    return json.loads(answer.body)["macaroon"]


def a_file(place, name, size):
    """A file of bytes that no compression and no hole makes small; the same ones every time."""
    path = place.path(name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(random.Random(name).randbytes(size))
    return path


def content(path):
    with open(path, "rb") as f:
        return f.read()


def same_file(what, one, other):
    check(os.path.exists(one), "%s: there is no %s" % (what, one))
    check(content(one) == content(other), "%s: %s is not as %s" % (what, one, other))


def program(place, *argv, want=(0,), stdin="", env=()):
    """Runs a program and returns its output. Its exit status must be one of `want`, or anything if that is None."""
    if not shutil.which(argv[0]):
        raise Skipped("%s is not installed (see the packages in ./test)" % argv[0])
    try:
        r = subprocess.run(argv, input=stdin.encode() if isinstance(stdin, str) else stdin, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, timeout=LIMIT_S, cwd=place.dir, env=dict(os.environ, LC_ALL="C.UTF-8", **dict(env)))
    except subprocess.TimeoutExpired as e:
        raise Failed("%s did not end in %d s: %s" % (argv[0], LIMIT_S, (e.stdout or b"").decode(errors="replace")[-2000:]))
    said = r.stdout.decode(errors="replace")
    if want is not None:
        check(r.returncode in want, "%s: exit status %s: %s" % (" ".join(map(str, argv))[:300], r.returncode, said[-2000:]))
    return said


def curl(up, *argv, **kw):
    return program(up.place, "curl", "-sS", "-u", ":".join(up.login), *argv, **kw)


def stat_of(up, path):
    """Bytes of a file, or None: what HEAD says."""
    answer = ask(up, "HEAD", path)
    check(answer.status in (200, 404), "HEAD %s: %r" % (path, answer))
    return int(answer.headers["Content-Length"]) if answer.status == 200 else None


def holds(up, path, file):
    answer = expect(200, up, "GET", path)
    check(answer.body == content(file), "%s does not hold the bytes of %s" % (path, file))


def absent(up, path):
    same("status of " + path, ask(up, "HEAD", path).status, 404)
