"""Third-party copy that fails: it says why in one line, and leaves nothing at either side."""
import os, signal, subprocess, time

from .grid import MIB, Site, bearer, fails, succeeds, two
from .issuer import Issuer
from .loopback import check, same, within
from .peer import Peer

OLD = b"what was there before\n"


def pull_fails(place, behaviour, *words, lines=(), data=None):
    """The destination is as it was: first nothing, then an older file."""
    peer = Peer(place, os.urandom(3 * MIB) if data is None else data)
    site = Site(place, "one")
    fails(behaviour, site.pull("/copy", peer.url("/" + behaviour), *lines), *words)
    check(not site.is_there("/copy"), behaviour + " left a file")
    site.has_no_data_left()
    site.put("/copy", OLD)
    fails(behaviour, site.pull("/copy", peer.url("/" + behaviour), *lines), *words)
    site.holds("/copy", OLD)
    site.has_no_data_left(files=1)
    return peer, site


def a_pull_whose_checksum_differs_leaves_nothing(place):
    pull_fails(place, "wrong-digest", "checksum")


def a_pull_of_a_body_that_breaks_off_leaves_nothing(place):
    pull_fails(place, "short", "closed", "connection", "body", "size")


def a_pull_that_is_forbidden_tells_the_status(place):
    pull_fails(place, "forbidden", "403")


def a_pull_of_a_file_that_is_not_there_tells_404(place):
    pull_fails(place, "nothing-of-that-name", "404")


def a_pull_from_what_is_not_http_fails(place):
    pull_fails(place, "garbage", "http", "invalid", "answer", "parse")


def a_head_without_end_is_not_read_for_ever(place):
    peer, site = pull_fails(place, "endless-head", "head", "large", "long", "many", "http")
    check(site.up.memory("VmHWM") < 512 * 1024, "the server took %d KiB" % site.up.memory("VmHWM"))
    same("requests", len(peer.asked("/endless-head", "GET")) <= 8, True)


def a_required_checksum_that_nobody_tells_is_a_failure(place):
    peer, site = pull_fails(place, "no-digest", "checksum", lines=["RequireChecksumVerification: true"])
    succeeds("without the demand", site.pull("/other", peer.url("/no-digest"), "RequireChecksumVerification: false"))
    site.holds("/other", peer.data)


def a_redirect_to_another_host_gets_no_authorization(place):
    named, other = Peer(place, b"wrong"), Peer(place, os.urandom(MIB))
    named.elsewhere = other.url("/honest")
    site = Site(place, "one")
    succeeds("pull", site.pull("/copy", named.url("/redirects"), bearer("secret"), "TransferHeaderX-Key: k"))
    site.holds("/copy", other.data)
    check(all(h.get("authorization") == "Bearer secret" for h in named.asked("/redirects")), "the named server was not told")
    for headers in other.asked("/honest"):
        check("secret" not in str(headers) and "x-key" not in headers, "the other host was told %s" % headers)
    site.put("/mine", b"x" * MIB)
    named.elsewhere = other.url("/honest/new")
    succeeds("push", site.push("/mine", named.url("/redirects"), bearer("secret")))
    same("bytes at the other host", other.taken.get("/honest/new"), b"x" * MIB)
    for headers in other.asked("/honest/new"):
        check("secret" not in str(headers), "the other host was told %s" % headers)


def redirects_in_a_circle_end(place):
    peer, _ = pull_fails(place, "loops", "redirect")
    check(len(peer.asked("/loops")) < 40, "%d requests" % len(peer.asked("/loops")))


def a_client_that_goes_away_ends_the_copy_and_nothing_is_left(place):
    peer = Peer(place, os.urandom(4 * MIB))
    site = Site(place, "one")
    for behaviour in ("stalls", "never-answers", "slow"):
        running = site.begin("/" + behaviour, "Source: " + peer.url("/" + behaviour))
        within(10, lambda: peer.asked("/" + behaviour, "GET") and "Perf Marker" in running.said(), "no request at the source")
        if behaviour == "stalls":
            within(10, lambda: site.up.replicas(), "no bytes at the destination")
        running.hang_up()
        site.has_no_data_left()
        check(not site.is_there("/" + behaviour), behaviour + " left a file")


def a_source_that_never_answers_does_not_silence_the_markers(place):
    peer = Peer(place, b"x")
    site = Site(place, "one")
    running = site.begin("/copy", "Source: " + peer.url("/never-answers"))
    within(12, lambda: running.said().count("Perf Marker") >= 3, lambda: "markers: " + running.said())
    check(running.is_running(), running.said())
    running.hang_up()
    site.has_no_data_left()


def a_stopped_server_says_aborted_and_leaves_nothing(place):
    peer = Peer(place, os.urandom(4 * MIB))
    site = Site(place, "one")
    running = site.begin("/copy", "Source: " + peer.url("/stalls"))
    within(10, lambda: site.up.replicas(), "no bytes at the destination")
    check(site.up.stop() < 10, "a copy held up the stop")
    check(running.ends(5).startswith(("aborted:", "failure:")), running.said())
    again = Site(place, "one", login=site.up.login)
    check(not again.is_there("/copy"), "the file is there after the stop")
    again.has_no_data_left()


def a_killed_destination_comes_back_without_the_half_file(place):
    peer = Peer(place, os.urandom(4 * MIB))
    site = Site(place, "one")
    running = site.begin("/copy", "Source: " + peer.url("/stalls"))
    within(10, lambda: site.up.replicas(), "no bytes at the destination")
    site.up.stop(signal.SIGKILL)
    running.ends(5)
    again = Site(place, "one", login=site.up.login)
    check(not again.is_there("/copy"), "the half file has a name")
    again.has_no_data_left()
    succeeds("the copy, again", again.pull("/copy", peer.url("/honest")))
    again.holds("/copy", peer.data)


def a_killed_source_fails_the_copy(place):
    one, two_ = two(place)
    data = os.urandom(MIB) * 400
    one.put("/source", data)
    running = two_.begin("/copy", "Source: " + one.url("/source"), "X-Number-Of-Streams: 2")
    within(20, lambda: two_.up.replicas(), "no bytes at the destination")
    one.up.stop(signal.SIGKILL)
    last = running.ends(30)
    check(last.startswith("failure:"), "the source was killed: %s" % running.said())
    check(not two_.is_there("/copy"), "a file is there")
    two_.has_no_data_left()


def a_push_that_the_other_side_breaks_off_fails(place):
    peer = Peer(place)
    site = Site(place, "one")
    site.put("/source", os.urandom(8 * MIB))
    answer = site.push("/source", peer.url("/takes-half"))
    fails("a server that takes half", answer, "connection", "closed", "broken", "reset")
    check(peer.asked("/takes-half", "DELETE"), "the half file was not taken away")


def a_push_whose_checksum_differs_is_taken_away_again(place):
    peer = Peer(place)
    site = Site(place, "one")
    site.put("/source", os.urandom(MIB))
    fails("another checksum", site.push("/source", peer.url("/takes-it-wrong")), "checksum")
    same("what is left there", peer.taken, {})


def a_push_to_a_killed_destination_fails(place):
    one, two_ = two(place)
    one.put("/source", os.urandom(MIB) * 400)
    token = two_.macaroon("/", "UPLOAD,DOWNLOAD,LIST,DELETE")
    running = one.begin("/source", "Destination: " + two_.url("/copy"), bearer(token))
    within(20, lambda: two_.up.replicas(), "no bytes at the destination")
    two_.up.stop(signal.SIGKILL)
    check(running.ends(40).startswith("failure:"), running.said())
    again = Site(place, "two", login=two_.up.login)
    check(not again.is_there("/copy"), "a file is there")
    again.has_no_data_left()


def an_expired_token_fails_the_copy_and_says_401(place):
    issuer = Issuer(place)
    one, two_ = two(place, '[http]\nanonymous = "refuse"\n' + issuer.config())
    one.put("/source", b"x" * MIB)
    now = int(time.time())
    old = issuer.token("storage.read:/ storage.modify:/", iat=now - 4000, nbf=now - 4000, exp=now - 400)
    fails("pull", two_.pull("/copy", one.url("/source"), bearer(old)), "401")
    fails("push", one.push("/source", two_.url("/copy"), bearer(old)), "401")
    same("status for the client's own expired token", two_.copy("/copy", "Source: " + one.url("/source"), auth=old).status, 401)
    check(not two_.is_there("/copy"), "a file is there")
    two_.has_no_data_left()


def requests_that_make_no_sense_get_a_status(place):
    peer = Peer(place, b"data")
    site = Site(place, "one")
    site.put("/there", OLD)
    good = "Source: " + peer.url("/honest")
    for lines, status in (
            ((good, "Destination: " + peer.url("/x")), 400), ((), 400), (("Source: /relative",), 400),
            (("Source: http://user:secret@127.0.0.1:%d/honest" % peer.port,), 400), (("Source: root://127.0.0.1//f",), 501),
            (("Source: gsiftp://h/f",), 501), ((good, "Overwrite: maybe"), 400), ((good, "Credential: magic"), 400),
            ((good, "Credential: gridsite"), 501), ((good, "X-Number-Of-Streams: lots"), 400), ((good, "Overwrite: F"), 412),
            ((good, "RequireChecksumVerification: perhaps"), 400)):
        answer = site.copy("/there", *lines)
        same("status of %s" % (lines,), answer.status, status)
        check("secret" not in answer.text, "the password is repeated: " + answer.text)
    same("a missing parent", site.pull("/no/parent/here", peer.url("/honest")).status, 409)
    same("a missing file", site.push("/not-there", peer.url("/honest/x")).status, 404)
    same("nobody", site.copy("/new", good, auth=False).status in (401, 403), True)
    same("requests at the other side", peer.requests, [])
    site.holds("/there", OLD)


def a_push_with_overwrite_f_leaves_what_is_there(place):
    peer = Peer(place)
    peer.taken["/honest/x"] = OLD
    site = Site(place, "one")
    site.put("/source", b"new")
    answer = site.push("/source", peer.url("/honest/x"), "Overwrite: F")
    check(answer.status == 412 or answer.last_line.startswith("failure:"), repr(answer))
    same("what is there", peer.taken["/honest/x"], OLD)


def more_copies_than_allowed_are_told_to_come_later(place):
    peer = Peer(place, os.urandom(MIB))
    site = Site(place, "one", "[http]\ncopies_max = 2\n")
    running = [site.begin("/copy%d" % n, "Source: " + peer.url("/stalls")) for n in range(2)]
    for one in running:
        within(10, lambda: "Perf Marker" in one.said(), "it does not begin")
    refused = site.pull("/third", peer.url("/honest"))
    same("status of one too many", refused.status, 429)
    check("retry-after" in refused.headers, "it does not say when to come again: %s" % refused.headers)
    running[0].hang_up()
    within(10, lambda: site.pull("/third", peer.url("/honest")).last_line.startswith("success:"), "no room after one ended")
    running[1].hang_up()
    site.has_no_data_left(files=1)


def metadata_services_are_not_reached(place):
    peer = Peer(place, b"inside")
    site = Site(place, "one")
    for url in ("http://169.254.169.254/latest", "http://[fe80::1]/x", "http://0.0.0.0:%d/honest" % peer.port):
        fails(url, site.pull("/copy", url), "not allowed", "forbidden", "refused", "may not", "address")
    same("requests at the peer", peer.requests, [])


def a_copy_from_an_own_address_is_refused(place):
    """As the service runs, which sees nothing but processes in /proc."""
    own, routed = "198.51.100.77", "2001:db8:77::/64"
    confined, binary = place.path("confined"), place.binary
    with open(confined, "w") as f:
        f.write("#!/bin/sh\nexec unshare -m --propagation slave sh -c 'mount -t proc -o subset=pid proc /proc && exec \"$0\" \"$@\"' '%s' \"$@\"\n"
                % os.path.abspath(binary))
    os.chmod(confined, 0o755)
    subprocess.run(["ip", "addr", "add", own + "/32", "dev", "lo"], check=True)
    subprocess.run(["ip", "-6", "route", "add", "local", routed, "dev", "lo"], check=True)
    place.binary = confined
    try:
        peer = Peer(place, b"inside", host=own)
        site = Site(place, "one", 'listen = "0.0.0.0"\n[http]\ncopy_allows_plain = true\n')
        for host in (own, "[::ffff:%s]" % own, "[64:ff9b::%s]" % own, "[2001:db8:77::5]"):
            url = "http://%s:%d/honest" % (host, peer.port)
            fails(url, site.pull("/copy", url), "address")
        same("requests at the peer", peer.requests, [])
    finally:
        place.binary = binary
        subprocess.run(["ip", "addr", "del", own + "/32", "dev", "lo"])
        subprocess.run(["ip", "-6", "route", "del", "local", routed, "dev", "lo"])


SCENARIOS = [a_pull_whose_checksum_differs_leaves_nothing, a_pull_of_a_body_that_breaks_off_leaves_nothing,
             a_pull_that_is_forbidden_tells_the_status, a_pull_of_a_file_that_is_not_there_tells_404,
             a_pull_from_what_is_not_http_fails, a_head_without_end_is_not_read_for_ever,
             a_required_checksum_that_nobody_tells_is_a_failure, a_redirect_to_another_host_gets_no_authorization,
             redirects_in_a_circle_end, a_client_that_goes_away_ends_the_copy_and_nothing_is_left,
             a_source_that_never_answers_does_not_silence_the_markers, a_stopped_server_says_aborted_and_leaves_nothing,
             a_killed_destination_comes_back_without_the_half_file, a_killed_source_fails_the_copy,
             a_push_that_the_other_side_breaks_off_fails, a_push_whose_checksum_differs_is_taken_away_again,
             a_push_to_a_killed_destination_fails, an_expired_token_fails_the_copy_and_says_401,
             requests_that_make_no_sense_get_a_status, a_push_with_overwrite_f_leaves_what_is_there,
             more_copies_than_allowed_are_told_to_come_later,
             metadata_services_are_not_reached, a_copy_from_an_own_address_is_refused]
