//! Keys of the instance, its pools, its ticket keys, its namespace and its log.

use super::{Key, choice, key, list, number};

pub const TOP: &[Key] = &[
    key("data", "\"./forebay-data\"", "path", "Data directory of the instance: namespace, pools and keys."),
    key(
        "listen",
        "\"127.0.0.1\"",
        "address",
        "Address that head and pools listen on. If it is not loopback, root of the clients is mapped to nobody (see \
         nfs.root_squash).",
    ),
];

pub const POOLS: &[Key] = &[
    number(
        "pools.count",
        "(that of the data directory; 1 for a new one)",
        "pools",
        (1, 256),
        "Number of pools in this process. A larger number than before creates pools; a smaller one is refused at the start.",
    ),
    key("pools.port", "20491", "port", "Port of pool 0. Pool N listens on the port that is N higher."),
    number(
        "pools.reserve_mib",
        "64",
        "MiB",
        (0, u64::MAX),
        "Free space that is kept on the file system of each pool. A write that would go below it fails with ENOSPC.",
    ),
    number(
        "pools.reserve_files",
        "1024",
        "inodes",
        (0, u64::MAX),
        "Free inodes that are kept on the file system of each pool. New files do not use them.",
    ),
    number(
        "pools.open_files_max",
        "(half of the process's limit of open files, divided by the number of pools; at most 32768)",
        "files",
        (16, 1_000_000),
        "Maximum number of replica files that each pool keeps open.",
    ),
    number(
        "pools.threads",
        "0",
        "threads",
        (0, 256),
        "Number of disk threads of each pool. 0: twice the number of CPU cores, at most 8.",
    ),
    number(
        "pools.queue_len_max",
        "4096",
        "requests",
        (16, 1_000_000),
        "Maximum number of disk requests that wait at each pool. Beyond it clients get NFS4ERR_DELAY (NFS) or 503 (HTTP).",
    ),
    choice(
        "pools.io",
        "\"auto\"",
        &["auto", "buffered", "uncached", "direct", "paper", "beegfs"],
        "How bytes go between pools and their disks. auto: each request is buffered (through the page cache), uncached \
         (RWF_DONTCACHE, Linux 6.14) or direct (O_DIRECT), by its size, its file and the state of the machine. buffered, \
         uncached, direct: this mode, where kernel and file system have it. paper: the thresholds of autoIO (FAST '24), 32 KiB \
         and 2 MiB. beegfs: direct from 512 KiB.",
    ),
    number(
        "pools.contended_waits",
        "16",
        "writes",
        (1, 1_000_000),
        "A file is contended when so many of its writes had to wait for another write of the same pages within \
         pools.contended_window_s. Its large writes may then be direct, and it gets no write delegation.",
    ),
    number(
        "pools.contended_window_s",
        "4",
        "seconds",
        (1, 3_600),
        "Sliding window in which pools.contended_waits counts. A contended file stays so until its waits are older.",
    ),
    choice(
        "pools.journal",
        "\"pool\"",
        &["pool", "off", "/path/of/a/directory"],
        "Directory of the write journals, which take small stable writes (up to 128 KiB) with one sync for all that wait. \
         pool: in the directory of each pool. A path: below it, a directory for each pool; a faster disk answers sooner, and \
         what it has is lost with it. off: each small write is synced with its file.",
    ),
    choice(
        "pools.gather",
        "\"auto\"",
        &["auto", "always", "never"],
        "Delayed allocation: small unstable writes that come out of order stay in memory for about a second, 64 MiB for each \
         pool at most. They go to their files in pieces of up to 1 MiB. auto: on XFS, where each of them would become an extent \
         of its file.",
    ),
    list(
        "pools.digests",
        "[\"adler32\"]",
        &["adler32", "crc32c", "md5", "sha-256"],
        "Digests of whole files that scrubs make, store with the block sums, and compare. Each kind costs a scrub the time to \
         compute it. []: block sums only.",
    ),
    number(
        "pools.scrub_every_days",
        "30",
        "days",
        (0, 3_650),
        "A scrub of a pool starts by itself when the last complete one ended so many days ago, or the first start of the \
         server with this setting was then. It reads at most 100 MiB/s, and a quarter of it while the pool has other requests. \
         0: only `forebay pool scrub` starts one.",
    ),
    number(
        "pools.copy_percent",
        "20",
        "percent",
        (1, 100),
        "Share of the time that copies between pools take while others read or write at the pools. Otherwise copies take all \
         of it.",
    ),
];

pub const TICKET_KEYS: &[Key] = &[
    number(
        "keys.renew_after_s",
        "0",
        "seconds",
        (0, 315_360_000),
        "Age at which the keys of pool tickets are renewed. 0: only `forebay keys renew` renews them.",
    ),
    number(
        "keys.overlap_s",
        "86400",
        "seconds",
        (1, 2_592_000),
        "Time after a renewal for which pools accept tickets of the previous keys. It may not be longer than \
         keys.renew_after_s, unless that is 0.",
    ),
];

pub const NAMESPACE: &[Key] = &[
    choice(
        "namespace.database",
        "\"sqlite\"",
        &["sqlite", "postgres://user:password@host/database"],
        "Database of the namespace: SQLite in the data directory, or PostgreSQL 15 or newer. Several hosts in the URL, \
         separated by commas, include standbys.",
    ),
    choice(
        "namespace.sync",
        "\"always\"",
        &["always", "names", "interval"],
        "Time at which a change is on disk. always: before it is answered. names: the same for names, sizes and data; \
         changes of mode, owner and times that take no rights away follow within namespace.sync_interval_ms, in their \
         order. interval: every change follows within it. A power failure may lose the changes of the interval that are \
         not on disk; a crash of the process loses none.",
    ),
    number(
        "namespace.sync_interval_ms",
        "1000",
        "milliseconds",
        (10, 60_000),
        "Interval of namespace.sync = \"names\" and \"interval\" with SQLite. With PostgreSQL the interval is one second.",
    ),
    choice(
        "namespace.consistency",
        "\"auto\"",
        &["strong", "weak", "soft", "auto"],
        "How soon link count, times and change attribute of a directory follow changes of its entries. `forebay dir \
         set-consistency` sets it for single directories.",
    ),
    number(
        "namespace.cache_mib",
        "256",
        "MiB",
        (1, 1_048_576),
        "Memory for cached files, names and locations: about 500 bytes for a file with its name and location.",
    ),
    number(
        "namespace.queue_len_max",
        "32768",
        "changes",
        (16, 1_000_000),
        "Maximum number of changes that wait to be committed. Beyond it clients get NFS4ERR_DELAY (NFS) or 503 (HTTP).",
    ),
    number(
        "namespace.group_len_max",
        "512",
        "changes",
        (1, 65_536),
        "Maximum number of changes in one commit.",
    ),
    number(
        "namespace.quota_grace_days",
        "7",
        "days",
        (0, u64::MAX),
        "Time for which a soft limit of a quota may be exceeded. After that it is enforced as a hard limit.",
    ),
    number(
        "namespace.describe_s",
        "600",
        "seconds",
        (0, u64::MAX),
        "Interval at which names and owners of new files are copied to the pools, for `forebay namespace rebuild`. \
         Every 24th pass covers all files. 0: never.",
    ),
];

pub const CLUSTER: &[Key] = &[
    key(
        "cluster.port",
        "7413",
        "port",
        "Port on which the head waits for pool hosts, if the data directory is a cluster (`forebay up --cluster`).",
    ),
    key(
        "cluster.address",
        "\"\"",
        "string",
        "Name or address at which pool hosts reach the head, for tokens; with a port if it is not cluster.port. Empty: the key \
         listen, or the address of the default route if that is 0.0.0.0.",
    ),
    number(
        "cluster.lease_s",
        "10",
        "seconds",
        (2, 30),
        "Time after which a pool that does not reach the head takes no writes of clients. After three tenths of it a silent \
         pool gets no new files and no clients.",
    ),
];

pub const LOG: &[Key] = &[
    choice(
        "log.level",
        "\"warn\"",
        &["error", "warn", "info", "debug", "trace"],
        "Lowest level of the messages that are logged to standard error.",
    )
    .reloaded(),
    choice(
        "log.format",
        "\"text\"",
        &["text", "json"],
        "Format of log lines. json: one object a line. In the journal of systemd each line also has its priority.",
    ),
];
