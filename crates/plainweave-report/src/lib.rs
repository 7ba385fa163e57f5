//! Pictures for pages: SVG and tables without scripts, in the colours of the reader's light or dark
//! system.
//!
//! A panel is as wide as a phone ([`PANEL`]) and stands beside others where there is room, so that
//! its text is never scaled down. Labels are measured ([`text`]) and broken, never cut: `inside`
//! checks that none leaves its picture.
//!
//! *Rejected*: `plotters` 0.3 writes colours as attributes, so that a picture cannot follow the
//! reader's system, and no values at points; `poloto` 19 is styled by CSS, but has no log axis, no
//! bands and no values (both tried with a panel). `charts-rs` 0.3 takes a theme when it draws, and
//! brings 57 crates; `charming` needs scripts.

pub mod axis; // Where values lie on an axis, and where its grid is.
pub mod dots; // A row for each system.
pub mod gantt; // Who did what when: a row for each worker.
pub mod heat; // A heat map as a table.
pub mod lines; // Lines over a swept value, each with a band between its quartiles.
pub mod scatter; // A picture of two figures of each system, for the page of a benchmark.
pub mod statistics; // How the values of repetitions are distributed.
// Text in pictures: how wide it is at most, where it is broken, and numbers as people read them.
pub mod text;

/// Width of a panel, in pixels.
pub const PANEL: f64 = 340.0;

/// Whose figure is drawn: what is ours is in colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The project's own.
    Ours,
    /// Somebody else's.
    Peer,
    /// What no system can pass: the kernel alone, or a goal.
    Bound,
}

/// Colours and shapes of all pictures. Colours of lines can be distinguished in light and dark, and by
/// people who see red and green alike.
pub const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1f2933;--faint:#5f6b76;--rule:#c8d0d8;--paper:#fff;--card:#f6f8fa;--good:#c6ead0;\
--bad:#f8d0cc;--even:#e6eaee;--c0:#1d6fb8;--c1:#c2570c;--c2:#0b7f73;--c3:#8a3fd1;--c4:#b91c3c;--c5:#6b5b2a;--p:#7b8794;\
--bound:#444}\
@media(prefers-color-scheme:dark){:root{--ink:#e4e8ec;--faint:#9aa6b2;--rule:#3c4650;--paper:#14181c;--card:#1c2228;\
--good:#1d4d2c;--bad:#5e2723;--even:#2d353d;--c0:#5aa9ee;--c1:#f19a4b;--c2:#3cc7b5;--c3:#c08cf5;--c4:#f2738a;\
--c5:#cdb974;--p:#8e99a4;--bound:#bbb}}\
.panels{display:flex;flex-wrap:wrap;gap:1rem 1.5rem;align-items:flex-start}\
figure{margin:0;width:340px;max-width:100%}\
figcaption{font-size:.85rem;overflow-wrap:anywhere}\
figcaption code{color:var(--faint);font-size:.75rem}\
.wide{overflow-x:auto}details summary{cursor:pointer}\
.values{border-collapse:collapse;font-size:.75rem}.values th,.values td{padding:1px 6px;text-align:right}\
svg.panel{display:block;max-width:100%;height:auto}\
svg text{font-family:system-ui,sans-serif;fill:var(--ink)}\
svg text.faint{fill:var(--faint)}\
.axis{stroke:var(--ink);stroke-width:1}\
.grid{stroke:var(--rule);stroke-dasharray:2 3}\
.band{fill-opacity:.2;stroke:none;fill:var(--c)}\
.line{fill:none;stroke-width:2;stroke:var(--c)}\
.range{stroke:var(--c);stroke-width:1}\
.quartiles{fill:var(--c);fill-opacity:.35}\
.median,.swatch{fill:var(--c)}\
.k0{--c:var(--c0)}.k1{--c:var(--c1)}.k2{--c:var(--c2)}.k3{--c:var(--c3)}.k4{--c:var(--c4)}.k5{--c:var(--c5)}\
.peer{--c:var(--p)}.bound{--c:var(--bound)}\
.d1{stroke-dasharray:6 3}.d2{stroke-dasharray:2 2}.d3{stroke-dasharray:8 3 2 3}.d4{stroke-dasharray:12 3}\
.d5{stroke-dasharray:1 4}.d6{stroke-dasharray:8 3 2 3 2 3}.d7{stroke-dasharray:4 6}";

/// Number of colours in [`STYLE`].
const COLOURS: usize = 6;
/// Number of ways in which lines that have no colour are broken, with the unbroken one.
const DASHES: usize = 8;

/// Returns the class of the n-th of those that have a role.
fn class(role: Role, n: usize) -> String {
    match role {
        // A second round of colours is broken.
        Role::Ours if n >= COLOURS => format!("k{} d{}", n % COLOURS, n / COLOURS % DASHES),
        Role::Ours => format!("k{n}"),
        Role::Peer => format!("peer d{}", n % DASHES),
        Role::Bound => "bound".to_owned(),
    }
}

/// Checks that every text of every picture in a page lies within its picture.
pub fn inside(page: &str) {
    let attribute = |tag: &str, name: &str| -> Option<String> {
        let rest = tag.split_once(&format!(" {name}='"))?.1;
        Some(rest.split('\'').next().unwrap_or_default().to_owned())
    };

    for picture in page.split("<svg").skip(1) {
        let picture = picture.split("</svg>").next().unwrap_or_default();
        let corners = attribute(picture, "viewBox").expect("a viewBox");
        let corners: Vec<f64> = corners.split(' ').map(|n| n.parse().unwrap()).collect();

        for tag in picture.split("<text").skip(1) {
            let (head, rest) = tag.split_once('>').unwrap();
            let shown = rest.split("</text>").next().unwrap();
            let shown = shown
                .replace("&lt;", "<")
                .replace("&gt;", ">")
                .replace("&amp;", "&");
            let number = |name: &str| attribute(head, name).unwrap().parse::<f64>().unwrap();
            let x = number("x");
            let y = number("y");
            let size = number("font-size");
            let width = text::width(&shown, size);
            let left = match attribute(head, "text-anchor").as_deref() {
                Some("end") => x - width,
                Some("middle") => x - width / 2.0,
                _ => x,
            };

            let fits = left >= -0.11 && left + width <= corners[2] + 0.11;
            assert!(
                fits && y >= size * 0.8 && y + size * 0.25 <= corners[3],
                "'{shown}' leaves {corners:?}: {head}"
            );
        }
    }
}
