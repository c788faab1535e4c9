"""The servers that a guest can mount: Forebay as a user would start it, and a peer to prove the jobs with."""
import os, re, shlex, shutil, subprocess, tomllib

HEAD = "10.77.0.1"
NFS_PORT, POOL_PORT = 2049, 20491
LEASE_S, GRACE_S = 10, 5
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
# Lines that a human would have to look at; an end-to-end run may cause none that its group has not announced.
# That the machine of the tests has an ext4 without a journal is nobody's fault.
FAULT = re.compile(r"^(?!.*ext4 without a journal).*(\b(ERROR|WARN)\b|panicked|stack backtrace|SIGSEGV|leaked)")


# Keys of [pools] that a run can set for all its servers, and what it may say of them.
FORCED = {"io": ("auto", "buffered", "uncached", "direct", "paper", "beegfs"), "journal": ("on", "off"),
          "gather": ("auto", "always", "never")}


def variable(key):
    return "FOREBAY_POOLS_" + key.upper()


def force(key, value):
    """For all servers that start from now on."""
    os.environ[variable(key)] = "pool" if (key, value) == ("journal", "on") else value


def own_variables(config):
    """Variables that must not reach the server with this configuration file: it sets the key itself, and a variable would win."""
    try:
        with open(config, "rb") as f:
            pools = tomllib.load(f).get("pools", {})
    except (OSError, ValueError):      # one that is wrong on purpose
        return []
    return [variable(key) for key in FORCED if key in pools]


class Forebay:
    """One data directory and the command that serves it."""

    name = "forebay"

    def __init__(self, scratch, pools=1, extra=(), config="", user=None, port=NFS_PORT, binary=None):
        self.binary = binary or os.environ.get("FOREBAY", os.path.join(ROOT, "target/release/forebay"))
        self.scratch, self.pools, self.extra, self.user, self.port = scratch, pools, list(extra), user, port
        self.data = os.path.join(scratch, "data")
        self.config = os.path.join(scratch, "forebay.toml")
        # Most scenarios mount and nothing else; whoever wants HTTP says so in its configuration or gives a port.
        http = "" if "[http]" in config else "[http]\nenabled = false\n"
        with open(self.config, "w") as f:
            f.write("[nfs]\nlease_s = %d\ngrace_s = %d\n%s\n%s" % (LEASE_S, GRACE_S, config, http))

    def command(self):
        argv = [self.binary, "up", "--data", self.data, "--listen", HEAD, "--nfs-port", str(self.port),
                "--pool-port", str(POOL_PORT), "--pools", str(self.pools), "--config", self.config] + self.extra
        if self.user:
            argv = ["setpriv", "--reuid", str(self.user), "--regid", str(self.user), "--clear-groups"] + argv
        unset = [word for name in own_variables(self.config) for word in ("-u", name)]
        argv = ["env"] + unset + argv if unset else argv
        return shlex.join(argv)

    def fsck(self):
        """(clean, what it said) of the stopped data directory."""
        r = subprocess.run([self.binary, "fsck", "--data", self.data], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True, timeout=120)
        return r.returncode == 0, r.stdout

    def missing(self):
        return None if os.access(self.binary, os.X_OK) else "%s is not built (cargo build --release)" % self.binary


class Ganesha:
    """Debian's nfs-ganesha on a plain directory. It has no pNFS: groups that need it are skipped."""

    name = "ganesha"

    def __init__(self, scratch, pools=1, extra=(), config="", user=None, port=NFS_PORT):
        self.scratch, self.port, self.pools = scratch, port, pools
        self.data = os.path.join(scratch, "data")
        os.makedirs(self.data, exist_ok=True)
        self.config = os.path.join(scratch, "ganesha.conf")
        with open(self.config, "w") as f:
            f.write("""
NFS_CORE_PARAM { NFS_Port = %d; Protocols = 4; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; }
NFSV4 { Grace_Period = %d; Lease_Lifetime = %d; Minor_Versions = 1, 2; RecoveryBackend = fs; Graceless = false; }
EXPORT { Export_Id = 1; Path = %s; Pseudo = /; Access_Type = RW; Squash = No_Root_Squash; Protocols = 4;
  Transports = TCP; SecType = sys; FSAL { Name = VFS; } }
LOG { Default_Log_Level = EVENT; }
""" % (port, GRACE_S, LEASE_S, self.data))

    def command(self):
        return "ganesha.nfsd -F -f %s -L %s/ganesha.log -p %s/pid" % (self.config, self.scratch, self.scratch)

    def fsck(self):
        return True, "a peer has none"

    def missing(self):
        return None if shutil.which("ganesha.nfsd") else "nfs-ganesha is not installed"


SERVERS = {"forebay": Forebay, "ganesha": Ganesha}
