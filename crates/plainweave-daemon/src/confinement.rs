//! What a server may do to the machine, once it runs: write where its flags say.
//!
//! By [Landlock](https://docs.kernel.org/userspace-api/landlock.html) (Linux 5.13) the process
//! gives up, for good, to write, make, move and remove files elsewhere than in the directories of
//! those that it writes, and below; to open programs for execution; with Linux 6.7, if it has no
//! business with others, to connect to them by TCP; and to gain privileges (`no_new_privs`). So
//! whoever takes it over by a fault gains less. It is no sandbox: code from memory can be executed,
//! and Unix sockets and UDP reach who listens there. Threads inherit this, and the ring's workers
//! with them; a thread that is there already keeps what it has, so a server does this first.
//!
//! What it may *read* is up to its user: names are resolved, certificates renewed and reports of
//! stalls read the program's own debug information, in places that no flag names. Rejected for
//! what is written: the parents of those directories, which would let a directory that is made
//! again be the same; of `/var/log` it is `/var`.

use std::fmt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use clap::Args;
use landlock::{
    ABI, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus,
};

/// The flag.
#[derive(Args, Clone, Copy, Debug)]
pub struct ConfinementFlags {
    /// Do not give up what the server does not need: to write elsewhere than in the directories of
    /// its logs, sockets and other files that the flags name, and below (a core dump, too), to open
    /// programs for execution, to gain privileges
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
    /// Files are not, and why.
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
/// What is done to a device, and to a file that is open already.
const IN_DEVICE: [AccessFs; 2] = [AccessFs::WriteFile, AccessFs::Truncate];
/// The newest version of what is asked for here.
const NEWEST: ABI = ABI::V4;

/// Returns whether the kernel has what it takes.
pub fn is_available() -> bool {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let ruleset = ruleset.handle_access(AccessFs::from_write(ABI::V1));
    ruleset.and_then(Ruleset::create).is_ok()
}

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
    for place in needs.written.iter().flat_map(|path| places(path)) {
        let access: BitFlags<AccessFs> = match place.is_dir() {
            true => IN_DIRECTORY.into_iter().collect(),
            false => IN_DEVICE.into_iter().collect(),
        };
        // Without the place, whoever opens the file says what is wrong.
        if let Ok(opened) = PathFd::new(&place) {
            ruleset = ruleset.add_rule(PathBeneath::new(opened, access))?;
        }
    }
    ruleset.restrict_self()
}

/// Returns where a file is written: its directory and that of the file to which its links lead,
/// also if that is still to be made; of a device, itself, and of what is open already by a name in
/// `/proc` the file that it is. A pipe there, or `-`, needs nothing.
fn places(path: &Path) -> Vec<PathBuf> {
    const LINKS: usize = 40;
    let directory = |path: &Path| {
        let parent = path.parent().filter(|parent| *parent != Path::new(""));
        parent.unwrap_or(Path::new(".")).to_owned()
    };
    let mut places = Vec::new();
    let mut at = path.to_owned();
    for _ in 0..LINKS {
        let is_device = at.symlink_metadata().is_ok_and(|there| {
            let kind = there.file_type();
            kind.is_char_device() || kind.is_block_device()
        });
        if at == Path::new("-") {
            break;
        }
        if at.starts_with("/proc") {
            places.extend(at.canonicalize().ok().filter(|real| real.is_file()));
            break;
        }
        if is_device {
            places.push(at);
            break;
        }
        // In /dev stand devices, and links to what is open.
        if directory(&at) != Path::new("/dev") {
            places.push(directory(&at));
        }
        match at.read_link() {
            Ok(link) => at = directory(&at).join(link),
            Err(_) => break,
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::{AsRawFd, RawFd};
    use std::os::unix::net::UnixStream;
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
        // Of what is yet to be made.
        std::os::unix::fs::symlink("../linked/real", path("logs/link")).unwrap();
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

    #[test]
    fn streams_that_are_open_make_no_directory_writable() {
        for (path, expected) in [
            ("-", &[][..]),
            ("/dev/null", &["/dev/null"]),
            ("file", &["."]),
            ("/nowhere/file", &["/nowhere"]),
        ] {
            let expected: Vec<_> = expected.iter().map(PathBuf::from).collect();
            assert_eq!(places(Path::new(path)), expected, "{path}");
        }
        // A link to a link in /proc, whatever that is.
        assert!(!places(Path::new("/dev/stdout")).contains(&PathBuf::from("/dev")));

        let of = |open: RawFd| places(&PathBuf::from(format!("/proc/self/fd/{open}")));
        let (pipe, _other) = UnixStream::pair().unwrap();
        assert_eq!(of(pipe.as_raw_fd()), Vec::<PathBuf>::new());
        let directory = tempfile::tempdir().unwrap();
        let file = fs::File::create(directory.path().join("file")).unwrap();
        let real = directory.path().join("file").canonicalize().unwrap();
        assert_eq!(of(file.as_raw_fd()), [real]);
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
