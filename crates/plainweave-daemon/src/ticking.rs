//! A thread that does something now and then.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// The thread, which ends when this is dropped.
#[derive(Debug)]
pub struct Ticking {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticking {
    /// Starts a thread of this name that calls `tick` with pauses between.
    ///
    /// # Errors
    /// There is no thread.
    pub fn start(
        name: &str,
        pause: Duration,
        mut tick: impl FnMut() + Send + 'static,
    ) -> io::Result<Self> {
        let (end, ended) = channel();
        let run = move || {
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                tick();
            }
        };
        let thread = Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self {
            end: Some(end),
            thread: Some(thread),
        })
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
