//! What a cancelled fiber may still do.
//!
//! A fiber is cancelled by its handle ([`JoinHandle::cancel`](crate::JoinHandle::cancel)), with the
//! scope that it belongs to, or with its runtime; its blocking calls then fail, and
//! [`is_cancelled`](crate::is_cancelled) recognises their error. Most fibers return it and end. One
//! that has to finish something first does that in [`shielded`].

use std::time::Duration;

use crate::fiber;
use crate::time::{self, Restore};

/// Runs `f` as if the calling fiber had not been cancelled and had no deadline, with a deadline
/// `limit` from now in their place: its blocking calls work, for that long. Afterwards all is as it
/// was: the next call fails again.
///
/// It is for what a fiber owes to others when it ends: the last lines of a log, a message that says
/// goodbye, a transaction to roll back. Destructors run in a cancelled fiber too, so a
/// [`BufWriter`](std::io::BufWriter) over a socket loses what it has not written, unless it is
/// flushed here.
///
/// It delays whoever cancelled the fiber and waits for it: a scope, a server that stops, a runtime
/// that is dropped. So `limit` is what others can wait, a second rather than a minute, and `f` is
/// the end of some work, never the whole of it: a fiber that does all its work shielded cannot be
/// cancelled. A shield within another ends with it at the latest. It covers the calling fiber
/// alone: fibers that `f` spawns into a scope are cancelled with that, and a runtime that shuts
/// down lets none start.
///
/// On a plain thread, which nobody cancels, it replaces the deadline.
///
/// ```
/// use std::io::{BufWriter, Read, Write};
/// use std::time::Duration;
/// use plainweave::{cancel, net};
///
/// plainweave::run(|| {
///     let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
///     let address = listener.local_addr().unwrap();
///     let writer = plainweave::spawn(move || {
///         let mut log = BufWriter::new(net::TcpStream::connect(address).unwrap());
///         while writeln!(log, "still here").is_ok() {
///             if plainweave::time::sleep(Duration::from_secs(60)).is_err() {
///                 break;
///             }
///         }
///         cancel::shielded(Duration::from_secs(1), || log.flush())
///     });
///     let (mut stream, _) = listener.accept().unwrap();
///     writer.cancel();
///     writer.join().unwrap().unwrap();
///     let mut text = String::new();
///     stream.read_to_string(&mut text).unwrap();
///     assert_eq!(text, "still here\n");
/// });
/// ```
pub fn shielded<T>(limit: Duration, f: impl FnOnce() -> T) -> T {
    let end = time::saturating_add(time::now(), limit);
    let shield = Shield {
        before: set_shielded(true),
    };
    let _deadline = if shield.before {
        Restore::set(end)
    } else {
        Restore::replace(end)
    };

    f()
}

/// Sets whether the calling fiber has a shield; returns whether it had one.
fn set_shielded(shielded: bool) -> bool {
    let Some(me) = fiber::current() else {
        return false;
    };
    let rules = &me.own.cancel_rules;
    rules
        .replace(rules.get().with_shield(shielded))
        .is_shielded()
}

/// Whether the fiber had a shield before, restored on drop.
struct Shield {
    before: bool,
}

impl Drop for Shield {
    fn drop(&mut self) {
        set_shielded(self.before);
    }
}
