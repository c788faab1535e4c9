//! Media types by a name's extension, and `Content-Disposition` (RFC 6266) for downloads.
//!
//! The table is short on purpose: what science and the web have. Anything else is `application/octet-stream`.

use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use crate::list::{items, trim};

pub const UNKNOWN: &str = "application/octet-stream";

/// Extensions in lower case, sorted.
const TYPES: &[(&str, &str)] = &[
    ("7z", "application/x-7z-compressed"),
    ("avif", "image/avif"),
    ("avro", "application/avro"),
    ("bmp", "image/bmp"),
    ("bz2", "application/x-bzip2"),
    ("c", "text/plain; charset=utf-8"),
    ("cfg", "text/plain; charset=utf-8"),
    ("conf", "text/plain; charset=utf-8"),
    ("cpp", "text/plain; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("epub", "application/epub+zip"),
    ("fit", "application/fits"),
    ("fits", "application/fits"),
    ("fts", "application/fits"),
    ("gif", "image/gif"),
    ("grib", "application/wmo-grib"),
    ("gz", "application/gzip"),
    ("h", "text/plain; charset=utf-8"),
    ("h5", "application/x-hdf5"),
    ("hdf5", "application/x-hdf5"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/x-icon"),
    ("ini", "text/plain; charset=utf-8"),
    ("ipynb", "application/x-ipynb+json"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("jsonl", "application/jsonl"),
    ("log", "text/plain; charset=utf-8"),
    ("md", "text/markdown; charset=utf-8"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mkv", "video/x-matroska"),
    ("mov", "video/quicktime"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("nc", "application/x-netcdf"),
    ("ndjson", "application/x-ndjson"),
    ("npy", "application/x-npy"),
    ("npz", "application/x-npz"),
    ("ogg", "audio/ogg"),
    ("parquet", "application/vnd.apache.parquet"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("py", "text/x-python; charset=utf-8"),
    ("root", "application/x-root"),
    ("rs", "text/plain; charset=utf-8"),
    ("rst", "text/plain; charset=utf-8"),
    ("sh", "text/x-shellscript; charset=utf-8"),
    ("sqlite", "application/vnd.sqlite3"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("tex", "text/x-tex; charset=utf-8"),
    ("tgz", "application/gzip"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("toml", "application/toml"),
    ("tsv", "text/tab-separated-values; charset=utf-8"),
    ("txt", "text/plain; charset=utf-8"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("webm", "video/webm"),
    ("webp", "image/webp"),
    ("xhtml", "application/xhtml+xml"),
    ("xml", "application/xml"),
    ("xz", "application/x-xz"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zarr", "application/vnd+zarr"),
    ("zip", "application/zip"),
    ("zst", "application/zstd"),
];

/// By what follows the last dot; a name that begins with its only dot has no extension.
pub fn media_type(name: &[u8]) -> &'static str {
    let Some(dot) = name.iter().rposition(|byte| *byte == b'.').filter(|dot| *dot > 0) else {
        return UNKNOWN;
    };
    let extension = name[dot + 1..].to_ascii_lowercase();
    let found = TYPES.binary_search_by(|(known, _)| known.as_bytes().cmp(&extension));
    found.map_or(UNKNOWN, |at| TYPES[at].1)
}

/// Whether a header's value names this media type, whatever its parameters. Media types have no case (RFC 9110 §8.3.1).
pub fn is_type(value: &[u8], media_type: &str) -> bool {
    essence(value).eq_ignore_ascii_case(media_type.as_bytes())
}

/// The media types in `Accept`, without their parameters.
pub fn accepted(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    headers.get_all(ACCEPT).iter().flat_map(|value| items(value.as_bytes())).map(essence)
}

/// Whether a client asks for this media type by its name.
pub fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    accepted(headers).any(|name| is_type(name, media_type))
}

fn essence(value: &[u8]) -> &[u8] {
    trim(value.split(|byte| *byte == b';').next().unwrap_or_default())
}

/// Whether a browser that is shown this may run what is in it, on our origin and with the reader's login. A door
/// sends such a type as a download or sandboxed, and always with `X-Content-Type-Options: nosniff`.
pub fn is_active(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    let is = |other: &str| essence.eq_ignore_ascii_case(other);
    let ends = |end: &str| {
        let at = essence.len().saturating_sub(end.len());
        essence.get(at..).is_some_and(|tail| tail.eq_ignore_ascii_case(end))
    };
    is("text/html")
        || is("text/javascript")
        || is("application/javascript")
        || ends("/xml")
        || ends("+xml")
        || is("application/pdf")
        || is("application/wasm")
}

/// RFC 8187 §3.2.1.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// `attachment` with the name to save under: as it is for every browser of this century, and in ASCII for the rest.
pub fn attachment(name: &[u8]) -> HeaderValue {
    let text = String::from_utf8_lossy(name);
    let plain = |c: char| if matches!(c, ' '..='~') && !matches!(c, '"' | '\\' | '%') { c } else { '_' };
    let ascii: String = text.chars().map(plain).collect();
    let mut value = format!("attachment; filename=\"{ascii}\"");
    if ascii != text {
        value.push_str("; filename*=UTF-8''");
        value.extend(percent_encode(text.as_bytes(), KEPT));
    }
    HeaderValue::try_from(value).expect("everything but printable ASCII was replaced or encoded")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_table_is_sorted_in_lower_case_and_every_type_is_a_header_value() {
        assert!(TYPES.is_sorted_by(|a, b| a.0 < b.0));
        for (extension, media_type) in TYPES {
            assert_eq!(*extension, extension.to_ascii_lowercase());
            assert!(HeaderValue::from_str(media_type).is_ok() && media_type.contains('/'));
        }
    }

    #[test]
    fn a_type_goes_by_the_last_extension_in_any_case() {
        assert_eq!(media_type(b"run.ROOT"), "application/x-root");
        assert_eq!(media_type(b"a.tar.gz"), "application/gzip");
        assert_eq!(media_type(b"a.html"), "text/html; charset=utf-8");
        for name in [&b"README"[..], b".png", b"a.", b"a.\xff", b"a.unheard-of"] {
            assert_eq!(media_type(name), UNKNOWN, "{}", name.escape_ascii());
        }
    }

    #[test]
    fn a_media_type_is_known_in_any_case_and_by_its_whole_name() {
        assert!(is_type(b" Application/JSON ;charset=x", "application/json"));
        for other in
            [&b""[..], b";", b"application/json2", b"xapplication/json", b"text/plain; a=application/json"]
        {
            assert!(!is_type(other, "application/json"), "{}", other.escape_ascii());
        }
        let headers =
            ["image/png, TEXT/HTML;q=0.9", "a/b"].map(|value| (ACCEPT, HeaderValue::from_static(value)));
        let headers = HeaderMap::from_iter(headers);
        assert!(accepts(&headers, "text/html") && accepts(&headers, "A/b") && !accepts(&headers, "text/htm"));
        assert_eq!(accepted(&headers).count(), 3);
    }

    #[test]
    fn media_types_that_a_browser_runs_are_active() {
        for name in ["a.html", "a.svg", "a.xml", "a.xhtml", "a.js", "a.pdf"] {
            assert!(is_active(media_type(name.as_bytes())), "{name}");
        }
        assert!(is_active("Text/HTML ; charset=x") && is_active("application/Atom+XML"));
        for name in ["a.txt", "a.png", "a.json", "a"] {
            assert!(!is_active(media_type(name.as_bytes())), "{name}");
        }
    }

    #[test]
    fn a_download_keeps_its_name() {
        assert_eq!(attachment(b"a b.txt"), "attachment; filename=\"a b.txt\"");
        assert_eq!(
            attachment("\u{e4}\"\r\n%.txt".as_bytes()),
            "attachment; filename=\"_____.txt\"; filename*=UTF-8''%C3%A4%22%0D%0A%25.txt"
        );
    }

    proptest! {
        #[test]
        fn no_name_breaks_out_of_its_header(name in prop::collection::vec(any::<u8>(), 0..40)) {
            let value = attachment(&name);
            prop_assert_eq!(value.to_str().unwrap().matches('"').count(), 2);
            prop_assert!(!is_active(UNKNOWN) && !media_type(&name).is_empty());
        }
    }
}
