"""File systems on disks that tests can cut off, fail and fill: `cut_disk.py` below a loop device below ext4."""
import os, subprocess, sys

from .loopback import Failed, within

# Shares of the unflushed blocks that survive a cut, in turn.
KEEP = (0, 0.5, 1, 0.1, 0.9)
HERE = os.path.dirname(os.path.realpath(__file__))


def quietly(*argv, want=(0,)):
    r = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if r.returncode not in want:
        raise Failed("%s: exit status %d: %s" % (" ".join(argv), r.returncode, r.stdout))
    return r.stdout.strip()


def held_by(device):
    """The processes in whose mount namespace the device is mounted still, or which have it open, as text."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/mountinfo" % pid) as f:
                mounted = any(" %s " % device in line for line in f)
            opened = any(os.readlink(e.path) == device for e in os.scandir("/proc/%s/fd" % pid))
            with open("/proc/%s/cmdline" % pid) as f:
                command = f.read().replace("\0", " ").strip()
        except OSError:                             # it is gone
            continue
        if mounted or opened:
            found.append("%s (%.80s)" % (pid, command))
    return ", held by " + ", ".join(found[:8]) if found else ", in no process's mounts or open files"


class Disk:
    """A disk with a file system on it, mounted at `mount`."""

    def __init__(self, path, mib=512, journal=True, block_bytes=None):
        os.makedirs(path, exist_ok=True)
        self.file, self.image, self.mount = (os.path.join(path, n) for n in ("disk", "image", "mount"))
        self.journal, self.mib, self.block_bytes = journal, mib, block_bytes
        os.makedirs(self.mount, exist_ok=True)
        # An unmount here must reach the namespaces of servers that began meanwhile, or the disk stays in use.
        quietly("mount", "--bind", path, path)
        quietly("mount", "--make-shared", path)
        self.path = path
        self.process = self.loop = None
        self.mended = ""                        # what the check of a file system without journal said
        self.is_mounted = False
        self.power_on(fresh=True)

    def power_on(self, fresh=False):
        with open(self.file, "w"):
            pass
        self.process = subprocess.Popen([sys.executable, os.path.join(HERE, "cut_disk.py"), self.file, str(self.mib << 20), self.image],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            raise Failed("the disk does not answer")
        # The loop driver itself caches nothing that a flush does not send on.
        self.loop = quietly("losetup", "--find", "--show", self.file)
        if fresh:
            features = [] if self.journal else ["-O", "^has_journal"]
            if self.block_bytes:
                features += ["-b", str(self.block_bytes), "-m", "0"]
            quietly("mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", *features, self.loop)
        elif not self.journal:
            # 1: mended; that is what a start after a power cut does.
            self.mended = quietly("e2fsck", "-fy", self.loop, want=(0, 1))
        quietly("mount", "-o", "errors=remount-ro", self.loop, self.mount)
        self.is_mounted = True
        if fresh:
            os.rmdir(os.path.join(self.mount, "lost+found"))

    def say(self, *words):
        print(*words, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()

    def cut(self, keep, seed):
        """The power fails now. The file system stays mounted, and useless, until `power_off`."""
        self.say("cut", keep, seed)

    def power_off(self):
        """After a cut, or to end. Nobody may have files open on it any more."""
        if self.is_mounted:
            subprocess.run(["umount", "-l", self.mount], stderr=subprocess.DEVNULL)
            self.is_mounted = False
        if self.loop:
            subprocess.run(["losetup", "-d", self.loop])
            within(180, self.loop_is_gone, lambda: "the loop device is still in use" + held_by(self.loop))
            self.loop = None
        if self.process:
            within(20, lambda: subprocess.run(["umount", self.file], stderr=subprocess.DEVNULL).returncode == 0, "the disk is in use")
            self.process.wait(20)
            self.process = None

    def loop_is_gone(self):
        listed = subprocess.run(["losetup", "-n", "-O", "NAME", "-j", self.file], stdout=subprocess.PIPE, text=True).stdout
        return self.loop not in listed.split()

    def close(self):
        """At the end, after all checks: a disk that stays is told of, and is no fault of what was tested."""
        try:
            if self.process and self.process.poll() is None:
                self.cut(0, 0)                      # nothing need be written any more
            self.power_off()
        except Failed as fault:
            print("tests/run: %s: %s" % (self.file, fault), file=sys.stderr, flush=True)
        finally:
            if self.process:
                self.process.kill()
                subprocess.run(["umount", "-l", self.file], stderr=subprocess.DEVNULL)
            subprocess.run(["umount", "-l", self.path], stderr=subprocess.DEVNULL)
