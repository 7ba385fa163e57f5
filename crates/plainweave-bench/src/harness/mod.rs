//! What every experiment needs: figures and where they go, children, the machine.

// How far apart the CPUs are: the round trip of a cache line between CPU 0 and CPU 1.
pub(crate) mod c2c;
pub(crate) mod cgroup; // A control group around a process.
pub(crate) mod child; // A repetition in a process of its own.
// How far a measurement is: what is measured now, and about how long the rest takes.
pub(crate) mod course;
pub(crate) mod descriptors; // The bound on descriptors, for this process and those that it starts.
pub(crate) mod experiment; // What the flags of all experiments have in common.
pub(crate) mod findings; // What an experiment has found so far.
pub(crate) mod interrupt; // SIGINT and SIGTERM in the middle of an experiment.
pub(crate) mod machine; // What the figures were measured on.
pub(crate) mod mode; // When measured fibers move, and whose thread-local storage they see.
pub(crate) mod names; // Names that a flag lists.
// Programs in other languages, built from the sources beside this crate where their compilers are.
pub(crate) mod program;
pub(crate) mod quick; // `--quick`: an answer within about five minutes, from every experiment.
pub(crate) mod random; // Random numbers for the workloads.
// Where figures go: a table on the terminal, a CSV and a self-contained HTML page.
pub(crate) mod report;
pub(crate) mod sample; // One measured figure, and the rows of the long-form CSV.
pub(crate) mod source; // What the benches have written: the reader of their files.
pub(crate) mod turns; // Turns of a long experiment, kept as they come.
