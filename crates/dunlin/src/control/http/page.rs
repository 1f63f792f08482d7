//! The broker's page: its files. They are in the binary as they are in the folder
//! beside, and need nothing that is not among them.

/// A file of the page.
#[derive(Debug)]
pub(super) struct Asset {
    /// Its path in the URL.
    pub(super) path: &'static str,
    /// Its media type.
    pub(super) content_type: &'static str,
    pub(super) body: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// Files of the folder, by their names.
macro_rules! files {
    ($($name:literal $content_type:expr;)*) => {
        [$(Asset {
            path: concat!("/page/", $name),
            content_type: $content_type,
            body: include_bytes!(concat!("page/", $name)),
        }),*]
    };
}

/// What `/` is.
const FIRST: &Asset = &Asset {
    path: "/",
    content_type: HTML,
    body: include_bytes!("page/index.html"),
};

/// All other files.
const ASSETS: &[Asset] = &files! {
    "amqp.js" SCRIPT;
    "api.js" SCRIPT;
    "bans.js" SCRIPT;
    "bridges.js" SCRIPT;
    "broker.js" SCRIPT;
    "chart.js" SCRIPT;
    "clients.js" SCRIPT;
    "dom.js" SCRIPT;
    "format.js" SCRIPT;
    "icon.svg" SVG;
    "main.js" SCRIPT;
    "mqtt.js" SCRIPT;
    "now.js" SCRIPT;
    "payload.js" SCRIPT;
    "queues.js" SCRIPT;
    "retained.js" SCRIPT;
    "style.css" CSS;
    "table.js" SCRIPT;
    "topics.js" SCRIPT;
    "tree.js" SCRIPT;
};

/// The file at a path.
pub(super) fn find(path: &str) -> Option<&'static Asset> {
    match path {
        "/" => Some(FIRST),
        _ => ASSETS.iter().find(|asset| asset.path == path),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Bytes of all files.
    const BYTES_MAX: usize = 120 << 10;

    fn text(asset: &Asset) -> &str {
        core::str::from_utf8(asset.body).expect("text")
    }

    fn all() -> impl Iterator<Item = &'static Asset> {
        core::iter::once(find("/").expect("the first")).chain(ASSETS)
    }

    #[test]
    fn every_file_of_the_folder_is_served_and_all_are_small() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/control/http/page");
        let entries = std::fs::read_dir(folder).expect("the folder");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        for name in names.map(|name| name.into_string().expect("text")) {
            let path = match name.as_str() {
                "index.html" => "/".to_owned(),
                _ => format!("/page/{name}"),
            };
            assert!(find(&path).is_some(), "{path}");
        }
        assert!(find("/page/index.html").is_none());
        assert!(find("/page/").is_none());
        let bytes: usize = all().map(|asset| asset.body.len()).sum();
        assert!(bytes <= BYTES_MAX, "{bytes}");
    }

    #[test]
    fn what_is_imported_is_there() {
        for asset in all() {
            for line in text(asset)
                .lines()
                .filter(|line| line.starts_with("import "))
            {
                let from = line
                    .split("'./")
                    .nth(1)
                    .and_then(|rest| rest.strip_suffix("';"));
                let from = from.unwrap_or_else(|| panic!("{}: {line}", asset.path));
                assert!(
                    find(&format!("/page/{from}")).is_some(),
                    "{}: {line}",
                    asset.path
                );
            }
        }
        let first = text(find("/").expect("the first"));
        for name in first.split("\"page/").skip(1) {
            let name = name.split('"').next().unwrap_or_default();
            assert!(find(&format!("/page/{name}")).is_some(), "{name}");
        }
    }

    /// Text of clients is never read as markup, and nothing is asked of other machines.
    #[test]
    fn no_file_writes_markup_or_names_another_machine() {
        for asset in all() {
            let text = text(asset);
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "DOMParser",
                "eval(",
                "new Function",
                "setHTML",
                "localStorage",
                "style=",
                "onclick=",
            ] {
                assert!(!text.contains(word), "{}: {word}", asset.path);
            }
            for after in text.split("http").skip(1) {
                let name = after.trim_start_matches('s').strip_prefix("://");
                let known = name.is_none_or(|name| name.starts_with("www.w3.org/"));
                assert!(known, "{}: http{:.30}", asset.path, after);
            }
        }
    }
}
