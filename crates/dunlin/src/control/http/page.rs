//! The broker's page: its files.

/// A file of the page.
#[derive(Debug)]
pub(super) struct Asset {
    /// Its path in the URL.
    pub(super) path: &'static str,
    /// Its media type.
    pub(super) content_type: &'static str,
    pub(super) body: &'static [u8],
}

/// All files.
const ASSETS: &[Asset] = &[Asset {
    path: "/",
    content_type: "text/html; charset=utf-8",
    body: b"<!doctype html>\n<html lang=\"en\">\n<title>Dunlin</title>\n\
            <p>This broker is steered at <code>/api/v1</code>, as \
            <a href=\"/api/v1/openapi.json\">its description</a> says.\n",
}];

/// The file at a path.
pub(super) fn find(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}
