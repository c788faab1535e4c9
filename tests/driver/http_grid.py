"""Third-party copy: between two instances, with a peer that misbehaves, and with Debian's XRootD."""
import os, re, shutil, signal, subprocess, threading, time

from .grid import MIB, Running, Site, bearer, bytes_moved, check_markers, curl, fails, succeeds
from .loopback import Skipped, check, same, within
from .peer import Peer

# Of a copy that is given up after its attempts; the pauses between them double.
GIVES_UP_S = 30


def two(place, config=""):
    return Site(place, "one", config), Site(place, "two", config)


def secret_source(one, data, path="/source"):
    """A file that nobody reads without a credential."""
    one.put(path, data)
    one.curl("-X", "PROPPATCH", path=path)
    return one.url(path)


def a_pull_moves_a_file_with_a_macaroon_for_the_source(place):
    one, two_ = two(place, '[http]\nanonymous = "refuse"\n')
    data = os.urandom(5 * MIB + 7)
    one.put("/source", data)
    refused = two_.pull("/copy", one.url("/source"))
    fails("without a credential for the source", refused, "401")
    check(not two_.is_there("/copy"), "a refused pull left a file")
    answer = two_.pull("/copy", one.url("/source"), bearer(one.macaroon("/source", "DOWNLOAD,LIST")))
    succeeds("pull", answer)
    same("bytes that the markers tell", bytes_moved(answer)[0], len(data))
    two_.holds("/copy", data)
    two_.has_no_data_left(files=1)


def a_push_moves_a_file_with_a_macaroon_for_the_destination(place):
    one, two_ = two(place, '[http]\nanonymous = "refuse"\n')
    data = os.urandom(5 * MIB + 7)
    one.put("/source", data)
    fails("without a credential for the destination", one.push("/source", two_.url("/copy")), "401")
    token = two_.macaroon("/copy", "UPLOAD,DOWNLOAD,LIST,DELETE")
    answer = one.push("/source", two_.url("/copy"), bearer(token))
    succeeds("push", answer)
    same("bytes that the markers tell", bytes_moved(answer)[0], len(data))
    two_.holds("/copy", data)
    two_.has_no_data_left(files=1)


def an_empty_file_is_copied_both_ways(place):
    one, two_ = two(place)
    one.put("/source", b"")
    succeeds("pull", two_.pull("/pulled", one.url("/source")))
    two_.holds("/pulled", b"")
    token = two_.macaroon("/", "UPLOAD,DOWNLOAD,LIST,DELETE")
    succeeds("push", one.push("/source", two_.url("/pushed"), bearer(token)))
    two_.holds("/pushed", b"")


def four_streams_share_a_large_file(place):
    one, two_ = two(place)
    data = os.urandom(MIB) * 200
    one.put("/source", data)
    answer = two_.pull("/copy", one.url("/source"), "X-Number-Of-Streams: 4", "RequireChecksumVerification: true")
    succeeds("pull", answer)
    same("bytes and stripes that the markers tell", bytes_moved(answer), (len(data), 4))
    two_.holds("/copy", data)
    two_.has_no_data_left(files=1)


def markers_come_while_it_goes_on(place):
    peer = Peer(place, os.urandom(2 * MIB))
    site = Site(place, "one")
    running = site.begin("/copy", "Source: " + peer.url("/slow"))
    within(5, lambda: "Perf Marker" in running.said(), "no marker at once")
    check(running.ends(40).startswith("success:"), running.said())
    moved = [int(n) for n in re.findall(r"Stripe Bytes Transferred: (\d+)", running.said())]
    check(len(moved) >= 3 and moved == sorted(moved) and 0 < moved[1] < moved[-1] == len(peer.data), "markers tell %s" % moved)
    site.holds("/copy", peer.data)


def gfal_copy_pulls_and_pushes_without_streaming(place):
    if not shutil.which("gfal-copy"):
        raise Skipped("gfal-copy is not installed")
    # Without credentials gfal-copy acts as nobody: the directory lets everybody write.
    one, two_ = two(place)
    data = os.urandom(3 * MIB)
    for mode in ("pull", "push"):
        one.put("/" + mode, data)
    read, write = one.macaroon("/", "DOWNLOAD,LIST"), two_.macaroon("/", "DOWNLOAD,LIST,UPLOAD,DELETE,MANAGE")
    for mode, active, passive in (("pull", write, read), ("push", read, write)):
        said = gfal_copy(place, one, two_, mode, read, write)
        check(said.returncode == 0, "%s: %s" % (mode, said.stdout))
        two_.holds("/by-" + mode, data)


def gfal_copy(place, one, two_, mode, read, write):
    """`copy_mode` forbids the fallbacks, so that a copy that succeeds was a third-party copy of that kind."""
    def dav(site, path):
        return site.url(path).replace("http://", "dav://")
    config = place.path("gfal")
    shutil.rmtree(config, ignore_errors=True)
    shutil.copytree("/etc/gfal2.d", config)
    for name, text in (("tokens.conf", ""),):
        with open(os.path.join(config, name), "w") as f:
            f.write(text)
    argv = ["gfal-copy", "-f", "-K", "ADLER32", "-t", "60", "-T", "60", "--copy-mode", mode, "-D", "BEARER:TOKEN=" + write,
            "-D", "HTTP PLUGIN:RETRIEVE_BEARER_TOKEN=false", dav(one, "/" + mode), dav(two_, "/by-" + mode)]
    environment = dict(os.environ, GFAL_CONFIG_DIR=config, GFAL_PYTHONBIN="/usr/bin/python3", BEARER_TOKEN=write)
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, env=environment)


SCENARIOS = [a_pull_moves_a_file_with_a_macaroon_for_the_source, a_push_moves_a_file_with_a_macaroon_for_the_destination,
             an_empty_file_is_copied_both_ways, four_streams_share_a_large_file, markers_come_while_it_goes_on,
             gfal_copy_pulls_and_pushes_without_streaming]
