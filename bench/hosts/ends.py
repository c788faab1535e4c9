"""The two ends of the sendfile loop, in processes of their own: `ends.py send FILE SECONDS` and `ends.py receive ADDRESS`, on two hosts."""
import json, os, socket, sys, time

PORT = 9999
RECEIVE_BYTES = 1 << 20


def send(path, seconds):
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("", PORT))
        listener.listen(1)
        out, _ = listener.accept()
    sent, size, began, cpu = 0, os.path.getsize(path), time.monotonic(), time.process_time()
    with open(path, "rb") as f, out:
        while time.monotonic() - began < seconds:
            at = 0
            while at < size:
                at += os.sendfile(out.fileno(), f.fileno(), at, 1 << 20)
            sent += size
    return {"bytes": sent, "seconds": time.monotonic() - began, "cpu_s": time.process_time() - cpu}


def receive(address):
    buffer, end = bytearray(RECEIVE_BYTES), time.monotonic() + 10
    while True:
        try:
            connection = socket.create_connection((address, PORT))
            break
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
    cpu = time.process_time()
    with connection:
        while connection.recv_into(buffer):
            pass
    return {"cpu_s": time.process_time() - cpu}


if __name__ == "__main__":
    print(json.dumps(send(sys.argv[2], float(sys.argv[3])) if sys.argv[1] == "send" else receive(sys.argv[2])))
