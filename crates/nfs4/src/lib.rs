//! NFSv4.1 and 4.2 on the wire (RFC 8881, RFC 7862, RFC 8435).
