//! Clients that others have written. A test whose client is not installed says so and passes.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use super::running::{Client, Running, eventually};
use crate::common::child::{self, Kept};
use crate::common::skip::skip;

/// Runs a client; `None` if there is none.
fn client(program: &str, args: &[&str]) -> Option<(Option<i32>, String)> {
    match child::output(Command::new(program).args(args)) {
        Ok(Output {
            status,
            stdout,
            stderr,
        }) => Some((
            status.code(),
            String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned(),
        )),
        Err(_) => {
            skip(&format!("{program} is not installed"));
            None
        }
    }
}

#[test]
fn pymemcache() {
    let server = Running::start(&[]);
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/it/cache/clients/pymemcache_commands.py"
    );
    let host = server.address.ip().to_string();
    let port = server.address.port().to_string();

    // The system's has the system's packages, whatever else comes first in PATH.
    for python in ["python3", "/usr/bin/python3"] {
        match client(python, &[script, &host, &port]) {
            Some((Some(77), _)) | None => {}
            Some((code, said)) => return assert_eq!(code, Some(0), "{said}"),
        }
    }

    skip("pymemcache is not installed (pip install pymemcache)");
}

/// Go fetches the module from its proxy; where that cannot be reached, the test says so.
#[test]
fn gomemcache() {
    let source = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/it/cache/clients/gomemcache"
    );
    let program =
        std::env::temp_dir().join(format!("plainweave-gomemcache-{}", std::process::id()));
    let known = ["go", "/usr/local/go/bin/go"];
    let Some(go) = known
        .into_iter()
        .find(|go| Command::new(go).arg("version").output().is_ok())
    else {
        return skip("there is no go");
    };

    let mut build = Command::new(go);
    build
        .current_dir(source)
        .args(["build", "-mod=readonly", "-o"])
        .arg(&program);
    let built = child::output(&mut build).unwrap();
    let said = String::from_utf8_lossy(&built.stderr);
    if !built.status.success()
        && (said.contains("dial tcp") || said.contains("disabled by GOPROXY"))
    {
        return skip(&format!("go cannot fetch the module: {said}"));
    }
    assert!(built.status.success(), "{said}");
    let server = Running::start(&[]);
    let (code, said) = client(program.to_str().unwrap(), &[&server.address.to_string()]).unwrap();

    assert_eq!(code, Some(0), "{said}");
    let _ = std::fs::remove_file(program);
}

#[test]
fn libmemcached_s_tools() {
    let server = Running::start(&[]);
    let servers = format!("--servers={}", server.address);
    let file = std::env::temp_dir().join(format!("plainweave-memccp-{}", std::process::id()));
    std::fs::File::create(&file)
        .unwrap()
        .write_all(b"a value in a file")
        .unwrap();
    let Some((code, said)) = client("memccp", &[&servers, file.to_str().unwrap()]) else {
        return;
    };

    assert_eq!(code, Some(0), "{said}");
    let name = file.file_name().unwrap().to_str().unwrap();
    let (code, said) = client("memccat", &[&servers, name]).unwrap();

    assert!(
        code == Some(0) && said.contains("a value in a file"),
        "{said}"
    );
    let (code, said) = client("memcstat", &[&servers]).unwrap();
    assert!(code == Some(0) && said.contains("curr_items: 1"), "{said}");
    let (code, said) = client("memcrm", &[&servers, name]).unwrap();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(server.connect().stat("curr_items"), 0);
    let _ = std::fs::remove_file(file);
}

/// memcapable's verdicts on a protocol, `-a` or `-b`, in order.
fn capable(address: std::net::SocketAddr, protocol: &str) -> Option<Vec<String>> {
    let host = address.ip().to_string();
    let port = address.port().to_string();
    // Debian calls it so since libmemcached 1.1.
    let known = ["memccapable", "memcapable"];
    let program = known
        .into_iter()
        .find(|name| Command::new(name).arg("--help").output().is_ok());
    let (_, said) = client(
        program.unwrap_or("memcapable"),
        &["-h", &host, "-p", &port, protocol],
    )?;

    Some(
        said.lines()
            .filter(|line| line.starts_with("ascii") || line.starts_with("binary"))
            .map(str::to_owned)
            .collect(),
    )
}

#[test]
fn memcapable_judges_as_it_judges_memcached() {
    let server = Running::start(&[]);
    for protocol in ["-a", "-b"] {
        let Some(verdicts) = capable(server.address, protocol) else {
            return;
        };
        assert!(verdicts.len() > 10, "{verdicts:?}");
        let Some(reference) = super::differential::Reference::start() else {
            return skip("there is no memcached to compare with (apt-get install memcached)");
        };
        assert_eq!(Some(verdicts), capable(reference.address(), protocol));
    }
}

/// PHP's extension: sessions, which speak the binary protocol by default, and SASL.
#[test]
fn php() {
    const SESSIONS: &str = r#"
        session_start();
        $_SESSION["visits"] = ($_SESSION["visits"] ?? 0) + 1;
        session_write_close();
        session_start();
        echo $_SESSION["visits"], "\n";
        $m = new Memcached();
        $m->setOption(Memcached::OPT_BINARY_PROTOCOL, true);
        if ($argc > 2) { $m->setSaslAuthData($argv[2], $argv[3]); }
        $m->addServer("127.0.0.1", (int) $argv[1]);
        var_dump($m->set("a", ["list" => [1, 2]], 60), $m->get("a")["list"][1]);
        var_dump($m->add("a", 1), $m->getResultCode() === Memcached::RES_NOTSTORED
            || $m->getResultCode() === Memcached::RES_DATA_EXISTS);
        var_dump($m->increment("n", 1, 5, 60), $m->increment("n", 3));
        var_dump(count($m->getMulti(["a", "n", "none"])), $m->delete("a"), $m->get("a"));
    "#;
    const SAID: &str = "1\nbool(true)\nint(2)\nbool(false)\nbool(true)\nint(5)\nint(8)\nint(2)\n\
                        bool(true)\nbool(false)\n";

    let has = client(
        "php",
        &["-r", "echo class_exists('Memcached') ? 'yes' : 'no';"],
    );
    if !has.is_some_and(|(_, said)| said.contains("yes")) {
        return skip("php has no memcached (apt-get install php-cli php-memcached)");
    }
    let users = crate::common::scratch::Scratch::new();
    users.file("users", "me:my secret\n");
    let users = users.path("users");
    let both = [vec![], vec!["-Y", &users]];
    for args in both {
        let server = Running::start(&args);
        let port = server.address.port().to_string();
        let path = format!("session.save_path=127.0.0.1:{port}");
        let mut given = vec![
            "-d",
            "session.save_handler=memcached",
            "-d",
            &path,
            "-d",
            "session.use_cookies=0",
            "-d",
            "session.cache_limiter=",
            "-d",
            "memcached.sess_sasl_username=me",
            "-d",
            "memcached.sess_sasl_password=my secret",
            "-r",
            SESSIONS,
            &port,
        ];
        match args.is_empty() {
            // Credentials that nobody asks for are refused as memcached refuses them.
            true => drop(given.drain(8..12)),
            false => given.extend(["me", "my secret"]),
        }
        let (code, said) = client("php", &given).unwrap();
        assert_eq!((code, &*said), (Some(0), SAID));
    }
}

/// Debian's unit starts memcached by a script of its own, with the flags of its configuration: all
/// but its paths stay as they are.
#[test]
fn debian_s_wrapper_starts_it() {
    const WRAPPER: &str = "/usr/share/memcached/scripts/systemd-memcached-wrapper";
    let conf = std::fs::read_to_string("/etc/memcached.conf");
    let (Ok(wrapper), Ok(conf)) = (std::fs::read_to_string(WRAPPER), conf) else {
        return skip("Debian's memcached is not installed");
    };
    if !rustix::process::geteuid().is_root() {
        return skip("the wrapper is for root");
    }

    let scratch = crate::common::scratch::Scratch::new();
    scratch.file(
        "memcached",
        format!(
            "#!/bin/sh\nexec {} cache \"$@\"\n",
            env!("CARGO_BIN_EXE_plainweave")
        ),
    );
    let program = scratch.path("memcached");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).unwrap();
    let pid = scratch.path("pid");
    let conf = conf.replace("-p 11211", "-p -1");
    let conf = conf.replace("/var/run/memcached/memcached.pid", &pid);
    // Neither the program nor its directory are the user's.
    let conf = conf.replace("-u memcache", "-u root");
    scratch.file("memcached.conf", conf);
    scratch.file("wrapper", wrapper.replace("/usr/bin/memcached", &program));

    let mut command = Command::new("perl");
    command.args([scratch.path("wrapper"), scratch.path("memcached.conf")]);
    let server = Running::spawn(command);
    if server.line.is_empty() {
        panic!("{}", server.end().1);
    }
    let mut client = server.connect();
    client.ask(
        "set a 0 0 1\r\n1\r\nget a\r\n",
        "STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n",
    );
    let written = std::fs::read_to_string(&pid).unwrap();
    assert_eq!(written.trim(), server.child.id().to_string());
}

/// twemproxy before three nodes, one of which dies and comes back.
#[test]
fn twemproxy_survives_a_node() {
    let mut nodes: Vec<Option<Running>> =
        (0..3).map(|_| Some(Running::start(&["-t", "1"]))).collect();
    let addresses: Vec<_> = nodes.iter().flatten().map(|node| node.address).collect();
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let servers: String = addresses
        .iter()
        .enumerate()
        .map(|(n, node)| format!("   - {node}:1 n{n}\n"))
        .collect();
    let text = format!(
        "cache:\n  listen: {port}\n  hash: md5\n  distribution: ketama\n  auto_eject_hosts: true\n  timeout: 2000\n  \
         server_retry_timeout: 500\n  server_failure_limit: 1\n  servers:\n{servers}"
    );
    let file =
        std::env::temp_dir().join(format!("plainweave-nutcracker-{}.yml", std::process::id()));

    std::fs::write(&file, text).unwrap();
    let stats = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
        .to_string();
    let args = [
        "-c",
        file.to_str().unwrap(),
        "-s",
        &stats,
        "-a",
        "127.0.0.1",
    ];
    let proxy = Kept::spawn(
        Command::new("nutcracker")
            .args(args)
            .stdout(Stdio::null())
            .stderr(Stdio::null()),
    );
    let Ok(proxy) = proxy else {
        return skip("nutcracker is not installed");
    };

    eventually("the proxy serves", || {
        std::net::TcpStream::connect(port).is_ok()
    });
    let mut client = Client::to(port);
    let fill = |client: &mut Client| {
        (0..60)
            .filter(|n| {
                client
                    .until(format!("set key{n} 0 0 1\r\n1\r\n"), "")
                    .starts_with("STORED")
            })
            .count()
    };

    assert_eq!(fill(&mut client), 60);
    let stored = |node: &Option<Running>| {
        node.as_ref()
            .map_or(0, |node| node.connect().stat("curr_items"))
    };

    assert!(nodes.iter().all(|node| stored(node) > 0));
    nodes[1] = None;
    eventually("the others take over", || fill(&mut client) == 60);
    let address = addresses[1].to_string();
    nodes[1] = Some(Running::spawn(super::running::command(&[
        "-t", "1", "-l", &address,
    ])));
    eventually("the node is used again", || {
        fill(&mut client) == 60 && stored(&nodes[1]) > 0
    });
    drop(proxy);
    let _ = std::fs::remove_file(file);
}
