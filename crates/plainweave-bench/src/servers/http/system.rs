//! The systems that send a fixed answer: the limit, ours, and the peers.

use std::net::SocketAddr;
use std::process::Command;

use super::bench::Others;
use super::kind::{BODY, Coding, Kind};
use crate::harness::program::Program;
use crate::serving::driver::Driver;
use crate::serving::limit;
use crate::serving::nginx;
use crate::serving::process::Process;
use crate::serving::site::Site;

/// A system.
#[derive(Clone, Copy, Debug)]
pub(super) struct System {
    pub(super) name: &'static str,
    how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Limit(Driver),
    /// Part of this program.
    Own(Kind),
    Go,
    Nginx,
    Warp,
}

const fn system(name: &'static str, how: How) -> System {
    System { name, how }
}

/// All of them.
pub(super) const SYSTEMS: [System; 13] = [
    system(limit::EPOLL, How::Limit(Driver::Epoll)),
    system(limit::URING, How::Limit(Driver::Uring)),
    system("plainweave epoll", How::Own(Kind::Epoll)),
    system("plainweave uring", How::Own(Kind::Uring)),
    // What lies between the two is noise.
    system("plainweave uring again", How::Own(Kind::Uring)),
    system(
        "plainweave epoll before-start/shared",
        How::Own(Kind::EpollShared),
    ),
    system(
        "plainweave uring before-start/shared",
        How::Own(Kind::UringShared),
    ),
    system("plainweave threads", How::Own(Kind::Threads)),
    system("hyper", How::Own(Kind::Hyper)),
    system("may_minihttp", How::Own(Kind::MayMinihttp)),
    system("go net/http", How::Go),
    system("nginx", How::Nginx),
    system("warp", How::Warp),
];

/// What each of them is compared with.
pub(super) const OTHERS: &Others = &[
    (limit::EPOLL, "ratio_to_limit"),
    (limit::URING, "ratio_to_limit_uring"),
    ("hyper", "ratio_to_hyper"),
    ("may_minihttp", "ratio_to_may_minihttp"),
    ("go net/http", "ratio_to_go"),
    ("nginx", "ratio_to_nginx"),
    ("warp", "ratio_to_warp"),
];

const GO: [(&str, &str); 2] = [
    ("go.mod", include_str!("../../../peers/go-hello/go.mod")),
    ("main.go", include_str!("../../../peers/go-hello/main.go")),
];
const WARP: &str = include_str!("../../../peers/warp/Main.hs");

impl System {
    /// # Errors
    /// It is not available here, and why.
    pub(super) fn start(&self, site: &Site, coding: Coding) -> anyhow::Result<Process> {
        let (mut command, address, _program) = self.command(site)?;
        command.args(coding.arguments());
        Process::start(self.name, &command, address, 1, None)
    }

    /// Returns why it cannot answer by this coding.
    pub(super) fn lacks(&self, coding: Coding) -> Option<&'static str> {
        match self.how {
            How::Nginx if coding == Coding::Chunked => {
                Some("it knows the length of a fixed answer")
            }
            How::Own(Kind::MayMinihttp) if coding == Coding::Chunked => Some("it knows no chunks"),
            _ => None,
        }
    }

    /// Returns whether it may be absent.
    pub(super) fn is_optional(&self) -> bool {
        !matches!(
            self.how,
            How::Limit(Driver::Epoll) | How::Own(Kind::Epoll | Kind::EpollShared | Kind::Threads)
        )
    }

    /// With where it will listen, unless it says so, and what has to outlive its start.
    fn command(
        &self,
        site: &Site,
    ) -> anyhow::Result<(Command, Option<SocketAddr>, Option<Program>)> {
        let program = |program: Program| (program.command(), None, Some(program));
        match self.how {
            How::Limit(io) => Ok((limit::command(io, "http", &[])?, None, None)),
            How::Own(kind) => Ok((kind.command(&[])?, None, None)),
            How::Go => Program::go(&GO).map(program),
            How::Warp => Program::haskell(WARP).map(program),
            How::Nginx => {
                let server =
                    format!("location / {{ default_type text/plain; return 200 \"{BODY}\"; }}");
                let settings = nginx::Settings {
                    workers: 1,
                    server: &server,
                    ..Default::default()
                };

                let (command, address) = nginx::command(site.dir(), &settings)?;
                Ok((command, Some(address), None))
            }
        }
    }
}
