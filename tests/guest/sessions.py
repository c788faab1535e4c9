"""Many calls at once, a crowd of clients that take sessions and sleep, and the server's calls to this kernel, seen on the wire.

    sessions.py at_once DIR COUNT               changes so many of its files' modes: all are asked before any is answered
    sessions.py crowd CLIENTS SESSIONS FLAG     so many sessions of each client, until the file FLAG is gone
    sessions.py calls FILE                      a line for each CB_RECALL_SLOT, and one for its answer, into FILE
"""
import ctypes, os, socket, struct, subprocess, sys, threading, time

PORT = int(os.environ["KC_PORT"])
NFS, CALL, REPLY, LAST = 100003, 0, 1, 1 << 31
EXCHANGE_ID, CREATE_SESSION, DESTROY_SESSION, SEQUENCE, DESTROY_CLIENTID = 42, 43, 44, 53, 57
CB_SEQUENCE, CB_RECALL_SLOT = 11, 10
SLOTS, KEPT_BYTES = 64, 8 << 10     # as many and as much as the server gives
RENEWAL_S = 3


def at_once(directory, count):
    def change(path):
        os.chmod(path, os.stat(path).st_mode & 0o777 ^ 0o040)
    threads = [threading.Thread(target=change, args=("%s/%d" % (directory, i),)) for i in range(count)]
    hook("server-pause")
    for thread in threads:
        thread.start()
    until = time.monotonic() + 10
    while time.monotonic() < until and sum(map(waits, threads)) < count:
        time.sleep(0.05)
    hook("server-continue")
    for thread in threads:
        thread.join()


def hook(name):
    """Off the mount, where nobody answers now: a shell looks at its directory and at $PWD when it starts."""
    subprocess.run(["kc-hook", name], cwd="/", env=dict(os.environ, PWD="/"), check=True)


def waits(thread):
    """In the kernel, for an answer."""
    with open("/proc/self/task/%d/stat" % thread.native_id) as f:
        return f.read().rsplit(")", 1)[1].split()[0] == "D"


def words(*numbers):
    return struct.pack(">%dI" % len(numbers), *numbers)


def opaque(data):
    return words(len(data)) + data + bytes(-len(data) % 4)


class Crowd:
    """All its clients speak over one connection, which no server may call them over."""

    def __init__(self):
        self.socket = socket.create_connection((os.environ["KC_SERVER"], PORT))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.replies = self.socket.makefile("rb")
        self.xid = 0

    def ask(self, *operations):
        """COMPOUND of these; its results behind the status and number of the first."""
        self.xid += 1
        credentials = opaque(words(0) + opaque(b"crowd") + words(0, 0, 0))
        call = (words(self.xid, CALL, 2, NFS, 4, 1) + words(1) + credentials + words(0, 0)
                + opaque(b"") + words(1, len(operations)) + b"".join(operations))
        self.socket.sendall(words(LAST | len(call)) + call)
        mark, = struct.unpack(">I", self.replies.read(4))
        reply = self.replies.read(mark & ~LAST)
        xid, kind, denied, _, length = struct.unpack_from(">5I", reply)
        assert (xid, kind, denied, length) == (self.xid, REPLY, 0, 0), reply
        accepted, status, tag, count, operation, first = struct.unpack_from(">6I", reply, 20)
        assert (accepted, status, first) == (0, 0, 0), "operation %d: status %d" % (operation, status)
        return reply[44:]

    def client(self, name):
        verifier = struct.pack(">Q", time.time_ns())
        told = self.ask(words(EXCHANGE_ID) + verifier + opaque(name.encode()) + words(0, 0, 0))
        return struct.unpack_from(">QI", told)

    def session(self, client, number, slots):
        fore, back = (words(0, 1 << 20, 1 << 20, kept, 8, n, 0) for kept, n in ((KEPT_BYTES, slots), (0, 1)))
        told = self.ask(words(CREATE_SESSION) + struct.pack(">QII", client, number, 0) + fore + back + words(1 << 30, 1, 0))
        assert struct.unpack_from(">I", told, 24 + 5 * 4) == (slots,), "fewer slots than were asked for"
        return told[:16]

    def renew(self, session, number):
        self.ask(words(SEQUENCE) + session + words(number, 0, 0, 0))


def crowd(clients, sessions, flag):
    """The first session of each has one slot, and renews the lease; the others sleep, and keep all that they have."""
    crowd, known, count = Crowd(), [], 0
    for index in range(clients):
        client, first = crowd.client("sleeper %d" % index)
        slots = [1] + [SLOTS] * (sessions - 1)
        known.append((client, [crowd.session(client, first + i, n) for i, n in enumerate(slots)]))
        count += sum(slots)
    number = 0
    print(count, flush=True)
    while os.path.exists(flag):
        number += 1
        for _, (first, *_) in known:
            crowd.renew(first, number)
        until = time.monotonic() + RENEWAL_S
        while os.path.exists(flag) and time.monotonic() < until:
            time.sleep(0.1)
    for client, ids in known:
        for session in ids:
            crowd.ask(words(DESTROY_SESSION) + session)
        crowd.ask(words(DESTROY_CLIENTID) + struct.pack(">Q", client))


def records(frame):
    """(whether the server sent it, record) of each whole RPC message that begins in this packet."""
    if frame[12:14] != b"\x08\x00" or frame[23] != socket.IPPROTO_TCP:
        return
    ip = frame[14:14 + struct.unpack_from(">H", frame, 16)[0]]
    tcp = ip[(ip[0] & 15) * 4:]
    source, target = struct.unpack_from(">HH", tcp)
    data = tcp[(tcp[12] >> 4) * 4:]
    while PORT in (source, target) and len(data) > 4:
        mark, = struct.unpack_from(">I", data)
        length = mark & ~LAST
        if not mark & LAST or length > len(data) - 4:
            return
        yield source == PORT, data[4:4 + length]
        data = data[4 + length:]


def skip(data, at):
    """Behind the opaque that begins there."""
    return at + 4 + (struct.unpack_from(">I", data, at)[0] + 3 & ~3)


def recalled(call):
    """`rsa_target_highest_slotid`, if this is a CB_COMPOUND that asks for slots."""
    at = skip(call, skip(call, 28) + 4)     # behind credentials and verifier
    count, = struct.unpack_from(">I", call, skip(call, at) + 8)
    at = skip(call, at) + 12
    operation, = struct.unpack_from(">I", call, at)
    if (count, operation) != (2, CB_SEQUENCE):
        return None
    at += 4 + 16 + 16       # session, numbers and flag
    lists, = struct.unpack_from(">I", call, at)
    operation, target = struct.unpack_from(">II", call, at + 4) if lists == 0 else (None, None)
    return target if operation == CB_RECALL_SLOT else None


# The kernel's client has a privileged port, and the crowd has not: the source's port, or the target's if the source is the server.
FILTER = ((0x28, 0, 0, 34), (0x15, 0, 1, PORT), (0x28, 0, 0, 36), (0x35, 1, 0, 1024), (6, 0, 0, 1 << 18), (6, 0, 0, 0))
SO_ATTACH_FILTER, SO_RCVBUFFORCE = 26, 33


def kernels_packets():
    """Those of the crowd would fill its buffer: each is charged with the 64 KiB that the card's driver had ready for it."""
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    wire.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in FILTER))
    wire.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", len(FILTER), ctypes.addressof(code)))
    return wire


def calls(file):
    asked, wire = {}, kernels_packets()
    with open(file, "w", buffering=1) as out:
        print("watching", file=out)
        while True:
            for is_from_server, record in records(wire.recv(1 << 17)):
                if len(record) < 12:
                    continue
                xid, kind = struct.unpack_from(">II", record)
                if is_from_server and kind == CALL:
                    target = recalled(record)
                    if target is not None:
                        asked[xid] = target
                        print("asked to keep to slot %d" % target, file=out)
                elif not is_from_server and kind == REPLY and xid in asked:
                    accepted, status = struct.unpack_from(">II", record, skip(record, 16))
                    print("answered %d %d for slot %d" % (accepted, status, asked.pop(xid)), file=out)


if __name__ == "__main__":
    if sys.argv[1] == "at_once":
        at_once(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1] == "crowd":
        crowd(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    else:
        calls(sys.argv[2])
