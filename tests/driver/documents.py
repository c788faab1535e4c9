"""The examples of the pages: what a page marks with `sh,example` runs as it stands, block after block, as root of a fresh machine."""
import glob, os, re, subprocess

from .loopback import Failed, Skipped, check
from .server import ROOT

PAGE_LIMIT_S = 120
FENCE = re.compile(r"^```sh,example\n(.*?)^```$", re.M | re.S)

# The machine's own system below, what a page changes above it and gone afterwards. `forebay` is where packages put it;
# /var/lib/forebay and /srv are on a disk, as nothing can be linked within an overlay and a file system in memory may lack
# what pools need.
FRESH = """
set -e
mount -t tmpfs tmpfs "$PLACE/root"
cd "$PLACE/root"
mkdir upper work merged
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work merged
mount --rbind /dev merged/dev
mount -t proc proc merged/proc
mount -t tmpfs tmpfs merged/tmp
mount -t tmpfs tmpfs merged/run
mkdir -p merged/var/lib/forebay merged/etc/forebay merged/srv
mount --bind "$PLACE/data" merged/var/lib/forebay
mount --bind "$PLACE/srv" merged/srv
cp "$BINARY" merged/usr/bin/forebay
ip link set lo up
exec chroot merged env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 bash -euo pipefail -c "cd /root; $SCRIPT"
"""


def pages():
    return [os.path.join(ROOT, "README.md")] + sorted(glob.glob(os.path.join(ROOT, "docs/**/*.md"), recursive=True))


def examples(page):
    with open(page) as f:
        return FENCE.findall(f.read())


def of_page(page):
    def scenario(place):
        if os.geteuid():
            raise Skipped("needs root")
        for directory in ("root", "data", "srv"):
            os.makedirs(place.path(directory))
        # Each line is shown before it runs: the last one shown is the one that failed.
        script = "set -x\n" + "\n".join(examples(page)) + "\nset +ex; kill $(jobs -p) 2>/dev/null; wait; exit 0\n"
        env = dict(os.environ, PLACE=place.dir, BINARY=place.binary, SCRIPT=script)
        argv = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--propagation", "slave", "sh", "-c", FRESH]
        try:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                  env=env, timeout=PAGE_LIMIT_S)
        except subprocess.TimeoutExpired as e:
            raise Failed("not over after %d s:\n%s" % (PAGE_LIMIT_S, (e.output or b"")[-2000:]))
        check(done.returncode == 0, "status %d:\n%s" % (done.returncode, done.stdout[-3000:]))
    name = os.path.relpath(page, ROOT).removesuffix(".md")
    scenario.__name__ = "examples_of_" + re.sub(r"\W+", "_", name).lower()
    return scenario


SCENARIOS = [of_page(page) for page in pages() if examples(page)]
