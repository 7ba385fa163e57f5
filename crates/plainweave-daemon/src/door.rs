//! A listener of a server: connections run where its architecture has them.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plainweave::net::{SocketRef, TcpStream};
use plainweave_serve::{Address, Listener};

use crate::architecture::Loops;
use crate::listening::Listening;

/// What is done to a connection as it is accepted.
type OnAccept = Box<dyn Fn(&TcpStream) + Send + Sync>;

/// See the module.
pub struct Door {
    listener: Listening,
    loops: Arc<Loops>,
    on_accept: Option<OnAccept>,
    most_waiting: u32,
}

impl Door {
    /// Has a listener's connections dealt to `loops`.
    pub fn new(listener: Listening, loops: Arc<Loops>) -> Self {
        Self {
            listener,
            loops,
            on_accept: None,
            most_waiting: u32::MAX,
        }
    }

    /// Calls `hook` with each connection, before anything is read from it.
    pub fn on_accept(self, hook: impl Fn(&TcpStream) + Send + Sync + 'static) -> Self {
        Self {
            on_accept: Some(Box::new(hook)),
            ..self
        }
    }

    /// Bounds the connections that wait in the kernel until they are accepted, whatever a server
    /// thinks bearable.
    pub fn with_backlog(self, most_waiting: u32) -> Self {
        Self {
            most_waiting,
            ..self
        }
    }

    fn accepted(
        &self,
        accepted: (TcpStream, Option<SocketAddr>),
    ) -> (TcpStream, Option<SocketAddr>) {
        if let Some(hook) = &self.on_accept {
            hook(&accepted.0);
        }
        accepted
    }
}

impl Listener for Door {
    type Stream = TcpStream;

    fn accept(&self, patience: Option<Duration>) -> io::Result<(TcpStream, Option<SocketAddr>)> {
        let accepted = self.listener.accept(patience)?;
        Ok(self.accepted(accepted))
    }

    fn idle_socket(&self) -> Option<SocketRef<'_>> {
        self.listener.idle_socket()
    }

    fn try_accept(&self) -> io::Result<(TcpStream, Option<SocketAddr>)> {
        let accepted = self.listener.try_accept()?;
        Ok(self.accepted(accepted))
    }

    fn close(&self) {
        self.listener.close();
    }

    fn is_shared(&self) -> bool {
        self.listener.is_shared()
    }

    fn address(&self) -> Option<Address> {
        self.listener.address()
    }

    fn prepare(&self) -> io::Result<()> {
        self.listener.prepare()
    }

    fn set_backlog(&self, connections: u32) -> io::Result<()> {
        self.listener
            .set_backlog(connections.min(self.most_waiting))
    }

    fn queued(&self) -> io::Result<u32> {
        self.listener.queued()
    }

    fn spawn(&self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.loops.deal(work);
        Ok(())
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door")
            .field("listener", &self.listener)
            .finish_non_exhaustive()
    }
}
