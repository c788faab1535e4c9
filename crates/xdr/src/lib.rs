//! XDR (RFC 4506) over shared bytes.
