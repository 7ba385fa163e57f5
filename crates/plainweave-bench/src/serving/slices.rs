//! Clients that take turns of 50 ms, so that what the machine does meanwhile meets all their
//! servers alike.
//!
//! A turn of seconds, one system after the other, is as steady as the machine: on a shared one the
//! same server's CPU per request varies by a quarter from turn to turn, and a ratio of two turns by
//! more. So the clients of a round run side by side, all but one of them stopped (SIGSTOP) at any
//! time, and go on in turn (SIGCONT). The clients' clocks run on while they stand still: each is to
//! be given the time of all, and ends by itself.

use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

/// A client's turn.
const SLICE: Duration = Duration::from_millis(50);
/// Between two turns, for the requests that are still at the server.
const GAP: Duration = Duration::from_millis(2);
/// How much longer than its time a client may take.
const OVERTIME: Duration = Duration::from_secs(30);

/// A running client; ends with this value, stopped or not.
struct Client(Option<Child>);

impl Client {
    fn signal(&self, signal: Signal) {
        if let Some(child) = &self.0 {
            // It may have ended by itself just now.
            let _ = kill_process(Pid::from_child(child), signal);
        }
    }

    fn ended(&mut self) -> anyhow::Result<bool> {
        self.0
            .as_mut()
            .map_or(Ok(true), |child| Ok(child.try_wait()?.is_some()))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs the clients, which take about `length` each, to their ends. What they print has to fit a
/// pipe.
///
/// # Errors
///
/// A client cannot be started, or does not end by itself.
pub(crate) fn run(commands: &mut [Command], length: Duration) -> anyhow::Result<Vec<Output>> {
    let mut clients = Vec::new();
    for command in commands {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let name = command.get_program().to_string_lossy();
        let client = Client(Some(child.with_context(|| format!("cannot run {name}"))?));
        client.signal(Signal::STOP);
        clients.push(client);
    }

    let start = Instant::now();
    let mut running: Vec<usize> = (0..clients.len()).collect();
    while !running.is_empty() {
        for &n in &running {
            clients[n].signal(Signal::CONT);
            std::thread::sleep(SLICE);
            clients[n].signal(Signal::STOP);
            std::thread::sleep(GAP);
        }

        // To and fro: none is always behind the same other.
        running.reverse();
        let mut left = Vec::new();
        for n in running {
            if !clients[n].ended()? {
                left.push(n);
            }
        }

        running = left;
        if start.elapsed() > length + OVERTIME {
            bail!("a client does not end");
        }
    }

    let outputs = clients
        .iter_mut()
        .filter_map(|client| client.0.take())
        .map(Child::wait_with_output);
    Ok(outputs.collect::<Result<_, _>>()?)
}
