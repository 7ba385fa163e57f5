//! `-u`, and what is said when the server runs as root for all to reach. Root sees the one half of
//! this, others the other.

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::geteuid;

use super::files::refused;
use super::running::{Running, command};
use crate::common::scratch::Scratch;
use crate::common::skip::skip;

/// A user that every system has, and its number.
fn nobody() -> (&'static str, u32) {
    let id = Command::new("id").args(["-u", "nobody"]).output().unwrap();
    (
        "nobody",
        String::from_utf8(id.stdout)
            .unwrap()
            .trim()
            .parse()
            .unwrap(),
    )
}

/// The users and groups of all threads, as the kernel lists them: real, effective, saved, of the
/// file system.
fn identities(server: &Running, field: &str) -> BTreeSet<String> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.child.id())).unwrap();
    let status =
        tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).ok());
    status
        .filter_map(|text| {
            Some(
                text.lines()
                    .find_map(|line| line.strip_prefix(field))?
                    .trim()
                    .to_owned(),
            )
        })
        .collect()
}

const IGNORED: &str = "plainweave cache: -u nobody is ignored: only root can change the user";

#[test]
fn root_becomes_the_user() {
    let (name, number) = nobody();
    let directory = Scratch::new();
    std::fs::set_permissions(
        Path::new(&directory.path("")),
        PermissionsExt::from_mode(0o777),
    )
    .unwrap();
    let pid = directory.path("pid");

    // More than any soft limit: root raises it before.
    let server = Running::start(&["-u", name, "-P", &pid, "-c", "1500"]);
    server.connect().ask(
        "set a 0 0 1\r\n1\r\nget a\r\n",
        "STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n",
    );
    server.connect().until("stats\r\n", "END");

    if geteuid().is_root() {
        assert_eq!(
            identities(&server, "Uid:"),
            [vec![number.to_string(); 4].join("\t")].into()
        );
        let groups = identities(&server, "Gid:");
        assert!(
            groups.len() == 1
                && !groups
                    .first()
                    .unwrap()
                    .split('\t')
                    .any(|group| group == "0"),
            "{groups:?}"
        );
        let groups = identities(&server, "Groups:");
        assert!(
            groups
                .iter()
                .all(|groups| !groups.split(' ').any(|group| group == "0")),
            "{groups:?}"
        );
        assert_eq!(
            std::fs::metadata(&pid).unwrap().uid(),
            number,
            "files are the user's"
        );
    }

    server.signal();
    let (code, said) = server.end();
    assert_eq!(
        (code, said.contains(IGNORED)),
        (Some(0), !geteuid().is_root()),
        "{said}"
    );
    assert!(!Path::new(&pid).exists());
}

#[test]
fn others_keep_their_own() {
    let (_, number) = nobody();
    let mut command = command(&["-p", "-1", "-l", "127.0.0.1", "-u", "nobody"]);
    if geteuid().is_root() {
        command.uid(number);
        // The program may be where only root may look.
        if command
            .get_program()
            .to_str()
            .is_some_and(|program| !readable_by_all(Path::new(program)))
        {
            return skip("the program is in a directory of root's alone");
        }
    }

    let server = Running::spawn(command);
    server.signal();
    let (code, said) = server.end();
    assert!(code == Some(0) && said.contains(IGNORED), "{said}");
}

fn readable_by_all(path: &Path) -> bool {
    path.ancestors()
        .all(|path| std::fs::metadata(path).is_ok_and(|file| file.mode() & 0o5 == 0o5))
}

#[test]
fn a_user_that_is_not_there_is_an_error() {
    if !geteuid().is_root() {
        return skip("only root changes the user");
    }
    let said = refused(&["-p", "-1", "-l", "127.0.0.1", "-u", "no-such-user"]);
    assert!(
        said.contains("there is no user no-such-user") && said.contains("-u"),
        "{said}"
    );
}

#[test]
fn root_that_all_can_reach_is_warned_of() {
    let warns = |args: &[&str]| {
        let server = Running::spawn(command(args));
        server.signal();
        let (code, said) = server.end();
        assert_eq!(code, Some(0), "{said}");
        said.contains("as root") && said.contains("all addresses") && said.contains("-l 127.0.0.1")
    };

    let root = geteuid().is_root();
    assert_eq!(warns(&["-p", "-1"]), root);
    assert_eq!(warns(&["-p", "-1", "-u", "root"]), root);
    assert!(!warns(&["-p", "-1", "-u", "nobody"]));
    assert!(!warns(&["-p", "-1", "-l", "127.0.0.1"]));
}
