//! What the rules allow. Every list may shrink; whoever lengthens one says why in
//! `ARCHITECTURE.md`.

/// The layers of the runtime, top first: each row holds folders and files of
/// `crates/plainweave/src` that do not know each other. An import leads to a later row, or stays
/// within its folder. (The first row holds `lib.rs`, which names everything, and its files may know
/// each other.)
pub(crate) const LAYERS: &[&[&str]] = &[
    &[
        "", "entry", "fs", "net", "pipe", "pools", "process", "signal", "sim", "testing",
    ],
    &["sync"],
    &["builder", "dump", "trace"],
    &["runtime"],
    &["cancel", "future", "panics", "scope"],
    &[
        "blocking",
        "metrics",
        "thread",
        "time",
        "watchdog",
        "worker_local",
    ],
    &["sched"],
    &["fiber"],
    &["io", "policy"],
    &["queue"],
    &["atomics", "timer", "stack", "fiber_local"],
    &["abort", "aging", "context", "prefetch", "sys", "shim"],
];

/// The layers of one crate.
pub(crate) struct Layers {
    pub(crate) root: &'static str,
    /// As [`LAYERS`].
    pub(crate) rows: &'static [&'static [&'static str]],
}

/// The layers of all crates.
pub(crate) const CRATES: &[Layers] = &[
    Layers {
        root: "crates/plainweave/src/",
        rows: LAYERS,
    },
    Layers {
        root: "crates/plainweave-serve/src/",
        rows: &[
            &[""],
            &["accepting"],
            &["accept", "listeners", "pool"],
            &["idle", "latency", "listener", "per_cpu"],
        ],
    },
    Layers {
        root: "crates/plainweave-http/src/",
        rows: &[
            &[""],
            &["listen"],
            &["http1"],
            &["http2", "testing"],
            &["files", "server", "tls"],
            &["message"],
            &["limits", "transport"],
        ],
    },
    Layers {
        root: "crates/plainweave-cli/src/",
        rows: &[
            &[""],
            &["arguments"],
            &["bench", "generated", "sim"],
            &["beside", "policies", "tips"],
        ],
    },
    Layers {
        root: "crates/plainweave-cache/src/",
        rows: &[
            &[""],
            &["server"],
            &["operation"],
            &["service"],
            &["conn"],
            &["session"],
            &["exec_binary", "exec_meta"],
            &["admin", "exec"],
            &["dump", "stats", "status", "unread"],
            &["shared"],
            &["scratch", "settings"],
            &[
                "incoming",
                "listen",
                "memory_bound",
                "reply",
                "tally",
                "watch",
            ],
            &["flags"],
            &["access", "tls"],
            &["proto", "store", "users"],
            &[
                "clients",
                "details",
                "extended",
                "hotkeys",
                "memory_budget",
                "number",
                "pidfile",
                "pinned",
                "port_file",
                "version",
            ],
            &["certificates", "stream"],
        ],
    },
    Layers {
        root: "crates/plainweave-load/src/",
        rows: &[
            &[""],
            &["agent", "load"],
            &["agents", "http2", "page"],
            &["conduct", "link", "steps"],
            &["http", "report", "sweep"],
            &["cache", "own", "redirect", "request", "verdict", "watchers"],
            &["stream"],
            &["engine", "live", "summary", "target"],
            &["plan", "publish"],
            &["flags", "hdr_log", "live_metrics", "series"],
            &[
                "collect",
                "group",
                "interrupt",
                "rates",
                "reply",
                "response",
                "schedule",
                "sessions",
                "tally_json",
                "text",
                "tls",
            ],
            &[
                "connect_to",
                "data",
                "distribution",
                "exit",
                "files",
                "objective",
                "popularity",
                "ramp",
                "results",
                "session_log",
                "socket",
                "tally",
                "wire",
            ],
            &["clock"],
        ],
    },
    Layers {
        root: "crates/plainweave-web/src/",
        rows: &[
            &[""],
            &["fuzzing", "watch"],
            &["configured", "observe", "serve"],
            &["listen", "settings", "sites"],
            &["flags", "site_logs", "status", "upstream"],
            &["accept", "access", "heap", "http2", "tls"],
            &[
                "compress",
                "config",
                "content",
                "counters",
                "faults",
                "https",
                "in_progress",
                "line",
                "memory_bound",
                "pool",
                "proxy",
                "rotation",
                "slowest",
            ],
        ],
    },
    Layers {
        root: "crates/plainweave-daemon/src/",
        rows: &[
            &[""],
            &["status"],
            &["admin"],
            &["door", "fibers", "runtime_flags"],
            &["listening"],
            &["replace"],
            &["signals"],
            &["service_manager", "socket_file"],
            &["architecture"],
            &["doctor"],
            &["engine"],
            &["privileges", "trace_file"],
            &[
                "confinement",
                "console",
                "flag",
                "hooks",
                "memory_limit",
                "mode",
                "sharing",
                "stalls",
                "ticking",
            ],
        ],
    },
    Layers {
        root: "crates/plainweave-bench/src/",
        rows: &[
            &[""],
            &["pages"],
            &["scheduler", "servers"],
            &["serving"],
            &["harness"],
        ],
    },
    Layers {
        root: "crates/plainweave-report/src/",
        rows: &[
            &["dots", "gantt", "heat", "lines", "scatter"],
            &[""],
            &["axis", "statistics", "text"],
        ],
    },
    Layers {
        root: "crates/plainweave-sim/src/",
        rows: &[
            &["program"],
            &["faulty", "scenario", "search", "trial"],
            &["engine"],
            &["worker"],
            &["pools"],
            &["figures", "shim", "world"],
            &[
                "allocator",
                "check",
                "meter",
                "stacks",
                "timeline",
                "workload",
            ],
            &["lines", "machine", "task", "thesis"],
            &[""],
            &["atomics", "commit", "costs", "plot"],
        ],
    },
];

/// What a folder may import, where that is less than all that lies below it.
pub(crate) const NARROW: &[(&str, &[&str])] = &[
    ("atomics", &["shim"]),
    ("policy", &["queue", "shim"]),
    ("queue", &["prefetch", "shim"]),
    ("prefetch", &[]),
    ("shim", &[]),
];

/// Where `thread_local!` may stand: each fiber sees its worker's, so each is a place to reason
/// about.
pub(crate) const THREAD_LOCAL: &[&str] = &[
    "crates/plainweave/src/sched/wait.rs",
    "crates/plainweave/src/fiber/mod.rs",
    "crates/plainweave/src/worker_local.rs",
];

/// What library code may do to the process or its terminal, and where: the messages of an abort.
pub(crate) const LAST_WORDS: &[(&str, &str)] = &[
    ("crates/plainweave/src/abort.rs", "stderr("),
    ("crates/plainweave/src/abort.rs", "process::abort"),
    // A command's methods, with the names that `std` gives them.
    ("crates/plainweave/src/process.rs", "stdout("),
    ("crates/plainweave/src/process.rs", "stderr("),
    ("crates/plainweave/src/stack/overflow.rs", "process::abort"),
    // What a test says is printed: `#[plainweave::test]`.
    ("crates/plainweave/src/testing/child.rs", "stdout("),
    ("crates/plainweave/src/testing/child.rs", "stderr("),
    ("crates/plainweave/src/testing/parent.rs", "print!"),
    ("crates/plainweave/src/testing/parent.rs", "eprint!"),
    ("crates/plainweave/src/testing/parent.rs", "eprintln!"),
];

/// Files that take atomics, cells and locks from `crate::shim` alone, so that loom checks the file
/// that runs.
pub(crate) const LOCK_FREE: &[&str] = &[
    "crates/plainweave/src/queue/",
    "crates/plainweave/src/atomics/",
];

/// Files that import each other in a circle, each group in order. `ARCHITECTURE.md` names them and
/// gives the reason.
pub(crate) const CYCLES: &[&[&str]] = &[];

/// Files that every change of the scheduler has to understand.
pub(crate) const HARD_FILES: &[&str] = &[
    "crates/plainweave/src/sched/pool.rs",
    "crates/plainweave/src/sched/wait.rs",
    "crates/plainweave/src/sched/worker.rs",
];
/// The least share of lines with comments in them, without blank lines.
pub(crate) const COMMENT_PERCENT: usize = 31;

/// Lines in a file, without blank ones.
pub(crate) const FILE_LINES: usize = 860;
/// Lines in a file under a `tests` folder: a topic stays together there.
pub(crate) const TEST_LINES: usize = 920;
/// Files above that, with their length. The entry goes when the file is short enough.
pub(crate) const LONG_FILES: &[(&str, usize)] =
    &[("crates/plainweave-bench/tests/it/tiny.rs", 1564)];

/// Lines in a function, from `fn` to its closing brace, without blank ones.
pub(crate) const FUNCTION_LINES: usize = 100;
/// Functions above that, with their length. The entry goes when the function is short enough.
pub(crate) const LONG_FUNCTIONS: &[(&str, &str, usize)] = &[
    (
        "crates/plainweave-bench/src/servers/cache_sweep.rs",
        "run",
        110,
    ),
    (
        "crates/plainweave-bench/src/scheduler/thesis.rs",
        "run",
        104,
    ),
    (
        "crates/plainweave-bench/src/servers/web_sweep.rs",
        "run",
        106,
    ),
    (
        "crates/plainweave-bench/tests/it/web.rs",
        "every_case_gives_its_rows",
        113,
    ),
    (
        "crates/plainweave-cache/src/store/tests/random.rs",
        "run",
        121,
    ),
    (
        "crates/plainweave-cli/tests/it/load_http2.rs",
        "answers_come_by_tls_and_in_clear_text",
        130,
    ),
    (
        "crates/plainweave-sim/tests/it/program.rs",
        "bad_values_are_refused_with_what_is_allowed",
        115,
    ),
    (
        "crates/plainweave-sim/tests/it/program.rs",
        "a_wrong_scenario_is_refused_with_its_line",
        104,
    ),
];

/// Characters in a line.
pub(crate) const LINE_WIDTH: usize = 100;
/// Characters in a line that rustfmt leaves as it is: one with a text in it, a row of a table, a part
/// of a macro.
pub(crate) const UNBROKEN_WIDTH: usize = 120;
/// How many of those there are. It only ever goes down.
pub(crate) const UNBROKEN_LINES: usize = 499;

/// The least share of blank lines in functions.
pub(crate) const BLANK_PER_MILLE: usize = 43;
/// Lines that bind several values at once: `let (a, b) = (1, 2)`.
pub(crate) const TUPLE_LETS: usize = 27;
/// Names of types that are declared more than three times.
pub(crate) const NAMES_DECLARED_OFTEN: usize = 71;

/// Words that are not used, in lower case, and what to write instead. Matched as whole words in any
/// case.
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
    ("anchored", "pinned"),
    ("anchor", "pin"),
    ("parked connection", "idle connection"),
    ("parked connections", "idle connections"),
    ("park protocol", "sleep protocol"),
    ("time-out", "timeout"),
    ("time-outs", "timeouts"),
    ("look-up", "lookup"),
    ("look-ups", "lookups"),
    ("pre-emption", "preemption"),
    ("pre-emptions", "preemptions"),
    ("to be had", "available"),
    ("by turns", "alternately"),
    ("for want of", "without"),
    ("of its own accord", "by itself"),
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

/// Phrases that are not used, in lower case, and what to write instead. Matched anywhere in a line,
/// in any case.
pub(crate) const PHRASES: &[(&str, &str)] = &[
    (
        "/// any thread.",
        "begin with a verb; who may call is the last line, `Context: ...`",
    ),
    (
        "/// any thread or fiber.",
        "begin with a verb; who may call is the last line, `Context: ...`",
    ),
    (
        "/// a fiber. ",
        "begin with a verb; who may call is the last line, `Context: ...`",
    ),
    (
        "/// owner only.",
        "begin with a verb; who may call is the last line, `Context: ...`",
    ),
    (
        "/// the worker. ",
        "begin with a verb; who may call is the last line, `Context: ...`",
    ),
    (
        "see the module's page",
        "say what it is: rustdoc does not render private modules",
    ),
    ("whether it was so", "Returns whether ..."),
    ("is told", "is notified, is reported, is logged"),
    ("so many ", "`n`"),
    (
        "design d",
        "say the thing itself: that page is not in the repository",
    ),
    ("hand-over", "handoff"),
];

/// Where a word of [`WORDS`] belongs to somebody else.
pub(crate) const QUOTED: &[&str] = &[
    "proptest::prelude",
    "core::prelude::v1::test",
    "text-anchor",
];
