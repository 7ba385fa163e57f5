//! What signals mean to the servers; `docs/signals.md` has the same table.
//!
//! TERM and INT end the server: the first asks it to stop, the second ends the process ([`Stop`]).
//! The others never do; a thread attends to them ([`Attention`]).

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::{flag, low_level};

use crate::console::say;
use crate::service_manager;
use crate::trace_file::TraceFile;

/// The table, for `--help`; the argument says what is reopened, and by which signals.
#[macro_export]
macro_rules! signals_help {
    ($opens:literal) => {
        concat!(
            "Signals:\n  TERM, INT   stop gracefully, see --grace; a second one stops at once\n",
            $opens,
            "\n  USR2        write the trace, see --trace\n",
            "  QUIT        write counts and what each fiber does to standard error; the server goes on"
        )
    };
}

/// The wish to stop, once installed.
#[derive(Debug)]
pub struct Stop {
    receiver: UnixStream,
    sender: UnixStream,
}

/// Who wishes a server to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// An operator, by a signal.
    Signal,
    /// A server that has taken over.
    Successor,
}

/// Wishes a server to stop because another one has taken over.
#[derive(Debug)]
pub struct Asker(UnixStream);

/// What a successor writes; a signal writes something else.
const SUCCESSOR: u8 = b'S';

impl Asker {
    /// Does so.
    pub(crate) fn ask(&self) {
        let _ = (&self.0).write_all(&[SUCCESSOR]);
    }
}

impl Stop {
    /// Takes both signals over.
    pub fn install() -> io::Result<Self> {
        let (receiver, sender) = UnixStream::pair()?;
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            // In this order: the first signal arms what the second one sets off.
            flag::register_conditional_shutdown(signal, 1, Arc::clone(&asked))?;
            flag::register(signal, Arc::clone(&asked))?;
            low_level::pipe::register(signal, sender.try_clone()?)?;
        }

        Ok(Self { receiver, sender })
    }

    /// Returns what a successor asks by.
    pub fn asker(&self) -> io::Result<Asker> {
        self.sender.try_clone().map(Asker)
    }

    /// Blocks the thread until somebody wishes it.
    pub fn wait(mut self) -> io::Result<Wish> {
        let mut by = [0];
        self.receiver.read_exact(&mut by)?;
        Ok(match by {
            [SUCCESSOR] => Wish::Successor,
            _ => Wish::Signal,
        })
    }
}

/// How a server answers an operator's signals.
pub trait Operated: Send + 'static {
    /// As messages begin.
    const NAME: &'static str;

    /// Reopens log files. Returns false if there are none.
    fn reopen_logs(&self) -> bool;

    /// Returns where the trace goes, if there is one.
    fn trace(&self) -> Option<&TraceFile>;

    /// Loads again what SIGHUP asks for, and returns what came of it. `None`: there is nothing to
    /// load.
    fn reload(&self) -> Option<String> {
        None
    }

    /// Returns what SIGQUIT is answered with first, in a line.
    fn counts(&self) -> String;

    /// Returns what each fiber does, for the lines that follow.
    fn fibers(&self) -> String;
}

/// A thread that attends to the signals until this is dropped.
#[derive(Debug)]
pub struct Attention {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Attention {
    /// Takes the signals over.
    pub fn pay<S: Operated>(server: S) -> io::Result<Self> {
        let mut signals = Signals::new([SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT])?;
        let handle = signals.handle();
        let attend = move || signals.forever().for_each(|signal| answer(&server, signal));
        let thread = std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(attend)?;

        Ok(Self {
            handle,
            thread: Some(thread),
        })
    }
}

impl Drop for Attention {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer<S: Operated>(server: &S, signal: i32) {
    let name = low_level::signal_name(signal).unwrap_or("a signal");
    let done = match signal {
        SIGQUIT => format!("{}; the server goes on", server.counts()),
        SIGUSR2 => match server.trace().map(TraceFile::write) {
            None => "there is no trace: start the server with --trace FILE".to_owned(),
            Some(Ok(done)) => done,
            Some(Err(error)) => format!("{error:#}; the server goes on"),
        },
        SIGHUP => {
            service_manager::reloading();
            let done = hang_up(server);
            service_manager::ready();
            done
        }
        _ => reopened(server.reopen_logs()).to_owned(),
    };

    say(io::stderr(), &format!("{}: {name}: {done}", S::NAME));
    if signal == SIGQUIT {
        say(io::stderr(), server.fibers().trim_end());
    }
}

fn hang_up<S: Operated>(server: &S) -> String {
    match (server.reopen_logs(), server.reload()) {
        (reopen, None) => reopened(reopen).to_owned(),
        (false, Some(loaded)) => loaded,
        (true, Some(loaded)) => format!("{}; {loaded}", reopened(true)),
    }
}

fn reopened(done: bool) -> &'static str {
    if done {
        "the log is reopened"
    } else {
        "there is no log to reopen"
    }
}
