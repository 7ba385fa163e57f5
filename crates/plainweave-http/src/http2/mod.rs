//! HTTP/2: a connection that has many requests in progress.
//!
//! # Concepts
//! The *engine* is the crate h2: frames, HPACK, flow control, the states of streams. It reads and
//! writes a *pipe* in memory. The *connection* is the fiber that carries bytes between the pipe and
//! the stream. Each request has a fiber of its own, which calls the same handlers as HTTP/1; it
//! reads its body from the engine and gives the engine its answer.
//!
//! # A turn
//! [`turn`] serves until nothing is in progress, as a turn of HTTP/1 does. Then the connection has
//! no fiber again: it is the engine and the pipe in its [`ConnState`](crate::ConnState).
//! 1. Read what has arrived, into the pipe; the *meter* counts the frames.
//! 2. Poll the engine. Each request that it returns gets a fiber.
//! 3. Yield once: the new fibers run, and short answers are with the engine afterwards. Poll it
//!    again.
//! 4. Send all that the engine has written, in one write.
//! 5. Wait for the stream and for the requests' wake-ups at once
//!    ([`NonBlocking::wait`](crate::NonBlocking)).
//!
//! No wake-up is lost: the engine wakes the connection through [`Wakeups`](crate::Wakeups), which
//! remember it until the connection has looked, and between that look and the wait nothing is done.
//!
//! # Ends
//! A client that resets a stream cancels its fiber: the handler's next blocking call fails. When
//! the connection ends, all are cancelled, and the turn waits for them: nothing of a connection
//! outlives it.
//!
//! See docs/http2.md of the sources for the limits and for what was rejected.

mod connection; // A connection's fiber: carries bytes, starts requests, and knows when to end.
mod engine; // A connection as it is between two turns.
mod head; // The head of a request as handlers see it, from what the engine has read.
// A request's body as its handler reads it from the engine, which has taken it from the client
// within the windows.
mod incoming;
mod meter; // What both ends' frames are, read along as they pass.
mod outgoing; // An answer on its way into the engine.
mod pipe; // What lies between the engine and the stream.
mod shared; // What the requests of a connection share with it.
mod stream; // One request and its answer, on a fiber of its own.
mod tunnel; // A stream that a handler has taken over.
mod wait; // A stream's waits for the engine.

pub(crate) use self::connection::{begin, begins, end, turn};
pub(crate) use self::engine::Http2;
