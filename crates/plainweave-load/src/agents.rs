//! The coordinator's side: several agents make a load together, and their histograms are added up.
//!
//! An agent is believed what it measures, and nothing that would cost this process its memory or
//! its patience: what it sends has a greatest length, waits in a short queue, unparsed, and is of
//! seconds that have passed; one that is silent is lost.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, anyhow, bail, ensure};
use serde_json::{Value, json};

use super::collect::{Collector, Piece, Ran, Watch};
use super::conduct::outcome;
use super::files::Files;
use super::flags::Common;
use super::interrupt::{Interrupt, TICK};
use super::plan::Plan;
use super::summary::Outcome;
use super::sweep::Runs;
use super::tally_json;
use super::watchers::Watchers;
use super::wire::{self, GREETING, Link, Secret, Sender};

/// Flags that are the coordinator's alone, and take a value.
const OWN: [&str; 4] = [
    "--agents",
    "--agent-secret-file",
    "--agent-timeout",
    "--hdr-log",
];
/// An agent sends something each second; one that has sent nothing for this time is lost.
const SILENCE: Duration = Duration::from_secs(30);
/// An agent that is to stop does so within this time.
const STOPPING: Duration = Duration::from_secs(15);

/// Messages that wait to be read, of all agents together; each agent's thread holds another.
const WAITING: usize = 2;
/// Seconds that a worker may be behind the others: they are kept until it has handed over its part.
const BEHIND: usize = 60;
/// Everything that agents may count in a run, so that no sum overflows.
const COUNTED: u64 = 1 << 62;
/// Characters of an agent's text that are shown.
const SHOWN: usize = 300;

/// The agents, each with its part of the load.
pub(super) struct Agents {
    links: Vec<Agent>,
    messages: mpsc::Receiver<(usize, anyhow::Result<Vec<u8>>)>,
    silence: Duration,
    interrupt: Interrupt,
    watchers: Watchers,
    /// Of all agents: addresses of the servers as they see them.
    pub(super) addresses: BTreeSet<String>,
}

struct Agent {
    name: String,
    sender: Sender,
    workers: usize,
    /// Workers of the agents before it.
    first: usize,
    /// When it last sent something.
    heard: Instant,
    /// Of each of its workers: the last second of the run that it has handed over, `u64::MAX` if it
    /// has ended.
    reached: Vec<Option<u64>>,
}

impl Agents {
    /// Connects to the agents and sends each its part.
    pub(super) fn engage(
        common: &Common,
        secret: &Secret,
        files: &Files,
        interrupt: Interrupt,
        watchers: Watchers,
    ) -> anyhow::Result<Self> {
        let names = &common.agents;
        let silence = common.agent_timeout.unwrap_or(SILENCE);
        let (news, messages) = mpsc::sync_channel(WAITING);
        let args = own_args()?;
        let links = Vec::new();
        let addresses = BTreeSet::new();
        let mut agents = Self {
            links,
            messages,
            silence,
            interrupt,
            watchers,
            addresses,
        };

        for (part, name) in names.iter().enumerate() {
            let (sender, mut receiver) =
                connect(name, secret).with_context(|| format!("agent {name}"))?;
            let files = wire::files_json(&files.all());
            let prepare =
                json!({ "args": args, "files": files, "part": part, "parts": names.len() });
            sender
                .send(&json!({ "prepare": prepare }))
                .with_context(|| format!("agent {name}"))?;
            let name = name.clone();
            let heard = Instant::now();

            agents.links.push(Agent {
                name,
                sender,
                workers: 0,
                first: 0,
                heard,
                reached: Vec::new(),
            });
            let news = news.clone();

            // A thread each, since reads block and one agent must not keep the others' messages
            // from coming. It ends with the connection.
            thread::spawn(move || {
                loop {
                    let message = receiver
                        .news()
                        .and_then(|message| message.context("it closed the connection"));
                    let over = message.is_err();
                    if news.send((part, message)).is_err() || over {
                        return;
                    }
                }
            });
        }

        // All prepare at the same time: they may read large files, or wait for a server's first
        // answer.
        for (part, prepared) in agents.one_of_each("prepared")? {
            let workers = prepared["workers"]
                .as_u64()
                .and_then(|workers| usize::try_from(workers).ok());
            agents.links[part].workers = workers
                // Memory is reserved for each worker.
                .filter(|n| (1..=65_536).contains(n))
                .context("no number of workers")?;
            let addresses = prepared["addresses"].as_array().into_iter().flatten();
            agents
                .addresses
                .extend(addresses.filter_map(|address| address.as_str().map(shown)));
        }

        let mut first = 0;
        for link in &mut agents.links {
            // Workers are numbered through, in the order of the command line, whoever was prepared
            // first.
            link.first = first;
            first += link.workers;
        }

        Ok(agents)
    }

    /// Returns how many workers all agents have.
    pub(super) fn workers(&self) -> usize {
        self.links.iter().map(|link| link.workers).sum()
    }

    fn send_all(&self, message: &Value) -> anyhow::Result<()> {
        for link in &self.links {
            link.sender
                .send(message)
                .with_context(|| format!("agent {}", link.name))?;
        }
        Ok(())
    }

    /// Receives a message, with the number of the agent that sent it. `None`: there is nothing new.
    fn next(&mut self) -> anyhow::Result<Option<(usize, Value)>> {
        let (part, message) = match self.messages.recv_timeout(TICK) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("all agents are gone"),
        };

        let Agent { name, heard, .. } = &mut self.links[part];
        let message = message.with_context(|| format!("agent {name} is lost"))?;
        let message = wire::parse(&message).with_context(|| format!("agent {name}"))?;
        *heard = Instant::now();

        match message["error"].as_str() {
            Some(error) => Err(anyhow!("agent {name}: {}", shown(error))),
            // It has been noted that it was heard, which is all that this says.
            None if message["alive"] == true => Ok(None),
            None => Ok(Some((part, message))),
        }
    }

    /// Fails if one of these agents has been silent for too long.
    fn none_silent(&self, waits_for: impl Fn(usize) -> bool) -> anyhow::Result<()> {
        let silent = |(part, link): &(usize, &Agent)| {
            waits_for(*part) && link.heard.elapsed() > self.silence
        };
        match self.links.iter().enumerate().find(silent) {
            Some((_, link)) => bail!(
                "agent {} is lost: no message for {} s",
                link.name,
                self.silence.as_secs()
            ),
            None => Ok(()),
        }
    }

    /// Waits for one message of this kind from each agent, in any order. A signal ends the wait
    /// with an error.
    fn one_of_each(&mut self, kind: &str) -> anyhow::Result<Vec<(usize, Value)>> {
        let mut all: Vec<(usize, Value)> = Vec::new();
        // What they sent while nobody listened was not read.
        self.links
            .iter_mut()
            .for_each(|link| link.heard = Instant::now());
        while all.len() < self.links.len() {
            ensure!(!self.interrupt.is_interrupted(), "interrupted");
            let answered = |part: usize| all.iter().any(|(number, _)| *number == part);
            self.none_silent(|part| !answered(part))?;

            if let Some((part, mut message)) = self.next()? {
                let asked =
                    !message[kind].is_null() && all.iter().all(|(number, _)| *number != part);
                ensure!(
                    asked,
                    "agent {} sends what nobody asked for",
                    self.links[part].name
                );
                all.push((part, message[kind].take()));
            }
        }

        Ok(all)
    }

    /// Collects what the agents count, until all are done.
    fn collect(
        &mut self,
        collector: &mut Collector,
        watch: &mut dyn Watch,
    ) -> anyhow::Result<Done> {
        let mut done = Done {
            wall: 0,
            cpu: 0,
            drivers: BTreeSet::new(),
        };

        let mut at_work = vec![true; self.links.len()];
        let began = Instant::now();
        let mut stopping = None;
        let mut room = COUNTED;
        for link in &mut self.links {
            link.heard = began;
            link.reached = vec![None; link.workers];
        }

        while at_work.contains(&true) {
            if stopping.is_none() && self.interrupt.is_interrupted() {
                self.send_all(&json!({ "stop": true }))?;
                stopping = Some(Instant::now());
            }

            ensure!(
                stopping.is_none_or(|since| since.elapsed() < STOPPING),
                "an agent does not stop"
            );
            self.none_silent(|part| at_work[part])?;
            let Some((part, message)) = self.next()? else {
                continue;
            };
            let link = &mut self.links[part];
            ensure!(
                at_work[part],
                "agent {} sends what nobody asked for",
                link.name
            );

            if !message["done"].is_null() {
                done.add(&message["done"]);
                at_work[part] = false;
                continue;
            }

            let piece = link.piece(&message["piece"], began.elapsed(), &mut room);
            // A piece that could not have been counted is refused before it is added to anything.
            collector.take(
                &piece.with_context(|| format!("agent {}", link.name))?,
                watch,
            );
            if collector.incomplete() > BEHIND {
                // Workers are numbered by agent, so the last one that begins at or below it has it.
                let behind = self
                    .links
                    .iter()
                    .rfind(|link| link.first <= collector.slowest());
                bail!(
                    "agent {} is {BEHIND} s behind the others",
                    behind.map_or("?", |link| &link.name)
                );
            }
        }

        Ok(done)
    }

    fn make(&mut self, plan: &Plan) -> anyhow::Result<Outcome> {
        self.send_all(&json!({ "run": { "rate": plan.step, "loads": plan.loads } }))?;
        self.one_of_each("ready")?;
        // None of them waits for another: they are let go together, and each counts from when it
        // hears.
        self.send_all(&json!({ "go": true }))?;
        let began = SystemTime::now();
        let mut collector = Collector::new(self.workers());
        let mut watchers = std::mem::take(&mut self.watchers);
        let cell = Cell::new(began);
        let mut watch = watchers.for_run(plan, &cell);
        let done = self.collect(&mut collector, &mut watch);
        let tally = collector.finish(&mut watch);
        let seconds = watch.end();

        self.watchers = watchers;
        let Done { wall, cpu, drivers } = done?;
        let [wall, cpu] = [wall, cpu].map(Duration::from_nanos);
        let driver = drivers.into_iter().collect::<Vec<_>>().join(" and ");

        Ok(outcome(
            plan,
            Ran {
                began,
                wall,
                cpu,
                driver,
            },
            tally,
            seconds,
            self.interrupt.is_interrupted(),
        ))
    }
}

impl Runs for Agents {
    fn run(&mut self, plan: &Plan) -> anyhow::Result<Option<Outcome>> {
        match self.make(plan) {
            Ok(outcome) => Ok(Some(outcome)),
            Err(error) => {
                // Those that are left end too, if only by the end of the connection.
                for link in &self.links {
                    let _ = link.sender.send(&json!({ "stop": true }));
                }
                if self.interrupt.stop.load(Ordering::Relaxed) {
                    Ok(None)
                } else {
                    Err(error)
                }
            }
        }
    }

    fn pause(&mut self, length: Duration) -> bool {
        self.interrupt.pause(length)
    }

    fn finish(self: Box<Self>) -> anyhow::Result<()> {
        self.watchers.finish()
    }
}

/// What the agents said at the end.
struct Done {
    wall: u64,
    cpu: u64,
    drivers: BTreeSet<String>,
}

impl Done {
    fn add(&mut self, done: &Value) {
        self.wall = self.wall.max(done["wall"].as_u64().unwrap_or(0));
        self.cpu = self.cpu.saturating_add(done["cpu"].as_u64().unwrap_or(0));
        self.drivers.extend(done["driver"].as_str().map(shown));
    }
}

impl Agent {
    /// Reads what one of its workers counted in a second of the run, which has lasted for `passed`.
    /// `room` is what may be counted yet.
    fn piece(&mut self, value: &Value, passed: Duration, room: &mut u64) -> anyhow::Result<Piece> {
        let number = |name: &str| {
            value[name]
                .as_u64()
                .with_context(|| format!("a piece without its {name}"))
        };

        let worker = usize::try_from(number("worker")?)?;
        let second = number("second")?;
        let reached = self
            .reached
            .get_mut(worker)
            .with_context(|| format!("a piece of worker {worker}"))?;

        // It was let go later than our clock began; clocks of two hosts may differ by a thousandth.
        let passed = passed.as_secs() + passed.as_secs() / 1000 + 1;
        ensure!(
            second <= passed,
            "a piece of second {second}, and {passed} have passed"
        );
        ensure!(
            reached.is_none_or(|before| before < second),
            "a second piece of second {second}, worker {worker}"
        );
        let last = value["last"] == true;

        *reached = Some(if last { u64::MAX } else { second });
        let tally = tally_json::read(&value["tally"], room)?;
        Ok(Piece {
            worker: self.first + worker,
            second,
            until: number("until")?,
            tally,
            last,
        })
    }
}

/// Returns an agent's text as it is shown: not endless, and without what a terminal would obey.
fn shown(text: &str) -> String {
    text.chars()
        .take(SHOWN)
        .map(|c| if c.is_control() && c != '\n' { ' ' } else { c })
        .collect()
}

fn connect(name: &str, secret: &Secret) -> anyhow::Result<(Sender, wire::Receiver)> {
    let addresses = name
        .to_socket_addrs()
        .context("write HOST:PORT, of a host that is known")?;
    let mut last = anyhow!("it has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, GREETING) {
            Ok(stream) => {
                let mut link = Link::new(stream)?;
                link.greet_agent(secret)?;
                return Ok(link.split()?);
            }
            Err(error) => {
                last = anyhow::Error::new(error)
                    .context("cannot connect; is `plainweave load agent` running?")
            }
        }
    }

    Err(last)
}

/// Returns the arguments behind `load` that are the agents' too. Those that say where results go
/// mean nothing there.
fn own_args() -> anyhow::Result<Vec<String>> {
    let args: Result<Vec<_>, _> = std::env::args_os()
        .map(std::ffi::OsString::into_string)
        .collect();
    let args = args.map_err(|arg| anyhow!("{}: agents accept only UTF-8", arg.display()))?;
    Ok(for_agents(
        args.into_iter().skip_while(|arg| arg != "load").skip(1),
    ))
}

fn for_agents(args: impl Iterator<Item = String>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut args = args;
    while let Some(arg) = args.next() {
        if OWN.contains(&arg.as_str()) {
            args.next();
        } else if !OWN.iter().any(|own| {
            arg.strip_prefix(own)
                .is_some_and(|rest| rest.starts_with('='))
        }) {
            kept.push(arg);
        }
    }

    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_get_the_arguments_that_are_theirs() {
        let args = "http http://h/ --agents a:1,b:2 -c 8 --agent-secret-file=s --agent-timeout 5s \
                    --rate 7 --hdr-log=x --json";
        let kept = for_agents(args.split(' ').map(str::to_owned));
        assert_eq!(kept.join(" "), "http http://h/ -c 8 --rate 7 --json");
    }
}
