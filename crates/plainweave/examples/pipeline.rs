//! A pipeline: lines are parsed by one fiber, factorised by four and collected by the caller, over
//! bounded channels. A slow stage makes the ones before it wait, so memory stays bounded however
//! long the input is. A stage ends when the channel before it does, and an error ends all of them.

use std::io::{self, Write};

use plainweave::scope;
use plainweave::sync::channel::{self, Receiver, Sender};

/// Items between two stages.
const BOUND: usize = 16;
/// Fibers that factorise.
const FACTORISERS: usize = 4;

fn parse<'a>(lines: impl Iterator<Item = &'a str>, numbers: &Sender<u64>) -> io::Result<()> {
    for line in lines {
        let number = line
            .parse()
            .map_err(|error| io::Error::other(format!("{line:?}: {error}")))?;
        if numbers.send(number).is_err() {
            break; // Nothing reads any more.
        }
    }
    Ok(())
}

fn factorise(mut number: u64) -> Vec<u64> {
    let mut factors = Vec::new();
    let mut divisor = 2;
    while divisor * divisor <= number {
        if number.is_multiple_of(divisor) {
            factors.push(divisor);
            number /= divisor;
        } else {
            divisor += 1;
        }
    }

    factors.push(number);
    factors
}

fn factorise_all(numbers: &Receiver<u64>, results: &Sender<(u64, Vec<u64>)>) {
    for number in numbers.iter() {
        if results.send((number, factorise(number))).is_err() {
            break;
        }
        // It computes: let the other stages run.
        plainweave::yield_now();
    }
}

/// Returns the numbers of `text` with their factors, in the order of the numbers.
///
/// # Errors
/// A line is no number.
pub(crate) fn run(text: &str) -> io::Result<Vec<(u64, Vec<u64>)>> {
    let (number_sender, numbers) = channel::bounded(BOUND);
    let (result_sender, results) = channel::bounded(BOUND);
    scope(|scope| {
        // Each stage owns the ends that it uses: when it ends, so does what comes after it.
        let parser = scope.spawn(move || parse(text.lines(), &number_sender));
        for _ in 0..FACTORISERS {
            let numbers = numbers.clone();
            let results = result_sender.clone();
            scope.spawn(move || factorise_all(&numbers, &results));
        }

        drop((numbers, result_sender));
        let mut all: Vec<_> = results.iter().collect();
        parser.join().map_err(io::Error::other)??;
        all.sort();
        Ok(all)
    })
}

fn main() -> io::Result<()> {
    let text: String = (1_000_000..1_000_020).map(|n| format!("{n}\n")).collect();
    let all = plainweave::run(|| run(&text))?;
    all.iter()
        .try_for_each(|(number, factors)| writeln!(io::stdout(), "{number} = {factors:?}"))
}
