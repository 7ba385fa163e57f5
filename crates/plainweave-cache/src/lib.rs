//! A cache that clients of memcached's protocol reach: as a library, and as `plainweave cache`.
//!
//! [`Server`] serves on the fibers of any runtime, and [`store`] keeps items without fibers or I/O,
//! for a cache within one process. `run` is the program.
//!
//! `proto` reads commands, `exec` carries them out, `session` joins the two for one connection;
//! none of them does I/O. `conn` is the loop of a connection, `service` the glue to the runtime.
//! What is counted on the way is in `tally`, `hotkeys` and `details`, and goes out by `stats`,
//! `admin` and `watch`. `unread` bounds what clients that do not read may keep.

mod access; // The flags that say who may use the cache, and in which language.
mod admin; // What the admin address (`plainweave_daemon::admin`) shows of a cache.
mod certificates; // What TLS is made from, and which listener has how much of it.
mod clients; // The connections there are: how many, who, and what happens when there are too many.
mod conn; // The life of a connection: read commands, execute, write replies.
mod details; // `stats detail`: figures by key prefix, when they are switched on.
mod dump; // `lru_crawler metadump` and `mgdump`: a line for each item.
mod exec; // Carrying out commands on the store, and wording the replies.
mod exec_binary; // The commands of the binary protocol.
mod exec_meta; // The meta commands.
mod extended; // memcached's extended options, `-o a,b=1`.
mod flags; // The flags of `plainweave cache`: memcached's letters, and a few long ones of our own.
mod hotkeys; // The keys asked for most, of a sample.
mod incoming; // The bytes of a value that has not come in full.
mod listen; // The sockets that are listened on.
mod memory_bound; // What the cache takes on beside the store, within the process's memory limit.
// The budget for memory that connections take beyond their fixed buffers and outside the store.
mod memory_budget;
mod number; // Numbers as memcached reads them.
mod operation; // The program's cache: on its runtimes, with what an operator has of it.
mod pidfile; // The file with the process's number, `-P`.
mod pinned; // The segments of the store that unread replies hold.
// The file with the ports that are listened on, for a script that had a free one chosen (`-p -1`).
mod port_file;
mod proto; // memcached's protocols without I/O.
mod reply; // Replies on their way out: bytes, and long values that are not copied.
mod scratch; // What a connection borrows while it is busy.
mod server; // A cache in a program of one's own.
mod service; // What runs the connections: fibers.
mod session; // One connection's place in the protocol: input in, replies out, no I/O.
// The settings of a running cache, for commands to look up and for `stats settings` to show.
mod settings;
mod shared; // What all connections of the cache server share.
mod stats; // `stats`, in memcached's names.
// What the page in the browser shows of the cache besides what it shows of both servers
// (`plainweave_daemon::status`).
mod status;
pub mod store; // The store of the cache server.
mod stream; // The stream of a connection: a socket, or TLS on one.
mod tally; // Counters, written by one and read by all.
#[cfg(feature = "tls")]
mod tls; // TLS by memcached's options.
#[cfg(not(feature = "tls"))]
#[path = "tls_absent.rs"]
mod tls;
mod unread; // Sending replies, and what becomes of those that a client does not take.
mod users; // Who may use the cache: names and passwords from a file (`-Y`).
mod version; // What the cache says that it is.
mod watch; // `watch`: events as lines, for clients that asked for them.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::{io, thread};

use anyhow::{Context, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub use flags::Flags;
use memory_bound::MemoryBound;
use pidfile::PidFile;
use plainweave_daemon::architecture::Runtimes;
use plainweave_daemon::confinement::{Confinement, Needs, confine};
use plainweave_daemon::console::say;
use plainweave_daemon::doctor::{self, ServerPlan};
use plainweave_daemon::engine::Setup;
use plainweave_daemon::hooks::Hooks;
use plainweave_daemon::memory_limit::{MemoryLimit, count};
use plainweave_daemon::privileges;
use plainweave_daemon::replace::{Inherited, Offer};
use plainweave_daemon::signals::{Attention, Stop};
use plainweave_daemon::stalls::Stalls;
use plainweave_daemon::trace_file::TraceFile;
pub use server::{Options, Server};
use settings::Settings;
pub(crate) use shared::Cache;

/// Descriptors beside those of connections: listeners, standard streams, the admin address; a
/// worker has its own.
const OTHER_DESCRIPTORS: usize = 32;

/// Serves as `plainweave cache` does, until a signal asks to stop.
///
/// # Errors
/// A flag's value is out of range, an address cannot be listened on, or a runtime not be started:
/// the text says what to do.
pub fn run(flags: &Flags) -> anyhow::Result<()> {
    let confined = (!flags.license && !flags.doctor.doctor).then(|| confined(flags));
    let confined = confined.map(|confined| format!(", {confined}"));
    serve(flags, Hooks::NONE, &confined.unwrap_or_default())
}

/// Serves as [`run`] does, with what a program around it adds, which is not confined.
///
/// # Errors
/// As [`run`].
pub fn run_with(flags: &Flags, hooks: &Hooks) -> anyhow::Result<()> {
    serve(flags, hooks, "")
}

fn serve(flags: &Flags, hooks: &Hooks, confined: &str) -> anyhow::Result<()> {
    let engine = &flags.engine;
    if flags.license {
        say(io::stdout(), version::LICENSE);
        return Ok(());
    }

    if let Some(remedy) = flags.absent.given() {
        bail!("{remedy}");
    }
    let workers = engine.runtime.workers;
    let workers = workers.or(thread::available_parallelism().ok());
    let workers = workers.unwrap_or(NonZeroUsize::MIN);
    if flags.doctor.doctor {
        return examine(flags, workers);
    }
    let config = store_config(flags, workers);
    let memory = MemoryLimit::choose(flags.limits.max_memory);
    let memory = MemoryBound::new(memory, &config, flags.listen.enable_ssl);
    let mut settings = Settings::of(flags, workers.get(), &memory);
    // As whoever started this: the other server may be that user's.
    let replace = flags.replace.replace.as_deref();
    let architecture = engine.serving.architecture.architecture;
    let mut inherited = Inherited::find("cache", replace, architecture)?;
    // By the time that there is a thread, root may have been given up, which alone can raise some
    // limits.
    let others = other_descriptors(flags, workers);
    settings.connections = connections(settings.connections, others);

    // As in memcached, before anything is opened: the files of -s and -P are the user's, and a port
    // below 1024 is out of reach.
    privileges::assume("plainweave cache", engine.user.as_deref(), &[])?;
    let policy = engine.runtime.policy.as_deref();
    let stalls = engine.serving.report_stalls.then(Arc::<Stalls>::default);
    let mode = engine.mode();
    let io = engine.runtime.io;
    let traced = engine.serving.trace.is_some();
    let setup = Setup {
        name: "cache",
        workers: Some(workers),
        io,
        policy,
        mode,
        hooks,
        stalls: stalls.as_ref(),
        traced,
    };

    let runtimes = Runtimes::start(setup, architecture, None)?;
    settings.runtime = runtimes.labels();
    let trace = engine.serving.trace.as_deref();
    let trace = trace.map(|path| TraceFile::open(path, runtimes.tracers()));
    let trace = trace.transpose()?.map(Arc::new);
    warn_of_memory(&memory, &config);
    let bounds = memory.description(settings.connections);
    let (mut cache, asked) = Cache::new(config, settings);
    cache.users = flags.access.users()?;
    show_details(&mut cache, flags.allowed.prefix_delimiter)?;
    cache.handling = runtimes.handling(hooks);
    let listeners = listen::all(&flags.listen, &mut inherited)?;
    cache.addresses = listeners.addresses();
    cache.has_unix = listeners.unix.is_some();
    cache.tls = listeners.tls(&flags.limits.extended().certificates, workers)?;
    if let Some(bytes) = memory.socket_buffers {
        listeners.bound_buffers(bytes)?;
    }
    listen::warn_of_root(&listeners, cache.users.is_some());
    port_file::write(&listeners.tcp);
    let stop = Stop::install().context("the signals could not be caught")?;

    warn_of_meaningless(flags);
    let mut pidfile = engine.pidfile.as_deref().map(PidFile::write).transpose()?;
    let line = format!("plainweave cache: {listeners} ({runtimes}, {bounds}{confined})");
    let server = operation::Operation::new(runtimes, cache, stalls);
    let attention = Attention::pay(server.operated(trace.clone()));
    let _attention = attention.context("the signals could not be caught")?;

    let sockets = listeners.descriptors()?;
    let stop_asker = stop.asker()?;
    let begin = |adopt| {
        let offer = Offer::begin(
            "cache",
            inherited,
            replace,
            sockets,
            stop_asker,
            Some(adopt),
        )?;
        pidfile.iter_mut().for_each(PidFile::succeed);
        say(io::stdout(), &line);
        Ok(offer)
    };
    let finished = server.run(listeners, stop, asked, flags.limits.grace, begin)?;

    drop(pidfile);
    TraceFile::write_last(trace.as_deref(), "plainweave cache");
    if !finished {
        say(
            io::stderr(),
            "plainweave cache: stopped with commands in progress; --grace gives them longer",
        );
    }

    Ok(())
}

/// Gives up what serving does not need.
fn confined(flags: &Flags) -> Confinement {
    let engine = &flags.engine;
    let port_file = port_file::path();
    let written = [
        &flags.listen.unix_socket,
        &flags.replace.replace,
        &engine.pidfile,
        &engine.serving.trace,
        &port_file,
    ];
    let written = written.into_iter().flatten().map(PathBuf::as_path);
    let needs = Needs {
        written: written.collect(),
        connects: false,
    };
    confine(flags.confinement, &needs)
}

fn warn_of_memory(memory: &MemoryBound, config: &store::Config) {
    if let Some(warning) = memory.warning(config) {
        say(io::stderr(), &format!("plainweave cache: {warning}"));
    }
}

/// Says what the machine allows a server with these flags, and what to change.
fn examine(flags: &Flags, workers: NonZeroUsize) -> anyhow::Result<()> {
    let engine = &flags.engine;
    let config = store_config(flags, workers);
    let memory = MemoryLimit::choose(flags.limits.max_memory);
    let bound = MemoryBound::new(memory.clone(), &config, flags.listen.enable_ssl);
    let settings = Settings::of(flags, workers.get(), &bound);
    let architecture = engine.serving.architecture.architecture;
    let mut inherited = Inherited::find("cache", None, architecture)?;
    let asked = settings.connections;
    let connections = connections(asked, other_descriptors(flags, workers));
    let assumed = privileges::assume("plainweave cache", engine.user.as_deref(), &[]);

    let listeners = assumed.and_then(|()| listen::all(&flags.listen, &mut inherited));
    let certificates = flags.limits.extended().certificates;
    let files = || {
        flags.access.users()?;
        if let Ok(listeners) = &listeners {
            listeners.tls(&certificates, workers)?;
        }
        Ok("and the files that they name can be used".to_owned())
    };
    doctor::examine(&ServerPlan {
        flags: files(),
        listening: listeners.map(|listeners| listeners.to_string()),
        replace: flags.replace.replace.clone(),
        connections,
        asked_connections: Some(asked),
        backlog: u32::try_from(settings.backlog).ok(),
        is_usual_backlog: settings.backlog == Settings::default().backlog,
        workers: workers.get(),
        io: engine.runtime.io,
        mode: engine.mode(),
        memory,
        shortage: bound.warning(&config),
        user: engine.user.clone(),
    })
}

/// Returns the descriptors beside those of connections.
fn other_descriptors(flags: &Flags, workers: NonZeroUsize) -> usize {
    let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let spare = flags.engine.mode().spare_descriptors(count(most));
    OTHER_DESCRIPTORS + 3 * workers.get() + spare
}

/// Has figures by key prefix shown, if a flag says where a prefix ends.
fn show_details(cache: &mut Cache, delimiter: Option<char>) -> anyhow::Result<()> {
    if let Some(delimiter) = delimiter {
        let delimiter = u8::try_from(delimiter).context("-D takes one ASCII character")?;
        cache.details = details::Details::new(delimiter, true);
    }
    Ok(())
}

/// Returns what the store is to be like.
fn store_config(flags: &Flags, workers: NonZeroUsize) -> store::Config {
    let usual = store::Config::default();
    let small_percent = flags.limits.extended().hot_lru_pct;
    store::Config {
        memory: (flags.memory.memory_limit.get() as usize) << 20,
        item_max: flags.memory.max_item_size,
        evict: !flags.memory.disable_evictions,
        // A single worker shares with the maintenance only, which it runs itself.
        shards: if workers == NonZeroUsize::MIN {
            1
        } else {
            4 * workers.get()
        },
        small_percent: small_percent.unwrap_or(usual.small_percent),
    }
}

/// Says which of the flags are for memcached's sake alone.
fn warn_of_meaningless(flags: &Flags) {
    let extended = flags.limits.extended();
    if extended.certificates.is_given() && !flags.listen.enable_ssl {
        say(
            io::stderr(),
            "plainweave cache: the options of TLS have no effect without -Z",
        );
    }
    for name in flags
        .meaningless
        .given()
        .into_iter()
        .chain(extended.meaningless.iter().map(String::as_str))
    {
        say(
            io::stderr(),
            &format!("plainweave cache: {name} is accepted but has no effect"),
        );
    }
}

/// Raises the limit on descriptors to what `wanted` connections take, beside `others`. Says so if
/// they do not fit, and how many do.
fn connections(wanted: usize, others: usize) -> usize {
    let needed = wanted.saturating_add(others) as u64;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|now| now < needed) {
        // Only root may raise the upper limit, too.
        let root = Rlimit {
            current: Some(needed),
            maximum: limit.maximum.map(|most| most.max(needed)),
        };

        if setrlimit(Resource::Nofile, root).is_err() {
            let _ = setrlimit(
                Resource::Nofile,
                Rlimit {
                    current: limit.maximum,
                    maximum: limit.maximum,
                },
            );
        }
    }

    let allowed = getrlimit(Resource::Nofile)
        .current
        .map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let fit = wanted.min(allowed.saturating_sub(others).max(1));
    if fit < wanted {
        let text = format!(
            "plainweave cache: -c {wanted} needs {needed} descriptors, and {allowed} are allowed"
        );
        say(
            io::stderr(),
            &format!(
                "{text}: {fit} connections at a time (raise `ulimit -n`, or LimitNOFILE= of systemd)"
            ),
        );
    }

    fit
}

#[cfg(test)]
mod tests;
