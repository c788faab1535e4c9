"""A client of NFSv4.1 in Python, for what `forebay-load` does not ask: single calls that are timed, and batches of equal calls.

It answers no recall and holds no delegation. The CPU that it takes itself is in no figure.
"""
import os, socket, struct, time

from driver.nfs_client import ANONYMOUS, CALL, LAST, NFS, put_fh, words
from driver.nfs_client import opaque as opaque_bytes

# Numbers of operations (RFC 8881 §16.2.3).
ACCESS, CLOSE, COMMIT, CREATE, GETATTR, GETFH, LOOKUP, OPEN, PUTFH, PUTROOTFH = 3, 4, 5, 6, 9, 10, 15, 18, 22, 24
READ, READDIR, REMOVE, RENAME, SAVEFH, SETATTR, WRITE = 25, 26, 28, 29, 32, 34, 38
EXCHANGE_ID, CREATE_SESSION, DESTROY_SESSION, SEQUENCE, DESTROY_CLIENTID, RECLAIM_COMPLETE = 42, 43, 44, 53, 57, 58
GETDEVICEINFO, LAYOUTCOMMIT, LAYOUTGET, LAYOUTRETURN = 47, 49, 50, 51
FLEX_FILES, READING, WRITING, FILE_SYNC = 4, 1, 2, 2
PNFS_MDS, PNFS_DS = 1 << 17, 1 << 18
# Of OPEN (RFC 8881 §18.16.1).
TO_READ, TO_READ_AND_WRITE, NO_DELEGATION = 1, 3, 0x400
OK, GRACE, DELAY, LAYOUT_TRY_LATER, RECALL_CONFLICT = 0, 10013, 10008, 10058, 10061
LATER = (GRACE, DELAY, LAYOUT_TRY_LATER, RECALL_CONFLICT)
# Answers after which a client makes its session, or its opens and layouts, again.
SESSION_IS_LOST, STATE_IS_LOST = (10052, 10022, 10055), (10025, 10011, 10023, 10024, 10087, 70)
NAMES = {0: "OK", 2: "NOENT", 5: "IO", 28: "NOSPC", 70: "STALE", 10008: "DELAY", 10011: "EXPIRED", 10013: "GRACE", 10022: "STALE_CLIENTID",
         10023: "STALE_STATEID", 10024: "OLD_STATEID", 10025: "BAD_STATEID", 10033: "NO_GRACE", 10052: "BADSESSION", 10055: "CONN_NOT_BOUND",
         10058: "LAYOUTTRYLATER", 10059: "LAYOUTUNAVAILABLE", 10061: "RECALLCONFLICT", 10087: "DELEG_REVOKED"}
CURRENT = words(1, 0, 0, 0)
# What Linux asks of most files: type, change, size, fileid, mode, links, owner, group, space, times.
ATTRIBUTES = words(2, 1 << 1 | 1 << 3 | 1 << 4 | 1 << 20, 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 13 | 1 << 15 | 1 << 20 | 1 << 21)
SIZE_ONLY = words(1, 1 << 4)
# files_avail, files_free, files_total, space_avail, space_free, space_total, as `df` asks.
SPACE = words(2, 1 << 21 | 1 << 22 | 1 << 23, 1 << 10 | 1 << 11 | 1 << 12)
SLOTS = 64
REPLY_S = 120


def opaque(data):
    return opaque_bytes(data.encode() if isinstance(data, str) else data)


class Failed(Exception):
    """The server's status, and the operation that it answers."""

    def __init__(self, status, operation):
        super().__init__("operation %d answers %s" % (operation, name_of(status)))
        self.status, self.operation = status, operation


def name_of(status):
    return NAMES.get(status, str(status))


class Reader:
    def __init__(self, data, at=0):
        self.data, self.at = data, at

    def word(self):
        value, = struct.unpack_from(">I", self.data, self.at)
        self.at += 4
        return value

    def long(self):
        value, = struct.unpack_from(">Q", self.data, self.at)
        self.at += 8
        return value

    def take(self, length):
        value = self.data[self.at:self.at + length]
        self.at += length
        return value

    def opaque(self):
        length = self.word()
        value = self.take(length)
        self.at += -length % 4
        return value

    def bitmap(self):
        return [self.word() for _ in range(self.word())]


# ---------------------------------------------------------------- operations

def look_up(name):
    return words(LOOKUP) + opaque(name)


def get_attributes(wanted=ATTRIBUTES):
    return words(GETATTR) + wanted


def open_file(name, access=TO_READ, makes=False, reclaims=False):
    owner = bytes(8) + opaque(b"bench")
    # UNCHECKED, without attributes but the mode.
    how = words(1, 0) + words(2, 0, 1 << 1) + opaque(words(0o644)) if makes else words(0)
    claim = words(1, 0) if reclaims else words(0) + opaque(name)
    return words(OPEN, 0, access | NO_DELEGATION, 0) + owner + how + claim


def close_file(stateid):
    return words(CLOSE, 0) + stateid


def get_layout(stateid, mode):
    return words(LAYOUTGET, 0, FLEX_FILES, mode) + struct.pack(">QQQ", 0, (1 << 64) - 1, 4096) + stateid + words(4096)


def commit_layout(stateid, end):
    return (words(LAYOUTCOMMIT) + struct.pack(">QQ", 0, end) + words(0) + stateid + words(1) + struct.pack(">Q", end - 1) + words(0)
            + words(FLEX_FILES) + opaque(b""))


def return_layout(stateid):
    nothing_to_report = words(0, 0)
    return words(LAYOUTRETURN, 0, FLEX_FILES, 3, 1) + struct.pack(">QQ", 0, (1 << 64) - 1) + stateid + opaque(nothing_to_report)


def read(stateid, offset, count):
    return words(READ) + stateid + struct.pack(">QI", offset, count)


def write(stateid, offset, data, stable=FILE_SYNC):
    return words(WRITE) + stateid + struct.pack(">QI", offset, stable) + opaque(data)


def read_directory(cookie=0, count=1 << 18, wanted=ATTRIBUTES):
    return words(READDIR) + struct.pack(">Q", cookie) + bytes(8) + words(count, count) + wanted


def make_directory(name):
    return words(CREATE, 2) + opaque(name) + words(2, 0, 1 << 1) + opaque(words(0o755))


def remove(name):
    return words(REMOVE) + opaque(name)


def rename(old, new):
    """From the saved directory into the current one."""
    return words(RENAME) + opaque(old) + opaque(new)


def set_size(stateid, size):
    return words(SETATTR) + stateid + SIZE_ONLY + opaque(struct.pack(">Q", size))


# ---------------------------------------------------------------- results

def result_of(operation, r):
    """What an operation has answered behind its status; only results that are used are kept."""
    if operation == SEQUENCE:
        return r.take(36)
    if operation == GETFH:
        return r.opaque()
    if operation == GETATTR:
        r.bitmap()
        return r.opaque()
    if operation == OPEN:
        stateid = r.take(16)
        r.take(20 + 4)
        r.bitmap()
        delegation = r.word()
        if delegation == 3 and r.word() in (1, 2):
            r.word()
        assert delegation in (0, 3), "a delegation that was not wanted"
        return stateid
    if operation == LAYOUTGET:
        return layout_of(r)
    if operation == READ:
        r.word()
        return r.opaque()
    if operation == READDIR:
        return entries_of(r)
    if operation == SETATTR:
        return r.bitmap()
    if operation == CREATE:
        r.take(20)
        return r.bitmap()
    if operation == LAYOUTCOMMIT:
        return r.long() if r.word() else None
    if operation == LAYOUTRETURN:
        return r.take(16) if r.word() else None
    if operation == GETDEVICEINFO:
        r.word()
        return r.opaque()
    if operation in (EXCHANGE_ID, CREATE_SESSION):
        return r.data[r.at:]
    return r.take({ACCESS: 8, CLOSE: 16, COMMIT: 8, REMOVE: 20, RENAME: 40, WRITE: 16}.get(operation, 0))


def entries_of(r):
    """{name: cookie} of a page, and whether it is the last."""
    r.take(8)
    found = {}
    while r.word():
        cookie = r.long()
        name = r.opaque()
        r.bitmap()
        r.opaque()
        found[name] = cookie
    return found, bool(r.word())


class Layout:
    """The first data server of the first mirror."""

    def __init__(self, stateid, body):
        self.stateid = stateid
        r = Reader(body)
        r.long()
        assert r.word() and r.word(), "the layout has no data server"
        self.device = r.take(16)
        r.word()
        self.at_pool = r.take(16)
        handles = [r.opaque() for _ in range(r.word())]
        self.handle, self.user, self.group = handles[0], int(r.opaque()), int(r.opaque())


def layout_of(r):
    r.word()
    stateid = r.take(16)
    assert r.word(), "the layout has no segment"
    r.take(8 + 8 + 4 + 4)
    return Layout(stateid, r.opaque())


class Session:
    """A session on a connection of its own. `connect` makes the connection, again after it broke."""

    def __init__(self, connect, flags=PNFS_MDS, user=(0, 0), owner=None, reclaims=False):
        self.socket, self.user, self.xid = connect(), user, 0
        self.socket.settimeout(REPLY_S)
        self.buffer, self.id, self.slots = b"", None, [0] * SLOTS
        self.owner = owner or (os.urandom(8), os.urandom(16))
        verifier, name = self.owner
        told = Reader(self.alone(words(EXCHANGE_ID) + verifier + opaque(name) + words(flags, 0, 0)))
        self.client, number = told.take(8), told.word()
        channels = words(0, (1 << 20) + 8192, (1 << 20) + 8192, 4096, 16, SLOTS, 0) + words(0, 4096, 4096, 0, 2, 1, 0)
        self.id = self.alone(words(CREATE_SESSION) + self.client + words(number, 0) + channels + words(1 << 30, 1, 0))[:16]
        if not reclaims:
            self.complete()

    def complete(self):
        """It reclaims nothing, or nothing more."""
        self.call(words(RECLAIM_COMPLETE, 0))

    def close(self):
        """Ends session and client: a server that restarts waits for clients that it knows."""
        try:
            self.socket.settimeout(2)
            self.alone(words(DESTROY_SESSION) + self.id, limit_s=2)
            self.alone(words(DESTROY_CLIENTID) + self.client, limit_s=2)
        except (Failed, OSError):
            pass
        self.socket.close()

    def alone(self, operation, limit_s=REPLY_S):
        """Without a session; repeated while the server is not ready."""
        end = time.monotonic() + limit_s
        while True:
            self.send(None, (operation,))
            _, status, results = self.receive()
            if status == OK:
                return results[-1]
            if status not in LATER or time.monotonic() > end:
                raise Failed(status, operation[3])
            time.sleep(0.05)

    def send(self, slot, operations):
        self.socket.sendall(self.record(slot, operations))

    def record(self, slot, operations):
        self.xid = self.xid + 1 & 0xFFFFFF
        if slot is not None:
            self.slots[slot] += 1
            operations = (words(SEQUENCE) + self.id + words(self.slots[slot], slot, SLOTS - 1, 0),) + tuple(operations)
        credentials = opaque(words(0) + opaque(b"bench") + words(*self.user, 0))
        call = words(self.xid << 8 | (slot or 0), CALL, 2, NFS, 4, 1, 1) + credentials + words(0, 0, 0, 1, len(operations)) + b"".join(operations)
        return words(LAST | len(call)) + call

    def receive(self):
        """The slot, the status and the results of the next reply."""
        while len(self.buffer) < 4 or len(self.buffer) < 4 + (struct.unpack_from(">I", self.buffer)[0] & ~LAST):
            some = self.socket.recv(1 << 20)
            if not some:
                raise ConnectionError("the server hung up")
            self.buffer += some
        length = struct.unpack_from(">I", self.buffer)[0] & ~LAST
        reply, self.buffer = self.buffer[4:4 + length], self.buffer[4 + length:]
        return parsed(reply)

    def call(self, *operations):
        """Results behind that of SEQUENCE; another status than OK is an error."""
        self.send(0, operations)
        _, status, results = self.receive()
        if status != OK:
            raise Failed(status, failed_of(operations, results))
        return results[1:]

    def patient(self, *operations, limit_s=60):
        """As `call`, and again while the server says that it cannot do it yet, after the pauses of Linux: 0.1 s, then twice as long, at most 15 s."""
        end, pause = time.monotonic() + limit_s, 0.1
        while True:
            try:
                return self.call(*operations)
            except Failed as failed:
                if failed.status not in LATER or time.monotonic() + pause > end:
                    raise
            time.sleep(pause)
            pause = min(15, 2 * pause)

    def batch(self, calls):
        """One call on each slot, all sent at once; results of each behind that of SEQUENCE."""
        self.socket.sendall(b"".join(self.record(slot, operations) for slot, operations in enumerate(calls)))
        found = [None] * len(calls)
        for _ in calls:
            slot, status, results = self.receive()
            if status != OK:
                raise Failed(status, failed_of(calls[slot], results))
            found[slot] = results[1:]
        return found

    def root(self):
        return self.call(words(PUTROOTFH), words(GETFH))[-1]

    def directory(self, parent, name):
        """A new one."""
        return self.patient(put_fh(parent), make_directory(name), words(GETFH))[-1]

    def handle(self, parent, name):
        return self.call(put_fh(parent), look_up(name), words(GETFH))[-1]

    def opened(self, parent, name, access=TO_READ, makes=False, limit_s=60):
        """The handle and the stateid."""
        _, stateid, handle = self.patient(put_fh(parent), open_file(name, access, makes), words(GETFH), limit_s=limit_s)
        return handle, stateid

    def address(self, device):
        """Where the pool of a layout is."""
        body = Reader(self.call(words(GETDEVICEINFO) + device + words(FLEX_FILES, 1 << 16, 0))[-1])
        body.word()
        body.opaque()
        host, high, low = body.opaque().decode().rsplit(".", 2)
        return host, int(high) << 8 | int(low)


def failed_of(operations, results):
    """The operation of the last result. SEQUENCE comes before `operations`."""
    return operations[len(results) - 2][3] if len(results) > 1 else SEQUENCE


def parsed(reply):
    r = Reader(reply)
    xid, kind, denied, _, length, accepted = (r.word() for _ in range(6))
    if kind != 1 or denied or length or accepted:
        raise ConnectionError("the server refuses the call")
    status = r.word()
    r.opaque()
    results = []
    for _ in range(r.word()):
        operation, own = r.word(), r.word()
        results.append(result_of(operation, r) if own == OK else None)
    return xid & 0xFF, status, results


class Mount:
    """A session at the head, and one at each pool that a layout has named."""

    def __init__(self, setup, **how):
        self.setup, self.head, self.pools = setup, setup.session(**how), {}

    def at_pool(self, layout):
        is_new = self.key(layout) not in self.pools
        return self.at_address(self.head.address(layout.device) if is_new else None, layout)

    def at_address(self, address, layout):
        """As `at_pool`, without a question to the head."""
        if self.key(layout) not in self.pools:
            self.pools[self.key(layout)] = self.setup.pool_session(address, layout)
        return self.pools[self.key(layout)]

    @staticmethod
    def key(layout):
        return layout.device, layout.user, layout.group

    def opened(self, parent, name, mode, makes=False):
        """An open file with its layout."""
        handle, stateid = self.head.opened(parent, name, TO_READ_AND_WRITE if mode == WRITING else TO_READ, makes)
        layout, = self.head.patient(put_fh(handle), get_layout(stateid, mode))[1:]
        return Opened(self, handle, stateid, layout)

    def write_file(self, parent, name, data):
        """A new file, whose bytes are on disk at its pool; answers its handle."""
        file = self.opened(parent, name, WRITING, makes=True)
        file.write(0, data)
        file.close(len(data))
        return file.handle

    def forget_pools(self):
        for session in self.pools.values():
            session.close()
        self.pools = {}

    def close(self):
        self.forget_pools()
        self.head.close()


class Opened:
    """An open file with its layout: reads and writes go to the pool."""

    def __init__(self, mount, handle, stateid, layout):
        self.mount, self.handle, self.stateid, self.layout = mount, handle, stateid, layout

    def write(self, offset, data, stable=FILE_SYNC):
        return self.mount.at_pool(self.layout).patient(put_fh(self.layout.handle), write(self.layout.at_pool, offset, data, stable))

    def read(self, offset, count):
        return self.mount.at_pool(self.layout).patient(put_fh(self.layout.handle), read(self.layout.at_pool, offset, count))[-1]

    def commit(self, end):
        return self.mount.head.patient(put_fh(self.handle), commit_layout(self.layout.stateid, end))

    def close(self, written=None):
        if written:
            self.commit(written)
        self.mount.head.patient(put_fh(self.handle), return_layout(self.layout.stateid), close_file(self.stateid))

    def pool_address(self):
        return self.mount.head.address(self.layout.device)
