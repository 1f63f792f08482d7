//! Pages of rows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most rows of a page.
pub const ROWS_MAX: usize = 1000;

/// Rows of a page, where the request does not say.
const ROWS_DEFAULT: usize = 100;

/// One page of rows. Who is there from the first page to the last is in one of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PageOf {
    /// What [`Page::next`] of the page before was.
    pub after: Option<String>,
    /// Most rows, up to [`ROWS_MAX`].
    pub limit: usize,
}

impl Default for PageOf {
    fn default() -> Self {
        Self {
            after: None,
            limit: ROWS_DEFAULT,
        }
    }
}

pub(super) const fn rows_default() -> usize {
    ROWS_DEFAULT
}

/// Rows, and where to go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "{T}Page")]
pub struct Page<T> {
    /// What was found. A page may have none and be followed by others.
    pub rows: Vec<T>,
    /// Where the next page begins.
    pub next: Option<String>,
}
