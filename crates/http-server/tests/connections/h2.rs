//! HTTP/2 behind TLS, with a library's client.
