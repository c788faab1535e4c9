//! A line of the access log: the combined format of web servers, then the time taken and the bytes received.

use std::fmt::Write;
use std::time::Duration;

use http::{HeaderValue, Version};
use http_server::Exchange;
use types::{DateTime, Timestamp};

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/// Longer texts of clients are cut.
const TARGET_BYTES_MAX: usize = 4 << 10;
const FIELD_BYTES_MAX: usize = 512;
/// As nginx writes it, if the client went away before it was answered.
const GONE: u16 = 499;
/// Parameters whose values let their bearer in.
const SECRET_PARAMETERS: [&str; 3] = ["authz", "access_token", "forebay-ticket"];

/// `at` is the end of the exchange. With its newline.
pub(super) fn of(exchange: &Exchange, at: Timestamp, took: Duration) -> String {
    let mut out = String::with_capacity(256);
    // Writing to a String never fails.
    let _ = write!(out, "{} - ", exchange.peer.ip());
    match &exchange.user {
        Some(user) => put(&mut out, user.as_bytes(), FIELD_BYTES_MAX, true),
        None => out.push('-'),
    }
    let _ = write!(out, " [{}] \"", date(at));
    put(&mut out, exchange.method.as_str().as_bytes(), FIELD_BYTES_MAX, false);
    out.push(' ');
    put(&mut out, without_secrets(&exchange.uri.to_string()).as_bytes(), TARGET_BYTES_MAX, false);
    let status = exchange.status.map_or(GONE, |status| status.as_u16());
    let _ = write!(out, " {}\" {status} {} \"", version(exchange.version), exchange.body_bytes);
    let referer = exchange.referer.as_ref().and_then(|value| value.to_str().ok());
    put(&mut out, without_secrets(referer.unwrap_or("-")).as_bytes(), FIELD_BYTES_MAX, false);
    out.push_str("\" \"");
    let user_agent = exchange.user_agent.as_ref().map_or(&b"-"[..], HeaderValue::as_bytes);
    put(&mut out, user_agent, FIELD_BYTES_MAX, false);
    let _ = writeln!(out, "\" {:.6} {}", took.as_secs_f64(), exchange.received_bytes);
    out
}

fn date(at: Timestamp) -> String {
    let at = DateTime::from(at);
    let ((year, month, day), (hour, minute, second)) = (at.date(), at.time());
    let month = MONTHS[usize::from(month) - 1];
    format!("{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000")
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        _ => "HTTP/1.1",
    }
}

/// The URL with `...` in the place of credentials in its query.
fn without_secrets(url: &str) -> String {
    let Some((path, query)) = url.split_once('?') else { return url.to_owned() };
    let kept = query.split('&').map(|parameter| {
        let name = parameter.split('=').next().unwrap_or_default();
        // A name may be spelled with %XX: what is not plain text is not shown either.
        let is_secret = SECRET_PARAMETERS.contains(&name.to_ascii_lowercase().as_str()) || name.contains('%');
        if is_secret { format!("{name}=...") } else { parameter.to_owned() }
    });
    format!("{path}?{}", kept.collect::<Vec<_>>().join("&"))
}

/// As web servers do: what would end the field, or the line, is written as `\xHH`. `is_word`: so is a space.
fn put(out: &mut String, bytes: &[u8], bytes_max: usize, is_word: bool) {
    for byte in &bytes[..bytes.len().min(bytes_max)] {
        match byte {
            b'"' | b'\\' => {
                let _ = write!(out, "\\x{byte:02X}");
            }
            b' ' if is_word => out.push_str("\\x20"),
            b' '..=b'~' => out.push(char::from(*byte)),
            _ => {
                let _ = write!(out, "\\x{byte:02X}");
            }
        }
    }
    if bytes.len() > bytes_max {
        out.push_str("...");
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, StatusCode};

    use super::*;

    fn exchange() -> Exchange {
        Exchange {
            peer: "192.0.2.7:40000".parse().unwrap(),
            method: Method::GET,
            uri: "/a/b?x=1".parse().unwrap(),
            version: Version::HTTP_11,
            referer: None,
            user_agent: Some(HeaderValue::from_static("curl/8.5")),
            user: Some("ann".into()),
            status: Some(StatusCode::OK),
            body_bytes: 12,
            received_bytes: 3,
        }
    }

    fn line(exchange: &Exchange) -> String {
        of(exchange, Timestamp::from_seconds(1_700_000_000), Duration::from_micros(1_500))
    }

    #[test]
    fn a_line_is_in_the_combined_format_with_the_time_taken_and_the_bytes_received() {
        assert_eq!(
            line(&exchange()),
            "192.0.2.7 - ann [14/Nov/2023:22:13:20 +0000] \"GET /a/b?x=1 HTTP/1.1\" 200 12 \"-\" \"curl/8.5\" 0.001500 3\n"
        );
    }

    #[test]
    fn a_request_without_an_answer_is_499_and_nobody_is_a_hyphen() {
        let gone = Exchange { status: None, user: None, body_bytes: 0, ..exchange() };
        let line = line(&gone);
        assert!(line.starts_with("192.0.2.7 - - [") && line.contains("\" 499 0 \""), "{line}");
    }

    #[test]
    fn credentials_in_urls_are_not_written() {
        for query in [
            "authz=SECRET",
            "AUTHZ=SECRET",
            "x=1&access_token=SECRET&y",
            "forebay-ticket=SECRET",
            "a%75thz=SECRET",
        ] {
            let uri = format!("/a?{query}").parse().unwrap();
            let referer = HeaderValue::from_str(&format!("https://host/a?{query}")).unwrap();
            let line = line(&Exchange { uri, referer: Some(referer), ..exchange() });
            assert!(!line.contains("SECRET") && line.contains("=..."), "{line}");
        }
    }

    #[test]
    fn clients_can_neither_forge_a_field_nor_a_line() {
        let user_agent = HeaderValue::from_bytes(b"a\" 200\t\xff\\").unwrap();
        let line = line(&Exchange { user_agent: Some(user_agent), user: Some("a b\n".into()), ..exchange() });
        assert!(line.contains(" - a\\x20b\\x0A ["), "{line}");
        assert!(line.contains("\"a\\x22 200\\x09\\xFF\\x5C\""), "{line}");
        assert_eq!(line.matches('\n').count(), 1, "{line}");
    }

    #[test]
    fn long_texts_of_clients_are_cut() {
        let user_agent = HeaderValue::from_str(&"u".repeat(60_000)).unwrap();
        assert!(line(&Exchange { user_agent: Some(user_agent), ..exchange() }).len() < 1_000);
    }
}
