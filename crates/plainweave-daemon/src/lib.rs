//! What the server programs share, and what an operator finds alike in all of them: the flags that
//! choose a runtime, how they listen, the admin address and its page, signals, limits of memory,
//! reports of stalls.
//!
//! A program's own crate has its flags and its figures, and asks this one for everything that the
//! other has too.

pub mod admin; // The admin address of a server.
pub mod architecture; // What serves a connection (`--architecture`).
pub mod confinement; // What a server may do to the machine, once it runs.
pub mod console; // Printing lines to the operator, on standard output or standard error.
// `--doctor`: what this machine allows a server, and what to change.
pub mod doctor;
pub mod door; // A listener of a server: connections run where its architecture has them.
pub mod engine; // What all servers choose of the runtime, and how they say so in their first line.
pub mod fibers; // Dumps of a server's fibers.
pub mod flag; // Values that flags of several subcommands take.
pub mod hooks; // What a program around a server adds to it.
pub mod listening; // How the servers open listening sockets, and accept.
pub mod memory_limit; // How much memory the process may take.
// `--mode`: when fibers may move between workers, and whose thread-local storage they see.
pub mod mode;
pub mod privileges; // Root becomes another user.
pub mod rate; // How often one address may ask.
// `--replace`: a new server takes over the sockets of the one that runs.
pub mod replace;
// The flags that choose a runtime, of the servers and of the load generators.
pub mod runtime_flags;
pub mod service_manager; // Reports to the service manager that started the server.
pub mod sharing; // Which listening sockets are not this process's alone.
pub mod signals; // What signals mean to the servers; `docs/signals.md` has the same table.
pub mod socket_file; // The files of Unix sockets, which go with their servers.
pub mod stalls; // Reports of stalls: on standard error, and the last ones for the admin address.
// The page in the browser at the admin address of both servers, and the figures that it asks for
// once a second.
pub mod status;
pub mod ticking; // A thread that does something now and then.
// `--trace`: the file that a server's trace is written to, on SIGUSR2 and at its end.
pub mod trace_file;
