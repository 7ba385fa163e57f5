//! One sentence on what a picture shows, computed from its figures.

use super::compare::{Verdict, of_case, place};
use super::meaning::{Better, better, is_rival, words};
use crate::harness::source::Figure;
use plainweave_report::Role;
use plainweave_report::text::{humane, times};

/// Of systems in one case.
pub(super) fn of_systems(experiment: &str, figures: &[&Figure]) -> String {
    let there: Vec<_> = figures
        .iter()
        .copied()
        .filter(|figure| !figure.spread.median.is_nan())
        .collect();
    let Some(first) = there.first() else {
        return "No system has a value here.".to_owned();
    };
    let value = |figure: &Figure| humane(figure.spread.median, &figure.unit);

    if let Some(found) = of_case(experiment, figures) {
        let ours = value(found.ours);
        let peer = value(found.peer);
        let name = &found.peer.system;
        let others = there
            .iter()
            .filter(|figure| is_rival(experiment, &figure.system))
            .count();
        let which = if others > 1 {
            format!("{name}, the best of the {others} others,")
        } else {
            name.clone()
        };

        let verdict = found
            .words()
            .replace(&format!(" than {name}"), "")
            .replace(&format!(" with {name}"), "");
        let verdict = if verdict.contains(" against ") {
            String::new()
        } else {
            format!(": {verdict}")
        };

        return format!("{} has {ours}, {which} {peer}{verdict}.", found.ours.system);
    }

    if there.len() == 1 {
        return format!("{} has {}.", first.system, value(first));
    }
    let way = better(&first.metric, &first.unit);
    let mut sorted = there.clone();
    sorted.sort_by(|a, b| a.spread.median.total_cmp(&b.spread.median));
    if way == Better::More {
        sorted.reverse();
    }
    let best = sorted[0];
    let worst = sorted[sorted.len() - 1];

    if best.spread.median == worst.spread.median {
        return format!("All {} systems have {}.", there.len(), value(best));
    }
    let ratio = way.ratio(best.spread.median, worst.spread.median);
    let ratio = if ratio.is_finite() && ratio > 0.0 {
        format!(", {} apart", times(ratio))
    } else {
        String::new()
    };

    let (good, bad) = if way == Better::Neither {
        ("Least", "most")
    } else {
        ("Best", "worst")
    };

    format!(
        "{good} is {} with {}, {bad} {} with {}{ratio}.",
        best.system,
        value(best),
        worst.system,
        value(worst)
    )
}

/// Of lines over a swept value: figures at each place.
pub(super) fn of_sweep(experiment: &str, places: &[(f64, Vec<&Figure>)]) -> String {
    let compared: Vec<_> = places
        .iter()
        .filter_map(|(x, figures)| Some((*x, of_case(experiment, figures)?)))
        .collect();
    let Some((x, last)) = compared.last() else {
        let Some((x, figures)) = places.last() else {
            return "No place has a value.".to_owned();
        };
        return format!("At {}: {}", humane(*x, ""), of_systems(experiment, figures));
    };

    let count = |verdict| {
        compared
            .iter()
            .filter(|(_, found)| found.verdict == verdict)
            .count()
    };

    let ahead = count(Verdict::Better);
    let behind = count(Verdict::Worse);
    format!(
        "{} is ahead of the best of the others at {ahead} of {} places and behind at {behind}; at {}, the greatest, it \
         is {}.",
        last.ours.system,
        compared.len(),
        humane(*x, ""),
        last.words().replace(" against ", " and not ")
    )
}

/// Of a heat map: how many times worse than the best each system is, as a mean over the cases that
/// it has.
pub(super) fn of_heat(rows: &[(String, Role, Vec<Option<f64>>)]) -> String {
    let cases = rows.first().map_or(0, |(_, _, cells)| cells.len());
    let complete: Vec<_> = rows
        .iter()
        .filter_map(|row| Some((row, mean(&row.2)?)))
        .collect();
    let Some((best, ratio)) = complete.iter().min_by(|a, b| a.1.total_cmp(&b.1)) else {
        return format!("None of the {} systems has all {cases} cases.", rows.len());
    };
    let first = |row: &&(String, Role, Vec<Option<f64>>)| {
        row.2.iter().filter(|cell| **cell == Some(1.0)).count()
    };
    let most = rows.iter().max_by_key(first).unwrap_or(best);
    let ours = complete
        .iter()
        .find(|((_, role, _), _)| *role == Role::Ours && best.1 != Role::Ours);
    let ours = ours.map_or(String::new(), |((name, ..), ratio)| {
        format!("; the first of ours, {name}, {}", times(*ratio))
    });

    format!(
        "Of the {} systems with all {cases} cases, {} is the nearest to each case's best, with {} of it on average \
         (geometric mean){ours}; {} is itself the best in {} cases.",
        complete.len(),
        best.0,
        times(*ratio),
        most.0,
        first(&most)
    )
}

/// Returns the geometric mean of cells that are all there and finite.
pub(super) fn mean(cells: &[Option<f64>]) -> Option<f64> {
    let logs: Option<Vec<f64>> = cells
        .iter()
        .map(|cell| cell.filter(|c| c.is_finite()).map(f64::ln))
        .collect();
    let logs = logs.filter(|logs| !logs.is_empty())?;
    Some((logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

/// Returns the heading of a picture of one case.
pub(super) fn title(figure: &Figure) -> String {
    format!(
        "{}: {}",
        place(&figure.case, figure.workers),
        words(&figure.metric)
    )
}

#[cfg(test)]
mod tests {
    use super::{mean, of_heat, of_sweep, of_systems};
    use crate::pages::compare::tests::figure;
    use plainweave_report::Role;

    #[test]
    fn sentences_follow_the_data() {
        let say = |values: &[(&str, f64)]| {
            let figures: Vec<_> = values
                .iter()
                .map(|(name, v)| figure("1k", name, "p99_us", "us", *v))
                .collect();
            of_systems("web", &figures.iter().collect::<Vec<_>>())
        };

        assert_eq!(
            say(&[("plainweave epoll", 8.0), ("nginx", 16.0)]),
            "plainweave epoll has 8 \u{b5}s, nginx 16 \u{b5}s: 2\u{d7} better."
        );
        assert_eq!(
            say(&[("plainweave epoll", 30.0), ("nginx", 16.0), ("go", 10.0)]),
            "plainweave epoll has 30 \u{b5}s, go, the best of the 2 others, 10 \u{b5}s: 3\u{d7} worse."
        );
        assert_eq!(
            say(&[("nginx", 10.0), ("go", 10.1)]).split(' ').next(),
            Some("Best")
        );
        assert_eq!(
            say(&[("nginx", 5.0), ("go", 10.0)]),
            "Best is nginx with 5 \u{b5}s, worst go with 10 \u{b5}s, 2\u{d7} apart."
        );
        assert_eq!(
            say(&[("plainweave", f64::NAN)]),
            "No system has a value here."
        );
        assert_eq!(say(&[("plainweave", 5.0)]), "plainweave has 5 \u{b5}s.");
    }

    #[test]
    fn a_sweep_says_where_who_is_ahead() {
        let at = |ours: f64| {
            [
                figure("a", "plainweave", "p99_us", "us", ours),
                figure("a", "go", "p99_us", "us", 10.0),
            ]
        };

        let figures = [at(5.0), at(10.0), at(40.0)];
        let places: Vec<_> = (1..)
            .zip(&figures)
            .map(|(x, f)| (f64::from(x), f.iter().collect()))
            .collect();
        assert_eq!(
            of_sweep("micro", &places),
            "plainweave is ahead of the best of the others at 1 of 3 places and behind at 1; at 3, the greatest, it is \
             4\u{d7} worse than go."
        );
    }

    #[test]
    fn a_heat_map_names_the_nearest_to_the_best() {
        let row =
            |name: &str, role, cells: [f64; 2]| (name.to_owned(), role, cells.map(Some).to_vec());
        let rows = [
            row("a", Role::Ours, [1.0, 4.0]),
            row("b", Role::Peer, [1.21, 1.0]),
            row("c", Role::Peer, [9.0, 1.0]),
        ];
        assert!(
            (mean(&rows[0].2).unwrap() - 2.0).abs() < 1e-9 && mean(&[Some(1.0), None]).is_none()
        );
        let said = of_heat(&rows);

        assert!(
            said.contains("b is the nearest")
                && said.contains("1.1\u{d7}")
                && said.contains("ours, a, 2\u{d7}"),
            "{said}"
        );
    }
}
