//! Copies between memory and a server on loopback that misbehaves as told.
