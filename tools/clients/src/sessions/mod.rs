//! What each crate does: something short, whose answer is checked, and something that takes its
//! server [`DELAY`](crate::servers::DELAY).

use std::error::Error;

use crate::servers::Servers;

pub mod databases;
pub mod http;
pub mod local;
pub mod mail;

pub type Failure = Box<dyn Error + Send + Sync>;
pub type Outcome = Result<(), Failure>;
pub type Answer = Result<String, Failure>;
pub type Opened = Result<Box<dyn Session>, Failure>;

/// A connection, or whatever a fiber has to itself.
pub trait Session: Send {
    /// Something short.
    fn ask(&mut self) -> Outcome;

    /// Something that takes the server a while.
    fn wait(&mut self) -> Outcome;
}

/// A session of two functions over a value.
struct Of<T, A, W> {
    value: T,
    ask: A,
    wait: W,
}

impl<T: Send, A, W> Session for Of<T, A, W>
where
    A: FnMut(&mut T) -> Outcome + Send,
    W: FnMut(&mut T) -> Outcome + Send,
{
    fn ask(&mut self) -> Outcome {
        (self.ask)(&mut self.value)
    }

    fn wait(&mut self) -> Outcome {
        (self.wait)(&mut self.value)
    }
}

fn session<T: Send + 'static>(
    value: T,
    ask: impl FnMut(&mut T) -> Outcome + Send + 'static,
    wait: impl FnMut(&mut T) -> Outcome + Send + 'static,
) -> Opened {
    Ok(Box::new(Of { value, ask, wait }))
}

/// Fails where an answer is not the one that was expected.
fn expect<T: PartialEq + std::fmt::Debug>(answer: T, expected: T) -> Outcome {
    if answer == expected {
        return Ok(());
    }
    Err(format!("{answer:?} was answered, {expected:?} expected").into())
}

/// What a waiting fiber does to its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Leaves it to others.
    Fiber,
    /// Holds it up; spare workers go on with the others.
    Worker,
    /// There is nothing to wait for; it computes.
    Computes,
}

pub struct Row {
    pub name: &'static str,
    /// How it is used on fibers; nothing if as on threads.
    pub by: &'static str,
    pub waits: Waits,
    /// Whether a deadline of the fiber ends a wait.
    pub has_deadline: bool,
    pub open: fn(&Servers) -> Opened,
}
