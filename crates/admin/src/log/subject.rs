//! On whose behalf something happens: the door and the client that the fields of a span or an event name.

use std::fmt::{self, Debug, Write};
use std::net::{IpAddr, SocketAddr};

use tracing::field::{Field, Visit};

use super::levels::Door;

/// Names by which a client's address is logged.
const CLIENT_FIELDS: [&str; 4] = ["client", "peer", "address", "from"];
/// An address with its port has less.
const TEXT_BYTES_MAX: usize = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Subject {
    pub door: Option<Door>,
    pub client: Option<IpAddr>,
}

impl Subject {
    pub fn is_nobody(&self) -> bool {
        *self == Subject::default()
    }

    /// Takes missing parts from the enclosing spans.
    pub fn or(self, outer: Subject) -> Subject {
        Subject { door: self.door.or(outer.door), client: self.client.or(outer.client) }
    }

    pub fn is_complete(&self) -> bool {
        self.door.is_some() && self.client.is_some()
    }

    fn take(&mut self, field: &Field, text: &str) {
        if field.name() == "door" {
            self.door = Door::by_name(text).or(self.door);
        } else {
            self.client = address(text).or(self.client);
        }
    }
}

fn is_of_interest(field: &Field) -> bool {
    field.name() == "door" || CLIENT_FIELDS.contains(&field.name())
}

fn address(text: &str) -> Option<IpAddr> {
    let address = text.parse::<SocketAddr>().map(|socket| socket.ip());
    address.or_else(|_| text.parse::<IpAddr>()).ok().map(|address| address.to_canonical())
}

impl Visit for Subject {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if is_of_interest(field) {
            let mut text = Text::default();
            if write!(text, "{value:?}").is_ok() {
                self.take(field, text.as_str().trim_matches('"'));
            }
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if is_of_interest(field) {
            self.take(field, value);
        }
    }

    // Numbers are ids of the protocol and no addresses.
    fn record_u64(&mut self, _: &Field, _: u64) {}
    fn record_i64(&mut self, _: &Field, _: i64) {}
    fn record_bool(&mut self, _: &Field, _: bool) {}
}

/// A short text without a heap; longer text is no address.
struct Text {
    bytes: [u8; TEXT_BYTES_MAX],
    length: usize,
}

impl Default for Text {
    fn default() -> Text {
        Text { bytes: [0; TEXT_BYTES_MAX], length: 0 }
    }
}

impl Text {
    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or("")
    }
}

impl Write for Text {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let end = self.length + part.len();
        let room = self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?;
        room.copy_from_slice(part.as_bytes());
        self.length = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_with_and_without_a_port() {
        let expected = Some("192.0.2.1".parse().unwrap());
        for text in ["192.0.2.1", "192.0.2.1:700", "::ffff:192.0.2.1", "[::ffff:192.0.2.1]:700"] {
            assert_eq!(address(text), expected, "{text}");
        }
        assert_eq!(address("17"), None);
        assert_eq!(address("host.example"), None);
    }

    #[test]
    fn text_that_is_too_long_for_an_address_is_refused() {
        let mut text = Text::default();
        assert!(text.write_str(&"a".repeat(TEXT_BYTES_MAX)).is_ok());
        assert!(text.write_str("a").is_err());
    }
}
