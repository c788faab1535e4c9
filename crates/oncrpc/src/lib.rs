//! ONC RPC version 2 (RFC 5531): record marking, calls, replies, AUTH_SYS.
