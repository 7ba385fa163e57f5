//! The exit codes.

/// The exit codes, for `--help`.
macro_rules! exit_codes {
    () => {
        "\
Exit codes:
  0    the load was carried out and every objective met
  1    an objective was missed: --fail-if, --max-errors, --min-rate; or no request succeeded
  2    wrong usage
  3    the load could not be carried out: no server there, too few descriptors or ports, a file not writable
  4    a latency cannot be judged, since this program itself sent too late: see --max-lateness
  130  ended by SIGINT, 143 by SIGTERM; what was measured until then is reported"
    };
}
pub(super) use exit_codes;

/// What becomes of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    Met,
    Missed,
    /// The load could not be carried out.
    Failed,
    /// The client's own lateness falsifies what was to be judged.
    Invalid,
    /// Ended by this signal.
    Signal(u8),
}

impl Exit {
    pub(super) fn code(self) -> u8 {
        match self {
            Exit::Met => 0,
            Exit::Missed => 1,
            Exit::Failed => 3,
            Exit::Invalid => 4,
            Exit::Signal(signal) => 128 + signal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_as_documented() {
        let exits = [
            Exit::Met,
            Exit::Missed,
            Exit::Failed,
            Exit::Invalid,
            Exit::Signal(2),
            Exit::Signal(15),
        ];
        assert_eq!(exits.map(Exit::code), [0, 1, 3, 4, 130, 143]);
    }
}
