"""The best figures of this machine, without any HTTP: loopback with and without a copy in user space, and the disk."""
import os, socket, time

from macro import machine


def measure(scratch, large):
    size = os.path.getsize(large)
    found = machine.disk_bounds(scratch)
    found["loopback_sendfile_mib_s"] = loopback(size, lambda out: sendfile(out, large, size))
    found["loopback_write_mib_s"] = loopback(size, lambda out: write(out, large))
    found["copy_file_mib_s"] = copy(large)
    return found


def loopback(size, send):
    """One connection; the other end reads into one buffer, as curl does."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        pid = os.fork()
        if pid == 0:
            drain(listener.getsockname())
            os._exit(0)
        out, _ = listener.accept()
        start = time.monotonic()
        with out:
            send(out)
        os.waitpid(pid, 0)
        return round(size / (time.monotonic() - start) / (1 << 20))


def drain(address):
    buffer = bytearray(128 << 10)
    with socket.create_connection(address) as connection:
        while connection.recv_into(buffer):
            pass


def sendfile(out, large, size):
    with open(large, "rb") as f:
        at = 0
        while at < size:
            at += os.sendfile(out.fileno(), f.fileno(), at, 1 << 20)


def write(out, large):
    with open(large, "rb", buffering=0) as f:
        buffer = memoryview(bytearray(1 << 20))
        while count := f.readinto(buffer):
            out.sendall(buffer[:count])


def copy(large):
    """Page cache to page cache through one buffer: what a PUT must do beside the network."""
    path, buffer = large + ".copy", memoryview(bytearray(1 << 20))
    start = time.monotonic()
    with open(large, "rb", buffering=0) as source, open(path, "wb", buffering=0) as target:
        while count := source.readinto(buffer):
            target.write(buffer[:count])
    rate = os.path.getsize(large) / (time.monotonic() - start) / (1 << 20)
    os.unlink(path)
    return round(rate)
