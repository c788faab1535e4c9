//! Keys of HTTP and of its logins: `[http]`, `[auth]` and `[[auth.issuers]]`.

use super::{Key, choice, key, list, number};

/// Of keys that refuse 0 and nothing else.
const FROM_ONE: (u64, u64) = (1, u32::MAX as u64);

pub const HTTP: &[Key] = &[
    key("http.enabled", "true", "boolean", "Whether HTTP and WebDAV are served."),
    key("http.port", "8080", "port", "Port of HTTP and WebDAV."),
    key(
        "http.certificate",
        "(none)",
        "path",
        "PEM file with the certificate chain of the server. Without it only this host and the networks in \
         http.plain_networks are served. The server reads it again when it changes.",
    ),
    key(
        "http.key",
        "(none)",
        "path",
        "PEM file with the private key of http.certificate. The server reads it again when it changes.",
    ),
    key(
        "http.plain_networks",
        "[]",
        "list of networks",
        "Networks whose clients may use HTTP without TLS, for example [\"10.1.0.0/16\"]. Any host on the way can read and \
         change passwords, tokens and data. In URLs these clients must use an IP address, the name of this host or a name \
         in http.names.",
    ),
    key("http.site", "\"forebay\"", "text", "Name of the site in the storage record and in macaroons."),
    key(
        "http.names",
        "[]",
        "list of host:port",
        "Names that clients may use for this server, in addition to its address and host name.",
    ),
    choice(
        "http.anonymous",
        "(read if only loopback is served, else refuse)",
        &["refuse", "read"],
        "Rights of requests without a credential. refuse: none; read: reading with the rights of nobody (65534).",
    ),
    key(
        "http.metrics_networks",
        "[]",
        "list of networks",
        "Networks whose clients may read /metrics and all of /health without a login, in addition to this host.",
    ),
    key("http.page", "true", "boolean", "Whether browsers get the web page."),
    key(
        "http.access_log",
        "(none)",
        "path",
        "File that gets a line for each request: combined format, duration in seconds, bytes received. SIGHUP reopens it.",
    ),
    choice(
        "http.redirect",
        "\"auto\"",
        &["never", "auto", "always"],
        "Whether GET and PUT are redirected to the pool with the data. auto: if that pool is on another host that serves \
         the client by HTTP.",
    ),
    key(
        "http.pool_port",
        "8081",
        "port",
        "HTTP port of pool 0 with http.redirect = \"always\", and of a pool host. Pool N listens on the port that is N \
         higher.",
    ),
    list(
        "http.checksums",
        "[\"adler32\", \"crc32c\"]",
        &["adler32", "crc32c", "md5", "sha-256"],
        "Checksums that are computed and stored with each upload. Others are computed when a client asks for them.",
    ),
    number(
        "http.connections_max",
        "4096",
        "connections",
        FROM_ONE,
        "Maximum number of connections at each HTTP port. One address may have as many as are still free, so at most \
         half. Beyond that a connection is answered 503 and closed.",
    ),
    number(
        "http.locks_max",
        "100000",
        "locks",
        FROM_ONE,
        "Maximum number of WebDAV locks. One caller may have an eighth of them, and at least 16. Beyond that LOCK is \
         answered 503.",
    ),
    number(
        "http.lock_timeout_s",
        "3600",
        "seconds",
        FROM_ONE,
        "Maximum lifetime of a WebDAV lock without a refresh.",
    ),
    number(
        "http.uploads_max",
        "1000",
        "uploads",
        FROM_ONE,
        "Maximum number of redirected uploads, and separately of uploads in parts. Beyond it PUT is answered 503.",
    ),
    number(
        "http.uploads_per_caller_max",
        "250",
        "uploads",
        FROM_ONE,
        "Maximum number of redirected uploads, and separately of uploads in parts, of each caller.",
    ),
    number(
        "http.recall_patience_ms",
        "10000",
        "milliseconds",
        (0, u64::MAX),
        "Time that DELETE and MOVE wait for delegations of NFS clients. Then they are answered 503. An upload waits until \
         the delegations are revoked (nfs.delegations.recall_s).",
    ),
    number(
        "http.copies_max",
        "100",
        "copies",
        FROM_ONE,
        "Maximum number of third-party copies that run at a time. Beyond it COPY is answered 429.",
    ),
    number(
        "http.copy_streams_max",
        "8",
        "streams",
        FROM_ONE,
        "Maximum number of connections of one third-party copy.",
    ),
    key(
        "http.copy_requires_checksum",
        "false",
        "boolean",
        "Whether a third-party copy fails if the other server has no checksum, for requests without the header \
         RequireChecksumVerification.",
    ),
    key(
        "http.copy_ca",
        "[]",
        "list of paths",
        "Certificate authorities that are trusted for third-party copies and token issuers, in addition to those of the \
         system.",
    ),
    key(
        "http.copy_allows_plain",
        "(true if listen is loopback, else false)",
        "boolean",
        "Whether third-party copies may use HTTP without TLS.",
    ),
];

pub const AUTH: &[Key] = &[
    key(
        "auth.passwords",
        "(users in the data directory)",
        "path",
        "File with the users of HTTP. `forebay user` edits it. The server reads it again when it changes.",
    ),
    key(
        "auth.mapping",
        "(none)",
        "path",
        "File that maps users, tokens, groups and certificates to uid and gid. The server reads it again when it changes.",
    ),
    number(
        "auth.macaroon_validity_max_s",
        "604800",
        "seconds",
        (0, u64::MAX),
        "Maximum lifetime of a macaroon.",
    ),
    number(
        "auth.clock_skew_s",
        "60",
        "seconds",
        (0, u64::MAX),
        "Maximum difference between the clocks of this host and of a token issuer.",
    ),
    key(
        "auth.certificates",
        "(none)",
        "path",
        "Directory with the authorities of client certificates and their revocation lists. Without it the server does not \
         ask for client certificates. It reads the files again when they change.",
    ),
    key(
        "auth.vomsdir",
        "\"/etc/grid-security/vomsdir\"",
        "path",
        "Directory with the files of VOMS servers: VO/HOST.lsc. The server reads them again when they change.",
    ),
    key(
        "auth.crl_required",
        "false",
        "boolean",
        "Whether certificates of an authority without a current revocation list are refused.",
    ),
];

pub const ISSUERS: &[Key] = &[
    key(
        "url",
        "(required)",
        "text",
        "Identifier of the issuer: the claim iss of its tokens. It is an https URL, or an http URL on loopback.",
    ),
    key(
        "audiences",
        "(required)",
        "list of texts",
        "Names of this server at the issuer. A token must contain one of them, or the wildcard of its profile.",
    ),
    choice(
        "profile",
        "\"auto\"",
        &["auto", "wlcg", "scitokens"],
        "Profile of the tokens. auto: the profile that a token claims.",
    ),
    key(
        "base_path",
        "\"/\"",
        "path",
        "Directory to which the scopes are relative. Tokens of this issuer reach nothing outside it.",
    ),
    number(
        "uid",
        "(none)",
        "uid",
        (0, u64::MAX),
        "User id of tokens with scopes whose subject is not in auth.mapping. Without it these tokens are refused.",
    ),
    number("gid", "(none)", "gid", (0, u64::MAX), "Group id of these tokens. It is given together with uid."),
    key("groups", "[]", "list of gids", "Further group ids of these tokens."),
    key(
        "members_may_read",
        "false",
        "boolean",
        "Whether a token without scopes, whose subject is not in auth.mapping, may read as uid and gid.",
    ),
];
