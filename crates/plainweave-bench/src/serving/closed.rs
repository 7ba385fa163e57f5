//! What a closed loop asks for.

use super::catalog::Catalog;
use super::site::{FIELDS, Fields};

/// What is asked for, over how many connections.
pub(crate) struct Load {
    pub(crate) catalog: Catalog,
    pub(crate) connections: usize,
    /// A connection for each request.
    pub(crate) close: bool,
    /// The sets of header fields, used in turn.
    pub(crate) heads: &'static [Fields],
}

impl Load {
    /// Connections that are kept alive, by clients of three kinds.
    pub(crate) fn kept(connections: usize, catalog: Catalog) -> Self {
        Self {
            catalog,
            connections,
            close: false,
            heads: &FIELDS,
        }
    }
}
