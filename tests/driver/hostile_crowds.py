"""2,048 connections of one kind that want no service but memory: the server keeps little for them, and serves others meanwhile."""
import contextlib, os, random, resource, select, socket, ssl, struct, threading, time

from . import nfs_client as nfs
from .http_hostile import self_signed
from .loopback import Skipped, Up, check, same, within
from .web import expect, macaroon

CROWD = 2048
LIMIT_KIB = 300 << 10
# Memory that the allocator may keep when the crowd has gone.
KEPT_KIB = 250 << 10
MIB = 1 << 20
# The crowd comes from one host, and those that it must not harm from others: all of 127.0.0.0/8 is this one.
HOST, OTHER = "127.0.0.1", "127.0.0.2"


def room_for_descriptors():
    """This process has the crowd's sockets, and the server inherits its limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 3 * CROWD:
        raise Skipped("a process may have %d descriptors here" % hard)
    if soft < 3 * CROWD:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3 * CROWD, hard))


def connect(port, host=HOST):
    s = socket.socket()
    # Answers that the crowd does not read stay with the server, and little of them in the system's buffers.
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.settimeout(30)
    s.bind((host, 0))
    s.connect(("127.0.0.1", port))
    return s


def push(sockets, data):
    """Sends `data` on each as far as it is taken; what the server does not read stays where it is."""
    left = {s.fileno(): (s, memoryview(data)) for s in sockets}
    end, poll = time.monotonic() + 30, select.poll()
    for fd, (s, _) in left.items():
        s.setblocking(False)
        poll.register(fd, select.POLLOUT)
    quiet = 0
    while left and quiet < 10 and time.monotonic() < end:
        ready = poll.poll(100)
        quiet = 0 if ready else quiet + 1
        for fd, _ in ready:
            s, rest = left[fd]
            try:
                rest = rest[s.send(rest[:256 << 10]):]
            except BlockingIOError:
                continue
            except OSError:      # ended by the server, as it may
                rest = rest[:0]
            left[fd] = (s, rest)
            if not rest:
                poll.unregister(fd)
                del left[fd]


def settled(up):
    """KiB of the server once it has read what it will."""
    before, same_for = up.memory(), 0
    while same_for < 5:
        time.sleep(0.1)
        now = up.memory()
        same_for = same_for + 1 if abs(now - before) < 1024 else 0
        before = now


@contextlib.contextmanager
def held_low(up, limit_kib):
    """The server grows by less than `limit_kib`, and most of it is free again when the connections of the block have ended."""
    def descriptors():
        return len(os.listdir("/proc/%d/fd" % up.process.pid))
    before, open_before = up.memory(), descriptors()
    yield
    most = up.memory("VmHWM")
    check(most - before < limit_kib, "it grew from %d by %d KiB" % (before, most - before))
    within(60, lambda: descriptors() < open_before + 16, "its connections have ended")
    # The allocator gives pages back while others are at work.
    def is_given_back():
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", up.port), 10):
                pass
        return up.memory() - before < KEPT_KIB
    within(60, is_given_back, "memory is free again")


def crowd(up, port, attack, others, host=lambda i: HOST):
    """`attack(sockets)` with CROWD connections to `port`; `others()` must be served meanwhile."""
    with held_low(up, LIMIT_KIB), contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(connect(port, host(i))) for i in range(CROWD)]
        attack(sockets)
        settled(up)
        others()


def http_other(up, path="/", method="OPTIONS"):
    """One from another host gets an answer."""
    s = socket.create_connection(("127.0.0.1", up.http), 60, source_address=(OTHER, 0))
    if up.scheme == "https":
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        s = context.wrap_socket(s)
    with s:
        s.sendall(("%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n" % (method, path)).encode())
        heard = s.recv(100)
    check(heard.startswith(b"HTTP/1.1 200 "), "another host hears %r" % heard)


def rpc_null(port, source=OTHER):
    """Procedure 0 of NFS, from another host."""
    call = struct.pack(">10I", 7, 0, 2, 100003, 4, 0, 0, 0, 0, 0)
    with socket.create_connection(("127.0.0.1", port), 10, source_address=(source, 0)) as s:
        s.sendall(struct.pack(">I", 0x80000000 | len(call)) + call)
        heard = s.recv(100)
    same("the answer's xid and kind", heard[4:12], struct.pack(">II", 7, 1))


def slow_heads_of_http(place):
    room_for_descriptors()
    up = Up(place).ready()
    head = b"GET / HTTP/1.1\r\nHost: x\r\nRange: bytes=" + b"0-0," * 100_000
    crowd(up, up.http, lambda sockets: push(sockets, head), lambda: http_other(up))


def many_ranges_whose_answer_is_not_read(place):
    room_for_descriptors()
    up = Up(place).ready()
    expect(201, up, "PUT", "/a", random.Random(1).randbytes(8 * MIB))
    path = "/a?authz=" + macaroon(up, "/a")
    ranges = ",".join("%d-%d" % (i * 100, i * 100) for i in range(16_384))
    request = ("GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nRange: bytes=%s\r\n\r\n" % (path, ranges)).encode()
    crowd(up, up.http, lambda sockets: push(sockets, request), lambda: http_other(up))


def xml_bodies_that_lack_their_end(place):
    room_for_descriptors()
    up = Up(place).ready()
    size = 255 << 10
    head = "%s / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n"
    chunked = b"PROPFIND / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % size
    heads = [(head % (method, size)).encode() for method in ("PROPFIND", "LOCK", "PROPPATCH")] + [chunked]

    def attack(sockets):
        for i, head in enumerate(heads):
            push(sockets[i::len(heads)], head + b" " * (size - 1))
    crowd(up, up.http, attack, lambda: http_other(up))


def listings_that_are_not_read(place):
    """Half of the crowd lists as WebDAV, and half as a page of links."""
    room_for_descriptors()
    up = Up(place).ready()
    expect(201, up, "MKCOL", "/d")
    for i in range(1200):
        expect(201, up, "PUT", "/d/" + "n" * 200 + str(i), b"")
    propfind = b"PROPFIND /d/ HTTP/1.1\r\nHost: 127.0.0.1\r\nDepth: infinity\r\nContent-Length: 0\r\n\r\n"
    index = b"GET /d/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

    def attack(sockets):
        push(sockets[::2], propfind)
        push(sockets[1::2], index)
    crowd(up, up.http, attack, lambda: http_other(up, "/d/", "GET"))


def hpack_text(text):
    """A string literal (RFC 7541 §5.2), not compressed."""
    data, out = text.encode(), b""
    length = len(data)
    if length < 127:
        return bytes([length]) + data
    length, out = length - 127, b"\x7f"
    while length >= 128:
        out, length = out + bytes([length & 127 | 128]), length >> 7
    return out + bytes([length]) + data


def h2_frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def h2_gets(path, window, streams=100):
    """A client's first bytes: streams get `window` bytes each to answer in."""
    settings = struct.pack(">HI", 4, window)
    block = b"\x82\x87\x04" + hpack_text(path) + b"\x01" + hpack_text("127.0.0.1")
    gets = b"".join(h2_frame(1, 5, 2 * i + 1, block) for i in range(streams))
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + h2_frame(4, 0, 0, settings) + h2_frame(8, 0, 0, struct.pack(">I", (1 << 30))) + gets


def tls_crowd(port, count=CROWD):
    """So many connections after their handshake, by a few threads. One host gets HTTP/2 for some, and HTTP/1.1 for the rest."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    made, faults = [], []

    def some(n):
        try:
            for _ in range(n):
                made.append(context.wrap_socket(connect(port)))
        except OSError as e:
            faults.append(e)
    threads = [threading.Thread(target=some, args=(count // 8,), daemon=True) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    check(not faults, "a handshake failed: %s" % faults[:1])
    return made


def http_2_with_large_heads(place):
    """Each stream has a head of 30 KiB and waits with its body; the last head lacks its end."""
    room_for_descriptors()
    up = Up(place, config=self_signed(place), scheme="https").ready()
    # Kept in the table of the connection, so that each field takes one byte of the next heads.
    field = b"\x40" + hpack_text("x-filler") + hpack_text("f" * 10)
    pseudo = b"\x02" + hpack_text("PROPFIND") + b"\x87\x84\x01" + hpack_text("127.0.0.1")
    first = pseudo + field + b"\xbe" * 600
    rest = pseudo + b"\xbe" * 600
    heads = b"".join(h2_frame(1, 4, 2 * i + 1, rest if i else first) for i in range(10)) + h2_frame(1, 0, 21, rest)
    data = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + h2_frame(4, 0, 0) + heads
    filler = b"".join(b"x-filler-%d: %s\r\n" % (i, b"f" * 1000) for i in range(60))
    tls_crowd_sends(up, data, b"PROPFIND / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + filler, lambda: http_other(up))


def http_2_listings_that_are_not_read(place):
    """Windows of a byte: each stream gets some of its answer and holds the rest."""
    room_for_descriptors()
    up = Up(place, config=self_signed(place), scheme="https").ready()
    expect(201, up, "MKCOL", "/d")
    for i in range(600):
        expect(201, up, "PUT", "/d/" + "n" * 200 + str(i), b"")
    path = "/d/?authz=" + macaroon(up, "/d")
    tls_crowd_sends(up, h2_gets(path, 1), h1_get(path), lambda: http_other(up))


def h1_get(path):
    return ("GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % path).encode()


def http_2_crowd(place, window):
    room_for_descriptors()
    up = Up(place, config=self_signed(place), scheme="https").ready()
    expect(201, up, "PUT", "/a", random.Random(1).randbytes(8 * MIB))
    path = "/a?authz=" + macaroon(up, "/a")
    tls_crowd_sends(up, h2_gets(path, window), h1_get(path), lambda: http_other(up, path, "GET"))


def send_some(s, data):
    """Sends until the server takes no more for a second."""
    s.settimeout(1)
    with contextlib.suppress(OSError):
        s.sendall(data)


def tls_crowd_sends(up, h2_data, h1_data, others):
    """As `crowd`, behind TLS: each connection sends what is of its protocol."""
    def attack(h2, h1):
        for s in h2:
            send_some(s, h2_data)
        for s in h1:
            send_some(s, h1_data)
    tls_crowd_attacks(up, attack, others)


def tls_crowd_attacks(up, attack, others):
    """`attack(h2, h1)` gets the connections that speak HTTP/2, and those that speak HTTP/1.1."""
    with held_low(up, LIMIT_KIB), contextlib.ExitStack() as stack:
        by_protocol = {"h2": [], "http/1.1": []}
        for s in tls_crowd(up.http):
            by_protocol[stack.enter_context(s).selected_alpn_protocol()].append(s)
        h2, h1 = by_protocol["h2"], by_protocol["http/1.1"]
        check(len(h2) > 200, "only %d of the crowd speak HTTP/2" % len(h2))
        attack(h2, h1)
        settled(up)
        others()


def http_2_without_a_window(place):
    http_2_crowd(place, 0)


def http_2_that_does_not_read(place):
    http_2_crowd(place, 1 << 20)


def h2_window(s):
    """Bytes that the connection may send at first: 65,535, and those that the server adds when it has seen the requests."""
    def exactly(n):
        data = b""
        while len(data) < n:
            part = s.recv(n - len(data))
            if not part:
                raise ConnectionError("ended by the server")
            data += part
        return data
    s.settimeout(10)
    window = 65535
    # The server sends its window updates for the requests before it answers the last ping.
    for _ in range(3):
        s.sendall(h2_frame(6, 0, 0, bytes(8)))
        is_answered = False
        while not is_answered:
            head = exactly(9)
            payload = exactly(int.from_bytes(head[:3], "big"))
            if head[3] == 8 and head[5:] == bytes(4):
                window += int.from_bytes(payload, "big")
            is_answered = head[3:5] == b"\x06\x01"
    return window


def http_2_bodies_that_nobody_reads(place):
    """Listings wait for memory that others hold; each request has a body, in small frames, that nobody reads meanwhile."""
    room_for_descriptors()
    up = Up(place, config=self_signed(place), scheme="https").ready()
    expect(201, up, "MKCOL", "/d")
    for i in range(1200):
        expect(201, up, "PUT", "/d/" + "n" * 200 + str(i), b"")
    # Streams get no window for their answers.
    begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + h2_frame(4, 0, 0, struct.pack(">HI", 4, 0)) + h2_frame(4, 1, 0)
    rest = b"\x87\x04" + hpack_text("/d/") + b"\x01" + hpack_text("127.0.0.1")
    holding = h2_frame(1, 5, 1, b"\x02" + hpack_text("PROPFIND") + rest)
    streams = [2 * i + 1 for i in range(4)]
    waiting = b"".join(h2_frame(1, 4, n, b"\x82" + rest) for n in streams)

    def bodies(window):
        # No more than is enough to see, should the server ask for gigabytes.
        frames = min(window, 512 << 10) // 256 // len(streams)
        return b"".join(h2_frame(0, 0, n, bytes(256)) for n in streams for _ in range(frames))

    def attack(h2, h1):
        # The memory for listings of one host is for 63.
        for s in h2[:80]:
            send_some(s, begin + holding)
        settled(up)
        for s in h2[80:]:
            with contextlib.suppress(OSError):      # ended by the server, as it may
                send_some(s, begin + waiting)
                send_some(s, bodies(h2_window(s)))
        head = b"GET /d/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % MIB
        push(h1, head + bytes(MIB - 1))
    tls_crowd_attacks(up, attack, lambda: http_other(up))


def handshakes_that_never_end(place):
    room_for_descriptors()
    up = Up(place, config=self_signed(place), scheme="https").ready()
    # A record of 16 KiB that begins a ClientHello, without its last byte.
    hello = b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03" + bytes(0x4000 - 7)
    crowd(up, up.http, lambda sockets: push(sockets, hello), lambda: http_other(up))


def nfs_that_says_nothing(place):
    room_for_descriptors()
    up = Up(place).ready()
    crowd(up, up.port, lambda sockets: None, lambda: rpc_null(up.port))


def one_of_many(i):
    """A host of its own for each connection."""
    return "127.1.%d.%d" % (i >> 8, i & 255)


HALF_A_RECORD = struct.pack(">I", 0x80000000 | MIB) + bytes(MIB - 1)


def nfs_with_half_a_record(place):
    room_for_descriptors()
    up = Up(place).ready()
    crowd(up, up.port, lambda sockets: push(sockets, HALF_A_RECORD), lambda: rpc_null(up.port))


def half_a_record_of_as_many_hosts(place):
    room_for_descriptors()
    up = Up(place).ready()
    crowd(up, up.port, lambda sockets: push(sockets, HALF_A_RECORD), lambda: rpc_null(up.port), one_of_many)


def half_a_record_at_a_pool(place):
    room_for_descriptors()
    up = Up(place).ready()
    crowd(up, up.pool, lambda sockets: push(sockets, HALF_A_RECORD), lambda: rpc_null(up.pool))


# Of a session's slots, what each connection of a crowd uses.
SLOTS_EACH = 4


def nfs_readers(place, asks, at_pool=False, rounds=1, host=lambda i: HOST, other_bytes=MIB):
    """Each of the crowd sends a call on each of its slots, `rounds` times, and takes none of the replies. `asks(handles)`
    makes the operations of one: of handles of a file and of a directory, or of the file's replica at a pool."""
    room_for_descriptors()
    up = Up(place).ready()
    # The crowd asks for a half of the places, and others have some.
    place.allowed_log = ("too many connections of one address",)
    expect(201, up, "PUT", "/a", random.Random(1).randbytes(MIB))
    expect(201, up, "MKCOL", "/d")
    for i in range(1200):
        expect(201, up, "PUT", "/d/" + "n" * 200 + str(i), b"")
    port = up.pool if at_pool else up.port
    # The crowd's host has no more places for connections.
    with connect(up.port, OTHER) as at_head, connect(port, OTHER) as main:
        head = nfs.Session(at_head)
        handles = [head.handle_at_pool("a")] if at_pool else [head.handle("a"), head.handle("d")]
        sessions, client = [], None
        for i in range(CROWD * SLOTS_EACH // 32):
            client = sessions[-1].client if i % 16 else None
            sessions.append(nfs.Session(main, client))
        operations = asks(*handles)

        def attack(sockets):
            for number in range(1, rounds + 1):
                for slot in range(SLOTS_EACH):
                    for i, s in enumerate(sockets):
                        session, first = sessions[i // 8], i % 8 * SLOTS_EACH
                        push_some(s, nfs.compound(number, session.on(first + slot, number), *operations))

        def others():
            with connect(port, OTHER) as s:
                s.settimeout(60)
                s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MIB)
                told = nfs.Session(s).ask_in(nfs.put_fh(handles[0]), nfs.read(0, other_bytes))
                same("bytes for another host", len(told), other_bytes + 24)
        crowd(up, port, attack, others, host)


def push_some(s, data):
    """All or nothing, as there is room: what is not read need not be heard."""
    s.setblocking(False)
    with contextlib.suppress(OSError):
        s.send(data)


def nfs_reads_that_are_not_read(place):
    nfs_readers(place, lambda file, _: [nfs.put_fh(file), nfs.read(0, MIB)])


def nfs_many_reads_in_each_call(place):
    nfs_readers(place, lambda file, _: [nfs.put_fh(file)] + [nfs.read(0, 16 << 10)] * 62)


def nfs_a_short_read_before_a_long_one(place):
    nfs_readers(place, lambda file, _: [nfs.put_fh(file), nfs.read(0, 17 << 10), nfs.read(0, MIB)])


def nfs_short_reads_that_are_not_read(place):
    nfs_readers(place, lambda file, _: [nfs.put_fh(file), nfs.read(0, 16_000)], rounds=16)


def nfs_listings_that_are_not_read(place):
    nfs_readers(place, lambda _, directory: [nfs.put_fh(directory), nfs.read_dir(MIB)])


def nfs_reads_by_as_many_hosts(place):
    """One long reply for each would be 2 GiB. Another host waits for a long one as they do, and not for a short one."""
    nfs_readers(place, lambda file, _: [nfs.put_fh(file), nfs.read(0, MIB)], host=one_of_many, other_bytes=16_000)


def reads_at_a_pool_that_are_not_read(place):
    nfs_readers(place, lambda file: [nfs.put_fh(file), nfs.read(0, MIB)], at_pool=True)


def many_reads_in_each_call_at_a_pool(place):
    nfs_readers(place, lambda file: [nfs.put_fh(file)] + [nfs.read(0, 16 << 10)] * 62, at_pool=True)


def one_host_at_every_port_keeps_no_other_out(place):
    """More connections than a port has places for; those beyond are closed."""
    room_for_descriptors()
    up = Up(place).ready()
    place.allowed_log = ("too many connections",)
    for port in (up.port, up.pool, up.http):
        with contextlib.ExitStack() as stack:
            for _ in range(2 * CROWD + 100):
                stack.enter_context(connect(port))
            if port == up.http:
                http_other(up)
            else:
                rpc_null(port)


SCENARIOS = [one_host_at_every_port_keeps_no_other_out, slow_heads_of_http, many_ranges_whose_answer_is_not_read, http_2_without_a_window, http_2_that_does_not_read, http_2_bodies_that_nobody_reads,
             xml_bodies_that_lack_their_end, listings_that_are_not_read, http_2_with_large_heads, http_2_listings_that_are_not_read, handshakes_that_never_end, nfs_that_says_nothing, nfs_with_half_a_record, half_a_record_at_a_pool,
             nfs_reads_that_are_not_read, nfs_many_reads_in_each_call, nfs_a_short_read_before_a_long_one, nfs_short_reads_that_are_not_read, nfs_listings_that_are_not_read,
             nfs_reads_by_as_many_hosts, half_a_record_of_as_many_hosts, reads_at_a_pool_that_are_not_read, many_reads_in_each_call_at_a_pool]
