"""Third-party copy with Debian's XRootD 5.5 as the other side, and as the one that acts."""
import os, shutil, socket, subprocess, tempfile

from .certificates import Authority
from .grid import MIB, Site, bearer, curl, fails, need, succeeds
from .loopback import check, same, within

USER = "xrootd"


class Xrootd:
    """XrdHttp with its third-party copy, which it offers only where it has a certificate; everybody may do everything.
    It speaks TLS and plain HTTP at the same port."""

    def __init__(self, place):
        need("xrootd")
        ca = Authority(place)
        self.ca, host = ca, ca.host("xrootd.host")
        shutil.chown(host.key_path, USER)
        self.place, self.port = place, place.free_port()
        # The names of its sockets must be short.
        self.root, run = place.path("xrootd"), tempfile.mkdtemp(prefix="xrd", dir="/tmp")
        place.undo.append(lambda: shutil.rmtree(run, ignore_errors=True))
        os.makedirs(self.root)
        for path in (self.root, run):
            shutil.chown(path, USER)
        config, allowed = place.path("xrootd.cfg"), place.path("authdb")
        with open(allowed, "w") as f:
            f.write("u * / a\n")
        with open(config, "w") as f:
            f.write("""all.export /
oss.localroot %s
all.adminpath %s
all.pidpath %s
xrd.port %d
xrd.protocol XrdHttp:%d libXrdHttp.so
http.exthandler xrdtpc libXrdHttpTPC.so
http.cert %s
http.key %s
http.cafile %s
http.listingdeny no
http.desthttps no
xrootd.chksum max 4 adler32 md5
ofs.authorize 1
acc.authdb %s
""" % (self.root, run, run, place.free_port(), self.port, host.cert_path, host.key_path, ca.path, allowed))
        self.log = place.path("xrootd.log")
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(["xrootd", "-c", config, "-R", USER], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            cwd=run)
        place.undo.append(self.kill)
        within(20, self.listens, self.said)

    def listens(self):
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def said(self):
        with open(self.log, errors="replace") as f:
            return "xrootd does not listen:\n" + f.read()[-3000:]

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def url(self, path, scheme="http"):
        return "%s://127.0.0.1:%d%s" % (scheme, self.port, path)

    def path(self, name):
        return os.path.join(self.root, name.lstrip("/"))

    def put(self, name, data):
        with open(self.path(name), "wb") as f:
            f.write(data)
        shutil.chown(self.path(name), USER)

    def holds(self, name, data):
        with open(self.path(name), "rb") as f:
            check(f.read() == data, "other bytes at xrootd")

    def copy(self, path, *lines):
        return curl(self.place, "--cacert", self.ca.path, "-X", "COPY", self.url(path, "https"), headers=lines)


def we_pull_from_xrootd_and_compare_its_checksum(place):
    xrootd, site = Xrootd(place), Site(place, "one")
    for size in (0, 5 * MIB + 3):
        data = os.urandom(size)
        xrootd.put("/source%d" % size, data)
        answer = site.pull("/copy%d" % size, xrootd.url("/source%d" % size), "RequireChecksumVerification: true")
        succeeds("pull of %d bytes" % size, answer)
        site.holds("/copy%d" % size, data)


def we_pull_from_xrootd_with_four_streams(place):
    xrootd, site = Xrootd(place), Site(place, "one")
    data = os.urandom(MIB) * 100
    xrootd.put("/source", data)
    answer = site.pull("/copy", xrootd.url("/source"), "X-Number-Of-Streams: 4", "RequireChecksumVerification: true")
    succeeds("pull", answer)
    site.holds("/copy", data)


def we_push_to_xrootd_and_compare_its_checksum(place):
    xrootd, site = Xrootd(place), Site(place, "one")
    for size in (0, 5 * MIB + 3):
        data = os.urandom(size)
        site.put("/source%d" % size, data)
        answer = site.push("/source%d" % size, xrootd.url("/copy%d" % size), "RequireChecksumVerification: true")
        succeeds("push of %d bytes" % size, answer)
        xrootd.holds("/copy%d" % size, data)


def xrootd_pulls_from_us(place):
    xrootd, site = Xrootd(place), Site(place, "one", '[http]\nanonymous = "refuse"\n')
    data = os.urandom(20 * MIB + 3)
    site.put("/source", data)
    for streams in ("1", "4"):
        answer = xrootd.copy("/pulled" + streams, "Source: " + site.url("/source"), "X-Number-Of-Streams: " + streams,
                             bearer(site.macaroon("/source", "DOWNLOAD,LIST")))
        check(answer.last_line.startswith("success"), "xrootd, %s streams: %r" % (streams, answer))
        xrootd.holds("/pulled" + streams, data)
    refused = xrootd.copy("/refused", "Source: " + site.url("/source"))
    check("success" not in refused.text, "without a credential: %r" % refused)


def xrootd_pushes_to_us(place):
    xrootd, site = Xrootd(place), Site(place, "one", '[http]\nanonymous = "refuse"\n')
    data = os.urandom(20 * MIB + 3)
    xrootd.put("/source", data)
    answer = xrootd.copy("/source", "Destination: " + site.url("/pushed"),
                         bearer(site.macaroon("/", "UPLOAD,DOWNLOAD,LIST,DELETE")))
    check(answer.last_line.startswith("success"), "xrootd: %r" % answer)
    site.holds("/pushed", data)
    refused = xrootd.copy("/source", "Destination: " + site.url("/refused"))
    check("success" not in refused.text, "without a credential: %r" % refused)
    check(not site.is_there("/refused"), "it left a file")


def a_killed_xrootd_fails_the_copy_and_nothing_is_left(place):
    xrootd, site = Xrootd(place), Site(place, "one")
    data = os.urandom(MIB) * 400
    xrootd.put("/source", data)
    running = site.begin("/pull", "Source: " + xrootd.url("/source"))
    within(20, site.up.replicas, "no bytes at the destination")
    xrootd.kill()
    check(running.ends(30).startswith("failure:"), running.said())
    check(not site.is_there("/pull"), "a file is there")
    site.has_no_data_left()


def a_file_that_xrootd_does_not_have_is_told(place):
    xrootd, site = Xrootd(place), Site(place, "one")
    # Asked for a checksum along with it, XRootD 5.5 fails at that before it looks for the file.
    fails("pull", site.pull("/copy", xrootd.url("/nothing")), "404", "failed to calculate checksum")
    fails("pull", site.pull("/copy", xrootd.url("/nothing"), "RequireChecksumVerification: false"), "404")
    check(not site.is_there("/copy"), "a file is there")


SCENARIOS = [we_pull_from_xrootd_and_compare_its_checksum, we_pull_from_xrootd_with_four_streams,
             we_push_to_xrootd_and_compare_its_checksum, xrootd_pulls_from_us, xrootd_pushes_to_us,
             a_killed_xrootd_fails_the_copy_and_nothing_is_left, a_file_that_xrootd_does_not_have_is_told]
