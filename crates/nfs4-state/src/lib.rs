//! NFSv4.1 clients, sessions, slots, stateids, leases and grace, without I/O.
