//! `plainweave load agent`: carries out the part of a load that a coordinator sends.
//!
//! One coordinator at a time. A thread reads what it sends, so that a `stop`, or its end, ends a
//! run that lasts.

use std::io::{self, stderr, stdout};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use clap::Parser as _;
use serde_json::{Value, json};

use super::cache::Cache;
use super::clock::nanos;
use super::collect::{Piece, Ran};
use super::engine::{self, Protocol};
use super::files::Files;
use super::flags::{AgentFlags, Common, Line, What};
use super::http::Http;
use super::http2::Http2;
use super::interrupt::TICK;
use super::plan::Plan;
use super::socket::Place;
use super::tally_json;
use super::target::{self, Target};
use super::wire::{self, Link, Receiver, Secret, Sender};
use plainweave_daemon::console::say;

/// How long a coordinator waits for the one before to be gone.
const ENDING: Duration = Duration::from_secs(2);

/// How often an agent says that it is there.
const PULSE: Duration = Duration::from_secs(1);

/// Connections that have not greeted, at most; those beyond are closed.
const GREETINGS: usize = 16;

/// Refuses to listen to other hosts without a secret.
pub(super) fn check(flags: &AgentFlags) -> anyhow::Result<()> {
    let own = flags.listen.ip().is_loopback() || flags.secret_file.is_some();
    let listen = flags.listen;
    ensure!(
        own,
        "--listen {listen} is open to other hosts, which could ask for any load: give --secret-file too"
    );
    Ok(())
}

/// Serves coordinators until the process ends.
pub(super) fn serve(flags: &AgentFlags) -> anyhow::Result<()> {
    let secret = wire::read_secret(flags.secret_file.as_deref())?;
    let listener = TcpListener::bind(flags.listen)
        .with_context(|| format!("cannot listen on {}", flags.listen))?;
    let address = listener.local_addr()?;
    let known = if secret.is_some() {
        "that know the secret"
    } else {
        "on this host"
    };

    say(
        stdout(),
        &format!(
            "plainweave load agent: {address}; carries out any load that coordinators {known} ask for"
        ),
    );
    let secret = Arc::new(secret);
    let busy = Arc::new(Mutex::new(()));
    let greetings = Arc::new(());
    for stream in listener.incoming() {
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                say(
                    stderr(),
                    &format!("plainweave load agent: cannot accept: {error}"),
                );
                thread::sleep(TICK);
                continue;
            }
        };

        // Each of them costs a thread and a wait of ten seconds, and has not shown that it knows
        // the secret.
        if Arc::strong_count(&greetings) > GREETINGS {
            // In words, instead of a connection that is closed without a reason.
            let busy =
                json!({ "error": "too many connections that have not greeted; try again in 10 s" });
            let _ = Link::new(stream).and_then(|link| link.send(&busy));
            continue;
        }

        let secret = secret.clone();
        let busy = busy.clone();
        let greeting = greetings.clone();
        let started = thread::Builder::new().spawn(move || {
            let peer = stream
                .peer_addr()
                .map_or("a coordinator".to_owned(), |peer| peer.to_string());
            if let Err(error) = attend(stream, &secret, &busy, greeting) {
                say(
                    stderr(),
                    &format!("plainweave load agent: {peer}: {error:#}"),
                );
            }
        });

        if let Err(error) = started {
            say(
                stderr(),
                &format!("plainweave load agent: cannot start a thread: {error}"),
            );
            thread::sleep(TICK);
        }
    }

    Ok(())
}

/// Serves one coordinator. `greeting` counts it among those that have not greeted.
fn attend(
    stream: TcpStream,
    secret: &Secret,
    busy: &Mutex<()>,
    greeting: Arc<()>,
) -> anyhow::Result<()> {
    let mut link = Link::new(stream)?;
    link.greet_coordinator(secret)?;
    // It knows the secret now, so it no longer counts towards what strangers may hold.
    drop(greeting);
    let (sender, receiver) = link.split()?;
    let done = match turn(busy) {
        // The turn ends before the coordinator gets the answer: it may come again at once.
        Some(_turn) => obey(&sender, receiver),
        None => Err(anyhow!("the agent is busy with another coordinator")),
    };

    if let Err(error) = &done {
        // The coordinator may be gone; then nobody asks why.
        let _ = sender.send(&json!({ "error": format!("{error:#}") }));
    }

    done
}

/// Waits a little for one that is about to end.
fn turn(busy: &Mutex<()>) -> Option<MutexGuard<'_, ()>> {
    let begun = Instant::now();
    loop {
        match busy.try_lock() {
            Ok(turn) => return Some(turn),
            // A thread that panicked was busy, and is no more.
            Err(TryLockError::Poisoned(turn)) => return Some(turn.into_inner()),
            Err(TryLockError::WouldBlock) if begun.elapsed() > ENDING => return None,
            Err(TryLockError::WouldBlock) => thread::sleep(TICK),
        }
    }
}

/// What a coordinator sends, as it comes.
struct Orders {
    messages: mpsc::Receiver<Value>,
    stop: Arc<AtomicBool>,
}

impl Orders {
    /// Reads on a thread of its own, which ends with the connection.
    fn read(mut receiver: Receiver) -> io::Result<Self> {
        let (sender, messages) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        thread::Builder::new().spawn(move || {
            while let Ok(Some(message)) = receiver.order() {
                if message["stop"] == true {
                    stopped.store(true, Ordering::Relaxed);
                }
                if sender.send(message).is_err() {
                    return;
                }
            }
            // The coordinator is gone, and nobody would read what this run counts.
            stopped.store(true, Ordering::Relaxed);
        })?;

        Ok(Self { messages, stop })
    }

    fn next(&self) -> Option<Value> {
        self.messages.recv().ok()
    }
}

/// Says each second that this agent is there, until it is dropped.
struct Pulse {
    _end: mpsc::Sender<()>,
}

impl Pulse {
    fn start(sender: Sender) -> io::Result<Self> {
        let (end, ended) = mpsc::channel::<()>();
        thread::Builder::new().spawn(move || {
            while ended.recv_timeout(PULSE) == Err(RecvTimeoutError::Timeout) {
                if sender.send(&json!({ "alive": true })).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { _end: end })
    }
}

fn obey(sender: &Sender, receiver: Receiver) -> anyhow::Result<()> {
    let orders = Orders::read(receiver).context("cannot start a thread")?;
    let _pulse = Pulse::start(sender.clone()).context("cannot start a thread")?;
    let Some(message) = orders.next() else {
        return Ok(());
    };
    let prepare = &message["prepare"];
    let args = prepare["args"].as_array().context("no arguments")?.iter();
    let args: Option<Vec<_>> = args.map(|arg| arg.as_str().map(str::to_owned)).collect();
    let files = Files::Sent(wire::files_of(&prepare["files"])?);
    let number = |name: &str| {
        prepare[name]
            .as_u64()
            .and_then(|n| usize::try_from(n).ok())
            .context("no part")
    };

    // Which share of connections, requests and keys is this agent's.
    let part = (number("part")?, number("parts")?);
    ensure!(part.0 < part.1, "part {} of {}", part.0, part.1);

    let line = Line::try_parse_from(args.context("arguments that are no text")?)
        .map_err(|error| anyhow!("{error}"))?;
    match &line.flags.what {
        What::Http(own) if own.http2 => {
            let (targets, client) = Http2::prepare(own, &files)?;
            Work::new(&own.common, targets, client, part)?.serve(sender, &orders)
        }
        What::Http(own) => {
            let (targets, client) = Http::prepare(own, &files)?;
            Work::new(&own.common, targets, client, part)?.serve(sender, &orders)
        }
        What::Cache(own) => {
            let (targets, client) = Cache::prepare(own, &files)?;
            Work::new(&own.common, targets, client, part)?.serve(sender, &orders)
        }
        What::Sessions(_) | What::Agent(_) => bail!("an agent runs only http and cache"),
    }
}

/// A load that is prepared.
struct Work<P> {
    plan: Plan,
    part: (usize, usize),
    protocol: Arc<P>,
    addresses: Vec<Place>,
}

impl<P: Protocol> Work<P> {
    fn new(
        common: &Common,
        targets: Vec<Target>,
        protocol: P,
        part: (usize, usize),
    ) -> anyhow::Result<Self> {
        let plan = Plan::new(common, protocol.depth(), protocol.each(), targets.len())?
            .with_streams(protocol.streams());
        let own = plan.part(part.0, part.1)?;
        target::allow_descriptors(own.connections, own.workers)?;
        let addresses = targets
            .iter()
            .map(|target| target.probe(plan.timeout))
            .collect::<anyhow::Result<Vec<_>>>()?;
        // Here, not on the coordinator: its ports and descriptors say nothing of this host's.
        target::enough_ports(own.connections, &addresses)?;

        Ok(Self {
            plan,
            part,
            protocol: Arc::new(protocol),
            addresses,
        })
    }

    fn serve(&self, sender: &Sender, orders: &Orders) -> anyhow::Result<()> {
        let workers = self.plan.part(self.part.0, self.part.1)?.workers;
        let addresses: Vec<_> = self.addresses.iter().map(ToString::to_string).collect();
        sender.send(&json!({ "prepared": { "workers": workers, "addresses": addresses } }))?;

        while let Some(message) = orders.next() {
            let run = &message["run"];
            if run.is_null() {
                break;
            }
            let loads = run["loads"] == true;
            let plan = match run["rate"].as_f64() {
                Some(rate) => self.plan.at_rate(rate, loads)?,
                None => self.plan.clone(),
            };

            self.run(&plan.part(self.part.0, self.part.1)?, sender, orders)?;
        }

        Ok(())
    }

    fn run(&self, plan: &Plan, sender: &Sender, orders: &Orders) -> anyhow::Result<()> {
        let mut gate = || {
            sender.send(&json!({ "ready": true }))?;
            // `stop` and the end of the connection are no `go`: the run begins, and ends at once.
            orders.next().map(drop).context("the coordinator is gone")
        };

        let mut lost = None;
        let mut collect = |piece| {
            if lost.is_none() {
                lost = sender.send(&message(piece)).err();
            }
            // The run cannot be broken off from here, only told to stop.
            if lost.is_some() {
                orders.stop.store(true, Ordering::Relaxed);
            }
        };

        let ran = engine::run(
            plan,
            &self.protocol,
            &self.addresses,
            &orders.stop,
            &mut gate,
            &mut collect,
        );
        let Ran {
            wall, cpu, driver, ..
        } = ran?;
        // The run itself ended well, but its figures did not arrive.
        lost.map_or(Ok(()), Err)?;
        let done = json!({ "wall": nanos(wall), "cpu": nanos(cpu), "driver": driver });

        Ok(sender.send(&json!({ "done": done }))?)
    }
}

fn message(piece: Piece) -> Value {
    let Piece {
        worker,
        second,
        until,
        mut tally,
        last,
    } = piece;
    let tally = tally_json::write(&mut tally);
    json!({ "piece": { "worker": worker, "second": second, "until": until, "last": last, "tally": tally } })
}
