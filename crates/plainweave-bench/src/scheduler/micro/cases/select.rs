//! Servers that are asked by channels and answer by channels, and a client that takes whichever
//! answer comes first.

use std::time::Instant;

use anyhow::{Context, ensure};

use super::super::repetition::{Figure, Size};
use crate::harness::random::Random;
use crate::scheduler::shim::{CHOICES, Shim};

/// The client's side: what it sends by, and what is under way.
struct Client<S: Shim> {
    asks: Vec<S::Sender>,
    /// What each server was asked and has not answered.
    pending: [Option<u64>; CHOICES],
    asked: u64,
    answered: u64,
}

impl<S: Shim> Client<S> {
    async fn ask(&mut self, server: usize) -> anyhow::Result<()> {
        ensure!(
            S::send(&mut self.asks[server], self.asked).await,
            "server {server} is gone"
        );
        self.pending[server] = Some(self.asked);
        self.asked += 1;
        Ok(())
    }

    /// Waits for an answer, and returns which server gave it.
    async fn take(&mut self, answers: &mut S::Choices) -> anyhow::Result<usize> {
        let (server, answer) = S::select(answers).await;
        let answer = answer.with_context(|| format!("server {server} is gone"))?;
        let question = self.pending[server].take();
        ensure!(
            question == Some(answer - 1),
            "server {server} was asked {question:?} and answered {answer}"
        );
        self.answered += 1;
        Ok(server)
    }
}

/// Asks, and selects from all answers; `together` requests are under way at once: one, or one for
/// each server.
pub(super) async fn select<S: Shim>(together: usize, size: &Size) -> anyhow::Result<Vec<Figure>> {
    let mut asks = Vec::new();
    let mut answers = Vec::new();
    let mut servers = Vec::new();
    for _ in 0..CHOICES {
        let (ask, mut asked) = S::channel();
        let (mut answer, answered) = S::channel();
        asks.push(ask);
        answers.push(answered);
        servers.push(S::spawn(async move {
            while let Some(n) = S::receive(&mut asked).await {
                if !S::send(&mut answer, n + 1).await {
                    return;
                }
            }
        }));
    }

    let answers: [S::Receiver; CHOICES] = answers.try_into().ok().context("one for each server")?;
    let mut answers = S::choices(answers)?;
    let mut client = Client::<S> {
        asks,
        pending: [None; CHOICES],
        asked: 0,
        answered: 0,
    };

    let mut random = Random::new(0);
    let started = Instant::now();
    let most = size
        .shape
        .iterations
        .map_or(CHOICES, |n| n.min(CHOICES as u64) as usize);
    for server in 0..together.min(most) {
        client.ask(server).await?;
    }
    let mut more = true;

    while client.answered < client.asked {
        let free = client.take(&mut answers).await?;
        // The clock is read every thousand.
        let looks = size.shape.iterations.is_some() || client.answered.is_multiple_of(1000);
        more = more && !(looks && size.is_over(client.asked, started));

        if more {
            client
                .ask(if together == 1 {
                    random.below(CHOICES)
                } else {
                    free
                })
                .await?;
        }
    }

    let ns = started.elapsed().as_nanos() as f64;
    client.asks.clear();
    for server in servers {
        S::join(server).await;
    }

    // All have ended, so an answer too many would be found here.
    let (server, answer) = S::select(&mut answers).await;
    ensure!(
        answer.is_none(),
        "server {server} answered {answer:?} without having been asked"
    );
    let n = client.answered as f64;
    Ok(vec![
        Figure::new("ns_per_op", ns / n),
        Figure::new("ops", n),
    ])
}
