//! The ends of the pages of help: state of the instance, examples, exit codes.
//!
//! A test parses every example.

macro_rules! exit_codes_of_checks {
    () => {
        "\
Exit codes:
  0  Success; no problem found
  1  Problems were found, which standard output lists; or the command failed, and an error is on standard error
  2  The command line is not valid; nothing was done"
    };
}

macro_rules! complete_with_problems {
    ($command:literal) => {
        concat!(
            $command,
            " ends with a check. If the check finds problems, the command has done its work all the same:
the report on standard output lists them (`problems` of --json), and there is no error on standard error."
        )
    };
}

macro_rules! running_or_stopped {
    () => {
        "The instance may be running or stopped. Run the command as the owner of the data directory."
    };
}

macro_rules! stopped {
    () => {
        "The instance must be stopped. Run the command as the owner of the data directory."
    };
}

pub const EXIT_CODES: &str = "\
Exit codes:
  0  Success
  1  The command failed, or a check found problems; an error is on standard error
  2  The command line is not valid; nothing was done";

pub const UP: &str = "\
The instance must be stopped; a new one is created if the data directory is missing. The server ends at SIGTERM or
Ctrl-C, within 5 seconds. At SIGHUP it reads the configuration again. A server that was started at a terminal ends when
the terminal is closed, unless nohup started it.

Examples:
  forebay up
  forebay up --data /srv/forebay --listen 192.0.2.1 --pools 2
  forebay up --config /etc/forebay/forebay.toml";

pub const POOL_UP: &str = "\
The pool serves clients once its head has answered. It ends at SIGTERM or Ctrl-C, within 5 seconds.

Every user of the host can read a token that stands on the command line. --join - and --join-file keep it private.

Examples:
  forebay pool up --data /srv/pool --join TOKEN
  forebay pool up --data /srv/pool --join -
  forebay pool up --data /srv/pool
  forebay pool up --data /srv/pool --listen 192.0.2.11 --advertise 198.51.100.11";

pub const CLUSTER_TOKEN: &str = "\
The instance must be running. Run the command as the owner of the data directory.

Examples:
  forebay cluster token --data /srv/forebay
  forebay cluster token --hours 2";

pub const CLUSTER_STATUS: &str = "\
The instance must be running. Run the command as the owner of the data directory.

Examples:
  forebay cluster status --data /srv/forebay";

pub const CLUSTER_ROTATE_KEYS: &str = "\
The instance must be running. The command waits until all connected pool hosts have new keys. A pool host that is away
is let in by its former keys, and gets new ones then. The overlap ends when no pool host has former keys.

Examples:
  forebay cluster rotate-keys --data /srv/forebay
  forebay cluster rotate-keys --end-overlap";

pub const CLUSTER_SHUT_OUT: &str = "\
The instance must be running. Clients can still write at the pool until its lease is over, and read there as long as
they reach its NFS port. The keys of pool tickets are renewed as well. To let it in again: forebay cluster readmit.

Examples:
  forebay cluster shut-out pool-2 --data /srv/forebay";

pub const CLUSTER_READMIT: &str = "\
The instance must be running. Run the command that this prints on the host, with the data directory of the pool. The
host makes a new key; its former ones are of no use from then on.

Examples:
  forebay cluster readmit pool-2 --data /srv/forebay";

pub const POOL_FILES: &str = "\
The instance must be running. A line for each file, with the number of the file where it has no path that can be shown.

Examples:
  forebay pool files pool-2 --data /srv/forebay";

pub const POOL_REMOVE: &str = "\
The instance must be running. The host of the pool must be stopped or shut out, and the lease of the pool be over. The
number of the pool is not given to another one.

Examples:
  forebay pool remove pool-2 --data /srv/forebay";

pub const STATUS: &str = "\
The instance must be running. Run the command as the owner of the data directory. In the data directory of a pool host,
the command shows its pool, its head and its lease.

Examples:
  forebay status --config /etc/forebay/forebay.toml
  forebay status --config /etc/forebay/pool.toml";

pub const FSCK: &str = concat!(
    "\
The instance may be running or stopped; with --repair it must be stopped. Run the command as the owner of the data
directory.

The first 1,000 problems and the first 1,000 remarks are printed. --list FILE replaces FILE when the check is complete.
With --repair, FILE has the problems that are left.

Examples:
  forebay fsck --config /etc/forebay/forebay.toml
  forebay fsck --list /tmp/problems --config /etc/forebay/forebay.toml
  forebay fsck --repair --config /etc/forebay/forebay.toml

",
    exit_codes_of_checks!()
);

pub const DIR_CREATE: &str = concat!(
    running_or_stopped!(),
    "

Examples:
  forebay dir create /projects --owner 1001 --group 3000 --mode 2775
  forebay dir create /users/anna --owner anna --parents"
);

pub const DIR_SET_CONSISTENCY: &str = concat!(
    running_or_stopped!(),
    "

Examples:
  forebay dir set-consistency /scratch/jobs weak --recursive"
);

pub const DIR_SET_IO: &str = concat!(
    running_or_stopped!(),
    "

The directory, and what is created in it from then on, has the mode. Existing directories and files below it keep
theirs, unless --recursive is given. Requests to the head and new NFS layouts have the mode at once; a client with an
older layout keeps the mode of that layout.

Examples:
  forebay dir set-io /scratch/streams direct
  forebay dir set-io /scratch/streams auto --recursive"
);

pub const DIR_SHOW: &str = concat!(
    running_or_stopped!(),
    "

Examples:
  forebay dir show /scratch/jobs"
);

pub const POOL_LIST: &str = concat!(
    running_or_stopped!(),
    " In the data directory of a
pool host, the command lists the pool of that host. Only the head knows whether it is drained.

Examples:
  forebay pool list --config /etc/forebay/forebay.toml
  forebay pool list --config /etc/forebay/pool.toml"
);

pub const POOL_ENABLE: &str = concat!(
    running_or_stopped!(),
    "

Examples:
  forebay pool enable pool-1"
);

pub const POOL_DRAIN: &str = concat!(
    running_or_stopped!(),
    " Files move while an
instance runs. The drain goes on after a restart, until the pool is enabled.

A file is copied through the head, synced and compared before its old replica is removed. A file that is open for
writing, or that changes during the copy, is tried again later. forebay pool list shows how far the drain is.

With --wait, the exit code is 0 if the pool is empty, and 1 if files are left that cannot be moved. Ctrl-C ends the
waiting and not the drain.

Examples:
  forebay pool drain pool-1 --wait
  forebay pool drain pool-1 --keep-files"
);

pub const POOL_CALIBRATE: &str = "\
The instance must be running. Run the command as the owner of the data directory.

The measurement takes up to about 20 s, at the idle priority of I/O, and at most 256 MiB and 1 % of the free space,
which it gives back. The result is kept in calibration.json in the pool's directory. A pool without one measures its
disk by itself once it has been idle for 5 minutes. Only pools.io = \"auto\" uses the result.

A pool on another host is measured there, with the data directory of the pool host.

Examples:
  forebay pool calibrate pool-0
  forebay pool calibrate pool-1 --config /etc/forebay/pool.toml";

pub const POOL_IOSTAT: &str = "\
The instance must be running. Run the command as the owner of the data directory.

The counts are those of the pools of one process: those of a pool on another host are shown there, with the data
directory of the pool host.

The lines before the tables have the write journals: records of small stable writes and their syncs; writes that a
journal refused; files that were synced, so that a restart no longer needs their records; files that are yet to be
synced; and the space in use. A pool with delayed allocation (pools.gather) has a line with the writes that it kept
in memory, the pieces of files that they were merged into, those of them without gaps, and the memory in use.

Two more lines have the bytes that were in memory when clients read them, and the CPU time of the pool's threads: of
all their work, syncs included, and for a GB (10⁹ bytes) of reads and writes. Reads that the page cache serves at once
do not run in these threads. A line with contended files appears while there are some.

Each row of the first table has the requests that one rule gave one mode. The guide to pools and disks lists the
reasons. Bytes are those of the requests at the pool, not those at its disk.

The second table has the times of reads and writes at the page cache or the disk. Of reads that the page cache serves
at once, one in 64 is timed and counts for all, after the first 64. CPU s/GB is the CPU time of the thread that ran the
request. Syncs and write-back by the kernel are not in it, so that buffered writes cost more than it shows. Requests
below 1 MiB are measured by samples. The third table has the threads of the pools: the jobs that wait for one now, the
most that ever waited, and how long they waited.

The fourth table has the bytes that a pool had the kernel fetch before they were read: used, wasted because they were
not read in time, and dropped because they were in memory or the pool's threads were busy.

With --by-file, each row is a file that a pool has open or keeps open for the next use. Its counts begin when it is
opened; of reads from memory that run at the same moment some may be missing. `waits` are writes that waited for
another write of the same pages.

Examples:
  forebay pool iostat
  forebay pool iostat --by-file --top 10
  forebay pool iostat pool-0 --interval 5";

pub const POOL_SCRUB: &str = concat!(
    "\
The instance must be running. Run the command as the owner of the data directory.

A replica without block sums gets them once it was not written for 10 s. A replica that differs from its sums cannot be
read any more, until its file is removed or replaced. If the command is interrupted, the next one continues. One scrub
of a pool runs at a time. A scrub also starts by itself, as pools.scrub_every_days says.

A pool on another host is scrubbed there, with the data directory of the pool host. Files have numbers and no paths
there.

Examples:
  forebay pool scrub pool-0
  forebay pool scrub pool-0 --rate 20 --progress
  forebay pool scrub pool-0 --status

",
    exit_codes_of_checks!()
);

pub const WHY_IO: &str = "\
The instance must be running. Run the command as the owner of the data directory.

A pool remembers the last 16 decisions of each file that it has open. Requests that no threshold lets past the page
cache, and reads of bytes in memory, get no decision. Times are in UTC.

KEY is policy, or a threshold as --json prints it: write.direct_bytes_min, hot_percent, … VALUE is a policy as in
pools.io, a number of bytes with the suffix k, M, G or T for powers of 1024, or none. Nothing is changed on the
server.

Examples:
  forebay why io /data/run7/events
  forebay why io /data/run7/events --with-threshold policy=paper
  forebay why io /data/run7/events --with-threshold write.direct_bytes_min=256k --with-threshold hot_percent=90";

pub const KEYS_RENEW: &str = concat!(
    running_or_stopped!(),
    "

A second renewal within keys.overlap_s ends the tickets of the keys before the previous ones at once. Clients then ask
the head for new tickets.

Examples:
  forebay keys renew --config /etc/forebay/forebay.toml"
);

pub const QUOTA_SET: &str = concat!(
    running_or_stopped!(),
    "

SIZE is a number of bytes, with the suffix k, M, G or T for powers of 1024. N takes the same suffixes.

Examples:
  forebay quota set --user anna --bytes-soft 80G --bytes-hard 100G
  forebay quota set --tree /projects/run7 --files-hard 1000000"
);

pub const QUOTA_SHOW: &str = concat!(
    running_or_stopped!(),
    "

Examples:
  forebay quota show --user anna
  forebay quota show --tree /projects/run7 --json"
);

pub const QUOTA_LIST: &str = concat!(
    running_or_stopped!(),
    "

Examples:
  forebay quota list --config /etc/forebay/forebay.toml"
);

pub const QUOTA_REMOVE: &str = concat!(
    running_or_stopped!(),
    "

Examples:
  forebay quota remove --group 3000"
);

pub const DU: &str = concat!(
    running_or_stopped!(),
    "

Examples:
  forebay du /projects --depth 1"
);

pub const NAMESPACE_COPY: &str = concat!(
    stopped!(),
    "

",
    complete_with_problems!("The command"),
    "

Examples:
  forebay namespace copy --from /var/lib/forebay --to postgres://forebay@db/forebay --switch /var/lib/forebay

",
    exit_codes_of_checks!()
);

pub const NAMESPACE_BACKUP: &str = concat!(
    running_or_stopped!(),
    "

",
    complete_with_problems!("The command"),
    "

Examples:
  forebay namespace backup --config /etc/forebay/forebay.toml --to /backup/namespace-2026-11-26

",
    exit_codes_of_checks!()
);

pub const NAMESPACE_RESTORE: &str = concat!(
    stopped!(),
    "

",
    complete_with_problems!("With --from, the command"),
    "

Examples:
  forebay namespace restore --from /backup/namespace-2026-11-26 --to /var/lib/forebay
  forebay namespace restore --in-place --to postgres://forebay@db/forebay

",
    exit_codes_of_checks!()
);

pub const NAMESPACE_MIGRATE: &str = "\
The instance must be stopped, but may run with --dry-run or with --at file:FILE. Run the command as the owner of the
data directory.

Examples:
  forebay namespace migrate --dry-run --config /etc/forebay/forebay.toml";

pub const NAMESPACE_IMPORT: &str = "\
The target must not be in use. Files of the listing have no data: reads of files that are not empty fail.

Examples:
  forebay namespace import --listing tree.mtree --format mtree --to /srv/new --under /archive";

pub const NAMESPACE_ADOPT: &str = "\
The instance must be new; the command creates it. Nothing may change the tree until the command has ended. The files
become hard links to the files of the tree.

Examples:
  forebay namespace adopt --tree /srv/data --data /srv/forebay --move";

pub const NAMESPACE_REBUILD: &str = concat!(
    stopped!(),
    "

Examples:
  forebay namespace rebuild --config /etc/forebay/forebay.toml"
);

pub const NAMESPACE_DESCRIBE: &str = concat!(
    running_or_stopped!(),
    "

Examples:
  forebay namespace describe --config /etc/forebay/forebay.toml"
);

macro_rules! users {
    () => {
        "\
The instance may be running or stopped. A running server accepts a new password at once, and refuses a previous password
or a removed user within seconds. Run the command as the owner of the data directory."
    };
}

pub const USER_SET_PASSWORD: &str = concat!(
    users!(),
    "

Examples:
  forebay user set-password anna"
);

pub const USER_REMOVE: &str = concat!(
    users!(),
    "

Examples:
  forebay user remove anna"
);

pub const USER_LIST: &str = concat!(
    running_or_stopped!(),
    "

Examples:
  forebay user list --config /etc/forebay/forebay.toml"
);

pub const USER_ADD: &str = concat!(
    users!(),
    "

Examples:
  forebay user add anna --uid 1001 --gid 1000 --groups 27,3000"
);

pub const CERT_SELF_SIGNED: &str = "\
Examples:
  forebay cert self-signed --host files.example.org --host 192.0.2.1 --out /etc/forebay";

pub const CONFIG_REFERENCE: &str = "\
Examples:
  forebay config reference";

pub const CONFIG_CHECK: &str = "\
Examples:
  forebay config check /etc/forebay/forebay.toml

Exit codes:
  0  Success; no problem found
  1  Problems were found, or the command failed; an error is on standard error
  2  The command line is not valid; nothing was done";
