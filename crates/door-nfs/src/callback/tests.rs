//! Calls to a client at the other end of a real socket.
