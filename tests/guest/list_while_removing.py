"""list_while_removing.py DIR N -- list a directory of N names while another process removes most of them.

POSIX leaves it open whether a listing shows names that come or go meanwhile. A name that is there from beginning to
end must be shown exactly once, no name twice, and none that never was.
"""
import os, sys, time


def main():
    path, count = sys.argv[1], int(sys.argv[2])
    os.mkdir(path)
    t0 = time.time()
    for i in range(count):
        os.close(os.open("%s/f%05d" % (path, i), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    print("created in %.1f s" % (time.time() - t0))
    every = {"f%05d" % i for i in range(count)}
    stay = {"f%05d" % i for i in range(0, count, 50)}
    names = os.listdir(path)
    assert len(names) == count and set(names) == every, "first listing has %d names" % len(names)
    pid = os.fork()
    if pid == 0:
        for name in sorted(every - stay):
            os.unlink("%s/%s" % (path, name))
        os._exit(0)
    listings = 0
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        names = os.listdir(path)
        assert len(names) == len(set(names)), "names listed twice: %d" % (len(names) - len(set(names)))
        assert stay <= set(names), "names that stay are missing: %s" % sorted(stay - set(names))[:5]
        assert set(names) <= every, "names that never were"
        listings += 1
        if done:
            break
        time.sleep(0.05)        # a cached listing costs nothing; leave the one CPU to the remover
    assert status == 0, "the remover failed"
    assert set(os.listdir(path)) == stay, "after the removal the listing is not what is left"
    print("%d listings, all in %.1f s" % (listings, time.time() - t0))
    for name in stay:
        os.unlink("%s/%s" % (path, name))
    os.rmdir(path)


main()
