"""Clients that go on whatever happens: they connect, reclaim and get layouts again, as a kernel client does, and note when they succeed."""
import contextlib, os, threading, time

from . import client as nfs

# A client connects again, and asks again, after so long.
PAUSE_S = 0.02
# A writer at the pool renews its lease at the head so often, and so notices that the head has started anew.
RENEW_S = 1
BLOCK_BYTES = 4096


class Worker(threading.Thread):
    """Succeeds again and again: `successes` has the time of each."""

    def __init__(self, setup):
        super().__init__(daemon=True)
        self.setup, self.successes, self.refusals, self.is_over = setup, [], {}, threading.Event()
        self.owner, self.mount, self.is_lost = (os.urandom(8), os.urandom(16)), None, False

    def run(self):
        while not self.is_over.is_set():
            try:
                self.attempt()
                self.successes.append(time.monotonic())
            except (nfs.Failed, OSError) as failed:
                reason = nfs.name_of(failed.status) if isinstance(failed, nfs.Failed) else type(failed).__name__
                self.refusals[reason] = self.refusals.get(reason, 0) + 1
            time.sleep(PAUSE_S)

    def end(self):
        self.is_over.set()
        if self.is_alive():
            self.join(nfs.REPLY_S)
        if self.mount:
            self.leave()
            self.mount.close()

    def leave(self):
        """Gives back what it has: a client that has something open is known to the head for a day, and waited for after each restart."""

    def wait_s(self, since):
        """The longest time between two successes of which the second came after `since`; what has not ended yet counts as well."""
        ends = [at for at in self.successes if at > since] or [time.monotonic()]
        before = [at for at in self.successes if at <= since][-1:]
        times = before + ends
        return max(b - a for a, b in zip(times, times[1:])) if len(times) > 1 else time.monotonic() - since

    def has_succeeded_since(self, moment):
        return bool(self.successes) and self.successes[-1] > moment

    def mounted(self):
        if self.mount is None:
            self.mount = nfs.Mount(self.setup, owner=self.owner)
        elif self.is_lost:
            self.mount.head.socket.close()
            self.mount.head = self.setup.session(owner=self.owner, reclaims=True)
            self.is_lost = False
            self.reclaim()
            self.mount.head.complete()
        return self.mount

    def reclaim(self):
        """As after a restart of the head."""

    def note_loss(self, failed):
        """Whether the session at the head has to be made again."""
        self.is_lost = self.mount is not None and (isinstance(failed, OSError) or failed.status in nfs.SESSION_IS_LOST)
        return self.is_lost


class Writer(Worker):
    """Writes FILE_SYNC at the pool, under a layout that it gets again if it is lost; or through the head."""

    def __init__(self, setup, parent, name, through="pool"):
        super().__init__(setup)
        self.parent, self.name, self.through = parent, name, through
        self.handle = self.stateid = self.layout = self.address = None
        self.renewed = 0

    def attempt(self):
        if self.through == "pool" and self.layout and time.monotonic() < self.renewed + RENEW_S:
            self.write_at_pool()
            return
        try:
            self.renewed = time.monotonic()
            self.ensure_open()
            if self.through == "head":
                self.mount.head.call(nfs.put_fh(self.handle), nfs.write(self.stateid, 0, bytes(BLOCK_BYTES), nfs.FILE_SYNC))
                return
            if self.layout is None:
                self.layout = self.mount.head.call(nfs.put_fh(self.handle), nfs.get_layout(self.stateid, nfs.WRITING))[-1]
                self.address = self.mount.head.address(self.layout.device)
            else:
                self.mount.head.call()
        except (nfs.Failed, OSError) as failed:
            if not self.note_loss(failed) and failed.status in nfs.STATE_IS_LOST:
                self.handle = self.layout = None
            # A writer at the pool does not wait for the head as long as it has its layout.
            if self.layout is None or self.through == "head":
                raise
        self.write_at_pool()

    def leave(self):
        backs = ([nfs.return_layout(self.layout.stateid)] if self.layout else []) + ([nfs.close_file(self.stateid)] if self.handle else [])
        for back in backs:
            with contextlib.suppress(nfs.Failed, OSError):
                self.mounted().head.call(nfs.put_fh(self.handle), back)

    def ensure_open(self):
        head = self.mounted().head
        if self.handle is None:
            _, self.stateid, self.handle = head.call(nfs.put_fh(self.parent), nfs.open_file(self.name, nfs.TO_READ_AND_WRITE, makes=True), nfs.words(nfs.GETFH))

    def reclaim(self):
        try:
            if self.handle:
                _, self.stateid = self.mount.head.call(nfs.put_fh(self.handle), nfs.open_file(None, nfs.TO_READ_AND_WRITE, reclaims=True))
        except nfs.Failed:
            self.handle = None

    def write_at_pool(self):
        try:
            self.mount.at_address(self.address, self.layout).call(nfs.put_fh(self.layout.handle), nfs.write(self.layout.at_pool, 0, bytes(BLOCK_BYTES), nfs.FILE_SYNC))
        except (nfs.Failed, OSError) as failed:
            if isinstance(failed, OSError) or failed.status in nfs.SESSION_IS_LOST:
                self.mount.forget_pools()
            elif failed.status not in nfs.LATER:
                self.layout = None
            raise


class Creator(Worker):
    """Creates empty files, one after the other."""

    def __init__(self, setup, parent):
        super().__init__(setup)
        self.parent, self.number = parent, 0

    def attempt(self):
        self.number += 1
        try:
            head = self.mounted().head
            _, stateid, handle = head.call(nfs.put_fh(self.parent), nfs.open_file("c%d" % self.number, nfs.TO_READ_AND_WRITE, makes=True), nfs.words(nfs.GETFH))
            head.call(nfs.put_fh(handle), nfs.close_file(stateid))
        except (nfs.Failed, OSError) as failed:
            self.note_loss(failed)
            raise
