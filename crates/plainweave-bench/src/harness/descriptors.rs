//! The bound on descriptors, for this process and those that it starts.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors beside the connections.
const SPARE: u64 = 100;

/// What a case that lacks descriptors says.
pub(crate) const TOO_FEW: &str = "the limit of descriptors is too low; raise it with ulimit -n";

/// Raises the limit on descriptors as far as allowed. Returns `false` if that is not enough for
/// `connections`.
pub(crate) fn at_least(connections: usize) -> bool {
    let needed = connections as u64 + SPARE;
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let allowed = maximum.is_none_or(|most| most >= needed);
    allowed
        && setrlimit(
            Resource::Nofile,
            Rlimit {
                current: maximum.or(Some(needed)),
                maximum,
            },
        )
        .is_ok()
}

/// Raises the limit for `connections`, or as far as allowed. Returns for how many it suffices.
pub(crate) fn at_most(connections: usize) -> usize {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let allowed = maximum.map_or(u64::MAX, |most| most.saturating_sub(SPARE));
    let connections = connections.min(usize::try_from(allowed).unwrap_or(usize::MAX));
    if at_least(connections) {
        connections
    } else {
        0
    }
}
