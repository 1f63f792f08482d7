//! What a node of a cluster knows of it, for operators.

use core::fmt;

use super::values::{ClusterNode, Page, Reply};
use crate::metrics::LogViews;
use crate::metrics::text::Exposition;

/// See the head of the file. It may be asked from any thread.
pub(crate) trait Known: fmt::Debug + Send + Sync {
    /// All nodes, by their numbers.
    fn nodes(&self) -> Vec<ClusterNode>;

    /// What this node is to the log that is the store, also where it serves as an edge.
    fn log(&self) -> Option<LogViews>;

    /// Adds what is counted.
    fn metrics(&self, out: &mut Exposition);
}

/// All nodes on one page, as they are few; of a broker that is alone, none.
pub(crate) fn reply(known: Option<&dyn Known>) -> Reply {
    let rows = known.map(Known::nodes).unwrap_or_default();
    Reply::Cluster(Page { rows, next: None })
}
