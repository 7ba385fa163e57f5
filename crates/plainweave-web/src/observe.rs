//! What an operator sees: the access log and the admin address. Without either flag requests are
//! not even timed.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Instant;

use plainweave::Metrics;
use plainweave::net;
use plainweave_http::files::DiskWaits;
use plainweave_http::{Exchange, Handler, Server, StatusCode};
use plainweave_serve::accept::InProgress;
use plainweave_serve::accept::{ConnectionLimit, MOST};
use serde_json::Value;

use super::accept::Admission;
use super::access::{AccessLog, Writer};
use super::counters::{CLASSES, Counters, ERRORS};
use super::faults::Faults;
use super::flags::ObservationFlags;
use super::site_logs::SiteLogs;
use super::sites::Live;
use super::slowest::Slowest;
use super::status::{own, queues};
use super::tls::Tls;
use super::upstream::Upstreams;
use plainweave_daemon::admin::{self, Admin, Asked, Figures, Page, Refusal};
use plainweave_daemon::architecture::Runtimes;
use plainweave_daemon::fibers::FiberPages;
use plainweave_daemon::replace::Inherited;
use plainweave_daemon::sharing::Sharing;
use plainweave_daemon::stalls::Stalls;
use plainweave_daemon::status::{self, Common};

/// What is watched with, before the server is built.
pub(super) struct Observers {
    log: Option<(Arc<AccessLog>, Writer)>,
    record: Option<Arc<Record>>,
    listener: Option<TcpListener>,
    sharing: Sharing,
    /// Whether the admin address shows details to other machines, too.
    details: bool,
}

/// What exchanges are recorded in for the admin address.
struct Record {
    counters: Counters,
    slowest: Slowest,
}

impl Record {
    fn exchange(&self, exchange: &Exchange<'_>) {
        // One of many is looked at for the slowest, and the counter knows which.
        let sample = self.counters.count(exchange);
        self.slowest.pass(exchange, sample);
    }
}

/// What the admin address shows.
pub(super) struct Shown {
    pub(super) admission: Admission,
    pub(super) runtimes: Weak<Runtimes>,
    /// Handles of the listeners, whose queues are read.
    pub(super) listeners: Vec<net::TcpListener>,
    pub(super) disk_waits: Arc<DiskWaits>,
    pub(super) stalls: Option<Arc<Stalls>>,
    pub(super) tls: Option<Tls>,
    pub(super) sites: Live,
    /// With a configuration.
    pub(super) site_logs: Option<Arc<SiteLogs>>,
}

/// Keeps log and admin address going until dropped.
pub(super) struct Observation {
    // In this order: no page is read any more when the log is ended.
    admin: Option<Admin>,
    _writer: Option<Writer>,
}

impl Observation {
    /// Leaves the admin address to the server that has taken over.
    pub(super) fn leave(&self) {
        self.admin.iter().for_each(Admin::leave);
    }
}

impl Observers {
    /// `admin`: where the admin address is to listen.
    pub(super) fn start(
        flags: &ObservationFlags,
        faults: &Arc<Faults>,
        admin: Option<SocketAddr>,
        inherited: &mut Inherited,
    ) -> anyhow::Result<Self> {
        let log = flags.access_log.as_deref();
        let log = log
            .map(|path| AccessLog::start(path, flags.log_format, faults.clone(), flags.rotation()))
            .transpose()?;
        let listener = admin.map(|address| super::listen::bind(address, inherited));
        let listener = listener.transpose()?;
        let record = || {
            Arc::new(Record {
                counters: Counters::new(),
                slowest: Slowest::new(),
            })
        };

        Ok(Self {
            log,
            record: listener.is_some().then(record),
            listener,
            sharing: inherited.sharing().clone(),
            details: flags.admin_details,
        })
    }

    /// Has the server tell of its errors, and of each exchange if anybody wants to know. `sites`:
    /// they may have logs of their own, now or later.
    pub(super) fn watch<H: Handler>(
        &self,
        server: Server<H>,
        faults: Arc<Faults>,
        sites: Option<(&Live, &SiteLogs)>,
    ) -> Server<H> {
        let record = self.record.clone();
        let server = server.on_error(move |error| {
            faults.exchange(error);
            if let Some(record) = &record {
                record.counters.count_error(error);
            }
        });

        let log = self.log.as_ref().map(|(log, _)| log.clone());
        let record = self.record.clone();
        let wants_times = record.is_some() || log.as_ref().is_some_and(|log| log.wants_times());
        let wants_times = match &sites {
            Some((_, logs)) => logs.start(wants_times),
            None => wants_times,
        };

        // A format without a time in it costs no readings of the clock.
        let server = match wants_times {
            true => server,
            false => server.without_times(),
        };

        if sites.is_none() && log.is_none() && record.is_none() {
            return server;
        }
        let sites = sites.map(|(sites, _)| sites.clone());
        server.on_exchange(move |exchange| {
            let of_site = sites.as_ref();
            match (of_site.and_then(|sites| sites.log_of(exchange.head)), &log) {
                (Some(log), _) => log.record(exchange),
                (None, Some(log)) => log.record(exchange),
                (None, None) => {}
            }
            if let Some(record) = &record {
                record.exchange(exchange);
            }
        })
    }

    /// Returns the access log, for signals.
    pub(super) fn access_log(&self) -> Option<Arc<AccessLog>> {
        self.log.as_ref().map(|(log, _)| log.clone())
    }

    /// Returns a further descriptor of the admin address.
    pub(super) fn descriptor(&self) -> io::Result<Option<OwnedFd>> {
        let fd = self.listener.as_ref().map(AsFd::as_fd);
        fd.map(|fd| fd.try_clone_to_owned()).transpose()
    }

    /// Returns where the admin address listens, for the start-up line.
    pub(super) fn admin_url(&self) -> Option<String> {
        let address = self.listener.as_ref()?.local_addr().ok()?;
        Some(format!("http://{address}"))
    }

    /// Opens the admin address.
    pub(super) fn open<H: Handler>(
        self,
        server: &Arc<Server<H>>,
        shown: Shown,
    ) -> anyhow::Result<Observation> {
        let (log, writer) = self.log.unzip();
        let admin = match (self.listener, self.record) {
            (Some(listener), Some(record)) => {
                let pages = Pages {
                    server: server.clone(),
                    record,
                    shown,
                    log,
                    sharing: self.sharing.clone(),
                    start: Instant::now(),
                };

                let fibers = FiberPages::new(pages.shown.runtimes.clone());
                Some(Admin::start(
                    (listener, &self.sharing),
                    fibers,
                    self.details,
                    move |asked| pages.page(asked),
                )?)
            }
            _ => None,
        };

        Ok(Observation {
            admin,
            _writer: writer,
        })
    }
}

/// The pages of the admin address.
struct Pages<H> {
    server: Arc<Server<H>>,
    record: Arc<Record>,
    shown: Shown,
    log: Option<Arc<AccessLog>>,
    sharing: Sharing,
    start: Instant,
}

impl<H: Handler> Pages<H> {
    /// Returns a page by its path.
    fn page(&self, asked: Asked<'_>) -> Page {
        match asked.path {
            "/" => status::page(),
            "/status.json" => status::answer(&self.figures(asked.details)),
            "/metrics" => metrics(
                &self.record.counters,
                &self.shown,
                self.dropped(),
                self.start,
            ),
            // So that a load balancer sends nobody else here while the last ones are served.
            // Where another server has taken over, there is no need.
            "/health" if self.server.is_stopping() && !self.sharing.is_handed_over() => {
                Err(StatusCode::SERVICE_UNAVAILABLE.into())
            }
            "/health" if self.shown.sites.now().roots().any(|root| root.is_missing()) => {
                Err(Refusal::Unavailable("the served directory is gone"))
            }
            "/health" => Ok(("text/plain", "ok\n".to_owned())),
            _ => Err(StatusCode::NOT_FOUND.into()),
        }
    }

    /// Returns how many lines the logs have lost, if there are any logs.
    fn dropped(&self) -> Option<u64> {
        let own = self.log.as_ref().map(|log| log.dropped());
        let sites = self.shown.site_logs.as_ref();
        match (own, sites.map(|logs| logs.dropped())) {
            (Some(own), Some(sites)) => Some(own + sites),
            (own, sites) => own.or(sites),
        }
    }

    fn figures(&self, details: bool) -> Value {
        let common = Common {
            server: "plainweave web",
            start: self.start,
            stopping: self.server.is_stopping(),
            details,
            runtimes: &self.shown.runtimes,
            listeners: &self.shown.listeners,
            stalls: self.shown.stalls.as_deref(),
            links: &["/metrics", "/health", "/fibers"],
        };

        let sums = self.record.counters.sums();
        // Paths and addresses of clients are nobody else's business.
        let slowest = details.then_some(&self.record.slowest);
        let own = own(&sums, slowest, &self.shown.admission, self.dropped());
        common.figures(own, queues(&self.shown.admission))
    }
}

fn metrics(counters: &Counters, shown: &Shown, dropped: Option<u64>, start: Instant) -> Page {
    let figures = requests(Figures::default(), counters);
    let figures = shown.tls.iter().fold(figures, |figures, tls| {
        tls.figures(figures, &shown.admission.handshakes)
    });
    let figures = in_progress(figures, &shown.admission.in_progress);
    let figures = disk(figures, &shown.disk_waits);
    let figures = connections(figures, &shown.admission.connection_limit, dropped);
    let figures = upstreams(figures, shown.sites.now().upstreams());

    Ok((
        Figures::KIND,
        process(figures, &shown.runtimes, start).into_text(),
    ))
}

/// What has become of requests for applications, and how their servers are doing.
fn upstreams(mut figures: Figures, upstreams: &Upstreams) -> Figures {
    let mut outcomes = Vec::new();
    let mut ups = Vec::new();
    let mut in_progress = Vec::new();
    let mut idle = Vec::new();
    for upstream in upstreams.iter() {
        let name = upstream.name();
        upstream.outcomes(|outcome, count| {
            outcomes.push((format!("upstream={name:?},outcome=\"{outcome}\""), count));
        });
        upstream.states(|state| {
            let server = state.address.to_string();
            let labels = format!("upstream={name:?},server={server:?}");
            ups.push((labels.clone(), u64::from(state.is_up)));
            in_progress.push((labels.clone(), state.in_progress as u64));
            idle.push((labels, state.idle as u64));
        });
    }

    for (metric, kind, help, values) in [
        (
            "requests_total",
            "counter",
            "What has become of requests that were passed on.",
            outcomes,
        ),
        ("up", "gauge", "Whether a server gets requests.", ups),
        (
            "requests_in_progress",
            "gauge",
            "Requests in progress at a server.",
            in_progress,
        ),
        (
            "idle_connections",
            "gauge",
            "Connections to a server that are kept.",
            idle,
        ),
    ] {
        if !values.is_empty() {
            let name = format!("plainweave_upstream_{metric}");
            let values = values
                .iter()
                .map(|(labels, value)| (labels.as_str(), *value));
            figures.metric(&name, kind, help, values);
        }
    }

    figures
}

fn requests(mut figures: Figures, counters: &Counters) -> Figures {
    let sums = counters.sums();
    let name = "plainweave_http_responses_total";
    let help = "Answers by class of status; none: the client left before one was begun.";
    figures.metric(name, "counter", help, CLASSES.into_iter().zip(sums.classes));
    let name = "plainweave_http_errors_total";
    let help = "Connections that ended badly; leaving between two requests is not counted.";

    figures.metric(name, "counter", help, ERRORS.into_iter().zip(sums.errors));
    let name = "plainweave_http_body_bytes_total";

    figures.one(
        name,
        "counter",
        "Bytes of answers' bodies.",
        sums.body_bytes,
    );

    let name = "plainweave_http_duration_seconds";
    let help = "From a request's complete head to its answer handed over.";
    figures.metric::<u64>(name, "histogram", help, []);

    figures.histogram(name, "", &sums.latency);

    figures
}

/// With a fiber for each connection it counts for a request, and none is counted here.
fn in_progress(mut figures: Figures, in_progress: &InProgress) -> Figures {
    let help = "Requests in progress.";
    figures.one(
        "plainweave_requests_in_progress",
        "gauge",
        help,
        in_progress.now(),
    );
    let help = "Requests in progress that there is memory for.";
    figures.one(
        "plainweave_requests_in_progress_max",
        "gauge",
        help,
        in_progress.max(),
    );
    let help = "Requests answered 503 because there was memory for no more.";

    figures.one(
        "plainweave_requests_shed_total",
        "counter",
        help,
        in_progress.shed(),
    );

    figures
}

fn disk(mut figures: Figures, waits: &DiskWaits) -> Figures {
    figures.one(
        "plainweave_disk_waits",
        "gauge",
        "Responses that wait for a disk.",
        waits.now(),
    );
    let help = "Requests answered 503 because others waited too long for a disk.";
    figures.one(
        "plainweave_disk_waits_refused_total",
        "counter",
        help,
        waits.refused(),
    );
    figures
}

fn connections(
    mut figures: Figures,
    connection_limit: &ConnectionLimit,
    dropped: Option<u64>,
) -> Figures {
    figures.one(
        "plainweave_connections",
        "gauge",
        "Connections now.",
        connection_limit.connections(),
    );
    figures.one(
        "plainweave_connections_max",
        "gauge",
        "Connections at most.",
        connection_limit.max(),
    );
    let counts = connection_limit.counts();

    for (name, help, count) in [
        ("accepted", "Connections accepted.", counts.accepted),
        (
            "refused",
            "Connections closed because their address had its share.",
            counts.refused,
        ),
        (
            "accept_errors",
            "Failed attempts to accept, each with a pause.",
            counts.failed,
        ),
        (
            "accept_pauses",
            "Times that the connection limit was reached.",
            counts.pauses,
        ),
    ] {
        figures.one(
            &format!("plainweave_connections_{name}_total"),
            "counter",
            help,
            count,
        );
    }

    let help = "HTTP/2 requests answered 503 because their address had its share in progress.";
    figures.one(
        "plainweave_requests_refused_total",
        "counter",
        help,
        counts.refused_requests,
    );
    let help = format!(
        "Connections that the kernel may hold until they are accepted; less than {MOST}: overload."
    );
    let backlogs = connection_limit
        .backlogs()
        .into_iter()
        .map(|(address, limit)| (format!("listener=\"{address}\""), limit));
    let backlogs: Vec<_> = backlogs.collect();
    let backlogs = backlogs
        .iter()
        .map(|(listener, limit)| (listener.as_str(), limit));

    figures.metric("plainweave_connections_backlog", "gauge", &help, backlogs);
    if let Some(dropped) = dropped {
        let name = "plainweave_access_log_dropped_lines_total";
        figures.one(
            name,
            "counter",
            "Lines that the disk was too slow or too full for.",
            dropped,
        );
    }

    figures
}

fn process(mut figures: Figures, runtimes: &Weak<Runtimes>, start: Instant) -> Figures {
    let Some(runtimes) = runtimes.upgrade() else {
        return figures;
    };
    let metrics = runtimes.metrics();
    let sum = |of: fn(&Metrics) -> u64| metrics.iter().map(of).sum();
    let deepest = metrics
        .iter()
        .filter_map(|metrics| metrics.stack_high_water)
        .max()
        // Before anything was measured. A metric that comes and goes is harder to work with.
        .unwrap_or(0) as u64;

    for (name, kind, help, value) in [
        ("fibers", "gauge", "Fibers alive.", sum(|of| of.live_fibers)),
        (
            "idle_connections",
            "gauge",
            "Idle connections that have no fiber.",
            sum(|of| of.idle_connections),
        ),
        (
            "fibers_finished_total",
            "counter",
            "Fibers that have ended.",
            sum(|of| of.finished_fibers),
        ),
        (
            "worker_sleeps_total",
            "counter",
            "Times that a worker found nothing to do.",
            sum(|of| of.sleeps),
        ),
        (
            "stacks_in_use",
            "gauge",
            "Stacks of fibers in use.",
            sum(|of| of.stacks_in_use as u64),
        ),
        (
            "stack_high_water_bytes",
            "gauge",
            "The deepest that a stack was seen.",
            deepest,
        ),
    ] {
        figures.one(&format!("plainweave_{name}"), kind, help, value);
    }

    figures.inserts("plainweave", &metrics);
    figures.workers("plainweave", &metrics);
    let name = "plainweave_runtime_info";
    let labels = runtimes.labels();
    figures.metric(
        name,
        "gauge",
        "What the runtime was started with.",
        [(labels.as_str(), 1)],
    );
    let cpu = admin::cpu_seconds();

    figures.one(
        "process_cpu_seconds_total",
        "counter",
        "User and system time.",
        cpu,
    );
    let up = start.elapsed().as_secs_f64();
    figures.one("plainweave_uptime_seconds", "gauge", "Since the start.", up);
    figures
}
