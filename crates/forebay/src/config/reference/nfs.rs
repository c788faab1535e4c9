//! Keys of the NFS door: `[nfs]`, `[nfs.delegations]` and `[[nfs.export]]`.

use super::{Key, choice, key, list, number};

const FLAVORS: &[&str] = &["sys", "krb5", "krb5i", "krb5p"];

pub const NFS: &[Key] = &[
    key("nfs.port", "(2049 as root, else 20490)", "port", "Port of the head."),
    key(
        "nfs.root_squash",
        "(false if listen is loopback, else true)",
        "boolean",
        "Whether root of the clients is mapped to nobody (65534), in exports without the key squash.",
    ),
    number(
        "nfs.lease_s",
        "90",
        "seconds",
        (1, 3_600),
        "Lease. If a client is silent for longer, its opens and locks may be given to other clients.",
    ),
    number(
        "nfs.courtesy_s",
        "86400",
        "seconds",
        (0, 604_800),
        "Time after the end of its lease for which a silent client keeps state that no other client asks for. 0: its state \
         is dropped with the lease.",
    ),
    number(
        "nfs.courtesy_clients_max",
        "1024",
        "clients",
        (0, 1_000_000),
        "Maximum number of clients that keep state after the end of their lease. Beyond it the clients that were silent \
         longest are dropped.",
    ),
    number(
        "nfs.grace_s",
        "90",
        "seconds",
        (0, 3_600),
        "Grace period after a start. In it known clients may reclaim opens and locks, and new opens and locks wait. While \
         clients reclaim, it is extended to at most twice this time.",
    ),
    number(
        "nfs.clients_max",
        "10000",
        "clients",
        (1, 1_000_000),
        "Maximum number of NFS clients. Beyond it a client without a session or lease is dropped; otherwise the new client \
         gets NFS4ERR_DELAY.",
    ),
    number(
        "nfs.connections_max",
        "4096",
        "connections",
        (1, 1_000_000),
        "Maximum number of connections at the port of the head, and at that of each pool. One address may have as many as \
         are still free, so at most half. Beyond that new connections are closed.",
    ),
    number(
        "nfs.flight_mib",
        "64",
        "MiB",
        (1, 1_048_576),
        "Memory for NFS calls and replies, at all ports together. The bound applies to each of: calls that are being \
         received, calls that are executed, replies above 16 KiB. One address may use as much as is still free.",
    ),
    number(
        "nfs.slots_max",
        "256",
        "slots",
        (1, 1_024),
        "Maximum number of concurrent requests of a session. A session begins with up to 64 slots, and is offered more \
         when its client uses all of them.",
    ),
    number(
        "nfs.layout_min_kib",
        "64",
        "KiB",
        (0, 1_048_576),
        "Files below this size are read and written through the head, without a layout (mdsthreshold). 0: every file gets \
         a layout.",
    ),
    number(
        "nfs.copy_answer_ms",
        "100",
        "milliseconds",
        (0, 10_000),
        "Time after which a COPY within the server continues in the background. The client is called back at its end.",
    ),
    list(
        "nfs.security",
        "[\"sys\"]",
        FLAVORS,
        "Security flavors that clients may use, in order of preference, in exports without the key security. Flavors of \
         Kerberos need nfs.keytab.",
    ),
    key(
        "nfs.keytab",
        "(none)",
        "path",
        "Keytab with the keys of nfs/HOST@REALM, for each name by which clients mount head and pools. The server reads it \
         again when it changes.",
    ),
    key(
        "nfs.domain",
        "(none)",
        "domain",
        "NFSv4 domain: the Domain in idmapd.conf of the clients. Clients that use Kerberos see and set owners, groups and \
         ACL entries as user@DOMAIN, with the users of this host. Without a domain all clients see numbers.",
    ),
];

pub const DELEGATIONS: &[Key] = &[
    choice(
        "nfs.delegations.mode",
        "\"adaptive\"",
        &["off", "adaptive", "always"],
        "Read delegations. A client with a delegation opens and reads the file without asking the server. adaptive: for \
         files that the client opens repeatedly; always: with every open.",
    ),
    choice(
        "nfs.delegations.write",
        "\"wanted\"",
        &["off", "wanted", "on"],
        "Write delegations. The client is then the only user of the file, and opens, locks and closes it without asking \
         the server. wanted: for clients that ask for one; on: by the rule of nfs.delegations.mode.",
    ),
    number(
        "nfs.delegations.window_s",
        "60",
        "seconds",
        (1, 86_400),
        "Time within which a client must open a file again for it to become active. With nfs.delegations.mode = \
         \"adaptive\", active files are delegated.",
    ),
    number(
        "nfs.delegations.idle_s",
        "600",
        "seconds",
        (1, 86_400),
        "Time without an open after which an active file is no longer active. It may not be shorter than \
         nfs.delegations.window_s.",
    ),
    number(
        "nfs.delegations.eviction_files",
        "4096",
        "files",
        (1, 1_000_000),
        "Maximum number of files opened once that are remembered for each client. Beyond it the least recently used is \
         forgotten.",
    ),
    number(
        "nfs.delegations.active_files",
        "4096",
        "files",
        (1, 1_000_000),
        "Maximum number of active files of each client. Beyond it the least recently used counts as opened once.",
    ),
    number(
        "nfs.delegations.quiet_s",
        "30",
        "seconds",
        (0, 3_600),
        "Time after a recall of its delegations in which a file is delegated to no client.",
    ),
    number(
        "nfs.delegations.recall_s",
        "(nfs.lease_s)",
        "seconds",
        (1, 3_600),
        "Time after which a recalled layout or delegation that was not returned is revoked, in recalls for NFS and HTTP.",
    ),
];

pub const EXPORT: &[Key] = &[
    key("path", "(required)", "path", "Directory in the namespace, without symbolic links in the path."),
    key(
        "clients",
        "(required)",
        "list of hosts",
        "Clients that may mount the directory: addresses, networks, host names, or \"*\" for all clients.",
    ),
    choice("access", "\"ro\"", &["ro", "rw"], "Access of these clients. ro: read; rw: read and write."),
    choice(
        "squash",
        "(root if nfs.root_squash is true, else none)",
        &["root", "all", "none"],
        "Users that are mapped to anonymous_uid and anonymous_gid: root of the clients, all users, or none.",
    ),
    number("anonymous_uid", "65534", "uid", (0, u64::MAX), "User id of mapped users."),
    number("anonymous_gid", "65534", "gid", (0, u64::MAX), "Group id of mapped users."),
    list("security", "(nfs.security)", FLAVORS, "Security flavors of this export, in order of preference."),
];
