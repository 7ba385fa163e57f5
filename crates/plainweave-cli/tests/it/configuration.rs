//! The file, the environment and the flags: one set of settings under the same names.

use crate::common::child;
use crate::common::scratch::Scratch;
use crate::common::{Running, command, get, output};

/// A directory with one page, and a file of settings.
fn site(settings: &str) -> (Scratch, String) {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.root().join("www")).unwrap();
    scratch.file("www/index.html", "a page");
    let file = scratch.file("web.toml", settings);
    (scratch, file)
}

/// What `--print-config` says of a setting.
fn printed(text: &str, name: &str) -> String {
    let start = format!("{name} = ");
    let mut lines = text.lines().map(|line| line.trim_start_matches("# "));
    let line = lines.find(|line| line.starts_with(&start));
    line.unwrap_or_else(|| panic!("no {name} in {text}"))
        .to_owned()
}

#[test]
fn a_server_does_what_its_file_says() {
    let (scratch, file) =
        site("root = \"www\"\nlisten = [\"127.0.0.1:0\"]\naccess-log = \"log\"\n");
    let server = Running::spawn(command(&["--config", &file]));
    let root = scratch.root().join("www");
    assert!(
        server.line.contains(root.to_str().unwrap()),
        "{}",
        server.line
    );

    assert!(get(server.address, "/").ends_with("a page"));
    server.signal();
    assert_eq!(server.end(), (Some(0), String::new()));
    let log = std::fs::read_to_string(scratch.path("log")).unwrap();
    assert!(log.contains("\"GET / HTTP/1.1\" 200"), "{log}");
}

#[test]
fn settings_come_from_the_file_the_environment_and_the_flags() {
    let settings = "root = \"www\"\nidle-timeout = \"2s\"\nmax-requests = 7\ncache = \"1m\"\n\
                    listing = true\nerror-page = [\"404=/index.html\", \"403=/index.html\"]\n";
    let (scratch, file) = site(settings);
    let mut command = command(&["--cache", "2m", "--print-config"]);
    command
        .env("PLAINWEAVE_WEB_CONFIG", &file)
        .env("PLAINWEAVE_WEB_CACHE", "3m")
        .env("PLAINWEAVE_WEB_MAX_REQUESTS", "8")
        .env("PLAINWEAVE_WEB_LISTEN", "1,2")
        .env("PLAINWEAVE_WEB_PRECOMPRESSED", "yes");
    let output = child::output(&mut command).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");

    let root = scratch.root().join("www");
    for (name, value, origin) in [
        ("cache", "\"2m\"", "the command line"),
        ("max-requests", "\"8\"", "PLAINWEAVE_WEB_MAX_REQUESTS"),
        ("listen", "[\"1\", \"2\"]", "PLAINWEAVE_WEB_LISTEN"),
        ("precompressed", "true", "PLAINWEAVE_WEB_PRECOMPRESSED"),
        ("idle-timeout", "\"2s\"", "line 2 of the file"),
        ("listing", "true", "line 5 of the file"),
        (
            "error-page",
            "[\"404=/index.html\", \"403=/index.html\"]",
            "line 6 of the file",
        ),
        ("header-timeout", "\"10s\"", "the default"),
        ("root", &format!("{root:?}"), "line 1 of the file"),
    ] {
        let line = printed(&text, name);
        let (said, why) = line.split_once(" # ").unwrap();
        assert_eq!(said.replace("/./", "/"), format!("{name} = {value}"));
        assert_eq!(why, origin, "{line}");
    }
}

#[test]
fn what_is_printed_is_a_file_that_says_the_same() {
    let args = [
        "--idle-timeout",
        "3s",
        "--listing",
        "--listen",
        "127.0.0.1:0",
    ];
    let (code, first) = output(&[&args[..], &["--print-config"]].concat());
    assert_eq!(code, Some(0), "{first}");
    let (_scratch, file) = site(&first);
    let (code, second) = output(&["--config", &file, "--print-config"]);
    assert_eq!(code, Some(0), "{second}");

    let values = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let values = lines.filter_map(|line| Some(line.split_once(" # ")?.0.to_owned()));
        // The directory is meant from the file's.
        values.filter(|value| !value.starts_with("root ")).collect()
    };

    assert_eq!(values(&first), values(&second));
    assert!(values(&first).contains(&"idle-timeout = \"3s\"".to_owned()));
}

/// Mistakes in settings: the text, the place that is named, and what is said of it.
const OF_SETTINGS: [[&str; 3]; 9] = [
    ["listen = [\"127.0.0.1:0\"\nroot", "2:1", "array"],
    [
        "# ü\nlisen = 1\n",
        "2:1",
        "unknown key `lisen`; is `listen` meant?",
    ],
    ["x-y-z = 1\n", "1:1", "--print-config lists them"],
    ["listing = \"yes\"\n", "1:11", "write listing = true"],
    ["cache = [\"1m\"]\n", "1:9", "one value, not a list"],
    ["cache = true\n", "1:9", "a string, not"],
    ["cache = \"much\"\n", "1:9", "write a number of bytes"],
    [
        "idle-timeout = \"5 parsecs\"\n",
        "1:16",
        "write a positive number of ms",
    ],
    ["config = \"x\"\n", "1:1", "unknown key `config`"],
];

/// Those in sites.
const OF_SITES: [[&str; 3]; 31] = [
    [
        "[[site]]\nnames = [\"a\"]\nroot = \"www\"\nprefix = \"docs\"\n",
        "4:10",
        "write a path, as in /docs",
    ],
    [
        "[[site]]\nnames = [\"a\"]\nroot = \"www\"\nlog-format = \"json\"\n",
        "4:14",
        "log-format goes with access-log",
    ],
    [
        "[[site]]\nnames = [\"a\"]\nroot = \"www\"\naccess-log = \"a\"\nlog-format = \"xml\"\n",
        "5:14",
        "write combined or json",
    ],
    [
        "[[site]]\nnames = [\"a\"]\nroot = \"www\"\nmax-in-progress = 0\n",
        "4:19",
        "nonzero",
    ],
    [
        "[[site]]\nnames = [\"a\"]\nroot = \"www\"\nerror-page = [\"404=/none.html\"]\n",
        "4:15",
        "/none.html: No such file",
    ],
    [
        "[[site]]\nnames = [\"a\"]\nroot = \"www\"\nprefix = \"/x\"\n\
         [[site]]\nnames = [\"a\"]\nroot = \"www\"\nprefix = \"/%78/\"\n",
        "6:10",
        "a is the name of another site with prefix /x, too",
    ],
    [
        "[[site]]\nnames = [\"a\"]\nroot = \"www\"\ncompress = 5\n",
        "4:12",
        "write true, or codings",
    ],
    [
        "[[site]]\nnames = [\"two.test.\"]\nroot = \"www\"\n",
        "2:10",
        "a dot at its end",
    ],
    [
        "[[site]]\nnames = [\"[2001:DB8::1]\"]\nroot = \"www\"\n",
        "2:10",
        "in lower case",
    ],
    [
        "[[site]]\nnames = [\"bücher.example\"]\nroot = \"www\"\n",
        "2:10",
        "xn--",
    ],
    [
        "[[site]]\nnames = [\"a\"]\n",
        "1:1",
        "needs a root, or a proxy",
    ],
    [
        "[[site]]\nnames = [\"a\"]\nproxy = \"app\"\n",
        "3:9",
        "write an [[upstream]] with it",
    ],
    [
        "[[upstream]]\nname = \"app\"\nservers = []\n",
        "1:1",
        "needs servers",
    ],
    [
        "[[upstream]]\nname = \"app\"\nservers = [\"a:1\", \"a:1\"]\n",
        "3:19",
        "it stands there twice",
    ],
    [
        "[[site]]\nnames = [\"a\"]\nroot = \"www\"\naccess-log = \"\"\n",
        "4:14",
        "write a file, or - for standard output",
    ],
    [
        "[[site]]\nnames = [\"a\"]\nroot = \"www\"\naccess-log = \"l\"\n\
         [[site]]\nnames = [\"b\"]\nroot = \"www\"\naccess-log = \"l\"\nlog-format = \"json\"\n",
        "8:14",
        "is another site's, in another format",
    ],
    [
        "[[upstream]]\nname = \"app\"\nservers = [\"http://app\"]\n",
        "3:12",
        "write 127.0.0.1:3000",
    ],
    [
        "[[upstream]]\nname = \"app\"\nservers = [\"a:1\"]\nbalance = \"fair\"\n",
        "4:11",
        "write least, two-choices or hash",
    ],
    [
        "[[upstream]]\nname = \"app\"\nservers = [\"a:1\"]\nanswer-timeout = \"soon\"\n",
        "4:18",
        "write a positive number of ms",
    ],
    [
        "[[upstream]]\nname = \"app\"\nservers = [\"a:1\"]\n\
         [[upstream]]\nname = \"app\"\nservers = [\"b:1\"]\n",
        "5:8",
        "the name of another upstream, too",
    ],
    [
        "[[site]]\nnames = [\"a\"]\nroot = \"www\"\nroots = 1\n",
        "4:1",
        "is `root` meant?",
    ],
    [
        "[[site]]\nnames = [\"a\"]\nroot = \"www\"\nlisting = 1\n",
        "4:11",
        "invalid type",
    ],
    [
        "[[site]]\nnames = [\"a\"]\nroot = \"www\"\nerror-page = [\"404=x\"]\n",
        "4:15",
        "write an error status",
    ],
    [
        "[[site]]\nnames = [\"a\"]\nroot = \"www\"\nfallback = \"/none\"\n",
        "4:12",
        "/none: No such file",
    ],
    [
        "[[site]]\nnames = [\"a\"]\nroot = \"www\"\nindex = \"a/b\"\n",
        "4:9",
        "without a slash",
    ],
    [
        "[[site]]\nnames = [\"a\"]\nroot = \"www\"\n[[site]]\nnames = [\"a\"]\nroot = \"www\"\n",
        "5:10",
        "a is the name of another site, too",
    ],
    [
        "[[site]]\nnames = []\nroot = \"www\"\n",
        "1:1",
        "a site needs names",
    ],
    [
        "[[site]]\nnames = [\"A\"]\nroot = \"www\"\n",
        "2:10",
        "in lower case",
    ],
    [
        "[[site]]\nnames = [\"a:80\"]\nroot = \"www\"\n",
        "2:10",
        "without a port",
    ],
    [
        "[[site]]\nnames = [\"a\"]\nroot = \"www\"\ncompress = \"lzw\"\n",
        "4:12",
        "write br, zstd or gzip",
    ],
    [
        "[[site]]\nnames = [\"a\"]\nroot = \"none\"\n",
        "3:8",
        "cannot serve",
    ],
];

/// Those in a rule, which begins on the third line.
const OF_RULES: [[&str; 3]; 35] = [
    ["max-body = \"much\"\n", "3:12", "write a number of bytes"],
    ["path = []\n", "2:1", "for nothing"],
    ["path = \"/[äö]/*\"\n", "3:8", "{ä,ö}"],
    ["redirect = \"foo\"\n", "3:12", "write a path"],
    ["redirect = \"//evil.example\"\n", "3:12", "write a path"],
    [
        "regex = \"(.*)\"\nredirect = \"https://one.test$1\"\n",
        "4:12",
        "write / behind it",
    ],
    [
        "regex = \"(.*)\"\nredirect = \"https://$1/\"\n",
        "4:12",
        "name the host",
    ],
    ["rewrite = \"/%zz\"\n", "3:11", "no file can have"],
    [
        "set-headers = { X-A = \"1\", x-a = \"2\" }\n",
        "3:34",
        "stands twice",
    ],
    [
        "rate = { requests = 1, per = \"4294967295h\", burst = 4294967295 }\n",
        "3:8",
        "no clock",
    ],
    ["path = \"a/*\"\n", "3:8", "paths begin with /"],
    ["path = \"/a[\"\n", "3:8", "unclosed character class"],
    ["path = [\"/a\", 1]\n", "3:15", "invalid type"],
    ["regex = \"(\"\n", "3:9", "unclosed group"],
    ["regex = \"a\"\npath = \"/a\"\n", "4:8", "path or regex"],
    ["redirect = \"/$1\"\n", "3:12", "takes nothing by that"],
    ["redirect = \"/a b\"\n", "3:12", "percent-encoded"],
    ["redirect = \"/\"\nstatus = 200\n", "4:10", "301, 302"],
    ["status = 301\n", "3:10", "goes with redirect"],
    ["rewrite = \"x\"\n", "3:11", "a path of this site"],
    [
        "set-headers = { \"a b\" = \"1\" }\n",
        "3:25",
        "not a header name",
    ],
    [
        "set-headers = { A = \"\\n\" }\n",
        "3:21",
        "control character",
    ],
    [
        "add-headers = { Date = \"1\" }\n",
        "3:24",
        "writes this field",
    ],
    [
        "set-headers = { Content-Length = \"1\" }\n",
        "3:34",
        "itself",
    ],
    ["remove-headers = [\"Date\"]\n", "3:19", "can be removed"],
    [
        "cache-control = \"a\\u0000\"\n",
        "3:17",
        "control character",
    ],
    ["allow = [\"10.0.0.0/40\"]\n", "3:10", "10.0.0.0/8"],
    ["deny = [\"localhost\"]\n", "3:9", "write a network"],
    ["rate = { requests = 0 }\n", "3:8", "at least 1"],
    [
        "rate = { requests = 1, per = \"x\" }\n",
        "3:30",
        "ms, s, m or h",
    ],
    ["cors = { origins = [\"x/\"] }\n", "3:21", "as browsers do"],
    ["cors = { origins = [] }\n", "3:8", "has none"],
    [
        "cors = { origins = [\"*\"], credentials = true }\n",
        "3:8",
        "name the origins",
    ],
    [
        "basic-auth = { file = \"none\" }\n",
        "3:23",
        "cannot be read",
    ],
    [
        "basic-auth = { file = \"web.toml\" }\n",
        "3:23",
        "web.toml:1: write NAME:HASH",
    ],
];

#[test]
fn mistakes_are_said_by_line_and_column() {
    let rules = OF_RULES.map(|[text, place, said]| {
        let text = format!("root = \"www\"\n[[rule]]\n{text}");
        (text, place, said)
    });

    let others = OF_SETTINGS.iter().chain(&OF_SITES);
    let others = others.map(|[text, place, said]| ((*text).to_owned(), *place, *said));
    let mut wrong = Vec::new();
    for (text, place, said) in others.chain(rules) {
        let (_scratch, file) = site(&text);
        let (code, output) = output(&["--config", &file, "--check"]);
        let is_placed = output.contains(&format!("{file}:{place}: "));
        if code == Some(0) || !is_placed || !output.contains(said) || output.lines().count() != 1 {
            wrong.push(format!("{text}: {output}"));
        }
    }

    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What could not be made at the start is no good configuration.
#[test]
fn places_that_cannot_be_written_are_said() {
    for flag in ["unix-socket", "trace", "access-log"] {
        let (_scratch, file) = site(&format!("{flag} = \"/nonexistent/file\"\nroot = \"www\"\n"));
        let (code, said) = output(&["--config", &file, "--check"]);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("/nonexistent/file"), "{said}");
    }
}

#[test]
fn what_no_setting_is_called_is_refused() {
    let mut command = command(&["--check"]);
    let output = child::output(command.env("PLAINWEAVE_WEB_LISEN", "1")).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("PLAINWEAVE_WEB_LISEN: no setting"), "{said}");
    let (code, said) = crate::common::output(&["--config", "/nonexistent.toml"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("/nonexistent.toml cannot be read"), "{said}");
}

#[test]
fn a_good_file_is_said_to_be_good() {
    let site = "[[site]]\nnames = [\"a\"]\nroot = \"www\"\n[[site.rule]]\n[[rule]]\n";
    let (_scratch, file) = self::site(site);
    let (code, said) = output(&["--config", &file, "--check"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(
        said,
        format!("plainweave web: {file} is good: 1 site, 2 rules\n")
    );
}

/// Of two flags that say the contrary the later one counts, too.
#[test]
fn what_comes_later_may_say_the_contrary() {
    for (settings, args, listing) in [
        ("listing = true\n", &["--no-listing"][..], ["false", "true"]),
        ("no-listing = true\n", &["--listing"], ["true", "false"]),
        ("listing = false\n", &[], ["false", "true"]),
    ] {
        let (_scratch, file) = site(settings);
        let args = [&["--config", &file, "--print-config"], args].concat();
        let (code, text) = output(&args);
        assert_eq!(code, Some(0), "{text}");
        for (name, value) in ["listing", "no-listing"].into_iter().zip(listing) {
            let line = printed(&text, name);
            assert!(line.starts_with(&format!("{name} = {value} ")), "{line}");
        }
    }

    let (_scratch, file) = site("listing = true\nno-listing = true\n");
    let (code, said) = output(&["--config", &file]);
    assert_eq!(code, Some(2));
    assert!(said.contains("cannot be used with"), "{said}");
}

/// What could not be read again at HUP, and would have no rules at the second reading.
#[test]
fn what_is_no_file_is_no_configuration() {
    let scratch = Scratch::new();
    let folder = scratch.root().to_str().unwrap();
    for path in ["/dev/stdin", "/dev/null", folder] {
        let mut command = command(&["--config", path, "--check"]);
        let output = child::output(command.stdin(std::process::Stdio::null())).unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{path}: {said}");
        assert!(said.contains("is no regular file"), "{path}: {said}");
    }
}

#[test]
fn the_tables_are_printed_too() {
    let tables = "# ours\n[[rule]]\ndeny = [\"10.0.0.0/8\"]\n";
    let (_scratch, file) = site(&format!(
        "cache = \"1m\"\n[[site]]\nnames = [\"*\"]\nroot = \"www\"\n{tables}"
    ));
    let (code, text) = output(&["--config", &file, "--print-config"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("[[site]]") && text.ends_with(tables),
        "{text}"
    );
}
