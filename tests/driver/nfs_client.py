"""A client of NFSv4.1 that speaks as it is told: for what no kernel's client would ask, or not take."""
import os, socket, struct

NFS, CALL, REPLY, LAST = 100003, 0, 1, 1 << 31
GETFH, LOOKUP, OPEN, PUTFH, PUTROOTFH, READ, READDIR = 10, 15, 18, 22, 24, 25, 26
EXCHANGE_ID, CREATE_SESSION, LAYOUTGET, SEQUENCE, RECLAIM_COMPLETE = 42, 43, 50, 53, 58
FLEX_FILES = 4
SLOTS, OPERATIONS, IO_BYTES = 64, 64, 1 << 20
ANONYMOUS = bytes(16)


def words(*numbers):
    return struct.pack(">%dI" % len(numbers), *numbers)


def opaque(data):
    return words(len(data)) + data + bytes(-len(data) % 4)


def put_fh(handle):
    return words(PUTFH) + opaque(handle)


def read(offset, count):
    return words(READ) + ANONYMOUS + struct.pack(">QI", offset, count)


def read_dir(count):
    return words(READDIR) + bytes(16) + words(0, count, 1, 1 << 1)


def compound(xid, *operations):
    """The record of a COMPOUND of root's, by AUTH_SYS."""
    credentials = opaque(words(0) + opaque(b"crowd") + words(0, 0, 0))
    call = (words(xid, CALL, 2, NFS, 4, 1) + words(1) + credentials + words(0, 0)
            + opaque(b"") + words(1, len(operations)) + b"".join(operations))
    return words(LAST | len(call)) + call


class Session:
    """Of a client of its own or of `client`; speaks over `sock` and has its slots for whoever sends over other connections."""

    def __init__(self, sock, client=None):
        self.socket, self.xid, self.sequence, self.id = sock, 0, 0, None
        if client is None:
            name = os.urandom(8)
            told = self.ask(words(EXCHANGE_ID) + bytes(8) + opaque(name) + words(0, 0, 0))
            client = list(struct.unpack_from(">QI", told))
        self.client = client
        attributes = words(0, IO_BYTES + 8192, IO_BYTES + 8192, 0, OPERATIONS, SLOTS, 0), words(0, 4096, 4096, 0, 2, 1, 0)
        told = self.ask(words(CREATE_SESSION) + struct.pack(">QII", *client, 0) + b"".join(attributes) + words(1 << 30, 1, 0))
        client[1] += 1
        self.id = told[:16]

    def on(self, slot, number):
        """SEQUENCE of the `number`th request of a slot. This object itself uses the last."""
        return words(SEQUENCE) + self.id + words(number, slot, SLOTS - 1, 0)

    def ask(self, *operations):
        """The result of the last operation behind its status; those before it must have results without length of their own."""
        self.xid += 1
        self.socket.sendall(compound(self.xid, *operations))
        reply = b""
        while len(reply) < 4 or len(reply) < 4 + (struct.unpack_from(">I", reply)[0] & ~LAST):
            some = self.socket.recv(1 << 20)
            if not some:
                raise OSError("the server hung up")
            reply += some
        reply = reply[4:]
        xid, kind, denied, _, length, accepted, status, _, count = struct.unpack_from(">9I", reply)
        if (xid, kind, denied, length, accepted, status) != (self.xid, REPLY, 0, 0, 0, 0):
            raise OSError("status %d after %d operations" % (status, count))
        return reply[44:]

    def ask_in(self, *operations):
        """As `ask`, in the session: behind the results of SEQUENCE."""
        self.sequence += 1
        return self.ask(self.on(SLOTS - 1, self.sequence), *operations)[36:]

    def handle(self, *path):
        """The file handle of what is there."""
        told = self.ask_in(words(PUTROOTFH), *(words(LOOKUP) + opaque(n.encode()) for n in path), words(GETFH))
        length, = struct.unpack_from(">I", told, 8 * (len(path) + 1) + 8)
        return told[8 * (len(path) + 1) + 12:][:length]

    def handle_at_pool(self, name):
        """The file handle of the replica of a file in the root, by a layout."""
        self.ask_in(words(RECLAIM_COMPLETE, 0))
        owner = struct.pack(">Q", self.client[0]) + opaque(b"owner")
        told = self.ask_in(words(PUTROOTFH), words(OPEN, 0, 1, 0) + owner + words(0, 0) + opaque(name.encode()))
        stateid = told[16:32]
        parts = words(LAYOUTGET, 0, FLEX_FILES, 1) + struct.pack(">QQQ", 0, 1 << 20, 0) + stateid + words(1 << 16)
        layout = self.ask_in(put_fh(self.handle(name)), parts)[16:]
        # Whether to return it, its stateid, one segment's range and kind; stripe, mirror, server, device, efficiency, stateid.
        at = 4 + 16 + 4 + 16 + 4 + 4 + 4 + 8 + 4 + 4 + 16 + 4 + 16
        count, length = struct.unpack_from(">II", layout, at)
        return layout[at + 8:][:length]
