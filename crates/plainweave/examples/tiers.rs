//! Policies composed by their types: urgent fibers by deadline, above the rest in fair order, and
//! one more policy written here that counts what either of them does.
//!
//! `cargo run -p plainweave --example tiers`

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use plainweave::policy::{
    Cx, DeadlineParams, Edf, Effort, Load, Policy, Ready, Task, Tiers, TiersParams, Topology, Wake,
    WorkStealing, WorkStealingParams, WorkerId,
};
use plainweave::{Builder, FiberTask, Runtime};

static PUSHES: AtomicUsize = AtomicUsize::new(0);

/// Any policy, and a count of its pushes.
struct Counted<P>(P);

impl<T: Task, P: Policy<T>> Policy<T> for Counted<P> {
    type Params = P::Params;
    type Local = P::Local;

    fn new(params: P::Params, topology: &Topology) -> Self {
        Self(P::new(params, topology))
    }

    fn attach(&self, worker: WorkerId) -> P::Local {
        self.0.attach(worker)
    }

    fn push(&self, cx: &mut Cx, local: Option<&mut P::Local>, task: T, why: Ready) -> Wake {
        PUSHES.fetch_add(1, Ordering::Relaxed);
        self.0.push(cx, local, task, why)
    }

    fn pop(&self, cx: &mut Cx, local: &mut P::Local, effort: Effort) -> Option<T> {
        self.0.pop(cx, local, effort)
    }

    fn place(&self, cx: &mut Cx, task: &impl Task, load: &impl Load) -> Option<WorkerId> {
        self.0.place(cx, task, load)
    }

    fn maybe_ready(&self, worker: WorkerId) -> bool {
        self.0.maybe_ready(worker)
    }

    fn drain(&self, local: P::Local, sink: &mut dyn FnMut(T)) {
        self.0.drain(local, sink);
    }
}

type Mine = Tiers<Counted<Edf<FiberTask>>, WorkStealing<FiberTask>>;

/// Runs eight fibers, half of them urgent.
pub(crate) fn run() -> io::Result<()> {
    let params = TiersParams {
        high: DeadlineParams::default(),
        low: WorkStealingParams::default(),
        from: 200,
        every: 31,
    };

    let runtime = Runtime::builder().workers(1).build_with::<Mine>(params)?;
    runtime.run(|| {
        let start = Instant::now();
        let spawn = |i: u32| {
            let urgent = Builder::new()
                .priority(200)
                .deadline(start + Duration::from_millis(u64::from(100 - i)));
            let builder = if i.is_multiple_of(2) {
                urgent
            } else {
                Builder::new()
            };
            builder.spawn(move || writeln!(io::stdout(), "fiber {i}"))
        };

        let fibers = (0..8).map(spawn).collect::<io::Result<Vec<_>>>()?;
        fibers
            .into_iter()
            .try_for_each(|fiber| fiber.join().map_err(io::Error::other)?)
    })?;
    writeln!(
        io::stdout(),
        "{} pushes above",
        PUSHES.load(Ordering::Relaxed)
    )
}

fn main() -> io::Result<()> {
    run()
}
