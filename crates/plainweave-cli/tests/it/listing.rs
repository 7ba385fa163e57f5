//! The listing of a directory as a browser shows it. The pictures are kept in `target/listing`, to
//! be looked at.

use crate::common::scratch::Scratch;
use crate::common::skip;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{Running, child, command};

const NAMES: [&str; 5] = [
    "notes.txt",
    "archive.tar.gz",
    "<b>bold</b> & \"quoted\".html",
    "gr\u{fc}n.png",
    "a rather long name that a phone has to break somewhere, because nobody stops people from writing such names.pdf",
];

fn site() -> Scratch {
    let scratch = Scratch::new();
    for directory in ["site/docs/guide", "site/photos", "profile"] {
        fs::create_dir_all(scratch.root().join(directory)).unwrap();
    }
    for (n, name) in NAMES.iter().enumerate() {
        // A name may hold a slash in HTML only.
        fs::write(
            scratch
                .root()
                .join("site")
                .join(name.replace('/', "\u{2215}")),
            vec![b'x'; 7 << (4 * n)],
        )
        .unwrap();
    }

    scratch
}

fn browser() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    names.into_iter().find(|name| {
        Command::new(name)
            .arg("--version")
            .output()
            .is_ok_and(|out| out.status.success())
    })
}

fn chromium(program: &str, profile: &Path) -> Command {
    let mut command = Command::new(program);
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
    ]);
    command.arg(format!("--user-data-dir={}", profile.display()));
    command
}

/// Width and height of a PNG file.
fn size(picture: &[u8]) -> (u32, u32) {
    assert!(picture.starts_with(b"\x89PNG\r\n\x1a\n"));
    let number = |at: usize| u32::from_be_bytes(picture[at..at + 4].try_into().unwrap());
    (number(16), number(20))
}

#[test]
fn in_a_browser() {
    let Some(program) = browser() else {
        skip::skip("Chromium is not installed");
        return;
    };

    let scratch = site();
    let root = scratch.root().join("site");
    let server = Running::spawn(command(&[
        root.to_str().unwrap(),
        "--listing",
        "--listen",
        "127.0.0.1:0",
    ]));
    let url = format!("http://{}/", server.address);
    let profile = scratch.root().join("profile");

    let dom = child::output(chromium(program, &profile).arg("--dump-dom").arg(&url)).unwrap();
    let dom = String::from_utf8(dom.stdout).unwrap();
    assert_eq!(dom.matches("<tr>").count(), 1 + 2 + NAMES.len(), "{dom}");
    assert!(!dom.contains("<b>") && !dom.contains("<script"), "{dom}");
    assert!(
        dom.contains("&lt;b&gt;bold&lt;\u{2215}b&gt; &amp; \"quoted\".html"),
        "{dom}"
    );

    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .unwrap()
        .join("listing");
    fs::create_dir_all(&pictures).unwrap();
    let mut seen = Vec::new();

    for (name, width, height) in [("phone", 390, 844), ("desktop", 1200, 760)] {
        for (scheme, flag) in [("light", None), ("dark", Some("--force-dark-mode"))] {
            let path = pictures.join(format!("{name}-{scheme}.png"));
            let _ = fs::remove_file(&path);
            let mut shot = chromium(program, &profile);
            shot.arg(format!("--window-size={width},{height}"))
                .arg(format!("--screenshot={}", path.display()));
            let done = child::output(shot.args(flag).arg(&url)).unwrap();

            assert!(
                done.status.success(),
                "{}",
                String::from_utf8_lossy(&done.stderr)
            );
            let picture = fs::read(&path).unwrap();

            assert_eq!(size(&picture), (width, height));
            assert!(!seen.contains(&picture), "light and dark look the same");
            seen.push(picture);
        }
    }
}
