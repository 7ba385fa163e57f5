//! `plainweave web`: the static web server.

mod accept; // The listeners: what the library's do not know of.
mod access; // The access log, off the hot path.
mod compress; // Content codings: what text is compressed by.
mod config; // The file of the configuration.
mod configured; // What the configuration comes to: the sites.
mod content; // What is sent beside the files as they are.
mod counters; // What the server has done, in numbers, for the admin address.
mod faults; // Server-side faults, reported on standard error.
mod flags; // The flags of `plainweave web`, as data.
// What is claimed of any configuration, for the fuzz targets.
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod heap; // Gives memory back to the kernel after a crowd.
#[cfg(feature = "http2")]
mod http2; // HTTP/2: its flag, and what that means for the library.
#[cfg(not(feature = "http2"))]
#[path = "http2_absent.rs"]
mod http2;
mod https; // From HTTP to HTTPS.
mod line; // A line of the access log.
mod listen; // Listening sockets, with a remedy in each error.
mod memory_bound; // What the web server takes on within the process's memory limit.
mod observe; // What an operator sees: the access log and the admin address.
mod pool; // Where file operations run.
// A proxy in front: how it says whose connection or request it passes on, and who is believed.
mod proxy;
mod rotation; // Rotation of log files by size.
mod serve; // The handler of all requests, and the runtimes on which it serves.
mod settings; // The file, the environment and the flags: one set of settings.
mod site_logs; // Access logs of sites.
mod sites; // The sites that are served, and their rules.
mod slowest; // The slowest requests of the last minute, one for each path.
// What the page in the browser shows of the web server besides what it shows of both
// (`plainweave_daemon::status`).
mod status;
#[cfg(feature = "tls")]
mod tls; // TLS: its flags, and what they make of the library's acceptor.
#[cfg(not(feature = "tls"))]
#[path = "tls_absent.rs"]
mod tls;
mod upstream; // Applications behind the server.
mod watch; // A watch of the configuration's file.

use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context, ensure};
use plainweave_http::files::{Caching, DiskWaits};
use plainweave_http::{Address, Server};
use plainweave_serve::accept::{ConnectionLimit, InProgress, MOST};
use rustix::fs::Access;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::SockRef;

use accept::Admission;
use access::AccessLog;
use configured::{Reload, Resources, sites};
use faults::Faults;
use flags::Addresses;
pub use flags::Flags;
use heap::HeapKeeper;
use listen::Listeners;
use memory_bound::{Each, MemoryBound};
use observe::{Observation, Observers, Shown};
use plainweave_daemon::architecture::{Architecture, Runtimes};
use plainweave_daemon::confinement::{Confinement, Needs, confine};
use plainweave_daemon::console::say;
use plainweave_daemon::doctor::{self, ServerPlan};
use plainweave_daemon::fibers;
use plainweave_daemon::hooks::Hooks;
use plainweave_daemon::memory_limit::MemoryLimit;
use plainweave_daemon::privileges;
use plainweave_daemon::replace::{self, Inherited, Offer};
use plainweave_daemon::service_manager;
use plainweave_daemon::signals::{self, Attention, Stop, Wish};
use plainweave_daemon::stalls::Stalls;
use plainweave_daemon::ticking::Ticking;
use plainweave_daemon::trace_file::TraceFile;
pub use settings::{Arguments, GivenSettings, arguments};
use settings::{Gathered, schema, shown};
use site_logs::SiteLogs;
use sites::{Live, Sites};
use tls::Tls;

/// Descriptors that are not connections: drivers, listeners, logs, lookups in progress.
const OTHER_DESCRIPTORS: usize = 64;

/// Serves until a signal asks to stop, or does what else the flags say. `settings`: those that
/// [`arguments`] has found with these flags.
pub fn run(flags: &Flags, settings: GivenSettings) -> anyhow::Result<()> {
    let Some(gathered) = settings.0 else {
        return run_with(flags, Hooks::NONE);
    };
    if flags.config.print_config {
        say(io::stdout(), shown(&gathered)?.trim_end());
        return Ok(());
    }
    if flags.config.print_schema {
        say(io::stdout(), &format!("{:#}", schema()));
        return Ok(());
    }
    if flags.config.check {
        say(io::stdout(), &checked(&gathered, flags)?);
        return Ok(());
    }

    if flags.doctor.doctor {
        return doctor::examine(&plan(flags, &gathered)?);
    }

    let confined = confined(flags, &gathered);
    let has_file = flags.config.config.is_some();
    let gathered = Some(gathered).filter(|_| has_file);
    serve(flags, gathered, Hooks::NONE, &format!(", {confined}"))
}

/// Serves as [`run`] does, by flags alone, with what a program around it adds.
pub fn run_with(flags: &Flags, hooks: &Hooks) -> anyhow::Result<()> {
    let asked = &flags.config;
    ensure!(
        asked.config.is_none()
            && !asked.check
            && !asked.print_config
            && !asked.print_schema
            && !flags.doctor.doctor,
        "a configuration and --doctor are for 'plainweave web' itself"
    );
    serve(flags, None, hooks, "")
}

/// Returns what the flags ask of the machine, and what came of trying.
fn plan(flags: &Flags, gathered: &Gathered) -> anyhow::Result<ServerPlan> {
    let serving = &flags.engine.serving;
    let architecture = serving.architecture.architecture;
    let memory = memory_bound(flags, architecture);
    let mut inherited = Inherited::find("web", None, architecture)?;
    let addresses = flags.addresses(&mut inherited)?;
    let open_files = flags.caching.caching(memory.cache).open_files;
    let connections = max_connections(flags, &addresses, open_files, &memory);
    let listening = Listeners::bind(&addresses, flags.unix_mask, &mut inherited);
    let listening = listening.and_then(|_open| {
        let admin = addresses.admin.iter();
        admin
            .clone()
            .try_for_each(|address| listen::bind(*address, &mut inherited).map(drop))?;
        let all = addresses.plain.iter().chain(&addresses.tls).chain(admin);
        let all = all.map(ToString::to_string);
        let unix = addresses.unix.iter().map(|path| path.display().to_string());
        let all: Vec<_> = all.chain(unix).collect();
        Ok(format!("listening on {}", all.join(" ")))
    });
    let workers = flags.engine.runtime.workers;
    let workers = workers.or(std::thread::available_parallelism().ok());

    Ok(ServerPlan {
        flags: checked(gathered, flags),
        listening,
        replace: flags.replace.replace.clone(),
        connections,
        asked_connections: flags.limits.max_connections.map(NonZeroUsize::get),
        backlog: None,
        is_usual_backlog: true,
        workers: workers.map_or(1, NonZeroUsize::get),
        io: flags.engine.runtime.io,
        mode: flags.engine.mode(),
        memory: MemoryLimit::choose(flags.limits.max_memory),
        shortage: memory.warning(),
        user: flags.user.clone(),
    })
}

/// Gives up what serving does not need. A file whose configuration has a mistake is said to later.
fn confined(flags: &Flags, gathered: &Gathered) -> Confinement {
    let tables = gathered.tables().unwrap_or_default();
    // Without a file there are no sites.
    let file = gathered.file().map_or(Path::new(""), |(file, _)| file);
    let of_sites = tables.site.iter();
    let of_sites = of_sites.filter_map(|site| site.get_ref().access_log.as_ref());
    let of_sites = of_sites.map(|log| config::log_beside(file, log.get_ref()));
    let of_sites: Vec<_> = of_sites.collect();

    let written = [
        &flags.observation.access_log,
        &flags.unix_socket,
        &flags.replace.replace,
        &flags.engine.serving.trace,
    ];
    let written = written.into_iter().flatten().chain(&of_sites);
    let needs = Needs {
        written: written.map(PathBuf::as_path).collect(),
        connects: true,
    };
    confine(flags.confinement, &needs)
}

fn serve(
    flags: &Flags,
    gathered: Option<Gathered>,
    hooks: &Hooks,
    confined: &str,
) -> anyhow::Result<()> {
    let serving = &flags.engine.serving;
    let stalls = serving.report_stalls.then(Arc::<Stalls>::default);
    let engine = engine(flags, hooks, stalls.as_ref())?;
    let trace = trace(flags, &engine)?;
    let architecture = serving.architecture.architecture;
    let replace = flags.replace.replace.as_deref();
    let mut inherited = Inherited::find("web", replace, architecture)?;
    let addresses = flags.addresses(&mut inherited)?;
    let memory = memory_bound(flags, architecture);
    let caching = flags.caching.caching(memory.cache);
    let max_connections = max_connections(flags, &addresses, caching.open_files, &memory);
    let in_progress = Arc::new(InProgress::new(memory.requests));
    let handshakes = Arc::new(InProgress::new(memory.handshakes));
    let faults = Arc::new(Faults::new());
    let disk_waits = disk_waits(&faults);

    flags.tls.check(&addresses.plain)?;
    let site_logs = SiteLogs::new(faults.clone(), false, flags.observation.rotation());
    let resources = Resources::new(caching, &faults, &disk_waits, site_logs, engine.workers());
    let site_logs = gathered.is_some().then(|| resources.logs().clone());
    let private = flags.are_private(&addresses);
    let live = sites(gathered.as_ref(), flags, private, &resources, None)?;
    let live = Live::new(live);
    let tls = flags.tls.load(engine.workers(), flags.http2.is_on())?;
    let listeners = Listeners::bind(&addresses, flags.unix_mask, &mut inherited)?;
    let web = engine.web(live.clone(), hooks, flags.tls.https(listeners.tls_port()));
    let server = Server::new(web).with_limits(flags.limits(&memory, max_connections));
    let connection_limit = server.connection_limit().clone();
    let server = server.with_name(concat!("plainweave/", env!("CARGO_PKG_VERSION")))?;
    let observation = &flags.observation;
    let observers = Observers::start(observation, &faults, addresses.admin, &mut inherited)?;
    let server = flags.proxy.apply(server);
    let server = bounded(server, architecture, &in_progress, &handshakes, &faults);
    let server = with_bodies(server, gathered.is_some().then(|| live.clone()));
    let configured = site_logs.as_deref().map(|logs| (&live, logs));
    let server = Arc::new(observers.watch(server, faults.clone(), configured));

    prepare(&listeners, &memory, &connection_limit)?;
    privileges::assume("plainweave web", flags.user.as_deref(), &listeners.files())?;
    let stop = Stop::install().context("the signals could not be caught")?;
    warn(&memory);
    let bounds = memory.description(in_progress.max());
    let how = format!("{engine}, up to {max_connections} connections, {bounds}{confined}");
    let reload = gathered.map(|started| Reload::new(live.clone(), resources, private, started));
    let reload = reload.map(Arc::new);
    let ticking = ticking(flags, reload.as_ref(), &live)?;
    let operated = Operated {
        log: observers.access_log(),
        connection_limit: connection_limit.clone(),
        runtimes: engine.runtimes(),
        trace: trace.clone(),
        tls: tls.clone(),
        sites: live.clone(),
        site_logs: site_logs.clone(),
        reload,
    };

    let attention = Attention::pay(operated).context("the signals could not be caught")?;
    let line = start_line(flags, &live.now(), private, &listeners, &how, &observers)?;
    let sockets = listeners.descriptors()?.into_iter();
    let sockets = sockets.chain(observers.descriptor()?).collect();
    let admission = Admission {
        connection_limit,
        in_progress,
        handshakes,
        send_buffers: memory.send_buffers,
    };

    let shown = Shown {
        admission: admission.clone(),
        runtimes: engine.runtimes(),
        listeners: listeners.handles()?,
        disk_waits,
        stalls,
        tls: tls.clone(),
        sites: live,
        site_logs: site_logs.clone(),
    };

    let observation = observers.open(&server, shown)?;
    let heap = HeapKeeper::start(admission.in_progress.clone());
    let (listeners, _socket_file) = listeners.with(tls.as_ref())?;
    let offer = Offer::begin("web", inherited, replace, sockets, stop.asker()?, None)?;
    say(io::stdout(), &line);
    engine.start(&server, &admission, listeners)?;
    service_manager::ready();
    let alive = engine.watch()?;
    let wish = stop.wait()?;
    // If it is not taken over from, its sockets are closed now.
    drop(offer);
    let finished = stopped(&server, wish, &observation, flags.grace);
    // They look at the runtimes, which end next.
    drop((attention, ticking, observation, heap, alive));
    site_logs.iter().for_each(|logs| logs.end());
    engine.end();
    TraceFile::write_last(trace.as_deref(), "plainweave web");

    say_unless(finished);
    Ok(())
}

/// Starts what serves.
fn engine(
    flags: &Flags,
    hooks: &Hooks,
    stalls: Option<&Arc<Stalls>>,
) -> anyhow::Result<serve::Engine> {
    let is_traced = flags.engine.serving.trace.is_some();
    serve::Engine::choose(&flags.engine, hooks, stalls, is_traced)
}

/// Returns what there is memory for.
fn memory_bound(flags: &Flags, architecture: Architecture) -> MemoryBound {
    let each = Each {
        fiber: architecture.has_fiber_each(),
        tls: flags.tls.is_on(),
        http2: flags.http2.is_on(),
    };
    let limit = MemoryLimit::choose(flags.limits.max_memory);
    MemoryBound::new(limit, flags.caching.cache, each)
}

/// Stops, and gives requests in progress the time of `grace`. False: it was not enough.
fn stopped(
    server: &Server<serve::Web>,
    wish: Wish,
    observation: &Observation,
    grace: Duration,
) -> bool {
    match wish {
        Wish::Signal => {
            service_manager::stopping();
            server.shutdown(grace)
        }
        // In half of it, clients that keep a connection hear of the end by their next answer.
        Wish::Successor => {
            observation.leave();
            server.shutdown_gently(grace / 2, grace / 2)
        }
    }
}

/// Opens the trace's file, if the flags name one.
fn trace(flags: &Flags, engine: &serve::Engine) -> anyhow::Result<Option<Arc<TraceFile>>> {
    let path = flags.engine.serving.trace.as_deref();
    let trace = path.map(|path| TraceFile::open(path, engine.tracers()).map(Arc::new));
    trace.transpose()
}

/// Says that the time of grace was too short, unless all was `finished`.
fn say_unless(finished: bool) {
    let warning = "plainweave: stopped with requests in progress; --grace gives them longer";
    if !finished {
        say(io::stderr(), warning);
    }
}

/// Starts the threads that go with a configuration: one closes connections to applications that
/// nobody uses, which their servers may have closed, and one watches the file, if flags say so.
fn ticking(
    flags: &Flags,
    reload: Option<&Arc<Reload>>,
    sites: &Live,
) -> anyhow::Result<Vec<Ticking>> {
    const SWEEP: Duration = Duration::from_secs(5);

    let Some(reload) = reload else {
        return Ok(Vec::new());
    };
    let sites = sites.clone();
    let sweep = move || sites.now().upstreams().sweep();
    let mut all = vec![Ticking::start("upstreams", SWEEP, sweep)?];
    let file = flags.config.config.as_ref();
    if let Some(file) = file.filter(|_| flags.config.watch_config) {
        let watch = watch::watch(file.clone(), reload.clone());
        all.push(watch.context("the configuration cannot be watched")?);
    }

    Ok(all)
}

fn warn(memory: &MemoryBound) {
    if let Some(warning) = memory.warning() {
        say(io::stderr(), &format!("plainweave web: {warning}"));
    }
}

/// Makes all that the configuration names, and says that it is good.
fn checked(gathered: &Gathered, flags: &Flags) -> anyhow::Result<String> {
    let addresses = flags.addresses(&mut Inherited::default())?;
    flags.tls.check(&addresses.plain)?;
    flags.tls.load(1, flags.http2.is_on())?;
    if let Some(user) = &flags.user {
        privileges::check(user)?;
    }
    if let Some(path) = &flags.replace.replace {
        let checked = replace::check(path);
        checked.with_context(|| format!("--replace {} is not usable", path.display()))?;
    }
    if let Some(log) = &flags.observation.access_log {
        access::check(log, flags.observation.rotation())?;
    }
    let socket = flags.unix_socket.iter().map(|file| ("--unix-socket", file));
    let trace = flags.engine.serving.trace.iter();
    for (flag, file) in socket.chain(trace.map(|file| ("--trace", file))) {
        let made = access::may_make(file);
        made.with_context(|| format!("{flag} {} is not usable", file.display()))?;
    }

    let faults = Arc::new(Faults::new());
    let logs = SiteLogs::new(faults.clone(), true, flags.observation.rotation());
    let disk_waits = disk_waits(&faults);
    let resources = Resources::new(Caching::default(), &faults, &disk_waits, logs, 1);
    let sites = sites(
        Some(gathered),
        flags,
        flags.are_private(&addresses),
        &resources,
        None,
    )?;
    for root in sites.roots() {
        let entered = rustix::fs::access(root.path(), Access::EXEC_OK);
        entered.with_context(|| format!("{} cannot be entered", root.path().display()))?;
    }
    configured::good(gathered, &sites)
}

/// Bounds what is in progress by what there is memory for.
fn bounded(
    server: Server<serve::Web>,
    architecture: Architecture,
    in_progress: &Arc<InProgress>,
    handshakes: &Arc<InProgress>,
    faults: &Arc<Faults>,
) -> Server<serve::Web> {
    let faults = faults.clone();
    let server = server
        .with_requests_in_progress(in_progress.clone())
        .with_handshakes_in_progress(handshakes.clone())
        .on_fault(move |fault| faults.accept(fault));

    if architecture.has_fiber_each() {
        server.with_fibers_kept()
    } else {
        server
    }
}

/// Has the rules of the sites, if any are configured, bound the bodies of requests.
fn with_bodies(server: Server<serve::Web>, sites: Option<Live>) -> Server<serve::Web> {
    match sites {
        None => server,
        Some(sites) => {
            server.with_request_limits(move |head, limits| sites.bound_body(head, limits))
        }
    }
}

/// Gives the listeners what the connections that they accept inherit.
fn prepare(
    listeners: &Listeners,
    memory: &MemoryBound,
    connection_limit: &ConnectionLimit,
) -> io::Result<()> {
    for listener in listeners.tcp() {
        SockRef::from(listener).set_tcp_nodelay(true)?;
        if let Some(bytes) = memory.receive_buffer {
            SockRef::from(listener).set_recv_buffer_size(bytes)?;
        }
        // Until it accepts, for whoever reads the metrics sooner.
        connection_limit.set_backlog(Address::Tcp(listener.local_addr()?), MOST);
    }
    Ok(())
}

/// Returns the count of responses that wait for the disk, whose refusals are reported.
fn disk_waits(faults: &Arc<Faults>) -> Arc<DiskWaits> {
    let faults = faults.clone();
    Arc::new(DiskWaits::new(move || faults.disk()))
}

/// What signals reach.
struct Operated {
    log: Option<Arc<AccessLog>>,
    connection_limit: Arc<ConnectionLimit>,
    runtimes: Weak<Runtimes>,
    trace: Option<Arc<TraceFile>>,
    tls: Option<Tls>,
    sites: Live,
    /// These, with a configuration.
    site_logs: Option<Arc<SiteLogs>>,
    reload: Option<Arc<Reload>>,
}

impl signals::Operated for Operated {
    const NAME: &'static str = "plainweave web";

    fn reopen_logs(&self) -> bool {
        let own = self.log.as_ref().map(|log| log.reopen()).is_some();
        let sites = self.site_logs.as_ref().is_some_and(|logs| logs.reopen());
        own || sites
    }

    fn trace(&self) -> Option<&TraceFile> {
        self.trace.as_deref()
    }

    fn reload(&self) -> Option<String> {
        let served = match &self.reload {
            Some(reload) => reload.run(),
            None => reopened(&self.sites),
        };

        Some(match &self.tls {
            Some(tls) => format!("{}; {served}", tls.reload()),
            None => served,
        })
    }

    fn counts(&self) -> String {
        let limit = &self.connection_limit;
        let counts = limit.counts();
        let now = counts.open;
        let accepted = counts.accepted;
        let metrics = self
            .runtimes
            .upgrade()
            .map(|runtimes| runtimes.metrics())
            .unwrap_or_default();
        let fibers: u64 = metrics.iter().map(|metrics| metrics.live_fibers).sum();

        format!(
            "{now} connections of at most {}, {accepted} accepted, {fibers} fibers",
            limit.max()
        )
    }

    fn fibers(&self) -> String {
        fibers::text(&self.runtimes, false, |dump| dump)
    }
}

/// Reopens the directories that are served, and says what came of it.
fn reopened(sites: &Live) -> String {
    let sites = sites.now();
    let failed = sites.roots().find_map(|root| {
        let error = root.reopen().err()?;
        Some(format!(
            "{} cannot be opened: {error}",
            root.path().display()
        ))
    });
    failed.unwrap_or_else(|| "the directory is reopened".to_owned())
}

/// Raises the limit on descriptors as far as it may be raised, and leaves room for files.
/// That there is memory for counts if no flag says otherwise.
fn max_connections(
    flags: &Flags,
    addresses: &Addresses,
    open_files: usize,
    memory: &MemoryBound,
) -> usize {
    let limit = getrlimit(Resource::Nofile);
    // Raising it may be forbidden. What there is then has to do, and the start line says how much
    // that is.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
    let descriptors = getrlimit(Resource::Nofile)
        .current
        .map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));

    // Few descriptors: half of them for the rest, and half of those for connections, whatever the
    // cache would like.
    let others = OTHER_DESCRIPTORS + flags.engine.spare_descriptors(descriptors);
    let left = descriptors - others.min(descriptors / 2);
    let allowed = left.saturating_sub(open_files).max(left / 2).max(1);
    let made = flags
        .engine
        .serving
        .architecture
        .architecture
        .most_connections()
        .saturating_mul(addresses.count());

    flags
        .limits
        .max_connections
        .map_or(memory.connections, NonZeroUsize::get)
        .min(allowed)
        .min(made)
}

fn start_line(
    flags: &Flags,
    sites: &Sites,
    private: bool,
    listeners: &Listeners,
    how: &str,
    observers: &Observers,
) -> io::Result<String> {
    let config = flags.config.config.as_deref().map(Path::display);
    let served = match (sites.only(), &config) {
        (Some(root), _) => root.path().display().to_string(),
        (None, Some(config)) => format!("{} sites of {config}", sites.count()),
        (None, None) => format!("{} sites", sites.count()),
    };
    let urls = listeners.urls()?.join(" ");
    let mut line = format!("plainweave web: serving {served} on {urls} ({how}");
    if let Some(config) = config.filter(|_| sites.only().is_some()) {
        line.push_str(&format!(", configuration {config}"));
    }
    if sites.only().is_some() && flags.content.lists(private) {
        line.push_str(", directories are listed");
    }
    if let Some(path) = &flags.observation.access_log {
        line.push_str(&format!(", access log {}", path.display()));
    }
    if let Some(path) = &flags.engine.serving.trace {
        line.push_str(&format!(", trace {}", path.display()));
    }
    if let Some(url) = observers.admin_url() {
        line.push_str(&format!(", admin {url}"));
    }
    line.push(')');

    Ok(line)
}
