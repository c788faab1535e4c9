"""emptied_pool.py write DIR STOP | verify DIR LOG -- a writer of files that move to another pool meanwhile.

It writes blocks of numbers at random places of some files, most of which it opens anew each time, and prints the sums of
what the files have in the end. `verify` compares them.
"""
import hashlib, os, random, sys

FILES, BLOCK, BLOCKS = 12, 4096, 64


def path(directory, number):
    return os.path.join(directory, "w%d" % number)


def write(directory, stop):
    dice = random.Random(7)
    known = [bytearray() for _ in range(FILES)]
    kept = [os.open(path(directory, number), os.O_RDWR | os.O_CREAT, 0o644) for number in range(2)]
    rounds = 0
    while not os.path.exists(stop):
        number = dice.randrange(FILES)
        at, data = dice.randrange(BLOCKS) * BLOCK, dice.randbytes(BLOCK)
        fd = kept[number] if number < len(kept) else os.open(path(directory, number), os.O_RDWR | os.O_CREAT, 0o644)
        if dice.randrange(20) == 0:
            os.ftruncate(fd, at)
            del known[number][at:]
            known[number].extend(bytes(at - len(known[number])))
        else:
            assert os.pwrite(fd, data, at) == BLOCK
            known[number].extend(bytes(max(0, at + BLOCK - len(known[number]))))
            known[number][at:at + BLOCK] = data
        if dice.randrange(3) == 0:
            os.fsync(fd)
        if number >= len(kept):
            os.close(fd)
            with open(path(directory, number), "rb") as f:
                assert f.read() == known[number], "%s is not what was written" % path(directory, number)
        rounds += 1
    for fd in kept:
        os.close(fd)
    for number in range(FILES):
        if known[number] or os.path.exists(path(directory, number)):
            print(number, hashlib.sha256(known[number]).hexdigest())
    print("%d writes" % rounds)
    print("done")


def verify(directory, log):
    with open(log) as f:
        lines = [line.split() for line in f if line[0].isdigit() and "writes" not in line]
    for number, wanted in lines:
        with open(path(directory, int(number)), "rb") as f:
            found = hashlib.sha256(f.read()).hexdigest()
        if found != wanted:
            sys.exit("w%s is not what was written" % number)
    print("%d files as they were written" % len(lines))


if __name__ == "__main__":
    {"write": write, "verify": verify}[sys.argv[1]](*sys.argv[2:])
