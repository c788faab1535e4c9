"""The servers that are compared, and what each has on disk when it answers."""
import copy, datetime, hashlib, os, shutil, subprocess, sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))
from driver.server import Forebay, Ganesha

GANESHA_DATA = "WRITE is answered UNSTABLE and COMMIT fsyncs the file."
FOREBAY_DATA = "WRITE is answered UNSTABLE and COMMIT syncs the replica."


BEFORE = "before"


class Side:
    layout_driver = True
    metrics = None       # where its counters are, as seen from the servers' host

    def __init__(self, name, durability):
        self.name, self.durability = name, durability


class ForebaySide(Side):
    product = "forebay"
    METRICS = "http://127.0.0.1:8080/metrics"
    binary = None        # that of the environment, or the one built last

    def __init__(self, name, durability, sync="always", layout_driver=True, consistency="auto"):
        super().__init__(name, durability)
        self.sync, self.layout_driver, self.consistency = sync, layout_driver, consistency

    def with_metrics(self):
        """The same with the HTTP door open, for its counters."""
        side = copy.copy(self)
        side.metrics = self.METRICS
        return side

    def by(self, binary):
        """The same by another binary, as the side `before`: two commits in one run."""
        side = copy.copy(self)
        side.name, side.binary, side.durability = BEFORE, os.path.abspath(binary), "As forebay, by the binary of --before."
        return side

    def start_in(self, scratch):
        http = "[http]\n" if self.metrics else ""
        return Forebay(scratch, binary=self.binary, extra=["--no-root-squash"], config='%s[namespace]\nsync = "%s"\nconsistency = "%s"\n' % (http, self.sync, self.consistency))


class GaneshaSide(Side):
    product = "ganesha"

    def __init__(self, name, durability, dirsync=False):
        super().__init__(name, durability)
        self.dirsync = dirsync

    def with_metrics(self):
        return self

    def start_in(self, scratch):
        server = Ganesha(scratch)
        if self.dirsync:
            # The inode flag does per directory what the mount option dirsync does per file system, and new directories
            # inherit it; so both of Ganesha's sides lie on the very disk on which Forebay's lie.
            subprocess.run(["chattr", "+D", server.data], check=True)
        return server


SIDES = [
    ForebaySide("forebay", "Names and attributes are on disk when answered (namespace.sync = always). " + FOREBAY_DATA),
    ForebaySide("forebay-nopnfs", "As forebay; the client has no layout driver, so data go through the head.",
                layout_driver=False),
    GaneshaSide("ganesha-dirsync", "Create, remove, rename, link, mkdir are on disk when answered (ext4 dirsync); attributes "
                "set later (SETATTR) are not: the journal's next commit (5 s) takes them. " + GANESHA_DATA, dirsync=True),
    ForebaySide("forebay-names", "Names and sizes are on disk when answered; a power cut may take attributes set by SETATTR in the "
                "last second (namespace.sync = names). " + FOREBAY_DATA, sync="names"),
    ForebaySide("forebay-interval", "A power cut may take the last second of names and attributes (namespace.sync = "
                "interval). " + FOREBAY_DATA, sync="interval"),
    GaneshaSide("ganesha", "Debian's default: a power cut may take the last 5 s of names and attributes (no fsync before the "
                "answer; ext4's commit interval). " + GANESHA_DATA),
]

# Pairs that may be compared: (ours, the peer's, whether both keep the same after a power cut).
PAIRS = [
    ("forebay", "ganesha-dirsync", "equal durability, strict"),
    ("forebay-nopnfs", "ganesha-dirsync", "equal durability, strict, without pNFS"),
    ("forebay-names", "ganesha-dirsync", "equal durability, attributes of seconds may be lost"),
    ("forebay-interval", "ganesha", "equal durability, seconds may be lost"),
    ("forebay", "ganesha", "UNEQUAL: only Forebay's names are on disk"),
    ("forebay", BEFORE, "the same settings, two binaries"),
]


def chosen(opt, sides, default=None):
    """The sides that the options name; `--before` alone sets two binaries of ours beside each other."""
    wanted = opt.side or (["forebay"] if opt.before else default or [s.name for s in sides])
    ours = next(s for s in sides if s.name == "forebay")
    return [s for s in sides if s.name in wanted] + ([ours.by(opt.before)] if opt.before else [])


def add_before(parser):
    parser.add_argument("--before", metavar="BINARY", help="another binary of Forebay as a side of its own, named before")


def versions(binary, before=None):
    """The binary by its own bytes: it may be older or newer than the tree, so the tree's commit says nothing about it."""
    first = lambda argv: (subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout.splitlines()
                          or [""])[0].strip()
    ganesha = first(["ganesha.nfsd", "-v"]) if shutil.which("ganesha.nfsd") else "not installed"
    out = {"ganesha": ganesha, "bench_commit": first(["git", "-C", ROOT, "describe", "--always", "--dirty"])}
    if binary:
        changed = datetime.datetime.fromtimestamp(os.stat(binary).st_mtime, datetime.timezone.utc)
        out.update(forebay=first([binary, "--version"]), forebay_sha256=digest_of(binary), forebay_file_time=changed.isoformat(timespec="seconds"))
    if before:
        out.update(before=first([before, "--version"]), before_sha256=digest_of(before))
    return out


def digest_of(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()
