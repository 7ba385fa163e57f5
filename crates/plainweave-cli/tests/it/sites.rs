//! Sites by their names, and their rules.

use std::net::SocketAddr;
use std::process::Command;

use crate::common::authority::{Authority, NOW};
use crate::common::scratch::Scratch;
use crate::common::{Running, ask, child, command};

/// `eve:geheim` and `bob:sesam`, by bcrypt with 16 rounds, and by argon2.
const USERS: &str = "# staff\neve:$2b$04$abcdefghijklmnopqrstuuPWRtT5yx7FBi4dcf6ROhboeNunUrLQ.\n\
                     bob:$argon2id$v=19$m=64,t=1,p=1$MHoEpRnmJv6/XwxbiITxOw\
                     $VgtCOIZ+Pte4uOHgB05oOD1RqBKLDMXaFSEkVIhGaIA\n";

/// Starts a server by these settings, with these files beside them.
pub(crate) fn start(files: &[(&str, &str)], settings: &str, args: &[&str]) -> (Scratch, Running) {
    let scratch = Scratch::new();
    for (name, content) in files {
        let path = scratch.root().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    let file = scratch.file("web.toml", settings);
    let server = Running::spawn(command(
        &[&["--config", &file, "--listen", "127.0.0.1:0"], args].concat(),
    ));
    (scratch, server)
}

/// Sends a request line and fields, and returns the whole answer.
pub(crate) fn answer(address: SocketAddr, line: &str, host: &str, fields: &str) -> String {
    let fields = format!("Host: {host}\r\nConnection: close\r\n{fields}");
    ask(address, &format!("{line} HTTP/1.1\r\n{fields}\r\n"))
}

#[test]
fn each_host_has_its_site() {
    let files = [
        ("a/index.html", "site a"),
        ("b/start.htm", "site b"),
        ("c/index.html", "site c"),
        ("d/index.html", "all others"),
    ];
    let named = "[[site]]\nnames = [\"a.example\", \"[::1]\"]\nroot = \"a\"\n\
                 [[site]]\nnames = [\"*.example\"]\nroot = \"b\"\nindex = \"start.htm\"\n\
                 [[site]]\nnames = [\"*.c.example\"]\nroot = \"c\"\n";
    let hosts = [
        ("a.example", "site a"),
        ("A.Example:80", "site a"),
        ("a.example.", "site a"),
        ("[::1]:8080", "site a"),
        ("b.example", "site b"),
        ("x.y.example", "site b"),
        ("x.c.example", "site c"),
        ("c.example", "site b"),
        (".example", "421 Misdirected Request\n"),
        ("example", "421 Misdirected Request\n"),
        ("xexample", "421 Misdirected Request\n"),
    ];
    let (_scratch, server) = start(&files, named, &[]);
    for (host, body) in hosts {
        let answer = answer(server.address, "GET /", host, "");
        assert!(
            answer.ends_with(&format!("\r\n\r\n{body}")),
            "{host}: {answer}"
        );
    }

    // With one for all others, by name or by the flags.
    let star = format!("{named}[[site]]\nnames = [\"*\"]\nroot = \"d\"\n");
    for settings in [star.clone(), format!("root = \"d\"\n{named}")] {
        let (_scratch, server) = start(&files, &settings, &[]);
        for (host, body) in hosts {
            let body = if body.starts_with("421") {
                "all others"
            } else {
                body
            };
            let answer = answer(server.address, "GET /", host, "");
            assert!(
                answer.ends_with(&format!("\r\n\r\n{body}")),
                "{host}: {answer}"
            );
        }

        let old = ask(server.address, "GET / HTTP/1.0\r\n\r\n");
        assert!(old.ends_with("all others"), "{old}");
    }
}

#[test]
fn names_of_tls_and_of_the_request_agree() {
    let authority = Authority::new();
    let pair = authority.certify("both", &["a.example", "b.example"], NOW);
    let pair: Vec<_> = pair.iter().map(String::as_str).collect();
    let settings = "[[site]]\nnames = [\"a.example\"]\nroot = \"a\"\n\
                    [[site]]\nnames = [\"b.example\"]\nroot = \"b\"\n";
    let files = [("a/index.html", "site a"), ("b/index.html", "site b")];
    let args = [&pair[..], &["--tls-listen", "127.0.0.1:0"]].concat();
    let (_scratch, server) = start(&files, settings, &args);
    let port = server.line.split("https://127.0.0.1:").nth(1).unwrap();
    let port: String = port.chars().take_while(char::is_ascii_digit).collect();

    for (named, host, status, body) in [
        ("a.example", "a.example", 200, "site a"),
        ("b.example", "B.example", 200, "site b"),
        ("a.example", "b.example", 421, ""),
    ] {
        let resolved = format!("{named}:{port}:127.0.0.1");
        let url = format!("https://{named}:{port}/");
        let mut curl = Command::new("curl");
        curl.args([
            "-s",
            "--max-time",
            "10",
            "-w",
            "%{http_code}",
            "--resolve",
            &resolved,
        ])
        .args(["--cacert", &authority.path("ca.pem")])
        .args(["-H", &format!("Host: {host}"), &url]);
        let out = String::from_utf8(child::output(&mut curl).unwrap().stdout).unwrap();
        assert!(
            out.ends_with(&status.to_string()) && out.contains(body),
            "{out}"
        );
    }
}

const FILES: [(&str, &str); 9] = [
    ("www/index.html", "start"),
    ("www/about.html", "about"),
    ("www/404.html", "a page for 404"),
    ("www/assets/app.3f9a2c71.js", "hashed"),
    ("www/assets/app.js", "plain"),
    ("www/private/index.html", "secret"),
    ("www/private/new.html", "new secret"),
    ("www/taken/index.html", "folder"),
    ("www/taken.html", "page beside a folder"),
];

const RULES: &str = r#"
root = "www"
clean-urls = true
error-page = ["404=/404.html"]

[[rule]]
path = "/assets/**"
immutable-hashes = true
cache-control = "max-age=60"
set-headers = { X-Frame-Options = "SAMEORIGIN" }

[[rule]]
path = "/assets/**"
[rule.cors]
origins = ["https://x.example"]
methods = ["PUT"]
headers = ["X-A"]
expose = ["ETag"]
max-age = "10m"

[[rule]]
path = ["/old/*", "/older/**"]
redirect = "/new$path"

[[rule]]
regex = "^/y(?<year>[0-9]+)/(.*)$"
redirect = "https://a.example/$year/$2?x=1"
status = 308

[[rule]]
path = "/app/**"
rewrite = "/index.html"

[[rule]]
path = "/folder/*"
rewrite = "/taken"

[[rule]]
path = "/{closed,shut}"
deny = ["127.0.0.0/8"]

[[rule]]
path = "/open"
allow = ["127.0.0.1"]
rewrite = "/about.html"

[[rule]]
path = "/elsewhere"
allow = ["10.0.0.0/8"]

[[rule]]
set-headers = { X-Frame-Options = "DENY", Server = "mine", "content-type" = "text/x" }
add-headers = { Link = "</a>; rel=preload" }
remove-headers = ["ETag", "Last-Modified"]
"#;

/// Requests, and the answers that the rules make of them.
struct Case {
    line: &'static str,
    fields: &'static str,
    status: u16,
    /// What the answer has, with `|` between.
    has: &'static str,
    has_not: &'static str,
}

const fn case(
    line: &'static str,
    fields: &'static str,
    status: u16,
    has: &'static str,
    has_not: &'static str,
) -> Case {
    Case {
        line,
        fields,
        status,
        has,
        has_not,
    }
}

const ORIGIN: &str = "Origin: https://x.example\r\n";
const PREFLIGHT: &str = "Origin: https://x.example\r\nAccess-Control-Request-Method: PUT\r\n";
const STRANGE: &str = "Origin: https://y.example\r\nAccess-Control-Request-Method: PUT\r\n";

const OF_FIELDS: [Case; 9] = [
    case(
        "GET /",
        "",
        200,
        "\r\nX-Frame-Options: DENY\r\n|\r\nServer: mine\r\n|\r\nContent-Type: text/x\r\n|\
         \r\nLink: </a>; rel=preload\r\n|start",
        "ETag|Last-Modified|text/html|plainweave/|Cache-Control",
    ),
    case(
        "GET /assets/app.js",
        "",
        200,
        "X-Frame-Options: SAMEORIGIN|Cache-Control: max-age=60\r\n|Vary: Origin|Link: ",
        "DENY|Allow-Origin",
    ),
    case(
        "GET /assets/app.3f9a2c71.js",
        "",
        200,
        "Cache-Control: public, max-age=31536000, immutable\r\n",
        "max-age=60",
    ),
    case(
        "GET /assets/none.js",
        "",
        404,
        "X-Frame-Options: SAMEORIGIN|a page for 404",
        "Cache-Control",
    ),
    case(
        "GET /assets/app.js",
        ORIGIN,
        200,
        "\r\nAccess-Control-Allow-Origin: https://x.example\r\n|\
         \r\nAccess-Control-Expose-Headers: ETag\r\n",
        "Allow-Methods",
    ),
    case(
        "GET /assets/app.js",
        "Origin: https://y.example\r\n",
        200,
        "Vary: Origin",
        "Access-Control",
    ),
    case(
        "OPTIONS /assets/app.js",
        PREFLIGHT,
        204,
        "\r\nAccess-Control-Allow-Origin: https://x.example\r\n|Allow-Methods: PUT\r\n|\
         Allow-Headers: X-A\r\n|Max-Age: 600\r\n",
        "Allow: GET",
    ),
    case(
        "OPTIONS /assets/app.js",
        STRANGE,
        204,
        "Vary: Origin",
        "Access-Control",
    ),
    case(
        "OPTIONS /assets/app.js",
        "",
        204,
        "Allow: GET, HEAD, OPTIONS",
        "Allow-Origin",
    ),
];

const OF_PATHS: [Case; 21] = [
    case("GET /folder/x", "", 200, "folder", "Location"),
    case(
        "GET /old/x?q=1",
        "",
        302,
        "\r\nLocation: /new/old/x?q=1\r\n",
        "",
    ),
    case("GET /old/x/y", "", 404, "", "Location"),
    case(
        "GET /older/x/y",
        "",
        302,
        "\r\nLocation: /new/older/x/y\r\n",
        "",
    ),
    case(
        "GET //%6Flder/%0d%0aSet-Cookie:x",
        "",
        302,
        "\r\nLocation: /new/older/%0D%0ASet-Cookie:x\r\n",
        "",
    ),
    case(
        "GET /y2026/a%20b/c?q=1",
        "",
        308,
        "\r\nLocation: https://a.example/2026/a%20b/c?x=1\r\n",
        "",
    ),
    case("GET /app/any/thing", "", 200, "start", "Location"),
    case("GET /closed", "", 403, "X-Frame-Options: DENY", ""),
    case("GET /sh%75t", "", 403, "", ""),
    case("GET /open", "", 200, "about", ""),
    case("GET /elsewhere", "", 403, "", ""),
    case("GET /about", "", 200, "about", ""),
    case(
        "HEAD /about",
        "",
        200,
        "Content-Length: 5\r\n",
        "\r\n\r\nabout",
    ),
    case(
        "GET /about.html?a=b",
        "",
        301,
        "\r\nLocation: /about?a=b\r\n",
        "",
    ),
    case("GET /index.html", "", 301, "\r\nLocation: /\r\n", ""),
    case("GET /about/", "", 301, "\r\nLocation: /about\r\n", ""),
    case("GET /taken", "", 301, "\r\nLocation: /taken/\r\n", ""),
    case("GET /taken.html", "", 200, "page beside a folder", ""),
    case("GET /none", "", 404, "a page for 404", ""),
    case("GET /../x", "", 400, "", ""),
    case("OPTIONS *", "", 204, "", ""),
];

#[test]
fn rules_do_what_they_say() {
    let (_scratch, server) = start(&FILES, RULES, &[]);
    for case in OF_FIELDS.iter().chain(&OF_PATHS) {
        let answer = answer(server.address, case.line, "h", case.fields);
        let is = answer.starts_with(&format!("HTTP/1.1 {} ", case.status));
        let right = case.has.split('|').all(|part| answer.contains(part));
        let mut unwanted = case.has_not.split('|').filter(|part| !part.is_empty());
        let wrong = unwanted.any(|part| answer.contains(part));
        assert!(is && right && !wrong, "{}: {answer}", case.line);
    }

    let part = answer(
        server.address,
        "GET /assets/app.js",
        "h",
        "Range: bytes=1-2\r\n",
    );

    assert!(
        part.contains("206 ") && part.ends_with("\r\n\r\nla"),
        "{part}"
    );

    assert!(part.contains("Cache-Control: max-age=60"), "{part}");
}

/// The same fields by HTTP/2.
#[test]
fn rules_hold_for_http2() {
    let (_scratch, server) = start(&FILES, RULES, &[]);
    let mut curl = Command::new("curl");
    curl.args(["-s", "-i", "--max-time", "10", "--http2-prior-knowledge"]);
    curl.arg(format!("http://{}/assets/app.js", server.address));
    let out = String::from_utf8(child::output(&mut curl).unwrap().stdout).unwrap();
    for part in [
        "HTTP/2 200",
        "server: mine\r\n",
        "cache-control: max-age=60\r\n",
        "x-frame-options: SAMEORIGIN\r\n",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }

    assert!(
        !out.contains("etag:") && !out.contains("plainweave/"),
        "{out}"
    );
}

fn authorization(user: &str) -> String {
    use base64::Engine;
    let encoded = base64::engine::general_purpose::STANDARD.encode(user);
    format!("Authorization: Basic {encoded}\r\n")
}

#[test]
fn who_has_no_password_is_asked_for_one() {
    let rule = "root = \"www\"\n[[rule]]\npath = \"/private/**\"\n\
                basic-auth = { file = \"users\", realm = \"Staff\" }\n";
    let files = [&FILES[..], &[("users", USERS)]].concat();
    let (_scratch, server) = start(&files, rule, &[]);
    let challenge = "\r\nWWW-Authenticate: Basic realm=\"Staff\", charset=\"UTF-8\"\r\n";
    let twice = authorization("eve:geheim").repeat(2);
    for (line, fields, is_let_in) in [
        ("GET /private/", authorization("eve:geheim"), true),
        ("GET /private/new.html", authorization("eve:geheim"), true),
        ("GET /private/", authorization("bob:sesam"), true),
        ("GET /private/", String::new(), false),
        ("GET //priv%61te/new.html", String::new(), false),
        ("GET /private/none", String::new(), false),
        ("GET /private/", authorization("eve:sesam"), false),
        ("GET /private/", authorization("eve"), false),
        ("GET /private/", authorization("nobody:geheim"), false),
        (
            "GET /private/",
            "Authorization: Basic ?\r\n".to_owned(),
            false,
        ),
        (
            "GET /private/",
            "Authorization: Bearer x\r\n".to_owned(),
            false,
        ),
        ("GET /private/", twice, false),
    ] {
        let answer = answer(server.address, line, "h", &fields);
        assert_eq!(
            answer.contains("secret"),
            is_let_in,
            "{line} {fields}: {answer}"
        );

        let asked = answer.starts_with("HTTP/1.1 401 ") && answer.contains(challenge);
        assert_eq!(asked, !is_let_in, "{line} {fields}: {answer}");
    }

    // Ten wrong ones in a minute, of which two were above.
    let wrong = authorization("eve:wrong");
    let mut refused = None;
    for n in 0..20 {
        let answer = answer(server.address, "GET /private/", "h", &wrong);
        if answer.starts_with("HTTP/1.1 429 ") {
            assert!(answer.contains("\r\nRetry-After: "), "{answer}");
            refused.get_or_insert(n);
        }
    }

    assert_eq!(refused, Some(8));
    // Who is known goes on.
    let right = authorization("eve:geheim");
    assert!(answer(server.address, "GET /private/", "h", &right).ends_with("secret"));
}

/// A file is protected by whichever of its paths a rule names.
#[test]
fn other_paths_to_a_file_do_not_get_around_its_rules() {
    let rules = "root = \"www\"\nclean-urls = true\nprecompressed = true\n\
                 [[rule]]\npath = [\"/about.html\", \"/private/index.html\", \"/a.txt\"]\n\
                 basic-auth = { file = \"users\" }\n\
                 [[rule]]\npath = \"/taken.html\"\nredirect = \"/taken\"\n";
    let texts = [
        ("users", USERS),
        ("www/a.txt", "text"),
        ("www/a.txt.gz", "gzip"),
    ];
    let files = [&FILES[..], &texts].concat();
    let (_scratch, server) = start(&files, rules, &[]);
    for (path, status) in [
        ("/about", 401),
        ("/about.html", 401),
        ("/private/", 401),
        ("/private/index.html", 401),
        ("/a.txt", 401),
        ("/a.txt.gz", 401),
        ("/", 200),
        // Where a rule leads is about its own path alone.
        ("/taken", 301),
        ("/taken/", 200),
        ("/taken.html", 302),
    ] {
        let answer = answer(server.address, &format!("GET {path}"), "h", "");
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{path}: {answer}"
        );
    }
}

#[test]
fn what_no_rule_names_is_not_kept_for_a_year() {
    let rules = "root = \"www\"\nfallback = \"/index.html\"\nlisting = true\n\
                 [[rule]]\npath = \"/no/**\"\nimmutable-hashes = false\n\
                 [[rule]]\npath = \"/assets/**\"\nallow = [\"127.0.0.0/8\"]\n\
                 [[rule]]\nimmutable-hashes = true\ncache-control = \"max-age=60\"\n";
    let more = [
        ("www/no/app.3f9a2c71.js", "x"),
        ("www/open/app.3f9a2c71.js", "x"),
    ];
    let files = [&FILES[..], &more].concat();
    let (_scratch, server) = start(&files, rules, &[]);
    for (path, cached) in [
        (
            "/open/app.3f9a2c71.js",
            "public, max-age=31536000, immutable",
        ),
        (
            "/assets/app.3f9a2c71.js",
            "private, max-age=31536000, immutable",
        ),
        ("/no/app.3f9a2c71.js", "max-age=60"),
        ("/user-550e8400a.html", ""),
        ("/open/", "no-cache"),
        ("/", "max-age=60"),
    ] {
        let fields = "Accept: text/html\r\n";
        let answer = answer(server.address, &format!("GET {path}"), "h", fields);
        let found = answer.split("\r\nCache-Control: ").skip(1);
        let found: Vec<_> = found
            .map(|rest| rest.split("\r\n").next().unwrap())
            .collect();
        assert!(
            answer.contains(" 200 OK") && found.join("|") == cached,
            "{path}: {answer}"
        );
    }
}

#[test]
fn redirects_name_no_host_but_the_rule_s() {
    let rules = "root = \"www\"\n[[rule]]\nregex = \"^/old(.*)$\"\nredirect = \"/$1\"\n\
                 [[rule]]\nregex = \"^/go(.*)$\"\nredirect = \"https://one.test/$1#end\"\n\
                 [[rule]]\npath = \"/all/*\"\nredirect = \"https://one.test$path\"\n";
    let (_scratch, server) = start(&FILES, rules, &[]);
    for (path, location) in [
        ("/old/evil.example", "/evil.example"),
        ("/old//evil.example/", "/evil.example/"),
        ("/go@evil.example?q", "https://one.test/@evil.example?q#end"),
        ("/all/x", "https://one.test/all/x"),
    ] {
        let answer = answer(server.address, &format!("GET {path}"), "h", "");
        let line = format!("\r\nLocation: {location}\r\n");
        assert!(answer.contains(&line), "{path}: {answer}");
    }
}

/// What is counted by a rule of all sites is counted for all of them together, and for paths that
/// no file has; and their answers have the rules' fields.
#[test]
fn rules_for_everything_are_for_everything() {
    let rules = "[[site]]\nnames = [\"a\"]\nroot = \"www\"\n\
                 [[site]]\nnames = [\"b\"]\nroot = \"www\"\n\
                 [[site.rule]]\nallow = [\"127.0.0.0/8\"]\n\
                 [[rule]]\npath = \"/about.html\"\ndeny = [\"127.0.0.0/8\"]\n\
                 [[rule]]\nset-headers = { X-All = \"1\", Cache-Control = \"no-store\" }\n\
                 rate = { requests = 4, per = \"1h\" }\n";
    let (_scratch, server) = start(&FILES, rules, &[]);
    for (host, path, status) in [
        ("a", "/", 200),
        ("a", "/.git/config", 404),
        ("b", "/%zz", 400),
        ("b", "/", 200),
        ("a", "/.git/config", 429),
        ("b", "/", 429),
        ("b", "/about.html", 403),
    ] {
        let answer = answer(server.address, &format!("GET {path}"), host, "");
        let is = answer.starts_with(&format!("HTTP/1.1 {status} "));
        let has = answer.contains("\r\nX-All: 1\r\n");
        let once = answer.matches("Cache-Control: no-store").count() == 1;
        assert!(is && has && once, "{host} {path}: {answer}");
    }
}

#[test]
fn a_set_type_is_not_that_of_several_parts() {
    let rules = "root = \"www\"\n[[rule]]\nset-headers = { Content-Type = \"text/x\" }\n";
    let (_scratch, server) = start(&FILES, rules, &[]);
    for (fields, content_type) in [
        ("", "text/x"),
        ("Range: bytes=0-1\r\n", "text/x"),
        (
            "Range: bytes=0-0,3-3\r\n",
            "multipart/byteranges; boundary=",
        ),
    ] {
        let answer = answer(server.address, "GET /assets/app.3f9a2c71.js", "h", fields);
        let line = format!("\r\nContent-Type: {content_type}");
        let head = answer.split("\r\n\r\n").next().unwrap();
        assert!(head.contains(&line), "{answer}");
        assert_eq!(head.matches("Content-Type").count(), 1, "{answer}");
    }

    let lost = answer(server.address, "GET /none", "h", "");
    assert!(lost.contains("Content-Type: text/plain"), "{lost}");
}

#[test]
fn who_asks_too_often_has_to_wait() {
    let rule = "root = \"www\"\n[[rule]]\npath = \"/about.html\"\n\
                rate = { requests = 2, per = \"1h\", burst = 3 }\n";
    let (_scratch, server) = start(&FILES, rule, &[]);
    for _ in 0..3 {
        assert!(answer(server.address, "GET /about.html", "h", "").contains("200 OK"));
    }

    let refused = answer(server.address, "GET /about.html", "h", "");
    assert!(
        refused.starts_with("HTTP/1.1 429 ") && refused.contains("\r\nRetry-After: 1"),
        "{refused}"
    );

    assert!(answer(server.address, "GET /", "h", "").contains("200 OK"));
}

#[test]
fn text_is_compressed_unless_a_rule_forbids_it() {
    let text = "all work and no play\n".repeat(1000);
    let files = [("www/a.txt", text.as_str()), ("www/raw/a.txt", &text)];
    let rule = "root = \"www\"\ncompress = \"gzip\"\n\
                [[rule]]\npath = \"/raw/*\"\ncache-control = \"max-age=9, no-transform\"\n";
    let (_scratch, server) = start(&files, rule, &[]);
    for (path, coding) in [("/a.txt", "gzip"), ("/raw/a.txt", "")] {
        let mut curl = Command::new("curl");
        curl.args([
            "-s",
            "--max-time",
            "10",
            "-H",
            "Accept-Encoding: gzip, br",
            "--compressed",
        ])
        .args(["-w", "%{stderr}%header{content-encoding} %{size_download}"])
        .arg(format!("http://{}{path}", server.address));
        let output = child::output(&mut curl).unwrap();
        assert!(output.stdout == text.as_bytes(), "{path}");
        let said = String::from_utf8(output.stderr).unwrap();
        let (found, size) = said.split_once(' ').unwrap();
        let is_small = size.parse::<usize>().unwrap() < text.len() / 10;
        assert_eq!((found, is_small), (coding, !coding.is_empty()), "{path}");
    }
}

#[test]
fn ten_thousand_rules_are_served_by() {
    let mut rules = String::from("root = \"www\"\n");
    for n in 0..10_000 {
        rules += &format!("[[rule]]\npath = \"/r{n}/**\"\nset-headers = {{ X-N = \"{n}\" }}\n");
    }

    let (_scratch, server) = start(&FILES, &rules, &[]);
    for n in [0, 77, 9_999] {
        let answer = answer(server.address, &format!("GET /r{n}/x"), "h", "");
        assert!(answer.contains(&format!("\r\nX-N: {n}\r\n")), "{answer}");
    }

    assert!(!answer(server.address, "GET /", "h", "").contains("X-N"));
}
