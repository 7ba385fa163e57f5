//! What the page in the browser shows of the web server besides what it shows of both
//! (`plainweave_daemon::status`).

use serde_json::{Value, json};

use super::accept::Admission;
use super::counters::{CLASSES, ERRORS, Sums};
use super::slowest::{Slow, Slowest};
use plainweave_daemon::status::{counts, latency, queue, visible};

/// Paths that are listed.
const PATHS: usize = 12;

/// Returns the server's own figures. `slowest`: `None` if paths are not to be shown.
pub(super) fn own(
    sums: &Sums,
    slowest: Option<&Slowest>,
    admission: &Admission,
    lost_lines: Option<u64>,
) -> Value {
    let limit = &admission.connection_limit;
    let clients = limit.counts();
    let problems = ERRORS.map(value).into_iter().zip(sums.errors);
    let problems = problems.map(|(name, count)| {
        (
            format!("connections ended: {}", name.replace('_', " ")),
            count,
        )
    });

    let more = [
        (
            "connections refused: their address had its share",
            clients.refused,
        ),
        (
            "requests answered 503: their address had its share",
            clients.refused_requests,
        ),
        ("connections that could not be accepted", clients.failed),
        (
            "times that the connection limit was reached",
            clients.pauses,
        ),
        (
            "requests answered 503: there was memory for no more",
            admission.in_progress.shed(),
        ),
        (
            "TLS connections closed: there was memory for no more handshakes",
            admission.handshakes.shed(),
        ),
        ("lines of the access log lost", lost_lines.unwrap_or(0)),
    ];
    let problems: Vec<_> = problems
        .chain(more.map(|(name, count)| (name.to_owned(), count)))
        .collect();
    json!({
        "requests": sums.classes.iter().sum::<u64>(),
        "bytes": sums.body_bytes,
        "connections": {
            "now": clients.open,
            "max": limit.max(),
            "accepted": clients.accepted,
        },
        "outcomes": counts(CLASSES.map(value).into_iter().zip(sums.classes)),
        "problems": counts(problems.iter().map(|(name, count)| (name.as_str(), *count))),
        "latency": [latency("requests", sums.latency.parts())],
        "slow": slowest.map(|slowest| slowest.top(PATHS).iter().map(slow).collect::<Vec<_>>()),
    })
}

/// Returns the server's own queues. With a fiber for each connection it counts for a request, and
/// none is counted here.
pub(super) fn queues(admission: &Admission) -> Vec<Value> {
    let requests = &admission.in_progress;
    vec![queue(
        "requests in progress",
        requests.now() as u64,
        Some(requests.max() as u64),
    )]
}

fn slow(slow: &Slow) -> Value {
    json!({
        "path": visible(slow.path.as_bytes()),
        "took": slow.took.as_secs_f64(),
        "status": slow.status.map(|status| status.as_u16()),
        "bytes": slow.body_bytes,
        "age": slow.at.elapsed().as_secs_f64(),
    })
}

/// Returns the value of a label: `5xx` of `status="5xx"`.
fn value(label: &'static str) -> &'static str {
    label.split('"').nth(1).unwrap_or(label)
}
