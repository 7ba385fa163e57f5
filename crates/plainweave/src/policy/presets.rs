//! The policies that have a name: a table.

/// A policy that has a name.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// The name to choose it by.
    pub name: &'static str,
    /// The family it belongs to: which types of policy, which parameters.
    pub family: &'static str,
    /// How it differs from the family's defaults, as it would be written after the name.
    pub settings: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// What speaks for it and what against it.
    pub tradeoff: &'static str,
    /// Whether every ready task runs after a bounded number of pops by workers that may take it, whatever others do.
    pub bounded: bool,
}

/// The policies that can be chosen by name; the first is the default.
pub const PRESETS: &[Preset] = &[
    row(
        "fifo",
        "stealing",
        "",
        true,
        "Go and Tokio without their slot",
        "fair, good at the tail; woken tasks are cold",
    ),
    row(
        "lifo-slot",
        "stealing",
        "slot=3",
        true,
        "Tokio's slot, made stealable",
        "message and receiver meet in the cache; a thief may part them",
    ),
    row(
        "lifo",
        "stealing",
        "order=lifo",
        false,
        "OCaml schedulers' thesis, and fork-join since Cilk",
        "depth first, warm data, few tasks alive; the oldest may wait for ever",
    ),
    row("global-fifo", "global", "", true, "Linux before 2.6, Go before 1.1", "the fairest; one lock for all"),
    row("local-fifo", "local", "", true, "an event loop per core", "nothing shared; nobody helps a busy worker"),
    row(
        "local-lifo",
        "local",
        "order=lifo",
        false,
        "the same",
        "warm data; nobody helps, the oldest may wait for ever",
    ),
];

const fn row(
    name: &'static str,
    family: &'static str,
    settings: &'static str,
    bounded: bool,
    source: &'static str,
    tradeoff: &'static str,
) -> Preset {
    Preset { name, family, settings, source, tradeoff, bounded }
}
