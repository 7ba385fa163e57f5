//! The servers that are measured, and in which part.

use clap::ValueEnum;

use crate::harness::cgroup::Group;
use crate::serving::Driver;
use crate::serving::process::Conditions;
use crate::serving::site::Site;
use crate::serving::web::{Kind, Server};
use plainweave_report::Role;

/// What is swept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Part {
    Rates,
    Memory,
}

/// Ours bounds its connections by the limit of memory that it finds. Here that limit leaves room
/// for all that a server needs, so there are no such bounds.
const ENOUGH: [&str; 4] = ["--max-memory", "0", "--cache", "64m"];

/// A server, and how it is started.
#[derive(Clone, Debug)]
pub(super) struct System {
    pub(super) name: String,
    pub(super) kind: Kind,
    arguments: Vec<String>,
}

impl System {
    pub(super) fn of(kind: Kind) -> Self {
        Self {
            name: kind.name().to_owned(),
            kind,
            arguments: Vec::new(),
        }
    }

    pub(super) fn ours(driver: Driver, architecture: &str) -> Self {
        let kind = if driver == Driver::Uring {
            Kind::Uring
        } else {
            Kind::Epoll
        };

        let name = format!("plainweave {} {architecture}", driver.name());
        let arguments = [&["--architecture", architecture], &ENOUGH[..]].concat();
        Self {
            name,
            kind,
            arguments: arguments.into_iter().map(str::to_owned).collect(),
        }
    }

    pub(super) fn role(&self) -> Role {
        if matches!(self.kind, Kind::Epoll | Kind::Uring) {
            Role::Ours
        } else {
            Role::Peer
        }
    }

    pub(super) fn start(&self, site: &Site, group: Group) -> anyhow::Result<Server> {
        let arguments: Vec<_> = self.arguments.iter().map(String::as_str).collect();
        let under = Conditions {
            group: Some(group),
            arguments: &arguments,
            ..Conditions::default()
        };
        Server::start(self.kind, site, under)
    }
}
