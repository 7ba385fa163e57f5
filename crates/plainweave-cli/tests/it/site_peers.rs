//! Sites and rules beside nginx, which is configured alike: the same requests, and where the
//! answers differ, why.

use crate::common::scratch::Scratch;
use crate::common::skip;
use crate::differential::peers::{self, Answer};

/// The fields that are compared.
const FIELDS: [&str; 7] = [
    "location",
    "cache-control",
    "x-a",
    "x-b",
    "www-authenticate",
    "content-type",
    "content-length",
];

/// `eve:geheim`, by bcrypt with 16 rounds.
const USERS: &str = "eve:$2b$04$abcdefghijklmnopqrstuuPWRtT5yx7FBi4dcf6ROhboeNunUrLQ.\n";
const EVE: &str = "Authorization: Basic ZXZlOmdlaGVpbQ==\r\n";
const WRONG: &str = "Authorization: Basic ZXZlOnNlc2Ft\r\n";

const OURS: &str = r#"
[[site]]
names = ["a.example", "*.a.example"]
root = "www"
error-page = ["404=/lost.html", "403=/lost.html"]

[[site.rule]]
path = "/assets/**"
cache-control = "max-age=60"
set-headers = { X-B = "assets" }

[[site.rule]]
path = "/private/**"
basic-auth = { file = "users", realm = "Staff" }

[[site.rule]]
path = "/closed/**"
deny = ["127.0.0.1"]

[[site.rule]]
path = "/inside/**"
allow = ["10.0.0.0/8"]

[[site.rule]]
path = "/old/**"
redirect = "/new$path"
status = 301

[[site.rule]]
regex = "^/y([0-9]+)/(.*)$"
redirect = "https://a.example/$1?to=$2"

[[site.rule]]
path = "/app/**"
rewrite = "/index.html"

[[site]]
names = ["b.example"]
root = "other"
index = "start.html"

[[site]]
names = ["*"]
root = "www"

[[rule]]
set-headers = { X-A = "1" }
"#;

/// The same. Where a location adds a field, nginx forgets those around it.
const THEIRS: &str = r#"
server {
    listen ADDRESS default_server; server_name _; root ROOT/www; include /etc/nginx/mime.types;
    charset utf-8; add_header X-A 1 always;
}
server {
    listen ADDRESS; server_name a.example *.a.example; root ROOT/www; absolute_redirect off;
    include /etc/nginx/mime.types; charset utf-8;
    error_page 404 403 /lost.html; add_header X-A 1 always;
    location /assets/ {
        add_header Cache-Control max-age=60; add_header X-B assets always; add_header X-A 1 always;
    }
    location /private/ { auth_basic Staff; auth_basic_user_file ROOT/users; }
    location /closed/ { deny 127.0.0.1; }
    location /inside/ { allow 10.0.0.0/8; deny all; }
    location /old/ { return 301 /new$uri$is_args$args; }
    location ~ ^/y([0-9]+)/(.*)$ { return 302 https://a.example/$1?to=$2; }
    location /app/ { rewrite ^ /index.html break; }
}
server {
    listen ADDRESS; server_name b.example; root ROOT/other; index start.html;
    include /etc/nginx/mime.types; charset utf-8; add_header X-A 1 always;
}
"#;

/// A request, and what nginx answers otherwise, as `FIELD: VALUE`; `-` is no such field.
struct Case {
    request: &'static str,
    host: &'static str,
    fields: &'static str,
    differs: &'static [&'static str],
}

const fn case(request: &'static str, host: &'static str) -> Case {
    Case {
        request,
        host,
        fields: "",
        differs: &[],
    }
}

const fn with(fields: &'static str, case: Case) -> Case {
    Case { fields, ..case }
}

/// Error pages of nginx's own are HTML, ours are a line of text.
const PLAIN: &[&str] = &["content-type", "content-length"];
/// A challenge of ours tells that names and passwords are UTF-8 (RFC 7617, 2.1).
const CHALLENGE: &[&str] = &["www-authenticate", "content-type", "content-length"];

/// There an error page has the fields of its own path.
const ERROR_PAGE: &[&str] = &["x-b"];

const fn differs(differs: &'static [&'static str], case: Case) -> Case {
    Case { differs, ..case }
}

const CASES: [Case; 24] = [
    case("GET /", "a.example"),
    case("GET /", "x.y.a.example"),
    case("GET /", "A.EXAMPLE"),
    case("GET /", "other.example"),
    case("GET /", "b.example"),
    case("HEAD /", "b.example"),
    case("GET /assets/app.js", "a.example"),
    case("HEAD /assets/app.js", "a.example"),
    case("GET //assets/%61pp.js", "a.example"),
    differs(ERROR_PAGE, case("GET /assets/none.js", "a.example")),
    case("GET /none", "a.example"),
    differs(PLAIN, case("GET /none", "b.example")),
    differs(CHALLENGE, case("GET /private/", "a.example")),
    with(EVE, case("GET /private/", "a.example")),
    differs(CHALLENGE, with(WRONG, case("GET /private/", "a.example"))),
    differs(CHALLENGE, case("GET //privat%65/", "a.example")),
    case("GET /closed/x.txt", "a.example"),
    case("GET /inside/x.txt", "a.example"),
    differs(PLAIN, case("GET /old/x?q=1", "a.example")),
    differs(PLAIN, case("GET /old/", "a.example")),
    differs(PLAIN, case("GET /y2026/file", "a.example")),
    case("GET /app/any/thing", "a.example"),
    case("GET /app/any/thing?q", "a.example"),
    differs(PLAIN, case("GET /assets", "a.example")),
];

fn compared(answer: &Answer) -> Vec<(String, String)> {
    let mut compared = vec![("status".to_owned(), answer.status.to_string())];
    for field in FIELDS {
        // A type is one however it is spelled.
        let value = answer.field(field).unwrap_or("-").to_lowercase();
        let value = value.replace("application/javascript", "text/javascript");
        compared.push((field.to_owned(), value));
    }
    compared
}

#[test]
fn rules_beside_nginx() {
    let scratch = Scratch::new();
    for (name, content) in [
        ("www/index.html", "start"),
        ("www/lost.html", "lost"),
        ("www/assets/app.js", "code"),
        ("www/private/index.html", "secret"),
        ("www/closed/x.txt", "closed"),
        ("www/inside/x.txt", "inside"),
        ("other/start.html", "another start"),
        ("users", USERS),
        ("web.toml", OURS),
    ] {
        let path = scratch.root().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    let root = scratch.root().to_str().unwrap();
    let servers = |address: std::net::SocketAddr| {
        let theirs = THEIRS.replace("ADDRESS", &address.to_string());
        theirs.replace("ROOT", root)
    };
    let Some(mut theirs) = peers::nginx_of(servers, scratch.root()) else {
        skip::skip("nginx is not installed");
        return;
    };
    let mut ours = peers::plainweave_by(&scratch.path("web.toml"));

    let mut wrong = Vec::new();
    for case in &CASES {
        let Case {
            request,
            host,
            fields,
            ..
        } = case;
        let text = format!("{request} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
        let ours = compared(&ours.ask(&text));
        let theirs = compared(&theirs.ask(&text));
        for ((field, ours), (_, theirs)) in ours.iter().zip(&theirs) {
            let may_differ = case.differs.contains(&field.as_str());
            // What differs no more is explained wrongly.
            if (ours != theirs) != may_differ {
                wrong.push(format!("{request} {host} {field}: {ours}, nginx {theirs}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
