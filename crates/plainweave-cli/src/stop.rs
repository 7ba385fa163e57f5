//! SIGTERM and SIGINT: the first asks the server to stop, the second ends the process.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

/// The wish to stop, once installed.
#[derive(Debug)]
pub(crate) struct Stop(UnixStream);

impl Stop {
    /// Takes both signals over.
    pub(crate) fn install() -> io::Result<Self> {
        let (receiver, sender) = UnixStream::pair()?;
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            // In this order: the first signal arms what the second one sets off.
            flag::register_conditional_shutdown(signal, 1, Arc::clone(&asked))?;
            flag::register(signal, Arc::clone(&asked))?;
            low_level::pipe::register(signal, sender.try_clone()?)?;
        }
        Ok(Self(receiver))
    }

    /// Blocks the thread until a signal comes.
    pub(crate) fn wait(mut self) -> io::Result<()> {
        self.0.read_exact(&mut [0])
    }
}
