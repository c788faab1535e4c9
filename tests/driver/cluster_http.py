"""HTTP data faces of pool hosts: curl is sent there, and hosts and heads are killed while bytes go there. On loopback, without guests."""
import contextlib, http.client, json, re, signal, socket, time, zlib
from urllib.parse import urlsplit

from .cluster import Head, PoolHost
from .loopback import WAIT_S, check, same, within
from .web import LIMIT_S, a_file, ask, basic, content, curl, expect

# A head that is away is waited for some seconds, 10 at the end of an upload.
AWAY_S = 30


class Cluster:
    """A head that keeps no file itself, and hosts."""

    def __init__(self, place, hosts=1):
        self.place, self.head = place, Head(place).ready()
        self.head.login
        token = self.head.token()
        self.hosts = [PoolHost(place, "--join", token, http=place.free_port()).ready() for _ in range(hosts)]
        self.ready()
        drained = place.run("pool", "drain", "pool-0", "--data", self.head.data)
        check(drained.returncode == 0, drained.stdout)

    def ready(self):
        for host in self.hosts:
            self.head.becomes(host.name, "ready")

    def begin_again(self, host):
        """After it has ended. Its ports stay."""
        again = PoolHost(self.place, data=host.data, http=host.http).ready()
        self.hosts[self.hosts.index(host)] = again
        self.ready()
        return again

    def head_again(self):
        self.head = Head(self.place, again=self.head).ready()
        self.ready()

    def location(self, method, path, headers=(), size=None):
        """Where the head sends a client. A body that the client waits with is not sent."""
        if size is None:
            answer = ask(self.head, method, path, headers=headers)
            same("status of %s %s" % (method, path), answer.status, 307)
            return answer.headers["Location"]
        lines = ["%s %s HTTP/1.1" % (method, path), "Host: 127.0.0.1:%d" % self.head.http, "Authorization: " + basic(self.head),
                 "Expect: 100-continue", "Content-Length: %d" % size]
        with socket.create_connection(("127.0.0.1", self.head.http), LIMIT_S) as s:
            s.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
            said = s.recv(65536).decode()
        check(said.startswith("HTTP/1.1 307 "), "%s %s is not sent away: %r" % (method, path, said))
        return re.search(r"^location: (\S+)", said, re.M | re.I).group(1)


def by_ticket(method, url, body=None, headers=()):
    """(status, headers, body) at the place that a redirect names, without a credential."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=LIMIT_S)
    try:
        connection.request(method, "%s?%s" % (parts.path, parts.query), body, dict(headers))
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


def begun(url, size):
    """A connection on which a PUT has begun."""
    parts = urlsplit(url)
    connection = socket.create_connection((parts.hostname, parts.port), LIMIT_S)
    connection.sendall(("PUT %s?%s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n" % (parts.path, parts.query, parts.netloc, size)).encode())
    return connection


def heard(connection):
    """The status of an answer; None if the connection ends without one."""
    with contextlib.suppress(ConnectionError):
        said = connection.recv(65536)
        if said:
            return int(said.split()[1])
    return None


def curl_is_sent_to_the_host_that_has_the_file(place):
    cluster = Cluster(place)
    head, (host,) = cluster.head, cluster.hosts
    check(re.search(r"^  HTTP +http://127\.0\.0\.1:%d " % host.http, host.said(), re.M), "the banner shows no HTTP:\n" + host.said())
    report = head.ask("cluster", "status")["pools"][0]
    same("face at the head", report["http"], "http://127.0.0.1:%d" % host.http)
    file = a_file(place, "in", 5_000_001)
    effective = ("-w", "%{num_redirects} %{url_effective}\\n", "-o")
    told = curl(head, "-L", "-T", file, "-H", "Expect: 100-continue", *effective, "/dev/null", head.url + "/file")
    check(told.startswith("1 http://127.0.0.1:%d/file?" % host.http), "the upload went to " + told)
    told = curl(head, "-L", *effective, place.path("out"), head.url + "/file")
    check(told.startswith("1 http://127.0.0.1:%d/file?" % host.http), "the download came from " + told)
    data = content(file)
    check(content(place.path("out")) == data, "the download is not what was uploaded")
    curl(head, "-L", "-r", "1000-1999", "-o", place.path("part"), head.url + "/file")
    check(content(place.path("part")) == data[1000:2000], "the range is not that of the file")
    digest = expect(200, head, "HEAD", "/file", headers={"Want-Digest": "adler32"}).headers["Digest"]
    same("checksum that the host made", digest, "adler32=%08x" % zlib.adler32(data))
    url = cluster.location("GET", "/file")
    status, headers, body = by_ticket("GET", url, headers={"Range": "bytes=0-9,100-109"})
    check(status == 206 and data[100:110] in body and headers["Content-Type"].startswith("multipart/byteranges"), "%s %s" % (status, headers))
    etag = expect(200, head, "HEAD", "/file").headers["ETag"]
    same("conditions", by_ticket("GET", url, headers={"If-None-Match": etag})[0], 304)
    same("HEAD", by_ticket("HEAD", url)[1]["Content-Length"], str(len(data)))
    # A wrong checksum leaves nothing.
    put = cluster.location("PUT", "/other", size=8)
    status, _, _ = by_ticket("PUT", put, b"contents")
    same("upload by a ticket alone", status, 201)
    same("the same again", by_ticket("PUT", put, b"contents")[0], 410)
    same("replicas at the head", head.replicas(), [])
    # Replaced over the head, it is another version: the host sends the client back.
    expect(204, head, "PUT", "/file", b"new")
    status, headers, _ = by_ticket("GET", url)
    same("an older version", (status, headers["Location"]), (307, head.url + "/file"))
    check(by_ticket("GET", cluster.location("GET", "/file"))[2] == b"new", "the new version is not served")


def tickets_end_and_are_good_at_one_host_alone(place):
    cluster = Cluster(place, hosts=2)
    head = cluster.head
    expect(201, head, "PUT", "/file", b"0123456789")
    url = cluster.location("GET", "/file")
    other = next(host for host in cluster.hosts if host.http != urlsplit(url).port)
    elsewhere = url.replace(":%d/" % urlsplit(url).port, ":%d/" % other.http)
    for method, body in (("GET", None), ("HEAD", None), ("PUT", b"forged")):
        status, headers, _ = by_ticket(method, elsewhere, body)
        same("%s at the other host" % method, (status, headers["Location"]), (307, head.url + "/file"))
    at = url.index("forebay-ticket=") + len("forebay-ticket=") + 20
    forged = url[:at] + ("A" if url[at] != "A" else "B") + url[at + 1:]
    same("forged", by_ticket("GET", forged)[0], 403)
    # A ticket ends with the token that it was given to.
    asked = json.dumps({"caveats": ["activity:DOWNLOAD"], "validity": "PT3S"})
    answer = expect(200, head, "POST", "/file", asked, {"Content-Type": "application/macaroon-request"})
    token = json.loads(answer.body)["macaroon"]
    short = cluster.location("GET", "/file", {"Authorization": "Bearer " + token})
    same("before its end", by_ticket("GET", short)[2], b"0123456789")
    within(WAIT_S, lambda: by_ticket("GET", short)[0] == 307, "the ticket is good after its end")
    # A token in the URL stays at the head: it would be the host's.
    answer = ask(head, "GET", "/file?authz=" + json.loads(expect(200, head, "POST", "/file", asked, {
        "Content-Type": "application/macaroon-request"}).body)["macaroon"], login=False)
    same("with a token in the URL", (answer.status, answer.body), (200, b"0123456789"))
    drained = place.run("pool", "drain", "--keep-files", other.name, "--data", head.data)
    check(drained.returncode == 0, drained.stdout)
    drained = place.run("pool", "drain", "--keep-files", next(h.name for h in cluster.hosts if h is not other), "--data", head.data)
    check(drained.returncode == 0, drained.stdout)
    same("from a drained pool", expect(200, head, "GET", "/file").body, b"0123456789")


def a_host_that_is_killed_while_bytes_go_there_leaves_no_false_success(place):
    cluster = Cluster(place)
    head, host = cluster.head, cluster.hosts[0]
    big = content(a_file(place, "in/big", 64 << 20))
    expect(201, head, "PUT", "/big", big)
    expect(201, head, "PUT", "/file", b"old")
    put, get = cluster.location("PUT", "/file", size=2_000_000), cluster.location("GET", "/big")
    parts = urlsplit(get)
    with begun(put, 2_000_000) as uploading, socket.create_connection((parts.hostname, parts.port), LIMIT_S) as downloading:
        uploading.sendall(b"x" * 1_000_000)
        downloading.sendall(("GET %s?%s HTTP/1.1\r\nHost: x\r\n\r\n" % (parts.path, parts.query)).encode())
        first = downloading.recv(1 << 16)
        check(first.startswith(b"HTTP/1.1 200 "), "%.200r" % first)
        host.stop(signal.SIGKILL)
        check(heard(uploading) is None, "the upload was answered")
        got = len(first)
        with contextlib.suppress(ConnectionError):
            while more := downloading.recv(1 << 20):
                got += len(more)
        check(got < len(big), "the download ended whole")
    cluster.begin_again(host)
    check(by_ticket("GET", get)[2] == big, "the download does not succeed after the restart")
    same("the file of before", by_ticket("GET", cluster.location("GET", "/file"))[2], b"old")
    # Its bytes went with the process: the client begins at the head again.
    same("the upload that broke off", by_ticket("PUT", put, b"y" * 2_000_000)[0], 410)
    same("a new upload", by_ticket("PUT", cluster.location("PUT", "/file", size=3), b"new")[0], 204)
    same("the new file", by_ticket("GET", cluster.location("GET", "/file"))[2], b"new")
    fsck = place.run("fsck", "--data", head.data)
    check(fsck.returncode == 0, fsck.stdout)


def a_head_that_is_killed_during_an_upload_is_waited_for_and_not_answered_for(place):
    cluster = Cluster(place)
    head = cluster.head
    expect(201, head, "PUT", "/read", b"0123456789")
    put, get = cluster.location("PUT", "/file", size=2_000_000), cluster.location("GET", "/read")
    with begun(put, 2_000_000) as uploading:
        uploading.sendall(b"x" * 1_000_000)
        head.stop(signal.SIGKILL)
        uploading.sendall(b"x" * 1_000_000)
        began = time.monotonic()
        uploading.settimeout(AWAY_S)
        same("the upload that the head did not confirm", heard(uploading), 503)
        status, headers, _ = by_ticket("GET", get)
        same("a download without the head", (status, "Retry-After" in headers), (503, True))
        check(time.monotonic() - began < AWAY_S, "it took %.0f s" % (time.monotonic() - began))
    cluster.head_again()
    same("the file that was not acknowledged", ask(cluster.head, "HEAD", "/file").status, 404)
    same("the upload of before", by_ticket("PUT", put, b"x" * 2_000_000)[0], 410)
    # After a kill the head counts every file as another version, for it may have been written meanwhile.
    same("the ticket of before", by_ticket("GET", get)[0], 307)
    same("a download after all", by_ticket("GET", cluster.location("GET", "/read"))[2], b"0123456789")
    same("a new upload", by_ticket("PUT", cluster.location("PUT", "/file", size=4), b"data")[0], 201)


def a_host_tells_how_it_is_by_http(place):
    cluster = Cluster(place)
    head, host = cluster.head, cluster.hosts[0]

    def asked(path):
        connection = http.client.HTTPConnection("127.0.0.1", host.http, timeout=LIMIT_S)
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    within(WAIT_S, lambda: asked("/health")[0] == 200, lambda: "not healthy: %s" % (asked("/health"),))
    metrics = asked("/metrics")[1]
    for series in ('forebay_pool_free_bytes{pool="%s"}' % host.name, "forebay_head_connected 1", "process_open_fds"):
        check("\n" + series in metrics, "no %s in\n%s" % (series, metrics))
    check("forebay_namespace_files" not in metrics, "metrics of a namespace:\n" + metrics)
    same("live", asked("/health/live")[0], 200)
    same("a path without a ticket", asked("/file")[0], 307)
    said = place.run("status", "--data", host.data)
    check(re.search(r"^HTTP +127\.0\.0\.1:%d, without TLS, data" % host.http, said.stdout, re.M), said.stdout)
    head.stop()
    status, text = within(WAIT_S, lambda: asked("/health")[0] == 503 and asked("/health"), "it is healthy without its head")
    check("head-away" in text, text)
    PoolHost(place, data=host.data + ".other", http=host.http).refuses("in use")


SCENARIOS = [curl_is_sent_to_the_host_that_has_the_file, tickets_end_and_are_good_at_one_host_alone,
             a_host_that_is_killed_while_bytes_go_there_leaves_no_false_success,
             a_head_that_is_killed_during_an_upload_is_waited_for_and_not_answered_for, a_host_tells_how_it_is_by_http]
