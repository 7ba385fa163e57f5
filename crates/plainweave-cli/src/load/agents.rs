//! The coordinator's side: several agents make a load together, and their histograms are added up.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, anyhow, bail, ensure};
use serde_json::{Value, json};

use super::collect::{Collector, Piece};
use super::conduct::outcome;
use super::engine::Ran;
use super::files::Files;
use super::interrupt::{Interrupt, TICK};
use super::plan::Plan;
use super::summary::Outcome;
use super::sweep::Runs;
use super::tally_json;
use super::watchers::Watchers;
use super::wire::{self, GREETING, Link, Secret, Sender};

/// Flags that are the coordinator's alone, and take a value.
const OWN: [&str; 3] = ["--agents", "--agent-secret-file", "--hdr-log"];
/// An agent at work sends something each second; one that has sent nothing for so long is lost.
const SILENCE: Duration = Duration::from_secs(30);
/// An agent that is to stop does so within this time.
const STOPPING: Duration = Duration::from_secs(15);

/// The agents, each with its part of the load.
pub(super) struct Agents {
    links: Vec<Agent>,
    messages: mpsc::Receiver<(usize, anyhow::Result<Value>)>,
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
}

impl Agents {
    /// Connects to the agents and sends each its part.
    pub(super) fn engage(
        names: &[String],
        secret: &Secret,
        files: &Files,
        interrupt: Interrupt,
        watchers: Watchers,
    ) -> anyhow::Result<Self> {
        let (news, messages) = mpsc::channel();
        let args = own_args()?;
        let mut agents = Self { links: Vec::new(), messages, interrupt, watchers, addresses: BTreeSet::new() };
        for (part, name) in names.iter().enumerate() {
            let (mut sender, mut receiver) = connect(name, secret).with_context(|| format!("agent {name}"))?;
            let files = wire::files_json(&files.all());
            let prepare = json!({ "args": args, "files": files, "part": part, "parts": names.len() });
            sender.send(&json!({ "prepare": prepare })).with_context(|| format!("agent {name}"))?;
            agents.links.push(Agent { name: name.clone(), sender, workers: 0, first: 0 });
            let news = news.clone();
            thread::spawn(move || {
                loop {
                    let message = receiver.receive().and_then(|message| message.context("it closed the connection"));
                    let over = message.is_err();
                    if news.send((part, message)).is_err() || over {
                        return;
                    }
                }
            });
        }
        for (part, prepared) in agents.one_of_each("prepared", None)? {
            let workers = prepared["workers"].as_u64().and_then(|workers| usize::try_from(workers).ok());
            agents.links[part].workers =
                workers.filter(|n| (1..=65_536).contains(n)).context("no number of workers")?;
            let addresses = prepared["addresses"].as_array().into_iter().flatten();
            agents.addresses.extend(addresses.filter_map(|address| address.as_str().map(str::to_owned)));
        }
        let mut first = 0;
        for link in &mut agents.links {
            link.first = first;
            first += link.workers;
        }
        Ok(agents)
    }

    /// Returns how many workers all agents have.
    pub(super) fn workers(&self) -> usize {
        self.links.iter().map(|link| link.workers).sum()
    }

    fn send_all(&mut self, message: &Value) -> anyhow::Result<()> {
        for link in &mut self.links {
            link.sender.send(message).with_context(|| format!("agent {}", link.name))?;
        }
        Ok(())
    }

    /// Receives a message, with the number of the agent that sent it. `None`: a tick passed.
    fn next(&self) -> anyhow::Result<Option<(usize, Value)>> {
        let (part, message) = match self.messages.recv_timeout(TICK) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("all agents are gone"),
        };
        let name = &self.links[part].name;
        let message = message.with_context(|| format!("agent {name} is lost"))?;
        match message["error"].as_str() {
            Some(error) => Err(anyhow!("agent {name}: {error}")),
            None => Ok(Some((part, message))),
        }
    }

    /// Waits for one message of this kind from each agent, in any order. A signal ends the wait with an error.
    fn one_of_each(&mut self, kind: &str, limit: Option<Duration>) -> anyhow::Result<Vec<(usize, Value)>> {
        let (mut all, begun) = (Vec::new(), Instant::now());
        while all.len() < self.links.len() {
            ensure!(!self.interrupt.is_interrupted(), "interrupted");
            ensure!(limit.is_none_or(|limit| begun.elapsed() < limit), "an agent does not answer");
            if let Some((part, mut message)) = self.next()? {
                ensure!(!message[kind].is_null(), "agent {} sends what nobody asked for", self.links[part].name);
                all.push((part, message[kind].take()));
            }
        }
        Ok(all)
    }

    /// Collects what the agents count, until all are done.
    fn collect(&mut self, mut take: impl FnMut(&Piece)) -> anyhow::Result<Done> {
        let mut done = Done { wall: 0, cpu: 0, drivers: BTreeSet::new() };
        let mut heard: Vec<_> = self.links.iter().map(|_| Some(Instant::now())).collect();
        let mut stopping = None;
        while heard.iter().any(Option::is_some) {
            if stopping.is_none() && self.interrupt.is_interrupted() {
                self.send_all(&json!({ "stop": true }))?;
                stopping = Some(Instant::now());
            }
            ensure!(stopping.is_none_or(|since| since.elapsed() < STOPPING), "an agent does not stop");
            if let Some(silent) = heard.iter().position(|last| last.is_some_and(|last| last.elapsed() > SILENCE)) {
                bail!("agent {} is lost: nothing came for {} s", self.links[silent].name, SILENCE.as_secs());
            }
            let Some((part, message)) = self.next()? else { continue };
            let link = &self.links[part];
            if !message["done"].is_null() {
                done.add(&message["done"]);
                heard[part] = None;
            } else {
                take(&link.piece(&message["piece"]).with_context(|| format!("agent {}", link.name))?);
                heard[part] = Some(Instant::now());
            }
        }
        Ok(done)
    }

    fn make(&mut self, plan: &Plan) -> anyhow::Result<Outcome> {
        self.send_all(&json!({ "run": { "rate": plan.step, "loads": plan.loads } }))?;
        self.one_of_each("ready", None)?;
        // None of them waits for another: they are let go together, and each counts from when it hears.
        self.send_all(&json!({ "go": true }))?;
        let began = SystemTime::now();
        let mut collector = Collector::new(self.workers());
        let mut watchers = std::mem::take(&mut self.watchers);
        let cell = Cell::new(began);
        let mut watch = watchers.for_run(plan, &cell);
        let done = self.collect(|piece| collector.take(piece, &mut watch));
        let tally = collector.finish(&mut watch);
        let seconds = watch.end();
        self.watchers = watchers;
        let Done { wall, cpu, drivers } = done?;
        let [wall, cpu] = [wall, cpu].map(Duration::from_nanos);
        let driver = drivers.into_iter().collect::<Vec<_>>().join(" and ");
        Ok(outcome(plan, Ran { began, wall, cpu, driver }, tally, seconds, self.interrupt.is_interrupted()))
    }
}

impl Runs for Agents {
    fn run(&mut self, plan: &Plan) -> anyhow::Result<Option<Outcome>> {
        match self.make(plan) {
            Ok(outcome) => Ok(Some(outcome)),
            Err(error) => {
                // Those that are left end too, if only by the end of the connection.
                for link in &mut self.links {
                    let _ = link.sender.send(&json!({ "stop": true }));
                }
                if self.interrupt.stop.load(Ordering::Relaxed) { Ok(None) } else { Err(error) }
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
        self.cpu += done["cpu"].as_u64().unwrap_or(0);
        self.drivers.extend(done["driver"].as_str().map(str::to_owned));
    }
}

impl Agent {
    fn piece(&self, value: &Value) -> anyhow::Result<Piece> {
        let number = |name: &str| value[name].as_u64().with_context(|| format!("a piece without its {name}"));
        let worker = usize::try_from(number("worker")?)?;
        ensure!(worker < self.workers, "a piece of worker {worker} of {}", self.workers);
        Ok(Piece {
            worker: self.first + worker,
            second: number("second")?,
            until: number("until")?,
            tally: tally_json::read(&value["tally"])?,
            last: value["last"] == true,
        })
    }
}

fn connect(name: &str, secret: &Secret) -> anyhow::Result<(Sender, wire::Receiver)> {
    let addresses = name.to_socket_addrs().context("write HOST:PORT, of a host that is known")?;
    let mut last = anyhow!("it has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, GREETING) {
            Ok(stream) => {
                let mut link = Link::new(stream)?;
                link.greet_agent(secret)?;
                return Ok(link.split()?);
            }
            Err(error) => {
                last = anyhow::Error::new(error).context("cannot connect; is `plainweave load agent` running?")
            }
        }
    }
    Err(last)
}

/// Returns the arguments behind `load` that are the agents' too. Those that say where results go mean nothing there.
fn own_args() -> anyhow::Result<Vec<String>> {
    let args: Result<Vec<_>, _> = std::env::args_os().map(std::ffi::OsString::into_string).collect();
    let args = args.map_err(|arg| anyhow!("{}: agents take text in UTF-8 alone", arg.display()))?;
    Ok(for_agents(args.into_iter().skip_while(|arg| arg != "load").skip(1)))
}

fn for_agents(args: impl Iterator<Item = String>) -> Vec<String> {
    let (mut kept, mut args) = (Vec::new(), args);
    while let Some(arg) = args.next() {
        if OWN.contains(&arg.as_str()) {
            args.next();
        } else if !OWN.iter().any(|own| arg.strip_prefix(own).is_some_and(|rest| rest.starts_with('='))) {
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
        let args = "http http://h/ --agents a:1,b:2 -c 8 --agent-secret-file=s --rate 7 --hdr-log=x --agents=c --json";
        let kept = for_agents(args.split(' ').map(str::to_owned));
        assert_eq!(kept.join(" "), "http http://h/ -c 8 --rate 7 --json");
    }
}
