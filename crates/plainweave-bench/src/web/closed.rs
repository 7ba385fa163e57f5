//! What a closed loop asks for.

use super::catalog::Catalog;
use super::site::{FIELDS, Fields};

/// What is asked for, over how many connections.
pub(super) struct Load {
    pub(super) catalog: Catalog,
    pub(super) connections: usize,
    /// A connection for each request.
    pub(super) close: bool,
    /// The sets of header fields, used in turn.
    pub(super) heads: &'static [Fields],
}

impl Load {
    /// Connections that are kept alive, by clients of three kinds.
    pub(super) fn kept(connections: usize, catalog: Catalog) -> Self {
        Self {
            catalog,
            connections,
            close: false,
            heads: &FIELDS,
        }
    }
}
