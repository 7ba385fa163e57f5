//! The runtime that a test runs on: one of its own, or a pool beside another.

#![deny(unsafe_code)]

use std::ops::Deref;

use plainweave::pools::{Pool, PoolSpec, Pools};
use plainweave::{JoinHandle, Runtime, RuntimeBuilder};

use super::Setup;

/// What the body of a test takes for a runtime. In a pool it is the pool's runtime, and what the
/// test itself runs or spawns comes through the pool, from a fiber of another pool whose policy is
/// another one.
pub struct TestRuntime(Kind);

enum Kind {
    Alone(Runtime),
    Pools {
        pools: Pools,
        tested: Pool,
        beside: Pool,
    },
}

impl TestRuntime {
    pub fn new(setup: Setup, builder: RuntimeBuilder) -> Self {
        if !setup.pooled {
            return Self(Kind::Alone(
                setup.check(builder.build().expect("a runtime")),
            ));
        }

        let beside = Runtime::builder()
            .io(setup.io)
            .workers(1)
            .max_workers(1)
            .policy("edf")
            .report_stalls(false);
        let tested = PoolSpec::new("tested").runtime(builder).max_fibers(10_000);
        let pools = Pools::build([tested, PoolSpec::new("beside").runtime(beside)]).expect("pools");
        let [tested, beside] =
            ["tested", "beside"].map(|name| pools.get(name).expect("built").clone());
        setup.check_names(pools.runtime("tested").expect("built"));

        Self(Kind::Pools {
            pools,
            tested,
            beside,
        })
    }

    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        match &self.0 {
            Kind::Alone(runtime) => runtime.run(f),
            Kind::Pools { tested, beside, .. } => {
                beside.call(|| tested.call(f).expect("open")).expect("open")
            }
        }
    }

    pub fn spawn<T, F>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        match &self.0 {
            Kind::Alone(runtime) => runtime.spawn(f),
            Kind::Pools { tested, beside, .. } => beside
                .call(|| tested.spawn(f).expect("open"))
                .expect("open"),
        }
    }
}

impl Deref for TestRuntime {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        match &self.0 {
            Kind::Alone(runtime) => runtime,
            Kind::Pools { pools, .. } => pools.runtime("tested").expect("built"),
        }
    }
}
