//! Where file operations run.

use std::io;

use plainweave_http::files::Blocking;

/// The runtime's pool for blocking work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pool;

impl Blocking for Pool {
    fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        plainweave::blocking(work)
    }
}
