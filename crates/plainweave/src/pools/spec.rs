//! What a pool is built from.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::builder::RuntimeBuilder;
use crate::fiber::FiberTask;
use crate::policy::Policy;
use crate::runtime::Runtime;

/// Builds the runtime of a pool whose policy is a type.
type Start = Arc<dyn Fn(RuntimeBuilder) -> io::Result<Runtime> + Send + Sync>;

/// The description of a pool to be built by [`Pools::build`](super::Pools::build).
#[derive(Clone)]
#[must_use]
pub struct PoolSpec {
    name: String,
    runtime: RuntimeBuilder,
    limit: Option<usize>,
    start: Option<Start>,
}

impl PoolSpec {
    /// Creates the description of a pool with default settings: those of [`Runtime::builder`], and
    /// no limit. The name is also that of the workers' threads; it consists of ASCII letters,
    /// digits, `-` and `_`.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            runtime: Runtime::builder(),
            limit: None,
            start: None,
        }
    }

    /// Sets workers, policy, movement, storage, driver and whatever else a runtime has.
    pub fn runtime(mut self, builder: RuntimeBuilder) -> Self {
        self.runtime = builder;
        self
    }

    /// Sets the policy by its type instead of its name: your own, or a composition; see
    /// [`RuntimeBuilder::build_with`].
    pub fn policy_type<P>(mut self, params: P::Params) -> Self
    where
        P: Policy<FiberTask>,
        P::Params: Clone + Send + Sync + 'static,
    {
        self.start = Some(Arc::new(move |runtime| {
            runtime.build_with::<P>(params.clone())
        }));
        self
    }

    /// Sets the most fibers that may be in the pool at once, at least 1. Whoever spawns one more
    /// through the pool, or calls into it, waits until one has ended. Fibers that the pool's own
    /// fibers spawn in other ways (`plainweave::spawn`, `Scope::spawn`) do not count. Default: no
    /// limit but that of stacks ([`RuntimeBuilder::max_fibers`]), at which fibers fail to start.
    pub fn max_fibers(mut self, fibers: usize) -> Self {
        self.limit = Some(fibers);
        self
    }

    /// Returns the settings of its runtime, to change some of them for [`Self::runtime`], or to
    /// build a runtime that is no pool.
    ///
    /// ```
    /// use plainweave::Io;
    /// use plainweave::pools::{PoolSpec, Pools};
    ///
    /// let on_epoll = |spec: PoolSpec| {
    ///     let settings = spec.builder().clone().io(Io::Epoll);
    ///     spec.runtime(settings)
    /// };
    /// let pools = Pools::build(PoolSpec::parse("web:lifo/1,disk:fifo/1")?.into_iter().map(on_epoll))?;
    /// assert_eq!((pools.runtime("web").unwrap().driver(), pools.runtime("web").unwrap().policy()), ("epoll", "lifo"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn builder(&self) -> &RuntimeBuilder {
        &self.runtime
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn limit(&self) -> Option<usize> {
        self.limit
    }

    /// Builds and starts the runtime.
    pub(super) fn start(&self) -> io::Result<Runtime> {
        let name = &self.name;
        if !is_name(name) {
            return Err(invalid(format!(
                "'{name}' is no name of a pool: use ASCII letters, digits, '-' and '_'"
            )));
        }

        if self.limit == Some(0) {
            return Err(invalid(format!(
                "the pool '{name}': max_fibers: at least 1, not 0"
            )));
        }

        let builder = self
            .runtime
            .clone()
            .thread_name(name)
            .stacks_for(self.limit.unwrap_or(0));
        let built = match &self.start {
            Some(start) => start(builder),
            None => builder.build(),
        };

        let runtime = built
            .map_err(|error| io::Error::new(error.kind(), format!("the pool '{name}': {error}")))?;
        if runtime.pool.virtual_time {
            return Err(invalid(format!(
                "the pool '{name}': on virtual time (Io::Sim) pools have no common clock"
            )));
        }

        Ok(runtime)
    }
}

/// Returns whether a pool may be called so.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

pub(super) fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

impl fmt::Debug for PoolSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            runtime,
            limit,
            start,
        } = self;
        let mut shown = f.debug_struct("PoolSpec");
        shown
            .field("name", name)
            .field("runtime", runtime)
            .field("limit", limit);
        shown.field("policy_type", &start.is_some()).finish()
    }
}
