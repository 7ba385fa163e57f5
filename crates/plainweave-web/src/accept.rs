//! The listeners of the web server: what the library's do not know of. Connections of a crowd get
//! small send buffers.

use std::sync::Arc;

use plainweave::net::TcpStream;
use plainweave_serve::accept::{ConnectionLimit, InProgress};
use socket2::SockRef;

use super::memory_bound::SendBuffers;
use plainweave_daemon::architecture::Loops;
use plainweave_daemon::door::Door;
use plainweave_daemon::listening::Listening;

/// Bytes of an answer that the kernel takes ahead of what it can send to one of a crowd. To anybody
/// else it may take 4 MiB (`net.ipv4.tcp_wmem`), which saves a third of the CPU of a file of 1 MiB;
/// with thousands that do not read, that is all the memory the kernel has for TCP, and then it
/// drops what others send. See `docs/overload.md`.
const AHEAD: u32 = 128 << 10;
/// For `SO_SNDBUF`, which the kernel doubles: where the server would be killed for more, `AHEAD`
/// covers also what has been sent and not arrived.
const SEND_BUFFER: usize = AHEAD as usize / 2;

/// What all listeners admit by.
#[derive(Clone)]
pub(super) struct Admission {
    pub(super) connection_limit: Arc<ConnectionLimit>,
    pub(super) in_progress: Arc<InProgress>,
    /// Steps of TLS handshakes.
    pub(super) handshakes: Arc<InProgress>,
    pub(super) send_buffers: SendBuffers,
}

/// Makes a listener whose connections run on `loops`.
pub(super) fn door(listener: Listening, admission: &Admission, loops: Arc<Loops>) -> Door {
    // The log does.
    listener.report_no_exhaustion();
    let crowd = Crowd {
        connection_limit: admission.connection_limit.clone(),
        send_buffers: admission.send_buffers,
    };
    Door::new(listener, loops).on_accept(move |stream| crowd.bound_send_buffer(stream))
}

/// Who belongs to a crowd, and what its send buffers are to be.
struct Crowd {
    connection_limit: Arc<ConnectionLimit>,
    send_buffers: SendBuffers,
}

impl Crowd {
    /// If it is one of a crowd; it is counted already. Where the kernel refuses, it is as for
    /// anybody else.
    fn bound_send_buffer(&self, stream: &TcpStream) {
        if self.connection_limit.connections() > self.send_buffers.crowd {
            let socket = SockRef::from(stream);
            let _ = match self.send_buffers.hard {
                true => socket.set_send_buffer_size(SEND_BUFFER),
                false => socket.set_tcp_notsent_lowat(AHEAD),
            };
        }
    }
}
