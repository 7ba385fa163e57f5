//! What servers on fibers have in common, whatever they speak: a loop that accepts under load,
//! limits, connections that idle without a fiber, and an end to all of it. `plainweave-http` and
//! `plainweave-cache` stand on it.
//!
//! [`Accepting`] is the loop: it gives each connection of a [`Listener`], with a permit of a
//! [`ConnectionLimit`](accept::ConnectionLimit), to a fiber of its own. [`accept`] decides who is
//! let in. [`Listeners`] and [`IdleConnections`] are what a stop closes. [`PerCpu`] keeps
//! processors out of each other's memory, and by [`Pool`] they lend connections their buffers.
//! [`LatencyHistogram`] counts how long answers took.

pub mod accept; // Who is let in: accepting one listener's connections, each with a permit.

mod accepting; // A listener's loop.
mod idle; // Connections that wait, so that a stop can end these waits, and no others.
mod latency; // A histogram of latencies.
mod listener; // What a server needs of a listening socket.
mod listeners; // The listeners that a server accepts from, so that a stop can close them.
mod per_cpu; // One of a thing for each processor.
mod pool; // What a connection borrows while it is busy.

pub use accepting::Accepting;
pub use idle::{Closer, Idle, IdleConnections};
pub use latency::{Latencies, LatencyHistogram};
pub use listener::{Address, Listener};
pub use listeners::{Listed, Listeners};
pub use per_cpu::PerCpu;
pub use pool::Pool;
