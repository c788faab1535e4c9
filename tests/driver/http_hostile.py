"""Bytes that no good client sends, clients and servers that die in the middle: clear answers, bounded memory, nothing left."""
import base64, contextlib, hashlib, hmac, json, os, random, re, signal, socket, ssl, struct, subprocess, threading, time

from .loopback import Failed, Up, check, same, within
from .web import a_file, absent, ask, basic, curl, expect, macaroon, raw

MIB = 1 << 20
ALWAYS = "[http]\nredirect = \"always\"\npool_port = %d\n"
SHORT_GRACE = "[nfs]\nlease_s = 2\ngrace_s = 2\n"


def statuses(heard):
    return [int(s) for s in re.findall(rb"HTTP/1\.1 (\d{3}) ", heard)]


def grows_less_than(up, limit_mib, work):
    """Runs `work` and holds the most memory that the process ever had against what it had before."""
    before = up.memory()
    work()
    most = up.memory("VmHWM")
    check(most - before < limit_mib << 10, "it grew by %d KiB (from %d), more than %d MiB" % (most - before, before, limit_mib))


def all_at_once(count, one):
    """`one(i)` in `count` threads; the first fault is raised here."""
    faults = []

    def guarded(i):
        try:
            one(i)
        except Exception as e:
            faults.append(e)
    threads = [threading.Thread(target=guarded, args=(i,), daemon=True) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    check(not any(t.is_alive() for t in threads), "a client still waits after 60 s")
    if faults:
        raise faults[0]


# Requests that a proxy might frame in another way: each is the head and body of a PUT whose end another reader sees elsewhere.
SMUGGLING = {
    "length and chunks": b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": b"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 0\r\nContent-Length: 4\r\n\r\nabcd",
    "a list of lengths": b"Content-Length: 0, 4\r\n\r\nabcd",
    "a length with a sign": b"Content-Length: +4\r\n\r\nabcd",
    "a negative length": b"Content-Length: -4\r\n\r\nabcd",
    "a length in hexadecimal": b"Content-Length: 0x4\r\n\r\nabcd",
    "a length beyond 64 bits": b"Content-Length: 18446744073709551620\r\n\r\nabcd",
    "a length with a space inside": b"Content-Length: 0 4\r\n\r\nabcd",
    "a coding nobody knows": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked twice": b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunked not last": b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "two codings in two lines": b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a coding with a tab before it": b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    "a space before the colon": b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "a folded line": b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "a bare carriage return": b"X: a\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a bare line feed": b"X: a\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a NUL in a value": b"X: a\0b\r\nContent-Length: 0\r\n\r\n",
    "two hosts": b"Host: other\r\nContent-Length: 0\r\n\r\n",
    "a chunk size with a sign": b"Transfer-Encoding: chunked\r\n\r\n+4\r\nabcd\r\n0\r\n\r\n",
    "a chunk size in C's notation": b"Transfer-Encoding: chunked\r\n\r\n0x4\r\nabcd\r\n0\r\n\r\n",
    "a chunk size beyond 64 bits": b"Transfer-Encoding: chunked\r\n\r\n10000000000000004\r\nabcd\r\n0\r\n\r\n",
    "a chunk with another end": b"Transfer-Encoding: chunked\r\n\r\n4\r\nabcdX\r\n0\r\n\r\n",
    "a chunk size ended by a line feed": b"Transfer-Encoding: chunked\r\n\r\n4\nabcd\r\n0\r\n\r\n",
    "an extension with a line feed": b"Transfer-Encoding: chunked\r\n\r\n4;a\nb\r\nabcd\r\n0\r\n\r\n",
    "a request in the place of trailers": b"Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n",
    "a trailer without a colon": b"Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\nX\r\n\r\n",
    "a trailer with a space before its colon": b"Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\nX : a\r\n\r\n",
    "a trailer with a NUL": b"Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\nX: a\0\r\n\r\n",
}


def no_shape_of_request_smuggling_gets_a_second_request_in(place):
    up = Up(place).ready()
    expect(201, up, "PUT", "/victim", b"alive")
    login = b"Authorization: %s\r\n" % basic(up).encode()
    inner = b"DELETE /victim HTTP/1.1\r\nHost: localhost\r\n%s\r\n" % login
    for name, rest in SMUGGLING.items():
        heard = raw(up, b"PUT /outer HTTP/1.1\r\nHost: localhost\r\n" + login + rest + inner)
        check(statuses(heard) in ([400], [501]), "%s: heard %.300r" % (name, heard))
        absent(up, "/outer")
        same("the victim after " + name, expect(200, up, "GET", "/victim").body, b"alive")


def a_request_after_a_good_one_is_a_request(place):
    """The counterpart: what is framed well may follow on one connection."""
    up = Up(place).ready()
    login = b"Host: localhost\r\nAuthorization: %s\r\n" % basic(up).encode()
    heard = raw(up, b"PUT /a HTTP/1.1\r\n" + login + b"Transfer-Encoding: chunked\r\n\r\n4;x=y\r\nabcd\r\n0\r\n\r\n"
                + b"GET /a HTTP/1.1\r\nConnection: close\r\n" + login + b"\r\n")
    same("statuses", statuses(heard), [201, 200])
    check(heard.endswith(b"abcd"), "heard %r" % heard)


def heads_of_a_mebibyte_are_refused_and_not_kept(place):
    up = Up(place).ready()
    shapes = [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * MIB, (431,)),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * (MIB // 6), (431,)),
        (b"GET /" + b"a" * MIB + b" HTTP/1.1\r\nHost: localhost\r\n", (414,)),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nRange: bytes=" + b"0-0," * (MIB // 4), (431,)),
        (b"A" * MIB, (400, 414, 501)),
        (b"\r\n" * (MIB // 2), (400, 408)),
    ]

    def one(i):
        data, want = shapes[i % len(shapes)]
        heard = statuses(raw(up, data + b"\r\n\r\n"))
        check(len(heard) == 1 and heard[0] in want, "%.40r…: have %s, want one of %s" % (data, heard, want))
    grows_less_than(up, 64, lambda: all_at_once(60, one))
    expect(207, up, "PROPFIND", "/", headers={"Depth": "0"})


def too_many_or_too_large_ranges_are_416(place):
    up = Up(place).ready()
    expect(201, up, "PUT", "/a", random.Random(1).randbytes(4 * MIB))
    asked = {"100,000 ranges": "0-0," * 100_000, "the whole file a thousand times": "0-," * 1000,
             "nothing inside": "4194304-,99999999-", }
    for name, ranges in asked.items():
        answer = ask(up, "GET", "/a", headers={"Range": "bytes=" + ranges.rstrip(",")})
        check(answer.status == 416 and len(answer.body) < 1000, "%s: %r" % (name, answer))
        same(name, answer.headers["Content-Range"], "bytes */4194304")
    grows_less_than(up, 64, lambda: all_at_once(20, lambda i: same(
        "status", ask(up, "GET", "/a", headers={"Range": "bytes=" + "0-0," * 100_000 + "1-1"}).status, 416)))
    for name, ranges in {"backwards": "5-1", "no digits": "a-b", "beyond 64 bits": "99999999999999999999-", "another unit": None}.items():
        answer = ask(up, "GET", "/a", headers={"Range": "lines=1-2" if ranges is None else "bytes=" + ranges})
        check(answer.status in (200, 416), "%s: %r" % (name, answer.status))


# path: statuses of PUT. None of them may make or reach anything but its own name.
PATHS = {
    "/../up": (400,), "/d/../up": (400,), "/d/%2e%2e/up": (400,), "/d/%2E./up": (400,), "/./up": (400,), "/d/..": (400,),
    "/d%2fup": (400,), "/d%2Fup": (400,), "/up%00.txt": (400,), "/up%": (400,), "/up%4": (400,), "/up%zz": (400,),
    "/%252e%252e": (201,), "/d%252fup": (201,), "/..%5cup": (201,), "/d/...": (201,), "/d//twice": (201,), "//d/up": (201,),
    "/" + "n" * 256: (414,), "/" + "n" * 255: (201,), "/" + "%41" * 255 + "/x": (409,), "/" + "d/" * 300: (414,),
    "/" + "n/" * 6000: (414,), "/d/": (405, 409), "/": (403, 405), "http://127.0.0.1/absolute": (201,), "up": (400,), "*": (400,),
    "/d#fragment": (400,), "/sp ace": (400,),
}


def path_tricks_reach_nothing(place):
    up = Up(place).ready()
    expect(201, up, "MKCOL", "/d")
    head = b"Host: 127.0.0.1\r\nConnection: close\r\nAuthorization: %s\r\nContent-Length: 1\r\n\r\nx" % basic(up).encode()
    for path, want in PATHS.items():
        heard = statuses(raw(up, b"PUT %s HTTP/1.1\r\n" % path.encode() + head))
        check(len(heard) == 1 and heard[0] in want, "PUT %.80s: have %s, want %s" % (path, heard, want))
    for path in ("/../outside", "/d/%2e%2e/%2e%2e/outside", "/d%2foutside", "/out%00side"):
        for method in ("COPY", "MOVE"):
            expect((400, 502), up, method, "/d/...", headers={"Destination": up.url + path})
        expect(400, up, "POST", "/d", json.dumps({"caveats": ["path:" + path]}), {"Content-Type": "application/macaroon-request"})
    for path in ("/../../../../etc/passwd", "/%2e%2e/%2e%2e/%2e%2e/etc/passwd", "/d/..%2f..%2f..%2fetc/passwd"):
        heard = raw(up, b"GET %s HTTP/1.1\r\n" % path.encode() + head)
        same("GET " + path, statuses(heard), [400])
    names = set(re.findall(r"<[^>]*href>([^<]*)</", ask(up, "PROPFIND", "/", headers={"Depth": "infinity"}).body.decode()))
    same("all names", names, {"/", "/d/", "/%252e%252e", "/d%252fup", "/..%5Cup", "/d/...", "/d/twice", "/d/up", "/absolute",
                              "/" + "n" * 255})


def a_token_for_a_directory_is_good_for_nothing_beside_it(place):
    up = Up(place).ready()
    for path in ("/d", "/d/in", "/db"):
        expect(201, up, "MKCOL", path)
    bearer = {"Authorization": "Bearer " + macaroon(up, "/d/in")}
    expect(201, up, "PUT", "/d/in/a", b"x", bearer)
    for path in ("/d/a", "/d/inside", "/db/a", "/a"):
        expect(403, up, "PUT", path, b"x", bearer)
    for path in ("/d/b", "/b"):
        for method in ("MOVE", "COPY"):
            expect(403, up, method, "/d/in/a", headers=dict(bearer, Destination=up.url + path))
    expect((400, 403), up, "PUT", "/d/in/../a", b"x", bearer)
    expect(401, up, "PUT", "/d/in/b", b"x", {"Authorization": bearer["Authorization"][:-2] + "AA"})


def xml_that_explodes_is_refused(place):
    up = Up(place).ready()
    entities = "".join('<!ENTITY l%d "%s">' % (i, "&l%d;" % (i - 1) * 10) for i in range(1, 10))
    bodies = {
        "entities of entities": '<!DOCTYPE x [<!ENTITY l0 "lol">%s]><propfind xmlns="DAV:"><prop>&l9;</prop></propfind>' % entities,
        "a file of the host": '<!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/passwd">]><propfind xmlns="DAV:"><prop>&f;</prop></propfind>',
        "a million levels": "<a>" * 1_000_000,
        "many attributes": '<propfind xmlns="DAV:" ' + " ".join('a%d="x"' % i for i in range(100_000)) + "/>",
        "no XML": "\0\xff" * 1000,
    }
    grows_less_than(up, 64, lambda: [expect((400, 413), up, m, "/", b, {"Depth": "0"}) for b in bodies.values()
                                     for m in ("PROPFIND", "PROPPATCH", "LOCK")])
    expect(413, up, "PROPFIND", "/", b" " * (32 * MIB), {"Depth": "0", "Expect": "100-continue"})


def slow_clients_are_let_go_and_keep_nobody_waiting(place):
    up = Up(place).ready()
    expect(201, up, "PUT", "/a", b"x" * 100)
    ended = {}

    def drip(i):
        t0 = time.monotonic()
        with socket.create_connection(("127.0.0.1", up.http)) as s:
            s.sendall(b"GET /a HTTP/1.1\r\nHost: localhost\r\n")
            s.settimeout(0.5)
            heard = b""
            while time.monotonic() - t0 < 40:
                with contextlib.suppress(TimeoutError):
                    chunk = s.recv(1000)
                    heard += chunk
                    if not chunk:
                        break
                with contextlib.suppress(OSError):
                    s.sendall(b"X")
            ended[i] = (time.monotonic() - t0, statuses(heard))
    threads = [threading.Thread(target=drip, args=(i,), daemon=True) for i in range(100)]
    for t in threads:
        t.start()
    for _ in range(20):
        t0 = time.monotonic()
        expect(200, up, "GET", "/a")
        check(time.monotonic() - t0 < 2, "a good client waited %.1f s" % (time.monotonic() - t0))
    for t in threads:
        t.join(45)
    same("clients that were let go", len(ended), 100)
    check(all(15 < s < 30 and heard == [408] for s, heard in ended.values()), "after seconds, told: %s" % sorted(ended.values())[::25])


def connections_beyond_the_bound_are_told_503(place):
    up = Up(place, config="[http]\nconnections_max = 100\n").ready()
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.create_connection(("127.0.0.1", up.http))) for _ in range(50)]
        for s in held:
            s.sendall(b"OPTIONS / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            same("one of the fifty", statuses(s.recv(65536)), [200])
        same("the next one", statuses(raw(up, b"OPTIONS / HTTP/1.1\r\nHost: localhost\r\n\r\n")), [503])
    within(10, lambda: statuses(raw(up, b"OPTIONS / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")) == [200], "no room was made")


def readers_that_take_nothing_hold_little_memory(place):
    up = Up(place).ready()
    expect(201, up, "PUT", "/a", random.Random(1).randbytes(16 * MIB))

    def work():
        with contextlib.ExitStack() as stack:
            for _ in range(200):
                s = stack.enter_context(socket.create_connection(("127.0.0.1", up.http)))
                s.sendall(b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n")
            expect(200, up, "GET", "/a")
            time.sleep(0.5)      # for whatever would be read ahead for them
    grows_less_than(up, 64, work)


def uploads_that_stand_still_hold_little_memory(place):
    up = Up(place).ready()
    head = b"PUT /still%d HTTP/1.1\r\nHost: localhost\r\nAuthorization: " + basic(up).encode() + b"\r\nContent-Length: 1000000000\r\n\r\n"

    def work():
        with contextlib.ExitStack() as stack:
            for i in range(200):
                s = stack.enter_context(socket.create_connection(("127.0.0.1", up.http)))
                s.sendall(head % i + bytes(256 << 10))
            within(20, lambda: len(up.replicas()) == 200, lambda: "%d uploads began" % len(up.replicas()))
    grows_less_than(up, 192, work)
    within(20, lambda: not up.replicas(), "replicas of uploads that were given up are still there")


def self_signed(place):
    said = place.run("cert", "self-signed", "--host", "127.0.0.1", "--out", place.dir)
    check(said.returncode == 0, said.stdout)
    return "[http]\ncertificate = \"%s/certificate.pem\"\nkey = \"%s/key.pem\"\n" % (place.dir, place.dir)


def garbage_on_the_tls_port_ends_that_connection_only(place):
    up = Up(place, config=self_signed(place), scheme="https").ready()
    chance = random.Random(2)
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(32)
    shapes = [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", chance.randbytes(10_000), b"\x16\x03\x01\xff\xff" + chance.randbytes(70_000),
              hello + b"\0" * 477, b"\x80\x2e\x01\x00\x02" + chance.randbytes(100), b"\x17\x03\x03\x40\x00" + chance.randbytes(16384)]
    grows_less_than(up, 64, lambda: all_at_once(60, lambda i: raw(up, shapes[i % len(shapes)])))
    for cut in (1, 5, 20, 43):       # a client that goes away in its first message
        with socket.create_connection(("127.0.0.1", up.http)) as s:
            s.sendall(hello[:cut])
    # A handshake that never comes to its end.
    t0 = time.monotonic()
    raw(up, hello)
    check(5 < time.monotonic() - t0 < 20, "a silent handshake ended after %.0f s" % (time.monotonic() - t0))
    expect(201, up, "PUT", "/a", b"x")
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with socket.create_connection(("127.0.0.1", up.http)) as s, contextlib.suppress(ssl.SSLError, ConnectionError):
        old.wrap_socket(s)
        raise Failed("TLS 1.1 was accepted")


def a_refusal_in_the_middle_of_a_body_reaches_curl_over_http_2(place):
    """curl 7.88 loses an answer that is followed by RST_STREAM while it still sends, even one with NO_ERROR. Where it sees the head of
    the answer before the rest, it ends a body too early by itself, complains of the reset that this brings, and has the answer."""
    up = Up(place, config=self_signed(place), scheme="https").ready()
    for size in (6, 300_000):
        file, complaints = a_file(place, "file", size), 0
        for _ in range(20):
            said = curl(up, "-k", "--http2", "-o", "/dev/null", "-w", "%{http_version} %{http_code}", "-T", file,
                        up.url + "/none/a", want=None)
            complaint, _, told = said.rpartition("\n")
            same("of a PUT of %d bytes" % size, told, "2 409")
            complaints += complaint != ""
        check(complaints <= 2, "curl complains of %d answers to PUTs of %d bytes: %s" % (complaints, size, complaint))


def redirecting(place, pools=1, **kw):
    first = place.free_port(pools)
    up = Up(place, config=ALWAYS % first, pools=pools, **kw).ready()
    up.face = first
    return up


def location(answer, up):
    check(answer.status == 307, "no redirect: %r" % answer)
    found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)(/.*)", answer.headers["Location"])
    return int(found.group(1)), found.group(2)


def resealed(up, sealed, at, value):
    """The ticket with 8 bytes changed, under the pool's own key: what only the server can make. HKDF of RFC 5869, by hand."""
    body = bytearray(base64.urlsafe_b64decode(sealed + "==")[:48])
    body[at:at + 8] = struct.pack(">Q", value)
    with open(os.path.join(up.data, "secret"), "rb") as f:
        mac_of = lambda key, message: hmac.new(key, message, hashlib.sha256).digest()
        root = mac_of(b"forebay tickets", f.read())
    key = mac_of(root, b"forebay pool http" + bytes(body[4:8] + body[36:40]) + b"\1")
    mac = mac_of(key, body)[:16]
    return base64.urlsafe_b64encode(bytes(body) + mac).decode().rstrip("=")


def forged_and_expired_tickets_open_nothing(place):
    up = redirecting(place)
    data = random.Random(3).randbytes(100_000)
    expect(201, up, "PUT", "/a", data)
    port, target = location(ask(up, "GET", "/a"), up)
    same("the pool's face", port, up.face)
    same("with the ticket", expect(200, up, "GET", target, login=False, port=port).body, data)
    same("again, a part", expect(206, up, "GET", target, headers={"Range": "bytes=7-8"}, login=False, port=port).body, data[7:9])
    path, sealed = target.split("?forebay-ticket=")
    face = lambda method, ticket, body=None: ask(up, method, path + "?forebay-ticket=" + ticket, body, login=False, port=port)
    decoded = lambda ticket: base64.urlsafe_b64decode(ticket + "==")
    pool_and_generation = lambda ticket: (decoded(ticket)[4:8], decoded(ticket)[36:40])
    for at in range(len(sealed)):
        forged = sealed[:at] + ("B" if sealed[at] == "A" else "A") + sealed[at + 1:]
        answer = face("GET", forged)
        if pool_and_generation(forged) != pool_and_generation(sealed):
            same("character %d changed, one of another pool or of other keys" % at, location(answer, up), (up.http, "/a"))
        else:
            check(answer.status in (403,), "character %d changed: %r" % (at, answer))
    for forged in ("", "A", sealed[:-1], sealed + "A", sealed * 100, base64.urlsafe_b64encode(bytes(64)).decode().rstrip("=")):
        same("ticket %.20r" % forged, face("GET", forged).status, 403)
    check(face("GET", resealed(up, sealed, 24, int(time.time()) + 60)).status == 200, "the test cannot seal a ticket")
    over = face("GET", resealed(up, sealed, 24, int(time.time()) - 10))
    same("an expired one goes back to the head", location(over, up), (up.http, "/a"))
    same("so does one without", location(ask(up, "GET", "/a", login=False, port=port), up), (up.http, "/a"))
    for method in ("PUT", "DELETE", "PROPFIND", "MOVE"):
        same("%s with a ticket to read" % method, location(face(method, sealed, b"x"), up), (up.http, "/a"))
    same("contents", expect(200, up, "GET", target, login=False, port=port).body, data)


def redirected_put(up, path, length=None):
    """(port, target) of the pool that shall get the body."""
    size = "Content-Length: %d" % length if length is not None else "Transfer-Encoding: chunked"
    with socket.create_connection(("127.0.0.1", up.http)) as s:
        s.sendall(("PUT %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAuthorization: %s\r\nExpect: 100-continue\r\n%s\r\n\r\n" % (
            path, up.http, basic(up), size)).encode())
        heard = s.recv(65536).decode()
    found = re.search(r"location: http://127\.0\.0\.1:(\d+)(\S+)", heard, re.I)
    check(found and " 307 " in heard, "PUT was not redirected: " + heard)
    return int(found.group(1)), found.group(2)


def a_ticket_to_upload_is_good_for_one_upload(place):
    up = redirecting(place)
    port, target = redirected_put(up, "/a", 5)
    absent(up, "/a")
    expect(201, up, "PUT", target, b"hello", login=False, port=port)
    expect(410, up, "PUT", target, b"other", login=False, port=port)
    same("contents", ask(up, "GET", location(ask(up, "GET", "/a"), up)[1], login=False, port=port).body, b"hello")
    port, target = redirected_put(up, "/b", 5)
    expect(400, up, "PUT", target, b"longer than told", login=False, port=port)
    absent(up, "/b")
    port, target = redirected_put(up, "/c", 5)
    same("reading by it", ask(up, "GET", target, login=False, port=port).status, 307)
    expect(403, up, "PUT", target[:-1] + ("A" if target[-1] != "A" else "B"), b"hello", login=False, port=port)
    absent(up, "/c")
    expect(201, up, "PUT", target, b"hello", login=False, port=port)


def tickets_of_another_instance_or_pool_are_refused(place):
    up = redirecting(place)
    expect(201, up, "PUT", "/a", b"mine")
    other = redirecting(place, data=place.path("other"))
    expect(201, other, "PUT", "/a", b"other")
    port, target = location(ask(up, "GET", "/a"), up)
    expect(403, up, "GET", target, login=False, port=other.face)
    two = redirecting(place, pools=2, data=place.path("two"))
    for name in "abcd":
        expect(201, two, "PUT", "/" + name, b"x" * 100)
        port, target = location(ask(two, "GET", "/" + name), two)
        expect(200, two, "GET", target, login=False, port=port)
        wrong = two.face + (port == two.face)
        same("at the wrong pool", location(ask(two, "GET", target, login=False, port=wrong), two), (two.http, "/" + name))


def begun(up, path, length=100_000_000, sent=8 * MIB, port=None, login=True):
    """A PUT whose client has sent a part of the body; on the disk, as far as that can be seen."""
    large = lambda: {r for r in up.replicas() if os.path.getsize(r) >= sent // 2}
    before = large()
    s = socket.create_connection(("127.0.0.1", port or up.http))
    size = "Content-Length: %d" % length if length else "Transfer-Encoding: chunked"
    auth = "Authorization: %s\r\n" % basic(up) if login else ""
    s.sendall(("PUT %s HTTP/1.1\r\nHost: localhost\r\n%s%s\r\n\r\n" % (path, auth, size)).encode())
    body = random.Random(4).randbytes(sent)
    s.sendall(body if length else b"%x\r\n%s\r\n" % (sent, body))
    within(10, lambda: large() - before, "no bytes came to the pool")
    return s


def reset(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def a_client_that_dies_in_the_middle_of_a_put_leaves_nothing(place):
    up = Up(place).ready()
    for length, leave in ((100_000_000, socket.socket.close), (100_000_000, reset), (None, socket.socket.close), (None, reset)):
        s = begun(up, "/a", length)
        absent(up, "/a")
        leave(s)
        within(10, lambda: not up.replicas(), lambda: "the pool still has %s" % up.replicas())
        absent(up, "/a")
    expect(201, up, "PUT", "/a", b"old")
    reset(begun(up, "/a"))
    within(10, lambda: len(up.replicas()) == 1, lambda: "the pool has %s" % up.replicas())
    same("what was there before", expect(200, up, "GET", "/a").body, b"old")


def a_client_that_dies_at_the_pool_leaves_nothing(place):
    up = redirecting(place)
    port, target = redirected_put(up, "/a", 100_000_000)
    reset(begun(up, target, port=port, login=False))
    within(10, lambda: not up.replicas(), lambda: "the pool still has %s" % up.replicas())
    absent(up, "/a")


def a_server_that_is_killed_in_the_middle_of_a_put_leaves_nothing(place):
    up = Up(place, config=SHORT_GRACE).ready()
    expect(201, up, "PUT", "/old", b"old")
    clients = [begun(up, "/a"), begun(up, "/old"), begun(up, "/b", length=None)]
    up.stop(signal.SIGKILL)
    for s in clients:
        s.close()
    same("replicas when it was killed", len(up.replicas()), 4)
    again = Up(place, config=SHORT_GRACE, login=up.login).ready()
    absent(again, "/a")
    absent(again, "/b")
    same("what was there before", expect(200, again, "GET", "/old").body, b"old")
    within(15, lambda: len(again.replicas()) == 1, lambda: "after grace the pool still has %s" % again.replicas())
    expect(201, again, "PUT", "/a", b"new")


def uploads_answered_201_outlive_kill_9(place):
    up = Up(place).ready()
    sums, stop = {}, threading.Event()

    def writer(i):
        chance = random.Random(i)
        for n in range(10_000):
            data, path = chance.randbytes(chance.randrange(1, 200_000)), "/f%d-%d" % (i, n)
            try:
                answer = ask(up, "PUT", path, data)
            except OSError:
                return
            check(answer.status == 201, "PUT: %r" % answer)
            sums[path] = hashlib.sha256(data).hexdigest()
    threads = [threading.Thread(target=writer, args=(i,), daemon=True) for i in range(4)]
    for t in threads:
        t.start()
    within(20, lambda: len(sums) > 100, lambda: "only %d uploads" % len(sums))
    up.stop(signal.SIGKILL)
    for t in threads:
        t.join(20)
    again = Up(place, login=up.login).ready()
    for path, sum256 in sums.items():
        same(path, hashlib.sha256(expect(200, again, "GET", path).body).hexdigest(), sum256)
    listed = ask(again, "PROPFIND", "/", headers={"Depth": "1"}).body.count(b"/f")
    check(listed - len(sums) <= 4, "%d names, %d were acknowledged, 4 were under way" % (listed, len(sums)))


def on_a_small_disk(place):
    image, data = place.path("disk.img"), place.path("data")
    os.makedirs(data)
    for argv in (["truncate", "-s", "160M", image], ["mkfs.ext4", "-q", "-O", "^has_journal", image], ["mount", "-o", "loop", image, data]):
        subprocess.run(argv, check=True)
    place.undo.append(lambda: subprocess.run(["umount", "-l", data]))
    os.rmdir(os.path.join(data, "lost+found"))


def a_put_that_fills_the_disk_is_507_and_leaves_nothing(place):
    on_a_small_disk(place)
    up = Up(place).ready()
    expect(201, up, "PUT", "/early", b"early")
    free = os.statvfs(up.data).f_bavail
    for chunked in (False, True):
        body = random.Random(5).randbytes(200 * MIB)
        answer = put_all(up, "/a", body, chunked)
        same("status", statuses(answer), [507])
        absent(up, "/a")
        within(10, lambda: len(up.replicas()) == 1, lambda: "the pool has %s" % up.replicas())
    within(10, lambda: os.statvfs(up.data).f_bavail > free * 0.97, lambda: "%d blocks free, %d before" % (os.statvfs(up.data).f_bavail, free))
    same("early", expect(200, up, "GET", "/early").body, b"early")
    # The head asks the pools for their space now and then, not at every upload.
    within(10, lambda: ask(up, "PUT", "/again", bytes(8 * MIB)).status == 201, "no room was found again")


def put_all(up, path, body, chunked):
    """The answer to a PUT whose client goes on sending, whatever it is told, until it has sent all or cannot."""
    heard = []
    with socket.create_connection(("127.0.0.1", up.http), 60) as s:
        def listen():
            with contextlib.suppress(OSError):
                while chunk := s.recv(65536):
                    heard.append(chunk)
        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        size = "Transfer-Encoding: chunked" if chunked else "Content-Length: %d" % len(body)
        with contextlib.suppress(OSError):
            s.sendall(("PUT %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: %s\r\n%s\r\n\r\n" % (path, basic(up), size)).encode())
            for at in range(0, len(body), MIB):
                part = body[at:at + MIB]
                s.sendall(b"%x\r\n%s\r\n" % (len(part), part) if chunked else part)
            if chunked:
                s.sendall(b"0\r\n\r\n")
        listener.join(30)
    return b"".join(heard)


SCENARIOS = [no_shape_of_request_smuggling_gets_a_second_request_in, a_request_after_a_good_one_is_a_request,
             heads_of_a_mebibyte_are_refused_and_not_kept, too_many_or_too_large_ranges_are_416, path_tricks_reach_nothing,
             a_token_for_a_directory_is_good_for_nothing_beside_it, xml_that_explodes_is_refused,
             slow_clients_are_let_go_and_keep_nobody_waiting, connections_beyond_the_bound_are_told_503,
             readers_that_take_nothing_hold_little_memory, uploads_that_stand_still_hold_little_memory,
             garbage_on_the_tls_port_ends_that_connection_only,
             a_refusal_in_the_middle_of_a_body_reaches_curl_over_http_2, forged_and_expired_tickets_open_nothing,
             a_ticket_to_upload_is_good_for_one_upload, tickets_of_another_instance_or_pool_are_refused,
             a_client_that_dies_in_the_middle_of_a_put_leaves_nothing, a_client_that_dies_at_the_pool_leaves_nothing,
             a_server_that_is_killed_in_the_middle_of_a_put_leaves_nothing, uploads_answered_201_outlive_kill_9,
             a_put_that_fills_the_disk_is_507_and_leaves_nothing]
