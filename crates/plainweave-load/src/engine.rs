//! What carries the load: workers with connections, each a fiber that asks again and again.
//!
//! 1. Every worker stores its share of what will be asked for, if the protocol does so, and opens
//!    its connections, some at a time so that no backlog overflows; but not those that serve one
//!    start of the schedule alone.
//! 2. Each reports that it is ready and waits for the caller's word (on `std`'s channels: nothing
//!    else is to be done); then its clock starts.
//! 3. Each connection takes a start from its worker's schedule, waits for it, asks, checks the
//!    answer, and counts. One that was lost is made again by the next request, to the same server.
//!    A connection that was idle may have been closed just as the request went out: then the
//!    request is made once more on a new one, and counts once, from its intended start. One that
//!    cannot be made again is *away*, and is tried again later and later. In the open loop the
//!    connections that are there take its requests meanwhile; without any, requests fail when they
//!    are due.
//! 4. Once a second the worker hands over what it has counted.
//! 5. When the schedule has no more starts, connections end. All requests end within the timeout,
//!    and so does the run. If it is to stop earlier, connections are cancelled wherever they wait.
//!
//! The streams of a connection (HTTP/2) are fibers as connections are, and share one of those as a
//! [`Group`].
//!
//! Workers share only the channel of step 4 and the wish to stop. Within a worker all is on one
//! thread; no cell stays borrowed across a suspension.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime};

use anyhow::anyhow;
use plainweave::{Fiber, LocalJoinHandle, time};
use rustix::time::{ClockId, clock_gettime};

use super::clock::{Nanos, SECOND, nanos};
use super::collect::{Piece, Ran};
use super::group::{Entry, Group, Making};
use super::plan::Plan;
use super::popularity::Picker;
use super::schedule::Schedule;
use super::socket::Place;
use super::tally::{Failure, Opening, Tally};

/// Connections of a worker that are opened at a time.
const OPENING: usize = 64;
/// After a connection could not be made: at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// How soon the wish to stop is noticed.
const TICK: Duration = Duration::from_millis(50);

/// What a request came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    /// Bytes of the whole answer.
    pub(super) bytes: u64,
    /// HTTP's; else 0.
    pub(super) status: u16,
    /// `Ok(false)`: a cache's "not there".
    pub(super) outcome: Result<bool, Failure>,
}

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Keep,
    /// The server closes it; the next one goes to the same server.
    Lost,
    /// The client closes it; the next one goes to the server whose turn it is.
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
    pub(super) const CLOSED: Broken = Broken {
        failure: Failure::Closed,
        silent: true,
    };

    pub(super) fn before(error: io::Error) -> Self {
        Self::silent(error.into())
    }

    pub(super) fn silent(failure: Failure) -> Self {
        Self {
            failure,
            silent: true,
        }
    }

    pub(super) fn within(failure: Failure) -> Self {
        let failure = if failure == Failure::Closed {
            Failure::Short
        } else {
            failure
        };

        Self {
            failure,
            silent: false,
        }
    }

    /// Returns whether the request may be made once more: the peer seems to have given up an idle
    /// connection, or says that it did not begin with the request.
    fn may_be_repeated(self, reused: bool) -> bool {
        let stale = reused && matches!(self.failure, Failure::Closed | Failure::Reset);
        self.silent && (stale || self.failure.is_unprocessed())
    }
}

/// What is asked, and how answers are read. On a worker's fibers; deadlines come from around it.
pub(super) trait Protocol: Send + Sync + 'static {
    type Connection: 'static;
    /// What a connection's fiber remembers from one exchange to the next.
    type Memory: Default + 'static;

    /// Requests sent together, at most.
    fn depth(&self) -> usize {
        1
    }

    /// Exchanges on a connection at a time, at most.
    fn streams(&self) -> usize {
        1
    }

    /// Shares a connection with another stream. `None`: it takes no more of them.
    fn join(&self, _other: &Self::Connection) -> Option<Self::Connection> {
        None
    }

    /// Returns whether a connection serves one start of the schedule after the other. Else each
    /// opens its own when it is due.
    fn outlives_starts(&self) -> bool {
        true
    }

    /// Requests that one start of the schedule leads to, on average.
    fn each(&self) -> f64 {
        1.0
    }

    fn picker(&self, worker: usize, workers: usize, seed: u64) -> Picker;

    /// Before the load, on each worker: puts its share of what the load needs on the servers.
    fn load(&self, _addresses: &[Place], _worker: usize, _workers: usize) -> Result<(), Failure> {
        Ok(())
    }

    /// Returns what a server said first when it refused something, in its words.
    fn said(&self) -> Option<&str> {
        None
    }

    /// Connects to a server by its number, at its address.
    fn connect(
        &self,
        server: usize,
        address: &Place,
    ) -> Result<(Self::Connection, Opening), Failure>;

    /// After an exchange: returns how long the client waits before the next request of what it is
    /// about. `None`: that was all, and the schedule says when it goes on.
    fn pause(&self, _memory: &mut Self::Memory) -> Option<Duration> {
        None
    }

    /// Sends `depth` requests together and hands the reply of each, in order, to `done`, which does
    /// not suspend.
    fn exchange(
        &self,
        connection: &mut Self::Connection,
        picker: &RefCell<Picker>,
        memory: &mut Self::Memory,
        depth: usize,
        done: &mut dyn FnMut(Reply),
    ) -> Result<Next, Broken>;
}

/// Runs the load on threads of its own. Calls `gate` when all connections are open, and the clock
/// starts when it returns; hands `collect` what workers count.
pub(super) fn run<P: Protocol>(
    plan: &Plan,
    protocol: &Arc<P>,
    addresses: &[Place],
    stop: &Arc<AtomicBool>,
    gate: &mut dyn FnMut() -> anyhow::Result<()>,
    collect: &mut dyn FnMut(Piece),
) -> anyhow::Result<Ran> {
    let runtimes = (0..plan.workers)
        .map(|_| plan.runtime())
        .collect::<anyhow::Result<Vec<_>>>()?;
    let driver = runtimes[0].driver().to_owned();
    let (pieces, received) = mpsc::channel();
    let (opened, results) = std::thread::scope(|threads| {
        let mut workers = Vec::with_capacity(runtimes.len());
        for (worker, runtime) in runtimes.iter().enumerate() {
            let (ready, is_ready) = mpsc::channel();
            let (go, may_go) = mpsc::channel();
            let pieces = pieces.clone();
            let start = Start {
                plan,
                worker,
                addresses,
                protocol,
                stop,
                pieces,
                ready,
                may_go,
            };

            workers.push((
                threads.spawn(move || runtime.run(move || start.run())),
                is_ready,
                go,
            ));
        }

        drop(pieces);
        // A worker that fails before hangs up; its result says why.
        // Every worker is heard, although one has failed already: the others are still opening
        // connections, and none may be let go before all are there.
        let ready = workers.iter().fold(true, |ready, (_, is_ready, _)| {
            is_ready.recv().is_ok() && ready
        });
        let opened = if ready { gate() } else { Ok(()) };
        if !ready || opened.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        // Also after a failure: a worker that waits for its start then begins, sees that it is to
        // stop, and ends.
        for (_, _, go) in &workers {
            let _ = go.send(());
        }
        // It ends when the last worker has dropped its sender.
        received.into_iter().for_each(collect);
        (
            opened,
            workers
                .into_iter()
                .map(|(thread, ..)| thread.join())
                .collect::<Vec<_>>(),
        )
    });

    let mut ran = Ran {
        began: SystemTime::now(),
        wall: Duration::ZERO,
        cpu: Duration::ZERO,
        driver,
    };

    for result in results {
        let result = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let said = protocol
            .said()
            .filter(|_| matches!(result, Err(Failure::ErrorReply)));
        let said = said.map(|text| format!(", {text:?}")).unwrap_or_default();
        let part =
            result.map_err(|failure| anyhow!("the load phase failed: {}{said}", failure.name()))?;
        ran.cpu += part.cpu;
        // Workers overlap, so the run lasts as long as the longest of them; the processor time adds
        // up.
        ran.wall = ran.wall.max(part.wall);
        ran.began = ran.began.min(part.began);
    }

    opened.map(|()| ran)
}

/// What a worker is started with.
struct Start<'a, P> {
    plan: &'a Plan,
    worker: usize,
    addresses: &'a [Place],
    protocol: &'a Arc<P>,
    stop: &'a Arc<AtomicBool>,
    pieces: mpsc::Sender<Piece>,
    ready: mpsc::Sender<()>,
    may_go: mpsc::Receiver<()>,
}

/// What one worker says of a run.
struct Part {
    cpu: Duration,
    wall: Duration,
    began: SystemTime,
}

impl<P: Protocol> Start<'_, P> {
    /// Runs the worker's first fiber.
    fn run(self) -> Result<Part, Failure> {
        let lane = Rc::new(self.lane());
        let watcher = {
            let lane = lane.clone();
            plainweave::spawn_local(move || lane.watch())
        };
        let result = self.load(&lane);
        lane.ended.set(true);
        // It sleeps until the next second, which nobody waits for.
        watcher.cancel();
        let _ = watcher.join();
        result
    }

    fn lane(&self) -> Lane<P> {
        let plan = self.plan;
        let seed = plan.worker_seed(self.worker);
        Lane {
            protocol: self.protocol.clone(),
            addresses: self.addresses.to_vec(),
            turns: plan.turns.clone(),
            made: Cell::new(plan.first_connection(self.worker)),
            picker: RefCell::new(self.protocol.picker(self.worker, plan.workers, seed)),
            schedule: RefCell::new(plan.schedule(self.worker)),
            tally: RefCell::new(Tally::new()),
            epoch: Cell::new(time::now()),
            running: Cell::new(false),
            ended: Cell::new(false),
            fibers: RefCell::new(Vec::new()),
            there: Cell::new(
                plan.share(plan.connections as u64, self.worker) as usize * plan.streams,
            ),
            measured_from: nanos(plan.warm_up),
            end: plan
                .duration
                .map_or(u64::MAX, |duration| nanos(plan.warm_up + duration)),
            due_end: plan.due_end(),
            timeout: nanos(plan.timeout),
            depth: plan.depth,
            open_loop: plan.pace.is_open(),
            unbounded: plan.duration.is_none(),
            failing_since: Cell::new(None),
            worker: self.worker,
            pieces: self.pieces.clone(),
            stop: self.stop.clone(),
        }
    }

    fn load(&self, lane: &Rc<Lane<P>>) -> Result<Part, Failure> {
        let plan = self.plan;
        let protocol = self.protocol.clone();
        let addresses = self.addresses.to_vec();
        let (worker, workers) = plan.among_all(self.worker);
        // On a fiber of its own, which can be cancelled as connections can.
        if plan.loads {
            lane.join(lane.spawn(move |_| protocol.load(&addresses, worker, workers)))?;
        }
        let count = plan.share(plan.connections as u64, self.worker) as usize;
        let connections = if self.protocol.outlives_starts() {
            lane.open(count)
        } else {
            (0..count).map(|_| (None, None)).collect()
        };
        // Nobody listens if another worker has failed.
        let _ = self.ready.send(());
        let _ = self.may_go.recv();
        // Nothing before this counts: neither the load phase nor the connections' handshakes.
        lane.epoch.set(time::now());
        lane.running.set(true);
        let before = thread_cpu();
        let began = SystemTime::now();
        let fibers: Vec<_> = connections
            .into_iter()
            .flat_map(|(server, kept)| lane.start(server, kept))
            .collect();
        fibers.into_iter().for_each(|fiber| lane.join(fiber));
        // The last part of a second is handed over here, not by the watcher.
        lane.running.set(false);
        let now = lane.now();
        lane.hand_over(now / SECOND, now, true);
        let cpu = thread_cpu().saturating_sub(before);
        Ok(Part {
            cpu,
            wall: Duration::from_nanos(now),
            began,
        })
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
    addresses: Vec<Place>,
    /// Which of them connections go to, one after the other.
    turns: Vec<usize>,
    /// Connections made or tried so far, from the number of the worker's first on.
    made: Cell<usize>,
    picker: RefCell<Picker>,
    schedule: RefCell<Schedule>,
    tally: RefCell<Tally>,
    epoch: Cell<Instant>,
    /// The clock has started, and connections have not ended.
    running: Cell<bool>,
    ended: Cell<bool>,
    /// What is cancelled when the run is to stop.
    fibers: RefCell<Vec<Fiber>>,
    /// Connections that are not away, or streams.
    there: Cell<usize>,
    /// What starts before this is not counted.
    measured_from: Nanos,
    end: Nanos,
    /// Later requests of sessions say nothing of the rate: their pauses put them there.
    due_end: Nanos,
    timeout: Nanos,
    depth: usize,
    open_loop: bool,
    /// Only the number of requests ends it: targets that are all gone must end it too.
    unbounded: bool,
    /// Since when no connection has got an answer: when the first request that failed then was due.
    failing_since: Cell<Option<Nanos>>,
    worker: usize,
    pieces: mpsc::Sender<Piece>,
    stop: Arc<AtomicBool>,
}

/// What a connection's fiber works with.
struct Client<P: Protocol> {
    connection: Option<P::Connection>,
    /// With whom it shares that.
    group: Rc<Group<P::Connection>>,
    /// Which one it belongs to; `None`: the one whose turn it is.
    server: Option<usize>,
    memory: P::Memory,
    /// When the requests that are due were to start.
    starts: Vec<Nanos>,
    now: Nanos,
    /// Before the next attempt to connect, if this one fails.
    pause: Duration,
    /// Open loop: it could not be made.
    away: Option<Away>,
}

/// A connection of an open loop that could not be made.
#[derive(Clone, Copy, Debug)]
struct Away {
    /// Why.
    failure: Failure,
    /// When it is tried again.
    until: Nanos,
}

impl<P: Protocol> Lane<P> {
    fn now(&self) -> Nanos {
        nanos(time::now().saturating_duration_since(self.epoch.get()))
    }

    fn at(&self, time: Nanos) -> Instant {
        self.epoch.get() + Duration::from_nanos(time)
    }

    /// Starts a fiber that ends early if the run does.
    fn spawn<T: 'static>(
        self: &Rc<Self>,
        body: impl FnOnce(&Rc<Self>) -> T + 'static,
    ) -> LocalJoinHandle<T> {
        let lane = self.clone();
        let fiber = plainweave::spawn_local(move || body(&lane));
        self.fibers.borrow_mut().push(fiber.fiber());
        fiber
    }

    /// Waits for a fiber; its panic goes on here.
    fn join<T: 'static>(&self, fiber: LocalJoinHandle<T>) -> T {
        fiber.join().unwrap_or_else(|error| {
            std::panic::resume_unwind(
                error
                    .into_panic()
                    .unwrap_or_else(|error| Box::new(error.to_string())),
            )
        })
    }

    /// The life of the watching fiber: hands over each second, and ends the others when they are to
    /// stop.
    fn watch(&self) {
        let mut cancelled = 0;
        while !self.ended.get() {
            let now = self.now();
            let second = if self.running.get() { now / SECOND } else { 0 };
            let boundary = self.at((second + 1) * SECOND);
            let tick = time::now() + TICK;
            let _ = time::sleep_until(if self.running.get() {
                tick.min(boundary)
            } else {
                tick
            });

            if self.stop.load(Ordering::Relaxed) {
                let fibers = self.fibers.borrow();
                fibers[cancelled..].iter().for_each(Fiber::cancel);
                cancelled = fibers.len();
            }

            let now = self.now();
            // Not if the clock has just started, which it may have done meanwhile.
            if self.running.get() && now / SECOND > second {
                self.hand_over(now / SECOND - 1, now, false);
            }
        }
    }

    /// Hands over what was counted since the last time.
    fn hand_over(&self, second: u64, until: Nanos, last: bool) {
        let tally = std::mem::replace(&mut *self.tally.borrow_mut(), Tally::new());
        // The receiver lives until all workers have ended.
        let _ = self.pieces.send(Piece {
            worker: self.worker,
            second,
            until,
            tally,
            last,
        });
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns the server whose turn it is.
    fn next_server(&self) -> usize {
        let made = self.made.get();
        self.made.set(made + 1);
        self.turns[made % self.turns.len()]
    }

    /// Opens the first connections, each with its server. One that cannot be made is left to its
    /// fiber.
    fn open(self: &Rc<Self>, count: usize) -> Vec<(Option<usize>, Option<P::Connection>)> {
        let opened = Rc::new(RefCell::new(Vec::new()));
        let left = Rc::new(Cell::new(count));
        let fibers: Vec<_> = (0..count.min(OPENING))
            .map(|_| {
                let opened = opened.clone();
                let left = left.clone();
                self.spawn(move |lane| {
                    // A count instead of shares: a fiber whose server is slow opens fewer than the
                    // others.
                    while left.get() > 0 {
                        left.set(left.get() - 1);
                        let server = lane.next_server();
                        let limit = Duration::from_nanos(lane.timeout);
                        let connect = || lane.protocol.connect(server, &lane.addresses[server]);
                        let connection = time::with_timeout(limit, connect)
                            .ok()
                            .map(|made| lane.opened(made));

                        opened.borrow_mut().push((Some(server), connection));
                    }
                })
            })
            .collect();
        fibers.into_iter().for_each(|fiber| self.join(fiber));

        opened.take()
    }

    /// Counts a new connection.
    fn opened(&self, (connection, opening): (P::Connection, Opening)) -> P::Connection {
        self.tally.borrow_mut().opened(&opening);
        connection
    }

    /// Starts the fibers of a connection, one for each stream.
    fn start(
        self: &Rc<Self>,
        server: Option<usize>,
        kept: Option<P::Connection>,
    ) -> Vec<LocalJoinHandle<()>> {
        let group = Rc::new(Group::new(
            kept.as_ref().and_then(|kept| self.protocol.join(kept)),
        ));
        // The first stream owns the connection that is open; the others join it by their group.
        let first = std::iter::once(kept).chain(std::iter::repeat_with(|| None));
        let streams = first.take(self.protocol.streams()).map(|connection| {
            let group = group.clone();
            self.spawn(move |lane| lane.drive(server, connection, group))
        });

        streams.collect()
    }

    /// The life of a connection's fiber.
    fn drive(
        &self,
        server: Option<usize>,
        connection: Option<P::Connection>,
        group: Rc<Group<P::Connection>>,
    ) {
        let now = self.now();
        let starts = Vec::with_capacity(self.depth);
        let memory = P::Memory::default();
        let pause = PAUSE.0;
        let mut client = Client {
            connection,
            group,
            server,
            memory,
            starts,
            now,
            pause,
            away: None,
        };

        while self.take(&mut client.starts, &mut client.now) {
            // The schedule starts a session; what follows in it is due by its own pauses.
            let mut goes_on = self.request(&mut client);
            while goes_on && let Some(pause) = self.protocol.pause(&mut client.memory) {
                goes_on = self.rest(&mut client, pause) && self.request(&mut client);
            }
        }
    }

    /// Waits until the next request of a session, which is due then. Returns false if it does not
    /// come to that.
    fn rest(&self, client: &mut Client<P>, pause: Duration) -> bool {
        let due = client.now.saturating_add(nanos(pause));
        if due >= self.end || self.is_stopping() {
            client.memory = P::Memory::default();
            client.connection = None;
            return false;
        }

        if !pause.is_zero() && time::sleep_until(self.at(due)).is_err() {
            return false;
        }
        client.now = self.now();
        if self.open_loop && !pause.is_zero() && due >= self.measured_from {
            self.tally.borrow_mut().late(client.now.saturating_sub(due));
        }
        client.starts.clear();
        client.starts.push(due);

        true
    }

    /// Makes the requests that are due and counts what comes of them. Returns false if one got no
    /// answer.
    fn request(&self, client: &mut Client<P>) -> bool {
        let deadline = client.starts[0].saturating_add(self.timeout);
        let result = if client.now >= deadline {
            // Its turn came too late; the connection is not to blame. Nor is there time for others
            // as late.
            let late = self
                .schedule
                .borrow_mut()
                .skip(client.now.saturating_sub(self.timeout), self.measured_from);
            self.tally
                .borrow_mut()
                .failures
                .add(Failure::TimedOut, late);
            Err(Failure::TimedOut)
        } else {
            time::with_deadline(self.at(deadline), || self.ask(client))
        };

        let Err(failure) = result else {
            client.pause = PAUSE.0;
            self.failing_since.set(None);
            return true;
        };

        // A session is not gone on with behind a request that failed: what it would ask for next
        // may depend on that.
        client.memory = P::Memory::default();
        client.now = self.now();
        if self.is_stopping() {
            // Not the server's failure: it was given no time to answer.
            let measured = client
                .starts
                .iter()
                .filter(|start| **start >= self.measured_from)
                .count() as u64;
            self.tally.borrow_mut().unanswered += measured;
            return false;
        }

        self.fail(&client.starts, failure, client.now);
        let since = self.failing_since.get().unwrap_or(client.starts[0]);
        // Any connection's answer resets it, so only a load that gets nothing at all ends itself.
        self.failing_since.set(Some(since));
        if self.unbounded && client.now.saturating_sub(since) > self.timeout {
            self.schedule.borrow_mut().stop();
        }
        self.back_off(client, failure);

        false
    }

    /// Waits before the next attempt to connect: in the closed loop after any failure, since the
    /// same would happen again at once; in the open loop while others take what is due.
    fn back_off(&self, client: &mut Client<P>, failure: Failure) {
        match client.away {
            Some(away) if self.there.get() > 0 => {
                let _ = time::sleep_until(self.at(away.until));
            }
            // It fails what is due until it is tried again, and waits for nothing else.
            Some(_) => plainweave::yield_now(),
            None if !self.open_loop
                && client.connection.is_none()
                && failure != Failure::TimedOut =>
            {
                let _ = time::sleep(client.pause);
                client.pause = (client.pause * 2).min(PAUSE.1);
            }
            None => return,
        }
        client.now = self.now();
    }

    /// Takes the next starts and waits for the first. False: there are no more.
    fn take(&self, starts: &mut Vec<Nanos>, now: &mut Nanos) -> bool {
        starts.clear();
        if self.is_stopping() {
            self.schedule.borrow_mut().stop();
        }
        let Some(first) = self.schedule.borrow_mut().take(*now) else {
            return false;
        };
        starts.push(first);

        if first > *now {
            if time::sleep_until(self.at(first)).is_err() {
                return false;
            }
            *now = self.now();
            if first >= self.measured_from {
                self.tally.borrow_mut().late(now.saturating_sub(first));
            }
        }

        // Requests that are due by now go out with it, in one write.
        let mut schedule = self.schedule.borrow_mut();
        while starts.len() < self.depth
            && let Some(start) = schedule.take_due(*now)
        {
            starts.push(start);
        }
        true
    }

    /// Makes one exchange, on a new connection if need be. Leaves the starts that have no reply.
    fn ask(&self, client: &mut Client<P>) -> Result<(), Failure> {
        let mut repeated = false;
        loop {
            let kept = client.connection.take();
            let reused = kept.is_some();
            let mut current = match kept {
                Some(current) => current,
                None => self.reconnect(client)?,
            };
            let Client {
                connection,
                server,
                memory,
                starts,
                now,
                ..
            } = &mut *client;
            let mut answered = 0;
            let result = self.protocol.exchange(
                &mut current,
                &self.picker,
                memory,
                starts.len(),
                &mut |reply| {
                    *now = self.now();
                    self.count(starts[answered], reply, *now);
                    answered += 1;
                },
            );
            // What was answered is counted. A failure concerns the rest alone.
            starts.drain(..answered);
            match result {
                Ok(Next::Keep) => *connection = Some(current),
                Ok(Next::Lost) => {}
                Ok(Next::Close) => *server = None,
                // The server closed an idle connection while this request was on its way, as it may
                // (RFC 9112, 9.3.1): no failure of the request. Once only, or a server that always
                // closes would be asked for ever.
                Err(broken) if !repeated && answered == 0 && broken.may_be_repeated(reused) => {
                    repeated = true;
                    continue;
                }
                Err(broken) => return Err(broken.failure),
            }
            return Ok(());
        }
    }

    /// Makes a connection again, unless it is away and its time has not come.
    fn reconnect(&self, client: &mut Client<P>) -> Result<P::Connection, Failure> {
        if let Some(away) = client.away
            && client.now < away.until
        {
            return Err(away.failure);
        }
        let server = *client.server.get_or_insert_with(|| self.next_server());
        let group = client.group.clone();
        let made = match group.enter(|other| self.protocol.join(other)) {
            Entry::Joined(connection) => Ok(connection),
            Entry::Failed(failure) => Err(failure),
            Entry::Make(making) => self.make(server, making),
        };
        match made {
            Ok(connection) => {
                self.there
                    .set(self.there.get() + usize::from(client.away.take().is_some()));
                Ok(connection)
            }
            Err(failure) => {
                if !self.protocol.outlives_starts() {
                    // It belongs to no server: the next request goes to another one.
                    client.server = None;
                } else if self.open_loop {
                    self.there
                        .set(self.there.get() - usize::from(client.away.is_none()));
                    client.away = Some(Away {
                        failure,
                        until: self.now().saturating_add(nanos(client.pause)),
                    });
                    client.pause = (client.pause * 2).min(PAUSE.1);
                }
                Err(failure)
            }
        }
    }

    fn make(
        &self,
        server: usize,
        making: Making<'_, P::Connection>,
    ) -> Result<P::Connection, Failure> {
        match self.protocol.connect(server, &self.addresses[server]) {
            Ok(made) => {
                self.tally.borrow_mut().reconnects += 1;
                let connection = self.opened(made);
                making.made(self.protocol.join(&connection));
                Ok(connection)
            }
            Err(failure) => {
                self.tally.borrow_mut().failed_connects += 1;
                making.failed(failure);
                Err(failure)
            }
        }
    }

    fn count(&self, start: Nanos, reply: Reply, now: Nanos) {
        if start < self.measured_from {
            self.tally.borrow_mut().warming += 1;
            return;
        }

        let tally = &mut *self.tally.borrow_mut();
        // What was due after the end (a session's later requests) does not count against the rate.
        tally.answers_in_time += u64::from(now <= self.due_end || start > self.due_end);
        tally.last = tally.last.max(now);
        if reply.status > 0 {
            tally.statuses.add(reply.status, 1);
        }

        match reply.outcome {
            Ok(found) => {
                tally.answered(now.saturating_sub(start));
                tally.ok_in_time += u64::from(now <= self.end);
                tally.misses += u64::from(!found);
                tally.bytes += reply.bytes;
            }
            Err(failure) => tally.failures.add(failure, 1),
        }
    }

    /// Counts requests that got no answer.
    fn fail(&self, starts: &[Nanos], failure: Failure, now: Nanos) {
        let measured = starts
            .iter()
            .filter(|start| **start >= self.measured_from)
            .count() as u64;
        let tally = &mut *self.tally.borrow_mut();
        tally.failures.add(failure, measured);
        tally.answers_in_time +=
            starts.iter().filter(|start| **start > self.due_end).count() as u64;
        tally.last = tally.last.max(now);
    }
}
