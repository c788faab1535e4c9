//! Style, scripts and icon: in the binary, at addresses that change with their content, so that browsers keep them for
//! a year and never use an old one.

use std::hash::{DefaultHasher, Hasher};
use std::sync::LazyLock;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use http_server::Response;

pub(crate) const STYLE: &str = "page.css";
pub(crate) const ICON: &str = "icon.svg";

struct Asset {
    name: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
}

const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

const ASSETS: &[Asset] = &[
    Asset { name: STYLE, content_type: CSS, bytes: include_bytes!("../../assets/page.css") },
    Asset { name: ICON, content_type: "image/svg+xml", bytes: include_bytes!("../../assets/icon.svg") },
    Asset { name: "page.js", content_type: SCRIPT, bytes: include_bytes!("../../assets/page.js") },
    Asset { name: "files.js", content_type: SCRIPT, bytes: include_bytes!("../../assets/files.js") },
    Asset { name: "upload.js", content_type: SCRIPT, bytes: include_bytes!("../../assets/upload.js") },
    Asset { name: "preview.js", content_type: SCRIPT, bytes: include_bytes!("../../assets/preview.js") },
    Asset { name: "live.js", content_type: SCRIPT, bytes: include_bytes!("../../assets/live.js") },
];

/// In the order of `ASSETS`.
static URLS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let url = |asset: &Asset| {
        let mut hasher = DefaultHasher::new();
        hasher.write(asset.bytes);
        format!("/ui/assets/{:016x}-{}", hasher.finish(), asset.name)
    };
    ASSETS.iter().map(url).collect()
});

/// Where the browser finds an asset.
pub(crate) fn url(name: &str) -> &'static str {
    let at = ASSETS
        .iter()
        .position(|asset| asset.name == name)
        .expect("every asset that is named is in the table");
    &URLS[at]
}

/// `None` where nothing has this address: a page that is older than the binary asks for such.
pub(crate) fn serve(path: &str) -> Option<Response> {
    let asset = &ASSETS[URLS.iter().position(|url| url == path)?];
    let response = Response::full(StatusCode::OK, asset.content_type, Bytes::from_static(asset.bytes))
        .with(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"));
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_asset_is_found_at_its_own_address_and_nowhere_else() {
        for asset in ASSETS {
            let response = serve(url(asset.name)).unwrap();
            assert_eq!(response.headers[header::CONTENT_TYPE], asset.content_type);
        }
        assert!(serve("/ui/assets/page.css").is_none());
        assert!(serve("/ui/assets/0000000000000000-page.css").is_none());
    }

    #[test]
    fn nothing_is_fetched_from_elsewhere() {
        for asset in ASSETS {
            let text = std::str::from_utf8(asset.bytes).unwrap().replace("http://www.w3.org/2000/svg", "");
            assert!(
                !text.contains("//cdn") && !text.contains("http:") && !text.contains("https:"),
                "{}",
                asset.name
            );
        }
    }

    #[test]
    fn scripts_make_no_markup_of_text_and_run_no_text() {
        for asset in ASSETS.iter().filter(|asset| asset.content_type == SCRIPT) {
            let text = std::str::from_utf8(asset.bytes).unwrap();
            for sink in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"]
            {
                assert!(!text.contains(sink), "{} uses {sink}", asset.name);
            }
        }
    }
}
