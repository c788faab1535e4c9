"""The shell blocks of the pages: each says in its fence whether it runs here.

`sh,example` runs as it stands, as root of a fresh machine. `sh,service` runs on a machine with the installed service: the
service runs at the first such block, and the blocks of a page follow each other. `sh,not-run=REASON` does not run. Of a `console` block with the same marks, the lines
behind a prompt run."""
import glob, os, re, subprocess, textwrap

from .loopback import Failed, Skipped, check
from .server import ROOT

PAGE_LIMIT_S = 60
FENCE = re.compile(r"^( *)```((?:sh|bash|shell|console)\b[^\n]*)\n(.*?)^ *```$", re.M | re.S)
PROMPT = re.compile(r"^[#$] (.*)$", re.M)
RUNS = ("sh,example", "sh,service", "console,service")
NOT_RUN = re.compile(r"(sh|console),not-run=\S.*")

# The machine's own system below, what a page changes above it and gone afterwards. `forebay` is where packages put it;
# /var/lib/forebay, /srv, /backup and /mnt are on a file system of their own, as nothing can be linked within an overlay, a
# file system in memory may lack what pools need, and /health would tell of a full disk of the machine.
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
truncate -s 2G "$PLACE/disk.image"
mkfs.ext4 -q "$PLACE/disk.image"
mount -o loop "$PLACE/disk.image" "$PLACE/disk"
for dir in var/lib/forebay srv backup mnt; do
    mkdir -p merged/$dir "$PLACE/disk/$dir"
    mount --bind "$PLACE/disk/$dir" merged/$dir
done
cp "$BINARY" merged/usr/bin/forebay
ip link set lo up
ip address add 192.0.2.10/24 dev lo
exec chroot merged env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 bash -euo pipefail -c "cd /root; $SCRIPT"
"""

# The service as packages install it, and stand-ins for what needs systemd, sudo or a terminal.
INSTALL = r"""
useradd --system --home-dir /var/lib/forebay --shell /usr/sbin/nologin forebay
groupadd --gid 3000 physics
useradd --uid 1001 --gid physics --no-create-home ann
install -d -o forebay -g forebay -m 700 /var/lib/forebay
install -d -m 755 /etc/forebay /usr/local/bin
install -d -g forebay -m 750 /etc/forebay/tls
forebay config reference |
    sed -e 's|^#data = .*|data = "/var/lib/forebay"|' -e '/^\[nfs\]/,/^\[pools\]/s|^#port = .*|port = 2049|' >/etc/forebay/forebay.toml
echo '192.0.2.10 server.example.org files.example.org head.example.org' >>/etc/hosts
cat >/usr/local/bin/systemctl <<'STAND-IN'
#!/bin/sh
pid=$(cat /run/forebay.pid 2>/dev/null) || pid=none
runs() { [ -d /proc/$pid ] && ! grep -q '^State:.Z' /proc/$pid/status; }
[ "$2" = forebay ] || exit 5
case $1 in
start)
    runs && exit 0
    as="setpriv --reuid=forebay --regid=forebay --init-groups"
    $as forebay up --config /etc/forebay/forebay.toml >>/run/journal 2>&1 </dev/null &
    pid=$!
    echo $pid >/run/forebay.pid
    until $as forebay status --config /etc/forebay/forebay.toml >/dev/null 2>&1; do
        runs || { tail -n 3 /run/journal; exit 1; }
        sleep 0.1
    done ;;
stop) if runs; then kill $pid; while runs; do sleep 0.1; done; fi ;;
restart) systemctl stop forebay && systemctl start forebay ;;
reload) kill -HUP $pid ;;
*) exit 5 ;;
esac
STAND-IN
cat >/usr/local/bin/sudo <<'STAND-IN'
#!/bin/sh
if [ "$1" = -u ]; then user=$2; shift 2; exec setpriv --reuid=$user --regid=$user --init-groups "$@"; fi
exec "$@"
STAND-IN
cat >/usr/local/bin/journalctl <<'STAND-IN'
#!/bin/sh
exec cat /run/journal
STAND-IN
# Errors of HTTP count, and the password that curl asks for is that of the first login.
cat >/usr/local/bin/curl <<'STAND-IN'
#!/bin/sh
for argument; do
    shift
    [ "$argument" != admin ] || argument=$(cat /var/lib/forebay/first-login)
    set -- "$@" "$argument"
done
exec /usr/bin/curl --fail --silent --show-error "$@"
STAND-IN
chmod 755 /usr/local/bin/*
systemctl start forebay
date | curl -u admin -T - http://127.0.0.1:8080/hello
systemctl stop forebay
set -x
"""


def pages():
    return [os.path.join(ROOT, "README.md")] + sorted(glob.glob(os.path.join(ROOT, "docs/**/*.md"), recursive=True))


def blocks(page):
    """(line, info string, text) of each shell block of the page."""
    with open(page) as f:
        text = f.read()
    return [(text[:found.start()].count("\n") + 1, found[2], textwrap.dedent(found[3])) for found in FENCE.finditer(text)]


def script(page):
    lines, before = [INSTALL], None
    for _, kind, text in blocks(page):
        if kind in RUNS:
            language, runs = kind.split(",")
            if runs != before:
                lines.append("systemctl %s forebay" % ("start" if runs == "service" else "stop"))
            lines.append(text if language == "sh" else "\n".join(PROMPT.findall(text)))
            before = runs
    return "\n".join(lines + ["set +ex; kill $(jobs -p) 2>/dev/null; systemctl stop forebay; exit 0\n"])


def shell_blocks_say_whether_they_run(place):
    """Every shell block of the pages says whether it runs."""
    wrong = ["%s:%d: ```%s" % (os.path.relpath(page, ROOT), line, kind) for page in pages() for line, kind, _ in blocks(page)
             if kind not in RUNS and not NOT_RUN.fullmatch(kind)]
    check(not wrong, "blocks without a mark that says whether they run:\n%s" % "\n".join(wrong))


def of_page(page):
    def scenario(place):
        if os.geteuid():
            raise Skipped("needs root")
        for directory in ("root", "disk"):
            os.makedirs(place.path(directory))
        # Each line is shown before it runs: the last one shown is the one that failed.
        env = dict(os.environ, PLACE=place.dir, BINARY=place.binary, SCRIPT=script(page))
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


SCENARIOS = [shell_blocks_say_whether_they_run] + [of_page(page) for page in pages() if any(kind in RUNS for _, kind, _ in blocks(page))]
