"""Extended attributes by system calls: xattr.py calls | write FILE | verify FILE."""
import errno, os, random, sys


def refused(number, call, *args):
    try:
        call(*args)
    except OSError as error:
        assert error.errno == number, (call.__name__, args[1:2], errno.errorcode[error.errno])
    else:
        raise AssertionError("%s was allowed" % call.__name__)


def listed(of):
    """Without what Linux tells of beside: where a server keeps ACLs, system.nfs4_acl."""
    return [name for name in os.listxattr(of) if name.startswith("user.")]


def calls():
    with open("f", "w") as file:
        for of in ("f", file.fileno()):
            assert listed(of) == []
            refused(errno.ENODATA, os.getxattr, of, "user.a")
            refused(errno.ENODATA, os.removexattr, of, "user.a")
            refused(errno.ENODATA, os.setxattr, of, "user.a", b"0", os.XATTR_REPLACE)
            os.setxattr(of, "user.a", b"1", os.XATTR_CREATE)
            refused(errno.EEXIST, os.setxattr, of, "user.a", b"2", os.XATTR_CREATE)
            assert os.getxattr(of, "user.a") == b"1"
            os.setxattr(of, "user.a", b"\0\xff", os.XATTR_REPLACE)
            assert os.getxattr(of, "user.a") == b"\0\xff"
            os.setxattr(of, "user.a", b"")
            os.setxattr(of, b"user.\xff name", b"x")
            assert os.getxattr(of, "user.a") == b""
            assert sorted(listed(of)) == ["user.a", os.fsdecode(b"user.\xff name")], listed(of)
            refused(errno.EOPNOTSUPP, os.setxattr, of, "nothing", b"")
            refused(errno.E2BIG, os.setxattr, of, "user.b", bytes((64 << 10) + 1))
            os.setxattr(of, "user." + "n" * 250, b"long")
            before = os.stat(of).st_ctime_ns
            for name in listed(of):
                os.removexattr(of, name)
            assert listed(of) == [] and os.stat(of).st_ctime_ns > before


def wanted():
    bytes_of = random.Random(8276).randbytes
    values = {"user.large": bytes_of(60 << 10)}
    values.update(("user.%d %s" % (at, "x" * (at * 2)), bytes_of(at)) for at in range(100))
    return values


def write(path):
    open(path, "w").close()
    for name, value in wanted().items():
        os.setxattr(path, name, value, os.XATTR_CREATE)


def verify(path):
    assert sorted(listed(path)) == sorted(wanted())
    for name, value in wanted().items():
        assert os.getxattr(path, name) == value, name


{"calls": calls, "write": write, "verify": verify}[sys.argv[1]](*sys.argv[2:])
