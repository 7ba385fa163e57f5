//! What carries the load: workers with connections, each a fiber that asks again and again.
//!
//! 1. Every worker stores its share of what will be asked for, if the protocol does so, and opens its connections,
//!    some at a time so that no backlog overflows.
//! 2. All workers wait for each other (`std`'s barrier: nothing else is to be done); then the clock starts.
//! 3. Each connection takes a start from its worker's schedule, waits for it, asks, checks the answer, and counts. One
//!    that was lost is made anew by the next request. A connection that was idle may have been closed just as the
//!    request went out: then the request is made once more on a new one, and counts once, from its intended start.
//! 4. When the schedule has no more starts, connections end. All requests end within the timeout, and so does the run.
//!
//! Workers share only the barrier, the wish to stop and the counters that the progress line reads. Within a worker all
//! is on one thread; no cell stays borrowed across a suspension.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::{Duration, Instant, SystemTime};

use anyhow::anyhow;
use plainweave::time;
use rustix::time::{ClockId, clock_gettime};

use super::plan::{Plan, nanos};
use super::popularity::Picker;
use super::progress::{self, Live};
use super::schedule::Schedule;
use super::tally::{Failure, Tally};

/// Connections of a worker that are opened at a time.
const OPENING: usize = 64;
/// After a connection could not be made, in the closed loop: at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// What a request came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    /// Of the whole answer.
    pub(super) bytes: u64,
    /// `Ok(false)`: a cache's "not there".
    pub(super) outcome: Result<bool, Failure>,
}

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Keep,
    Close,
}

/// The connection is lost, and with it all requests that have no reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Broken {
    pub(super) failure: Failure,
    /// Nothing of an answer had come.
    silent: bool,
}

impl Broken {
    pub(super) const CLOSED: Broken = Broken { failure: Failure::Closed, silent: true };

    pub(super) fn before(error: io::Error) -> Self {
        Self::silent(error.into())
    }

    pub(super) fn silent(failure: Failure) -> Self {
        Self { failure, silent: true }
    }

    pub(super) fn within(failure: Failure) -> Self {
        Self { failure, silent: false }
    }

    /// Returns whether it looks like a peer that gave up an idle connection.
    fn is_stale(self) -> bool {
        self.silent && matches!(self.failure, Failure::Closed | Failure::Reset)
    }
}

/// What is asked, and how answers are read. On a worker's fibers; deadlines come from around it.
pub(super) trait Protocol: Send + Sync + 'static {
    type Connection: 'static;

    /// Requests sent together, at most.
    fn depth(&self) -> usize {
        1
    }

    /// Returns whether connections serve more than one exchange.
    fn keep_alive(&self) -> bool {
        true
    }

    fn picker(&self, worker: usize, workers: usize, seed: u64) -> Picker;

    /// Before the load, on each worker: puts its share of what the load needs on the servers.
    fn load(&self, _addresses: &[SocketAddr], _worker: usize, _workers: usize) -> Result<(), Failure> {
        Ok(())
    }

    fn connect(&self, address: SocketAddr) -> Result<Self::Connection, Failure>;

    /// Sends `depth` requests together and hands the reply of each, in order, to `done`, which does not suspend.
    fn exchange(
        &self,
        connection: &mut Self::Connection,
        picker: &RefCell<Picker>,
        depth: usize,
        done: &mut dyn FnMut(Reply),
    ) -> Result<Next, Broken>;
}

/// The result of a run.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) tally: Tally,
    /// When the first requests could be sent: all connections were there.
    pub(super) began: SystemTime,
    /// What rates are counted over.
    pub(super) elapsed: Duration,
    /// CPU time of the workers under load.
    pub(super) cpu: Duration,
    pub(super) driver: &'static str,
}

/// Runs the load on threads of its own; this thread shows the progress.
pub(super) fn run<P: Protocol>(
    plan: &Plan,
    protocol: &Arc<P>,
    addresses: &[SocketAddr],
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Outcome> {
    let runtimes = (0..plan.workers).map(|_| plan.runtime()).collect::<anyhow::Result<Vec<_>>>()?;
    let driver = runtimes[0].driver();
    let barrier = Barrier::new(plan.workers);
    let live: Vec<_> = (0..plan.workers).map(|_| Arc::new(Live::default())).collect();
    let (end, ended) = mpsc::channel();
    let results = std::thread::scope(|threads| {
        let running = runtimes.iter().zip(&live).enumerate().map(|(worker, (runtime, live))| {
            let lane = Start { plan, worker, addresses, protocol, live, stop };
            let (barrier, end) = (&barrier, end.clone());
            threads.spawn(move || {
                let _end: mpsc::Sender<()> = end;
                runtime.run(move || lane.run(barrier))
            })
        });
        let running: Vec<_> = running.collect();
        drop(end);
        progress::show(plan, &live, &ended);
        running.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
    });
    let (mut tally, mut cpu, mut began) = (Tally::new(), Duration::ZERO, SystemTime::now());
    for result in results {
        let result = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let (part, used, start) = result.map_err(|failure| anyhow!("the load phase failed: {}", failure.name()))?;
        tally.add(&part);
        cpu += used;
        began = began.min(start);
    }
    let measured = tally.last.saturating_sub(nanos(plan.warm_up));
    let ended_early = plan.requests.is_some() || stop.load(Ordering::Relaxed);
    let elapsed = match plan.duration {
        Some(duration) if !ended_early => duration,
        duration => Duration::from_nanos(measured).min(duration.unwrap_or(Duration::MAX)),
    };
    Ok(Outcome { tally, began, elapsed, cpu, driver })
}

/// What a worker is started with.
struct Start<'a, P> {
    plan: &'a Plan,
    worker: usize,
    addresses: &'a [SocketAddr],
    protocol: &'a Arc<P>,
    live: &'a Arc<Live>,
    stop: &'a Arc<AtomicBool>,
}

impl<P: Protocol> Start<'_, P> {
    /// Runs the worker's first fiber. Returns its figures, the CPU time of its thread under load, and when that began.
    fn run(self, barrier: &Barrier) -> Result<(Tally, Duration, SystemTime), Failure> {
        let plan = self.plan;
        let seed = plan.seed.wrapping_add(1 + self.worker as u64);
        let lane = Rc::new(Lane {
            protocol: self.protocol.clone(),
            addresses: self.addresses.to_vec(),
            made: Cell::new(0),
            picker: RefCell::new(self.protocol.picker(self.worker, plan.workers, seed)),
            schedule: RefCell::new(plan.schedule(self.worker)),
            tally: RefCell::new(Tally::new()),
            epoch: Cell::new(time::now()),
            measured: nanos(plan.warm_up),
            end: plan.duration.map_or(u64::MAX, |duration| nanos(plan.warm_up + duration)),
            timeout: nanos(plan.timeout),
            depth: plan.depth,
            open_loop: plan.pace.is_open(),
            unbounded: plan.duration.is_none(),
            live: self.live.clone(),
            stop: self.stop.clone(),
        });
        let loaded = self.protocol.load(self.addresses, self.worker, plan.workers);
        let count = plan.share(plan.connections as u64, self.worker) as usize;
        let connections =
            if self.protocol.keep_alive() { lane.open(count) } else { (0..count).map(|_| None).collect() };
        barrier.wait();
        loaded?;
        lane.epoch.set(time::now());
        let (before, began) = (thread_cpu(), SystemTime::now());
        let fibers = connections.into_iter().map(|connection| {
            let lane = lane.clone();
            plainweave::spawn_local(move || lane.drive(connection))
        });
        let fibers: Vec<_> = fibers.collect();
        for fiber in fibers {
            if let Err(error) = fiber.join() {
                std::panic::resume_unwind(error.into_panic().unwrap_or_else(|error| Box::new(error.to_string())));
            }
        }
        let cpu = thread_cpu().saturating_sub(before);
        let tally = std::mem::replace(&mut *lane.tally.borrow_mut(), Tally::new());
        Ok((tally, cpu, began))
    }
}

/// CPU time of the calling thread.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// One worker's share of the load.
struct Lane<P: Protocol> {
    protocol: Arc<P>,
    /// Connections go to them in turn.
    addresses: Vec<SocketAddr>,
    /// Connections made or tried so far.
    made: Cell<usize>,
    picker: RefCell<Picker>,
    schedule: RefCell<Schedule>,
    tally: RefCell<Tally>,
    epoch: Cell<Instant>,
    /// What starts before this is not counted.
    measured: u64,
    end: u64,
    timeout: u64,
    depth: usize,
    open_loop: bool,
    /// Only the number of requests ends it: a target that is gone must end it too.
    unbounded: bool,
    live: Arc<Live>,
    stop: Arc<AtomicBool>,
}

impl<P: Protocol> Lane<P> {
    fn now(&self) -> u64 {
        nanos(time::now().saturating_duration_since(self.epoch.get()))
    }

    fn at(&self, nanos: u64) -> Instant {
        self.epoch.get() + Duration::from_nanos(nanos)
    }

    fn connect(&self) -> Result<P::Connection, Failure> {
        let made = self.made.get();
        self.made.set(made + 1);
        self.protocol.connect(self.addresses[made % self.addresses.len()])
    }

    /// Opens the first connections. One that cannot be made is left to its fiber.
    fn open(self: &Rc<Self>, count: usize) -> Vec<Option<P::Connection>> {
        let (opened, left) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(count)));
        let fibers: Vec<_> = (0..count.min(OPENING))
            .map(|_| {
                let (lane, opened, left) = (self.clone(), opened.clone(), left.clone());
                plainweave::spawn_local(move || {
                    while left.get() > 0 {
                        left.set(left.get() - 1);
                        let limit = Duration::from_nanos(lane.timeout);
                        let connection = time::with_timeout(limit, || lane.connect()).ok();
                        opened.borrow_mut().push(connection);
                    }
                })
            })
            .collect();
        fibers.into_iter().for_each(|fiber| drop(fiber.join()));
        opened.take()
    }

    /// The life of a connection's fiber.
    fn drive(&self, mut connection: Option<P::Connection>) {
        let mut starts = Vec::with_capacity(self.depth);
        let (mut now, mut pause) = (self.now(), PAUSE.0);
        // When this connection last worked.
        let mut worked = now;
        while self.take(&mut starts, &mut now) {
            let deadline = starts[0].saturating_add(self.timeout);
            let result = if now >= deadline {
                Err(Failure::TimedOut) // Its turn came too late; the connection is not to blame.
            } else {
                time::with_deadline(self.at(deadline), || self.ask(&mut connection, &mut starts, &mut now))
            };
            let Err(failure) = result else {
                (worked, pause) = (now, PAUSE.0);
                continue;
            };
            now = self.now();
            self.fail(&starts, failure, now);
            if self.unbounded && now - worked > self.timeout {
                self.schedule.borrow_mut().stop();
            }
            if !self.open_loop && connection.is_none() && failure != Failure::TimedOut {
                let _ = time::sleep(pause);
                pause = (pause * 2).min(PAUSE.1);
                now = self.now();
            }
        }
    }

    /// Takes the next starts and waits for the first. False: there are no more.
    fn take(&self, starts: &mut Vec<u64>, now: &mut u64) -> bool {
        starts.clear();
        if self.stop.load(Ordering::Relaxed) {
            self.schedule.borrow_mut().stop();
        }
        let Some(first) = self.schedule.borrow_mut().take(*now) else { return false };
        starts.push(first);
        if first > *now {
            let _ = time::sleep_until(self.at(first));
            *now = self.now();
            if first >= self.measured {
                self.tally.borrow_mut().late(now.saturating_sub(first));
            }
        }
        let mut schedule = self.schedule.borrow_mut();
        while starts.len() < self.depth
            && let Some(start) = schedule.take_due(*now)
        {
            starts.push(start);
        }
        true
    }

    /// Makes one exchange, on a new connection if need be. Leaves the starts that have no reply.
    fn ask(&self, connection: &mut Option<P::Connection>, starts: &mut Vec<u64>, now: &mut u64) -> Result<(), Failure> {
        loop {
            let kept = connection.take();
            let reused = kept.is_some();
            let mut current = match kept {
                Some(current) => current,
                None => {
                    self.tally.borrow_mut().reconnects += 1;
                    self.connect()?
                }
            };
            let mut answered = 0;
            let result = self.protocol.exchange(&mut current, &self.picker, starts.len(), &mut |reply| {
                *now = self.now();
                self.count(starts[answered], reply, *now);
                answered += 1;
            });
            starts.drain(..answered);
            match result {
                Ok(Next::Keep) => *connection = Some(current),
                Ok(Next::Close) => {}
                Err(broken) if reused && answered == 0 && broken.is_stale() => continue,
                Err(broken) => return Err(broken.failure),
            }
            return Ok(());
        }
    }

    fn count(&self, start: u64, reply: Reply, now: u64) {
        if let Err(failure) = reply.outcome {
            return self.fail(&[start], failure, now);
        }
        bump(&self.live.ok);
        if start < self.measured {
            return;
        }
        let tally = &mut *self.tally.borrow_mut();
        tally.answered(now.saturating_sub(start));
        tally.ok_in_time += u64::from(now <= self.end);
        tally.misses += u64::from(reply.outcome == Ok(false));
        tally.bytes += reply.bytes;
        tally.last = now;
    }

    fn fail(&self, starts: &[u64], failure: Failure, now: u64) {
        starts.iter().for_each(|_| bump(&self.live.failed));
        let measured = starts.iter().filter(|start| **start >= self.measured).count() as u64;
        let tally = &mut *self.tally.borrow_mut();
        tally.failures.add(failure, measured);
        tally.last = tally.last.max(now);
    }
}

/// Adds one; by its only writer.
fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}
