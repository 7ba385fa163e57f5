//! What a program around a server adds to it; `plainweave` itself adds nothing. Neither server has
//! handlers of users, which might block or want to be observed: benchmarks and tests do.

use std::fmt;
use std::sync::Arc;

use plainweave::{Runtime, RuntimeBuilder};

/// What is called at which moment.
#[derive(Clone, Default)]
pub struct Hooks {
    /// For each request, before it is handled, on the thread that handles it.
    pub on_request: Option<Arc<dyn Fn() + Send + Sync>>,
    /// For each runtime that serves connections: starts it from what flags have made of it.
    pub start: Option<Arc<Start>>,
}

impl Hooks {
    /// Nothing is added.
    pub const NONE: &Self = &Self {
        on_request: None,
        start: None,
    };
}

/// Starts a runtime.
pub type Start = dyn Fn(RuntimeBuilder) -> anyhow::Result<Runtime> + Send + Sync;

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks")
            .field("on_request", &self.on_request.is_some())
            .field("start", &self.start.is_some())
            .finish()
    }
}
