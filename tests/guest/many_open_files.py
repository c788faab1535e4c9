"""many_open_files.py COUNT STOP -- keeps so many files open, writes each again and again, and syncs, until the file STOP is
there; then reads all of them anew. It prints `open` when each has been written, `done ROUNDS` when all is as written."""
import os, sys

COUNT, STOP = int(sys.argv[1]), sys.argv[2]
BLOCK = 64 << 10


def block(file, round):
    return (b"%d of %d " % (round, file)).ljust(16, b".") * (BLOCK // 16)


files = [os.open("many%d" % file, os.O_RDWR | os.O_CREAT | os.O_TRUNC) for file in range(COUNT)]
rounds = 0
while not os.path.exists(STOP):
    for number, file in enumerate(files):
        os.pwrite(file, block(number, rounds), rounds % 4 * BLOCK)
        os.fsync(file)
    rounds += 1
    if rounds == 1:
        print("open")
with open("/proc/sys/vm/drop_caches", "w") as caches:
    caches.write("3\n")
for number, file in enumerate(files):
    for round in range(max(0, rounds - 4), rounds):
        assert os.pread(file, BLOCK, round % 4 * BLOCK) == block(number, round), "file %d, round %d of %d" % (number, round, rounds)
    os.close(file)
print("done", rounds)
