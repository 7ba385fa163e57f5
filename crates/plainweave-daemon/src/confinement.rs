//! What a server may do to the machine, once it runs: write where its flags say, and run no
//! program.
//!
//! By [Landlock](https://docs.kernel.org/userspace-api/landlock.html) (Linux 5.13) the process
//! gives up, for good, to write, make, move and remove files elsewhere than in the directories of
//! those that it writes; to execute any; with Linux 6.7, if it has no business with others, to
//! connect to them by TCP; and to gain privileges (`no_new_privs`). So whoever takes it over by a
//! fault gains less. Threads inherit this, and the ring's
//! workers with them; a thread that is there already keeps what it has, so a server does this
//! first.
//!
//! What it may *read* is up to its user: names are resolved, certificates renewed and reports of
//! stalls read the program's own debug information, in places that no flag names. Rejected for
//! what is written: the parents of those directories, which would let a directory that is made
//! again be the same; of `/var/log` it is `/var`.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::Args;
use landlock::{
    ABI, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    RestrictionStatus, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError,
    RulesetStatus,
};

/// The flag.
#[derive(Args, Clone, Copy, Debug)]
pub struct ConfinementFlags {
    /// Do not give up what the server does not need: to write elsewhere than in the directories of
    /// its logs, sockets and other files that the flags name, to run programs, to gain privileges
    #[arg(long, help_heading = "Runtime")]
    pub no_confinement: bool,
}

/// What a server still needs.
#[derive(Debug, Default)]
pub struct Needs<'a> {
    /// Files that it writes, makes, moves or removes, each in its directory.
    pub written: Vec<&'a Path>,
    /// Whether it connects to others by TCP.
    pub connects: bool,
}

/// What came of it, for the start line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Confinement {
    /// Nothing more than is needed may be done.
    Full,
    /// The kernel knows a part of it.
    Partial,
    /// Nothing was given up, and why.
    None(String),
}

impl fmt::Display for Confinement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("confined"),
            Self::Partial => f.write_str("confined as far as this kernel can"),
            Self::None(why) => write!(f, "not confined: {why}"),
        }
    }
}

/// What is done to a directory in which files are written.
const IN_DIRECTORY: [AccessFs; 6] = [
    AccessFs::WriteFile,
    AccessFs::Truncate,
    AccessFs::MakeReg,
    AccessFs::MakeSock,
    AccessFs::RemoveFile,
    AccessFs::Refer,
];
/// What is done to something else than a directory or a file, such as a device.
const IN_DEVICE: [AccessFs; 2] = [AccessFs::WriteFile, AccessFs::Truncate];
/// The newest version of what is asked for here.
const NEWEST: ABI = ABI::V4;

/// Gives up what `needs` does not name. To be called before there are other threads.
pub fn confine(flags: ConfinementFlags, needs: &Needs<'_>) -> Confinement {
    if flags.no_confinement {
        return Confinement::None("--no-confinement".to_owned());
    }
    match restricted(needs) {
        Ok(RestrictionStatus { ruleset, .. }) => match ruleset {
            RulesetStatus::FullyEnforced => Confinement::Full,
            RulesetStatus::PartiallyEnforced => Confinement::Partial,
            RulesetStatus::NotEnforced => {
                Confinement::None("this kernel has no Landlock, or it is switched off".to_owned())
            }
        },
        Err(error) => Confinement::None(error.to_string()),
    }
}

fn restricted(needs: &Needs<'_>) -> Result<RestrictionStatus, RulesetError> {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_write(NEWEST) | AccessFs::Execute)?;
    let ruleset = match needs.connects {
        true => ruleset,
        false => ruleset.handle_access(AccessNet::ConnectTcp)?,
    };

    let mut ruleset = ruleset.create()?;
    for path in &needs.written {
        ruleset = allowed(ruleset, path)?;
        // Where a link leads is another directory.
        if let Ok(real) = path.canonicalize() {
            ruleset = allowed(ruleset, &real)?;
        }
    }
    ruleset.restrict_self()
}

fn allowed(ruleset: RulesetCreated, path: &Path) -> Result<RulesetCreated, RulesetError> {
    let is_other = |kind: std::fs::FileType| {
        use std::os::unix::fs::FileTypeExt;
        kind.is_char_device() || kind.is_block_device() || kind.is_fifo()
    };
    let is_device = path
        .metadata()
        .is_ok_and(|there| is_other(there.file_type()));
    let (place, access): (PathBuf, BitFlags<AccessFs>) = match is_device {
        true => (path.to_owned(), IN_DEVICE.into_iter().collect()),
        false => {
            let directory = path
                .parent()
                .filter(|path| path.as_os_str() != OsStr::new(""));
            let directory = directory.unwrap_or(Path::new("."));
            (directory.to_owned(), IN_DIRECTORY.into_iter().collect())
        }
    };

    match PathFd::new(&place) {
        Ok(place) => ruleset.add_rule(PathBeneath::new(place, access)),
        // Whoever opens the file says what is wrong.
        Err(_) => Ok(ruleset),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{TcpListener, TcpStream};
    use std::process::Command;
    use std::thread;

    use super::*;

    const CONFINED: ConfinementFlags = ConfinementFlags {
        no_confinement: false,
    };

    /// What a thread can still do after [`confine`]; others are not affected.
    #[test]
    fn what_is_not_needed_is_given_up() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["logs", "elsewhere", "linked"] {
            fs::create_dir(path(name)).unwrap();
        }
        let log = path("logs/log");
        fs::write(path("linked/real"), "").unwrap();
        std::os::unix::fs::symlink(path("linked/real"), path("logs/link")).unwrap();
        fs::write(path("elsewhere/old"), "old").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();

        thread::scope(|scope| {
            scope.spawn(|| {
                let link = path("logs/link");
                let null = Path::new("/dev/null");
                let needs = Needs {
                    written: vec![&log, &link, null, Path::new("/nowhere/file")],
                    connects: false,
                };
                let confinement = confine(CONFINED, &needs);
                if let Confinement::None(why) = confinement {
                    eprintln_skip(&why);
                    return;
                }

                fs::write(&log, "a").unwrap();
                fs::rename(&log, path("logs/log.1")).unwrap();
                fs::remove_file(path("logs/log.1")).unwrap();
                fs::write(&link, "through").unwrap();
                fs::write(null, "a").unwrap();
                std::os::unix::net::UnixListener::bind(path("logs/socket")).unwrap();
                assert_eq!(fs::read_to_string(path("elsewhere/old")).unwrap(), "old");

                for denied in [
                    fs::write(path("elsewhere/new"), "a"),
                    fs::write(path("elsewhere/old"), "a"),
                    fs::remove_file(path("elsewhere/old")),
                    fs::create_dir(path("logs/directory")),
                    Command::new("true").status().map(drop),
                ] {
                    let kind = denied.unwrap_err().kind();
                    assert_eq!(kind, std::io::ErrorKind::PermissionDenied);
                }
                // Linux 6.7.
                if confinement == Confinement::Full {
                    let kind = TcpStream::connect(address).unwrap_err().kind();
                    assert_eq!(kind, std::io::ErrorKind::PermissionDenied);
                }
            });
        });
        fs::write(path("elsewhere/new"), "not this thread").unwrap();
    }

    fn eprintln_skip(why: &str) {
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "skipped: {why}");
    }

    #[test]
    fn the_flag_leaves_all_as_it_is() {
        let flags = ConfinementFlags {
            no_confinement: true,
        };
        let confinement = confine(flags, &Needs::default());
        assert_eq!(confinement.to_string(), "not confined: --no-confinement");
        fs::write(tempfile::tempdir().unwrap().path().join("file"), "a").unwrap();
    }
}
