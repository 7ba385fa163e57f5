//! How ureq connects, reads and writes on fibers.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::{Arc, Weak};

use plainweave::net::TcpStream;
use plainweave::time::with_timeout;
use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, ShutdownHandle, Transport,
};

/// Has the deadlines of fibers bound a call as ureq's timeouts do.
pub(crate) fn within<T>(
    timeout: NextTimeout,
    call: impl FnOnce() -> io::Result<T>,
) -> Result<T, Error> {
    let Some(limit) = timeout.not_zero() else {
        return Ok(call()?);
    };
    with_timeout(*limit, call).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => error.into(),
    })
}

/// Connects as fibers do.
#[derive(Debug)]
pub(crate) struct FiberConnector;

impl Connector for FiberConnector {
    type Out = FiberTransport;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<FiberTransport>, Error> {
        let stream = within(details.timeout, || TcpStream::connect(&*details.addrs))?;
        stream.set_nodelay(details.config.no_delay())?;
        let socket = Arc::new(Socket(stream));
        let config = details.config;
        let handle = Arc::downgrade(&socket);
        (details.register_shutdown)(handle as Weak<dyn ShutdownHandle>)?;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        Ok(Some(FiberTransport { socket, buffers }))
    }
}

/// What [`ureq::Agent::shutdown`] ends.
#[derive(Debug)]
struct Socket(TcpStream);

impl ShutdownHandle for Socket {
    fn shutdown(&self) {
        // It may have ended already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

#[derive(Debug)]
pub(crate) struct FiberTransport {
    socket: Arc<Socket>,
    buffers: LazyBuffers,
}

impl Transport for FiberTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let output = &self.buffers.output()[..amount];
        within(timeout.for_write(), || (&self.socket.0).write_all(output))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let input = self.buffers.input_append_buf();
        let len = within(timeout.for_read(), || (&self.socket.0).read(input))?;
        self.buffers.input_appended(len);
        Ok(len > 0)
    }

    /// Does not suspend: the pool asks with its lock held.
    fn is_open(&mut self) -> bool {
        !self.socket.0.is_readable()
    }
}
