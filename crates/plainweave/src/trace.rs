//! What a runtime's workers did last, as a trace: which fiber ran where and for how long, why it
//! stopped, who woke it, what was stolen, and when workers slept.
//!
//! A runtime that is built with
//! [`RuntimeBuilder::trace_capacity`](crate::RuntimeBuilder::trace_capacity) keeps the last events
//! of each worker in memory, all the time. [`Runtime::tracer`] gives a handle that writes them,
//! whenever something has been worth a look, in the format of Chrome's trace viewer, which
//! <https://ui.perfetto.dev> and other viewers read.
//!
//! ```
//! use plainweave::Runtime;
//!
//! let runtime = Runtime::builder().trace_capacity(10_000).build()?;
//! runtime.run(|| plainweave::spawn(plainweave::yield_now).join().expect("no panic"));
//! let mut json = Vec::new();
//! runtime.tracer().expect("built with a capacity").write_json(&mut json)?;
//! # assert!(json.starts_with(b"{") && json.ends_with(b"}\n"));
//! # Ok::<(), std::io::Error>(())
//! ```

mod chrome; // A trace as JSON in Chrome's format.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use crate::runtime::Runtime;
use crate::sched::recorder::Recorder;

/// What a runtime has recorded and goes on recording. Clones are of the same records, which stay
/// readable when the runtime has ended, and take their memory until the last clone is dropped.
///
/// ```
/// let runtime = plainweave::Runtime::builder().workers(1).trace_capacity(1024).build()?;
/// runtime.run(|| plainweave::spawn(|| ()).join().unwrap());
/// let mut json = Vec::new();
/// runtime.tracer().expect("asked for").write_json(&mut json)?;
/// assert!(json.starts_with(b"{"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Tracer(Arc<Recorder>);

impl Tracer {
    /// Writes what there is now, as JSON in Chrome's trace format: a track a worker, a slice for
    /// each time that a fiber ran or the worker slept, an arrow for each wake-up, spawn and steal.
    /// Workers go on meanwhile, and may overwrite some of the oldest events before they are copied.
    /// Takes as much memory again as the records do.
    ///
    /// Writes in large pieces, so `out` needs no buffer of its own. On a fiber, writing to a file
    /// holds up the worker.
    ///
    /// # Errors
    /// Those of `out`, of which the first ends it.
    pub fn write_json(&self, out: impl Write) -> io::Result<()> {
        write_json([self], out)
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer")
            .field("runtime", &self.0.name)
            .finish_non_exhaustive()
    }
}

/// Writes the records of several runtimes as one trace: as [`Tracer::write_json`], each a process
/// of the trace.
///
/// # Errors
/// Those of `out`, of which the first ends it.
///
/// ```
/// let build = |name| plainweave::Runtime::builder().workers(1).thread_name(name).trace_capacity(1024).build();
/// let tracers = [build("web")?.tracer(), build("disk")?.tracer()];
/// let mut json = Vec::new();
/// plainweave::trace::write_json(tracers.iter().flatten(), &mut json)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn write_json<'a>(
    tracers: impl IntoIterator<Item = &'a Tracer>,
    out: impl Write,
) -> io::Result<()> {
    let recorders: Vec<_> = tracers.into_iter().map(|tracer| &*tracer.0).collect();
    chrome::write(&recorders, out)
}

impl Runtime {
    /// Returns a handle that writes what the workers did last. `None` unless the runtime was built
    /// with [`RuntimeBuilder::trace_capacity`](crate::RuntimeBuilder::trace_capacity).
    #[must_use]
    pub fn tracer(&self) -> Option<Tracer> {
        self.pool.recorder.clone().map(Tracer)
    }
}
