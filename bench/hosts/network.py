"""A network of this run's own: a namespace for each host, all at one bridge. No packet leaves them."""
import ctypes, os, re, socket, subprocess, threading

PREFIX, SUBNET = "fbcluster", "10.77.0"
CLONE_NEWNET = 0x40000000


def ip(*words, check=True):
    done = subprocess.run(("ip",) + words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if check and done.returncode:
        raise SystemExit("bench/cluster: ip %s: %s" % (" ".join(words), done.stdout.strip()))
    return done.stdout


class Network:
    """`hosts`: a number of an address for each name."""

    def __init__(self, hosts):
        self.hosts, self.made = hosts, []

    def __enter__(self):
        sweep()
        try:
            self.bridge = self.add("bridge")
            ip("-n", self.bridge, "link", "add", "br0", "type", "bridge", "stp_state", "0", "forward_delay", "0")
            ip("-n", self.bridge, "link", "set", "br0", "up")
            for name, number in self.hosts.items():
                host = self.add(name)
                port = "port%d" % number
                ip("-n", self.bridge, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host)
                ip("-n", self.bridge, "link", "set", port, "master", "br0", "up")
                ip("-n", host, "addr", "add", self.address(name) + "/24", "dev", "eth0")
                ip("-n", host, "link", "set", "eth0", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in reversed(self.made):
            ip("netns", "del", name, check=False)

    def add(self, name):
        full = "%s-%d-%s" % (PREFIX, os.getpid(), name)
        ip("netns", "add", full)
        self.made.append(full)
        ip("-n", full, "link", "set", "lo", "up")
        return full

    def address(self, name):
        return "%s.%d" % (SUBNET, self.hosts[name])

    def at(self, name):
        """What comes before a command that is to run on this host."""
        return ["ip", "netns", "exec", "%s-%d-%s" % (PREFIX, os.getpid(), name)]

    def connect(self, name, address, timeout_s=5):
        """A connection from this host: a socket stays in the namespace in which it was made, and a thread may enter one alone."""
        found = []

        def enter_and_connect():
            try:
                enter("%s-%d-%s" % (PREFIX, os.getpid(), name))
                connection = socket.create_connection(address, timeout_s)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                found.append(connection)
            except OSError as error:
                found.append(error)
        thread = threading.Thread(target=enter_and_connect)
        thread.start()
        thread.join()
        if isinstance(found[0], OSError):
            raise found[0]
        return found[0]


def enter(namespace):
    """This thread goes on in a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/var/run/netns/" + namespace) as handle:
        if libc.setns(handle.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "cannot enter the namespace " + namespace)


def sweep():
    """Removes namespaces that a killed run has left."""
    for line in ip("netns", "list").splitlines():
        found = re.match(PREFIX + r"-(\d+)-\w+", line)
        if found and not os.path.exists("/proc/" + found.group(1)):
            ip("netns", "del", found.group(), check=False)
