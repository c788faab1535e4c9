"""Forebay and nginx as servers of one directory each: started, stopped, and asked for the CPU time they used."""
import hashlib, os, signal, socket, ssl, subprocess, time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
USER, PASSWORD = "bench", "benchmark-of-forebay"
# Servers and clients before whatever else runs on the machine.
NICE = ["nice", "-n", "-15"] if os.geteuid() == 0 else []


class Server:
    """A process and the workers it forks, on a port of its own; the password is only for who writes."""

    process, credential = None, []

    def __init__(self, scratch, name, tls=None):
        """`tls`: a certificate and its key, for HTTPS."""
        self.home = os.path.join(scratch, name)
        os.makedirs(self.home)
        os.chmod(self.home, 0o755)
        self.port, self.tls = free_port(), tls
        self.url = "%s://127.0.0.1:%d" % ("https" if tls else "http", self.port)
        # Options of curl: nobody has signed the certificate.
        self.trust = ["-k", "--http1.1"] if tls else []

    def connect(self):
        """A connection for a client that speaks HTTP by itself."""
        connection = socket.create_connection(("127.0.0.1", self.port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self.tls:
            return connection
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context.wrap_socket(connection)

    def start(self):
        log = open(os.path.join(self.home, "output"), "wb")
        self.process = subprocess.Popen(NICE + self.command(), stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + 20
        while not listens(self.port):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("%s does not start:\n%s" % (self.name, open(log.name).read()[-2000:]))
            time.sleep(0.02)

    def stop(self):
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)

    def cpu_s(self):
        """User and system time of the process and its workers: all of one session, which `start` made for them."""
        return sum(ticks for _, ticks in self.processes()) / TICKS_PER_S

    def processes(self):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/stat" % pid) as f:
                    words = f.read().rpartition(")")[2].split()
            except OSError:
                continue
            if int(words[3]) == self.process.pid:
                yield int(pid), int(words[11]) + int(words[12])


class Forebay(Server):
    name = "forebay"
    durability = "A PUT is answered when the bytes are on disk (fdatasync) and the name is committed; checksums (adler32, crc32c) are kept with it."
    credential = ["--user", "%s:%s" % (USER, PASSWORD)]

    def __init__(self, scratch, name="forebay", binary=None, tls=None):
        super().__init__(scratch, name, tls)
        self.name = name
        self.binary = binary or os.environ.get("FOREBAY", os.path.join(ROOT, "target/release/forebay"))
        if not os.access(self.binary, os.X_OK):
            raise SystemExit("%s is not built (cargo build --release)" % self.binary)
        self.config = os.path.join(self.home, "forebay.toml")
        with open(self.config, "w") as f:
            f.write('[auth]\npasswords = "%s/users"\n' % self.home)
            if tls:
                f.write('[http]\ncertificate = "%s"\nkey = "%s"\n' % tls)
        argv = [self.binary, "user", "add", "--config", self.config, USER, "--uid", str(os.getuid()), "--gid", str(os.getgid()), "--password-stdin"]
        subprocess.run(argv, input=PASSWORD + "\n", text=True, check=True, stdout=subprocess.DEVNULL)

    def command(self):
        return [self.binary, "up", "--data", os.path.join(self.home, "data"), "--http-port", str(self.port), "--nfs-port", str(free_port()),
                "--pool-port", str(free_port()), "--config", self.config]

    def make_durable(self, _name):
        """Its answer said so already."""


class Nginx(Server):
    name = "nginx"
    durability = "A PUT is answered when the bytes are in the page cache and renamed: nothing is on disk; no checksum."

    def __init__(self, scratch, tls=None):
        super().__init__(scratch, self.name, tls)
        self.data = os.path.join(self.home, "data")
        os.makedirs(self.data)
        os.chmod(self.data, 0o777)
        self.config = os.path.join(self.home, "nginx.conf")
        with open(self.config, "w") as f:
            f.write(CONFIG % dict(home=self.home, data=self.data, port=self.port, user="user root;" if os.geteuid() == 0 else "", workers=os.cpu_count(),
                                  ssl=" ssl" if tls else "", certificate=TLS % tls if tls else ""))

    def command(self):
        return ["nginx", "-c", self.config, "-p", self.home, "-e", os.path.join(self.home, "error.log"), "-g", "daemon off;"]

    def make_durable(self, name):
        """Syncs the file's bytes and its name, as Forebay does before it answers."""
        for path in (os.path.join(self.data, name), self.data):
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)


# As a careful administrator would tune it for speed: sendfile, no access log, open files cached, uploads received on
# the file system where they end, so that they are renamed and not copied.
CONFIG = """%(user)s
worker_processes %(workers)d;
pid %(home)s/pid;
error_log %(home)s/error.log;
events { worker_connections 4096; }
http {
  access_log off; sendfile on; tcp_nopush on; tcp_nodelay on; keepalive_requests 1000000000; default_type application/octet-stream;
  open_file_cache max=20000 inactive=300s; open_file_cache_valid 300s;
  large_client_header_buffers 4 512k; client_max_body_size 0; client_body_buffer_size 1m;
  client_body_temp_path %(home)s/body; proxy_temp_path %(home)s/p; fastcgi_temp_path %(home)s/f; uwsgi_temp_path %(home)s/u; scgi_temp_path %(home)s/s;
  server {
    listen 127.0.0.1:%(port)d%(ssl)s backlog=1024; root %(data)s;
    %(certificate)s
    location / { dav_methods PUT DELETE; create_full_put_path on; etag on; }
  }
}
"""

# TLS 1.3 alone; with its clients each side chooses TLS_AES_256_GCM_SHA384.
TLS = "ssl_certificate %s; ssl_certificate_key %s; ssl_protocols TLSv1.3;"


def certificate(scratch):
    """One that signs itself: (certificate, key)."""
    made = os.path.join(scratch, "cert.pem"), os.path.join(scratch, "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-out", made[0], "-keyout", made[1]], check=True, stderr=subprocess.DEVNULL)
    return made


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def listens(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def first_line(argv):
    said = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    return (said.splitlines() or [""])[0].strip()


def versions(sides):
    """Binaries by their own bytes: they may be older or newer than the tree."""
    out = {"bench_commit": first_line(["git", "-C", ROOT, "describe", "--always", "--dirty"])}
    for side in sides:
        if side.name == "nginx":
            out["nginx"] = first_line(["nginx", "-v"])
            continue
        with open(side.binary, "rb") as f:
            out[side.name + "_sha256"] = hashlib.sha256(f.read()).hexdigest()
        out[side.name] = first_line([side.binary, "--version"])
    return out
