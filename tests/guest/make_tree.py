#!/usr/bin/env python3
"""make_tree.py OUT.tar [FILES] -- a source tree as a tar file, the same bytes every time.

The shape is that of a compiler's or kernel's source: many small files, a few large ones, deep and wide directories,
programs with the x bit, symbolic links, old modification times.
"""
import io, random, sys, tarfile

WORDS = "alloc block cache device entry file group header inode journal kernel layout mount namespace object page queue".split()
MTIME = 1_600_000_000


def directories(rng):
    dirs = ["tree"]
    for _ in range(340):
        parent = rng.choice(dirs)
        if parent.count("/") < 7:
            dirs.append("%s/%s%d" % (parent, rng.choice(WORDS), len(dirs)))
    return dirs


def text(rng, size):
    lines, length = [], 0
    while length < size:
        line = " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 14))) + ";\n"
        lines.append(line)
        length += len(line)
    return "".join(lines)[:size].encode()


def add(tar, name, mtime, data=None, mode=0o644, link=None, directory=False):
    info = tarfile.TarInfo(name)
    info.mtime, info.mode = mtime, mode
    if directory:
        info.type = tarfile.DIRTYPE
    elif link:
        info.type, info.linkname = tarfile.SYMTYPE, link
    else:
        info.size = len(data)
    tar.addfile(info, io.BytesIO(data) if data is not None else None)


def main():
    out, files = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5200
    rng = random.Random(20)
    block = text(rng, 1 << 20)
    with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as tar:
        dirs = directories(rng)
        for i, name in enumerate(dirs):
            add(tar, name, MTIME + i, mode=0o755, directory=True)
        for i in range(files):
            size = min(int(rng.lognormvariate(8.0, 1.3)), 600_000)
            start = rng.randrange(len(block) - size)
            name = "%s/%s_%d.%s" % (rng.choice(dirs), rng.choice(WORDS), i, rng.choice(["c", "h", "rs", "py", "md"]))
            # the first bytes make each file differ from every other
            add(tar, name, MTIME + i, ("/* %d */\n" % i).encode() + block[start:start + size], 0o755 if i % 40 == 0 else 0o644)
            if i % 60 == 0:
                add(tar, name + ".link", MTIME + i, link=name.rsplit("/", 1)[1], mode=0o777)


if __name__ == "__main__":
    main()
