//! A heat map as a table: a row for each system, a column for each case, how many times worse than
//! the case's best.

use std::fmt::Write as _;

use super::Role;
use super::text::{escape, times};

/// Of a heat map.
pub const STYLE: &str = "\
.wide{overflow-x:auto;max-width:100%}\
.heat{border-collapse:collapse;font-size:.78rem}\
.heat th{font-weight:400;text-align:left;padding:1px .5rem 1px 0;min-width:9rem;color:var(--faint)}\
.heat th.ours{color:var(--c0);font-weight:600}\
.heat thead th{min-width:0;vertical-align:bottom;padding:0 2px}\
.heat thead span{writing-mode:vertical-rl;transform:rotate(180deg);white-space:nowrap}\
.heat td{text-align:right;padding:1px 5px;font-variant-numeric:tabular-nums;white-space:nowrap}\
.h0{background:#2f9e58;color:#000}.h1{background:#7cc98f;color:#000}.h2{background:#c5e3b9;color:#000}\
.h3{background:#f4ecb6;color:#000}.h4{background:#f6cf8b;color:#000}.h5{background:#eea066;color:#000}\
.h6{background:#d95f4f;color:#000}.h7{background:#7d1d2e;color:#fff}";

/// The greatest ratio of each colour but the last.
const STEPS: [f64; 7] = [1.02, 1.1, 1.25, 1.5, 2.0, 4.0, 10.0];

/// A system, whose it is, and how many times worse than the best it is in each case, if it was
/// measured there.
pub type Row = (String, Role, Vec<Option<f64>>);

/// Draws the table.
pub fn table(columns: &[String], rows: &[Row]) -> String {
    let mut html = "<div class='wide'><table class='heat'><thead><tr><th></th>".to_owned();
    for column in columns {
        let _ = write!(html, "<th><span>{}</span></th>", escape(column));
    }
    html.push_str("</tr></thead>");

    for (name, role, cells) in rows {
        let class = if *role == Role::Ours {
            " class='ours'"
        } else {
            ""
        };

        let _ = write!(html, "<tr><th{class}>{}</th>", escape(name));
        for cell in cells {
            match cell {
                Some(ratio) => {
                    let step = STEPS
                        .iter()
                        .position(|most| ratio <= most)
                        .unwrap_or(STEPS.len());
                    let _ = write!(
                        html,
                        "<td class='h{step}'>{}</td>",
                        times(*ratio).replace('\u{d7}', "")
                    );
                }
                None => html.push_str("<td></td>"),
            }
        }

        html.push_str("</tr>");
    }

    html + "</table></div>"
}

#[cfg(test)]
mod tests {
    use super::{Role, table};

    #[test]
    fn the_best_is_green_and_what_was_not_measured_is_empty() {
        let rows = [
            ("a<b".to_owned(), Role::Ours, vec![Some(1.0), None]),
            (
                "c".to_owned(),
                Role::Peer,
                vec![Some(3.2), Some(f64::INFINITY)],
            ),
        ];
        let html = table(&["x".to_owned(), "y".to_owned()], &rows);
        assert!(
            html.contains("class='ours'>a&lt;b<")
                && html.contains("<td class='h0'>1</td><td></td>"),
            "{html}"
        );
        assert!(
            html.contains("<td class='h5'>3.2</td><td class='h7'>\u{221e}</td>"),
            "{html}"
        );
    }
}
