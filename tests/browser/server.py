"""The server under test, started as a user would start it."""
import contextlib
import re
import socket
import subprocess
import threading
import urllib.error
import urllib.request


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Server:
    def __init__(self, binary, data, log):
        self.binary, self.data = binary, data
        http, nfs, pool = free_ports(3)
        arguments = ["up", "--data", data, "--http-port", str(http), "--nfs-port", str(nfs), "--pool-port", str(pool)]
        self.log = open(log, "w")
        self.process = subprocess.Popen([binary, *arguments], stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.url, self.user, self.password = None, None, None
        for line in self.process.stdout:
            self._read(line)
            # The banner ends with how to stop.
            if line.startswith("  stop "):
                break
        if not (self.url and self.password):
            self.stop()
            raise RuntimeError(f"the server printed no address or no login; see {log}")
        # The pipe is drained, so that the server never waits for us.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def _read(self, line):
        if found := re.match(r"  web +(https?://\S+?)/? ", line):
            self.url = found[1]
        if found := re.match(r"  login .* the password is in (.+)$", line):
            with open(found[1]) as f:
                self.user, self.password = f.read().strip().split(":", 1)

    def command(self, *arguments):
        """A command of the same program on the running instance."""
        subprocess.run([self.binary, *arguments, "--data", self.data], check=True, stdout=subprocess.DEVNULL)

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def request(self, method, path, body=None, headers=None, is_logged_in=True):
        """Without a browser and without its cookies: status, headers, body."""
        url = path if path.startswith("http") else self.url + path
        request = urllib.request.Request(url, data=body, method=method, headers=headers or {})
        if is_logged_in:
            manager = urllib.request.HTTPPasswordMgrWithPriorAuth()
            manager.add_password(None, self.url, self.user, self.password, is_authenticated=True)
            opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(manager))
        else:
            opener = urllib.request.build_opener()
        try:
            with opener.open(request, timeout=30) as response:
                return response.status, response.headers, response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read()
