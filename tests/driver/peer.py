"""An HTTP server that misbehaves as told, and keeps what it was asked: the other side of a third-party copy."""
import http.server, socket, ssl, threading, time, zlib


class Peer:
    """Answers each path by the behaviour of that name; `data` is the file that all of them give or mean to give."""

    def __init__(self, place, data=b"", context=None, host="127.0.0.1"):
        self.data, self.requests, self.taken, self.documents, self.elsewhere = data, [], {}, {}, None
        self.lock, self.closing = threading.Lock(), threading.Event()
        peer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def handle_any(self):
                with peer.lock:
                    peer.requests.append((self.command, self.path, dict((k.lower(), v) for k, v in self.headers.items())))
                if self.path in peer.documents:
                    return give(self, peer.documents[self.path])
                name = self.path.strip("/").split("/")[0].replace("-", "_")
                BEHAVIOURS.get(name, missing)(self, peer)

            do_GET = do_HEAD = do_PUT = do_DELETE = do_POST = handle_any

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass        # who hangs up is told of by the scenario

        self.server = Server((host, 0), Handler)
        if context:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.scheme, self.port = "https" if context else "http", self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        place.undo.append(self.close)

    def url(self, path, host="127.0.0.1"):
        return "%s://%s:%d%s" % (self.scheme, host, self.port, path)

    def asked(self, path, method=None):
        """Headers of the requests so far."""
        with self.lock:
            return [h for m, p, h in self.requests if p == path and method in (None, m)]

    def close(self):
        self.closing.set()
        self.server.shutdown()
        self.server.server_close()


def give(handler, body, status=200, digest=None, length=None):
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body) if length is None else length))
    if digest:
        handler.send_header("Digest", digest)
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)


def adler(data):
    return "adler32=%08x" % zlib.adler32(data)


def cut(handler):
    handler.close_connection = True
    handler.wfile.flush()
    handler.connection.shutdown(socket.SHUT_RDWR)


def take(handler, peer):
    """Reads the body of a PUT to its end."""
    body = handler.rfile.read(int(handler.headers.get("content-length", 0)))
    with peer.lock:
        peer.taken[handler.path] = body
    return body


def missing(handler, _):
    give(handler, b"no such file\n", 404)


def honest(handler, peer):
    """Also takes what is sent, and gives it back."""
    if handler.command == "PUT":
        take(handler, peer)
        return give(handler, b"", 201)
    if handler.command == "DELETE":
        with peer.lock:
            there = peer.taken.pop(handler.path, None)
        return give(handler, b"", 204 if there is not None else 404)
    with peer.lock:
        data = peer.taken.get(handler.path)
    data = peer.data if data is None else data
    give(handler, data, digest=adler(data))


def no_digest(handler, peer):
    give(handler, peer.data)


def wrong_digest(handler, peer):
    give(handler, peer.data, digest="adler32=00000001")


def short(handler, peer):
    """Announces all, gives half and hangs up; each time."""
    give(handler, peer.data[:len(peer.data) // 2], length=len(peer.data))
    cut(handler)


def never_answers(handler, peer):
    peer.closing.wait(60)


def stalls(handler, peer):
    """Half of the file, and then nothing."""
    give(handler, peer.data[:len(peer.data) // 2], length=len(peer.data))
    handler.wfile.flush()
    peer.closing.wait(60)


def slow(handler, peer):
    """The whole file, in steps that take about ten seconds."""
    give(handler, b"", length=len(peer.data), digest=adler(peer.data))
    step = max(1, len(peer.data) // 100)
    for at in range(0, len(peer.data), step):
        if handler.command == "HEAD" or peer.closing.wait(0.1):
            return
        handler.wfile.write(peer.data[at:at + step])


def forbidden(handler, _):
    give(handler, b"not for you\n", 403)
    cut(handler)


def redirects(handler, peer):
    handler.send_response(307)
    handler.send_header("Location", peer.elsewhere)
    handler.send_header("Content-Length", "0")
    handler.end_headers()


def loops(handler, peer):
    handler.send_response(302)
    handler.send_header("Location", peer.url(handler.path))
    handler.send_header("Content-Length", "0")
    handler.end_headers()


def garbage(handler, _):
    handler.wfile.write(b"\x00\xffSSH-2.0-nothing\r\n\r\n" * 100)
    cut(handler)


def endless_head(handler, peer):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    end = time.monotonic() + 20
    while time.monotonic() < end and not peer.closing.is_set():
        handler.wfile.write(b"X-Padding: " + b"x" * 8000 + b"\r\n")


def takes_half(handler, peer):
    """Of a PUT; then hangs up."""
    if handler.command != "PUT":
        return missing(handler, peer)
    handler.rfile.read(int(handler.headers["content-length"]) // 2)
    cut(handler)


def takes_it_wrong(handler, peer):
    """Says 201, and then tells another checksum."""
    if handler.command == "PUT":
        take(handler, peer)
        return give(handler, b"", 201)
    if handler.command == "DELETE":
        with peer.lock:
            peer.taken.pop(handler.path, None)
        return give(handler, b"", 204)
    with peer.lock:
        data = peer.taken.get(handler.path)
    if data is None:
        return missing(handler, peer)
    give(handler, data, digest="adler32=00000001")


BEHAVIOURS = {f.__name__: f for f in (
    honest, no_digest, wrong_digest, short, never_answers, stalls, slow, forbidden, redirects, loops, garbage, endless_head,
    takes_half, takes_it_wrong)}
