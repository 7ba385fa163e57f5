//! What the rules allow. Every list may shrink; whoever lengthens one says why in `ARCHITECTURE.md`.

/// Where `unsafe` may stand outside tests. `ARCHITECTURE.md` has the same list, with a reason for each.
pub(crate) const UNSAFE: &[&str] = &[
    "crates/plainweave-bench/src/files/ring.rs",
    "crates/plainweave-bench/src/mode.rs",
    "crates/plainweave-cli/src/engine.rs",
    "crates/plainweave-cli/src/cache/store/segment.rs",
    "crates/plainweave/src/fiber/blocks.rs",
    "crates/plainweave/src/fiber/body.rs",
    "crates/plainweave/src/fiber/handle.rs",
    "crates/plainweave/src/fiber/join.rs",
    "crates/plainweave/src/fiber/mod.rs",
    "crates/plainweave/src/fiber/task.rs",
    "crates/plainweave/src/fs.rs",
    "crates/plainweave/src/io/driver.rs",
    "crates/plainweave/src/io/epoll.rs",
    "crates/plainweave/src/io/op.rs",
    "crates/plainweave/src/io/parked.rs",
    "crates/plainweave/src/prefetch.rs",
    "crates/plainweave/src/io/ring.rs",
    "crates/plainweave/src/io/sim.rs",
    "crates/plainweave/src/io/source.rs",
    "crates/plainweave/src/io/uring.rs",
    "crates/plainweave/src/io/wait.rs",
    "crates/plainweave/src/monitor/slice.rs",
    "crates/plainweave/src/net/listener.rs",
    "crates/plainweave/src/net/stream.rs",
    "crates/plainweave/src/pool.rs",
    "crates/plainweave/src/pool/shared.rs",
    "crates/plainweave/src/queue/deque.rs",
    "crates/plainweave/src/queue/deque/owner.rs",
    "crates/plainweave/src/queue/deque/stealer.rs",
    "crates/plainweave/src/queue/inbox.rs",
    "crates/plainweave/src/queue/inbox/letter.rs",
    "crates/plainweave/src/queue/mpmc.rs",
    "crates/plainweave/src/queue/ring.rs",
    "crates/plainweave/src/queue/ring/owner.rs",
    "crates/plainweave/src/queue/ring/stealer.rs",
    "crates/plainweave/src/queue/spsc.rs",
    "crates/plainweave/src/runtime.rs",
    "crates/plainweave/src/runtime/mode.rs",
    "crates/plainweave/src/scope.rs",
    "crates/plainweave/src/signal.rs",
    "crates/plainweave/src/stack/guard.rs",
    "crates/plainweave/src/stack/mod.rs",
    "crates/plainweave/src/stack/overflow.rs",
    "crates/plainweave/src/stack/pool.rs",
    "crates/plainweave/src/stack/slab.rs",
    "crates/plainweave/src/stack/table.rs",
    "crates/plainweave/src/stall/sample.rs",
    "crates/plainweave/src/sync/monitor.rs",
    "crates/plainweave/src/sync/mutex.rs",
    "crates/plainweave/src/sync/spin.rs",
    "crates/plainweave/src/thread.rs",
    "crates/plainweave/src/tls/absent.rs",
    "crates/plainweave/src/tls/own/base.rs",
    "crates/plainweave/src/tls/own/block.rs",
    "crates/plainweave/src/tls/own/glibc.rs",
    "crates/plainweave/src/worker.rs",
    "crates/plainweave/src/worker/reach.rs",
];

/// Where `thread_local!` may stand: each fiber sees its worker's, so each is a place to reason about.
pub(crate) const THREAD_LOCAL: &[&str] = &["crates/plainweave/src/block.rs", "crates/plainweave/src/fiber/mod.rs"];

/// What library code may do to the process or its terminal, and where: the messages of an abort.
pub(crate) const LAST_WORDS: &[(&str, &str)] = &[
    ("crates/plainweave/src/abort.rs", "stderr("),
    ("crates/plainweave/src/abort.rs", "process::abort"),
    ("crates/plainweave/src/stack/overflow.rs", "process::abort"),
];

/// Files that take atomics, cells and locks from `crate::shim` alone, so that loom checks the file that runs.
pub(crate) const LOCK_FREE: &[&str] = &[
    "crates/plainweave/src/queue/",
    "crates/plainweave/src/blocking/jobs.rs",
    "crates/plainweave/src/park.rs",
    "crates/plainweave/src/fiber/state.rs",
    "crates/plainweave/src/fiber/state/anchored.rs",
    "crates/plainweave/src/fiber/join.rs",
    "crates/plainweave/src/stall/board.rs",
    "crates/plainweave/src/sync/spin.rs",
    "crates/plainweave/src/worker/claim.rs",
    "crates/plainweave/src/monitor/bell.rs",
];

/// Lines in a file.
pub(crate) const FILE_LINES: usize = 500;
/// Lines in a file under a `tests` folder: a topic stays together there.
pub(crate) const TEST_LINES: usize = 800;
/// Files above that, with their length. The entry goes when the file is short enough.
pub(crate) const LONG_FILES: &[(&str, usize)] = &[];

/// Lines in a function, from `fn` to its closing brace.
pub(crate) const FUNCTION_LINES: usize = 70;

/// Characters in a line.
pub(crate) const LINE_WIDTH: usize = 120;

/// Words that are not used, in lower case, and what to write instead. Matched as whole words in any case.
pub(crate) const WORDS: &[(&str, &str)] = &[
    ("todo", "do it, or open an issue"),
    ("fixme", "fix it, or open an issue"),
    ("xxx", "say what is wrong, or open an issue"),
    ("dbg", "remove it"),
    ("util", "name it after what it does"),
    ("utils", "name it after what it does"),
    ("prelude", "import what you use by name"),
    ("green thread", "fiber"),
    ("green threads", "fibers"),
    ("greenlet", "fiber"),
    ("user-space thread", "fiber"),
    ("user-space threads", "fibers"),
    ("hack", "say what it works around"),
    ("sanity check", "check"),
    ("dummy", "say what it stands for"),
    ("whitelist", "allow list"),
    ("blacklist", "deny list"),
    ("blazing", "give the measured figure"),
    ("blazingly", "give the measured figure"),
    ("lightning", "give the measured figure"),
    ("seamless", "say what happens"),
    ("seamlessly", "say what happens"),
    ("leverage", "use"),
    ("powerful", "say what it can do"),
    ("world-class", "give the measured figure"),
    ("state-of-the-art", "name the work that is compared"),
];

/// Where a word of [`WORDS`] belongs to somebody else.
pub(crate) const QUOTED: &[&str] = &["proptest::prelude"];
