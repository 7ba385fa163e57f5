//! The systems, and their servers while they run.

use std::net::SocketAddr;

use super::case::Case;
use super::slow::Slow;
use super::{echo, web};
use crate::harness::program::{PeerServer, Program};

/// A system that is measured, in its case.
pub(super) struct System {
    pub(super) case: Case,
    pub(super) name: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    /// Driver, mode, and whether idle connections are parked (else each has its fiber).
    Ours(plainweave::Io, &'static str, bool),
    Threads,
    Tokio,
    /// The crate plainweave-http on the default runtime.
    OurWeb,
    TokioWeb,
    Go,
}

const fn ours(name: &'static str, io: plainweave::Io, mode: &'static str, parked: bool) -> System {
    System {
        case: Case::Echo,
        name,
        kind: Kind::Ours(io, mode, parked),
    }
}

pub(super) const SYSTEMS: [System; 12] = [
    ours(
        "idle epoll before-start",
        plainweave::Io::Epoll,
        "before-start/shared",
        true,
    ),
    ours(
        "idle uring before-start",
        plainweave::Io::Uring,
        "before-start/shared",
        true,
    ),
    ours(
        "idle epoll anytime",
        plainweave::Io::Epoll,
        "anytime/own",
        true,
    ),
    ours(
        "fibers epoll anytime",
        plainweave::Io::Epoll,
        "anytime/own",
        false,
    ),
    ours(
        "fibers uring anytime",
        plainweave::Io::Uring,
        "anytime/own",
        false,
    ),
    ours(
        "fibers epoll before-start",
        plainweave::Io::Epoll,
        "before-start/own",
        false,
    ),
    System {
        case: Case::Echo,
        name: "threads",
        kind: Kind::Threads,
    },
    System {
        case: Case::Echo,
        name: "tokio",
        kind: Kind::Tokio,
    },
    System {
        case: Case::Echo,
        name: "go",
        kind: Kind::Go,
    },
    System {
        case: Case::Web,
        name: "plainweave-http",
        kind: Kind::OurWeb,
    },
    System {
        case: Case::Web,
        name: "tokio by hand",
        kind: Kind::TokioWeb,
    },
    System {
        case: Case::Web,
        name: "go net/http",
        kind: Kind::Go,
    },
];

/// A running server; ends with this value.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    _running: Running,
}

/// What keeps it running.
#[expect(dead_code, reason = "held for what dropping it does")]
enum Running {
    Fibers(plainweave::Runtime),
    Tasks(tokio::runtime::Runtime),
    /// Its threads end with their connections, and the acceptor with the process.
    Threads,
    Peer(PeerServer),
}

impl Server {
    /// # Errors
    /// The system is not available here, and why.
    pub(super) fn start(system: &System, workers: usize, slow: Slow) -> anyhow::Result<Self> {
        Ok(match system.kind {
            Kind::Ours(io, mode, parked) => Self::of(
                echo::fibers(io, mode, parked, workers, slow)?,
                Running::Fibers,
            ),
            Kind::Threads => Self::of((echo::threads(slow)?, ()), |()| Running::Threads),
            Kind::Tokio => Self::of(echo::tasks(workers, slow)?, Running::Tasks),
            Kind::OurWeb => Self::of(web::fibers(workers, slow)?, Running::Fibers),
            Kind::TokioWeb => Self::of(web::tasks(workers, slow)?, Running::Tasks),
            Kind::Go => Self::of(go(system.case, workers, slow)?, Running::Peer),
        })
    }

    fn of<T>((address, server): (SocketAddr, T), running: impl FnOnce(T) -> Running) -> Self {
        Self {
            address,
            _running: running(server),
        }
    }
}

const GO: [(&str, &str); 3] = [
    ("go.mod", include_str!("../../../peers/go-stall/go.mod")),
    ("main.go", include_str!("../../../peers/go-stall/main.go")),
    ("web.go", include_str!("../../../peers/go-stall/web.go")),
];

fn go(case: Case, workers: usize, slow: Slow) -> anyhow::Result<(SocketAddr, PeerServer)> {
    let program = Program::go(&GO)?;
    let mut command = program.command();
    command.args([
        format!("-workers={workers}"),
        format!("-web={}", case == Case::Web),
        format!("-slow={}ms", slow.time.as_millis()),
        format!("-slow-by={}", slow.by.name()),
    ]);
    let server = PeerServer::start(&mut command)?;
    Ok((server.address, server))
}
