"""Third-party copy that works: between two instances, asked for by curl, gfal2 and davix."""
import os, re, shutil, subprocess

from .grid import MIB, Site, bearer, bytes_moved, fails, need, succeeds, two
from .loopback import check, same, within
from .issuer import Issuer
from .peer import Peer


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
    peer = Peer(place, os.urandom(40 * MIB))
    site = Site(place, "one")
    running = site.begin("/copy", "Source: " + peer.url("/slow"))
    within(5, lambda: "Perf Marker" in running.said(), "no marker at once")
    check(running.ends(40).startswith("success:"), running.said())
    moved = [int(n) for n in re.findall(r"Stripe Bytes Transferred: (\d+)", running.said())]
    check(len(moved) >= 3 and moved == sorted(moved) and moved[-2] > 0 and moved[-1] == len(peer.data), "markers tell %s" % moved)
    site.holds("/copy", peer.data)


def with_tokens(place):
    """Two sites that trust the same issuer, and a token for everything."""
    issuer = Issuer(place)
    sites = two(place, '[http]\nanonymous = "refuse"\n' + issuer.config())
    return sites + (issuer, issuer.token("storage.read:/ storage.modify:/"))


def gfal_copy_pulls_and_pushes_and_compares_checksums(place):
    need("gfal-copy")
    one, two_, _, token = with_tokens(place)
    data = os.urandom(3 * MIB)
    one.put("/source", data)
    for mode in ("pull", "push"):
        # A given mode has no fallback: a copy that succeeds was a third-party copy of that kind.
        argv = ["gfal-copy", "-f", "-p", "-K", "ADLER32", "-t", "60", "-T", "60", "--copy-mode", mode,
                "-D", "HTTP PLUGIN:RETRIEVE_BEARER_TOKEN=false", dav(one.url("/source")), dav(two_.url("/a/b/" + mode))]
        said = run(argv, token)
        check(said.returncode == 0, "%s: %s" % (mode, said.stdout))
        two_.holds("/a/b/" + mode, data)


def davix_cp_pulls_and_pushes(place):
    need("davix-cp")
    one, two_, _, token = with_tokens(place)
    data = os.urandom(3 * MIB)
    one.put("/source", data)
    for mode in ("pull", "push"):
        argv = ["davix-cp", "--copy-mode", mode, "-H", "Authorization: Bearer " + token, "-H", bearer(token),
                one.url("/source"), two_.url("/" + mode)]
        said = run(argv, token)
        check(said.returncode == 0, "%s: %s" % (mode, said.stdout))
        two_.holds("/" + mode, data)


def dav(url):
    return url.replace("http://", "dav://")


def run(argv, token):
    environment = dict(os.environ, GFAL_PYTHONBIN="/usr/bin/python3", BEARER_TOKEN=token)
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, env=environment)


SCENARIOS = [a_pull_moves_a_file_with_a_macaroon_for_the_source, a_push_moves_a_file_with_a_macaroon_for_the_destination,
             an_empty_file_is_copied_both_ways, four_streams_share_a_large_file, markers_come_while_it_goes_on,
             gfal_copy_pulls_and_pushes_and_compares_checksums, davix_cp_pulls_and_pushes]
