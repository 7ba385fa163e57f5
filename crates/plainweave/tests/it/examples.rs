//! The examples, as tests. Those with async crates are in `async_crates.rs`.

macro_rules! examples {
    ($($name:ident: $path:literal),+ $(,)?) => {
        $(#[path = $path]
        #[allow(dead_code, reason = "its `main`")]
        mod $name;)+
    };
}
examples! {
    chat: "../../examples/chat.rs",
    crawler: "../../examples/crawler.rs",
    echo: "../../examples/echo.rs",
    own_policy: "../../examples/own_policy.rs",
    pipeline: "../../examples/pipeline.rs",
    scopes: "../../examples/scopes.rs",
    tiers: "../../examples/tiers.rs",
    two_pools: "../../examples/two_pools.rs",
}

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use crate::common::*;
use plainweave::net::{TcpListener, TcpStream};
use plainweave::time::with_timeout;
use plainweave::{sync::channel, time};

on_every_driver!(
    echoes,
    members_chat,
    a_site_is_crawled_within_deadlines,
    stages_pass_numbers_on,
    scopes_end_together
);

fn echoes(setup: Setup) {
    setup.runtime().run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = plainweave::spawn(move || echo::echo(listener.accept().unwrap().0));
        let mut stream = TcpStream::connect(address).unwrap();
        with_timeout(HANG, || {
            let mut back = String::new();
            stream.write_all(&[b'x'; 10_000]).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            stream.read_to_string(&mut back).unwrap();
            assert_eq!(back, "x".repeat(10_000));
        });
        server.join().unwrap().unwrap();
    });
}

fn members_chat(setup: Setup) {
    setup.runtime().run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let closing = listener.try_clone().unwrap();
        let server = plainweave::spawn(move || chat::serve(&listener));
        let mut members: Vec<_> = (1..=3)
            .map(|id| {
                let mut member = BufReader::new(TcpStream::connect(address).unwrap());
                let mut line = String::new();
                with_timeout(HANG, || member.read_line(&mut line)).unwrap();
                assert_eq!(line, format!("you are {id}\n"));
                member
            })
            .collect();

        members[0].get_mut().write_all(b"hello\n").unwrap();

        for member in &mut members[1..] {
            let mut line = String::new();
            with_timeout(HANG, || member.read_line(&mut line)).unwrap();
            assert_eq!(line, "1: hello\n");
        }

        // One that leaves is closed by the server too, and the others go on.
        let mut left = members.remove(0);
        left.get_mut().shutdown(Shutdown::Write).unwrap();
        assert_eq!(
            with_timeout(HANG, || left.read_to_end(&mut Vec::new())).unwrap(),
            0
        );
        members[0].get_mut().write_all(b"bye\n").unwrap();
        let mut line = String::new();

        with_timeout(HANG, || members[1].read_line(&mut line)).unwrap();
        assert_eq!(line, "2: bye\n");
        closing.close();
        server.join().unwrap().unwrap_err();
    });
}

/// Serves pages that link to each other; `/silent` gets no answer.
fn site(listener: &TcpListener) {
    while let Ok((mut stream, _)) = listener.accept() {
        plainweave::spawn(move || {
            // All of the request: what is left unread when the connection closes resets it, and the
            // answer is lost.
            let head: Vec<_> = BufReader::new(&stream)
                .lines()
                .map_while(Result::ok)
                .take_while(|line| !line.is_empty())
                .collect();
            let page = match head[0].split(' ').nth(1).unwrap_or_default() {
                "/" => {
                    "<a href=\"/a\"><a href=\"/silent\"><a href=\"http://elsewhere/\"><a href=\"/gone\">"
                }
                "/a" => "<a href=\"/\"><a href=\"/b\">",
                "/b" => "",
                "/silent" => return drop(time::sleep(HANG)),
                _ => {
                    stream.write_all(b"HTTP/1.0 404 Not Found\r\n\r\n").unwrap();
                    return;
                }
            };

            stream
                .write_all(format!("HTTP/1.0 200 OK\r\n\r\n{page}").as_bytes())
                .unwrap();
        });
    }
}

fn a_site_is_crawled_within_deadlines(setup: Setup) {
    let runtime = setup.runtime();
    let (pages, cut) = runtime.run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let closing = listener.try_clone().unwrap();
        let server = plainweave::spawn(move || site(&listener));
        let pages = crawler::crawl(address, Duration::from_secs(2), HANG);

        // A site that accepts nothing: the crawl ends when its own time is over.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let cut = crawler::crawl(
            silent.local_addr().unwrap(),
            HANG,
            Duration::from_millis(20),
        );
        closing.close();
        server.join().unwrap();
        (pages, cut)
    });

    let sizes: Vec<_> = pages
        .iter()
        .map(|(path, page)| (path.as_str(), page.is_ok()))
        .collect();
    assert_eq!(
        sizes,
        [
            ("/", true),
            ("/a", true),
            ("/b", true),
            ("/gone", false),
            ("/silent", false)
        ]
    );
    assert_eq!(
        (pages["/gone"], pages["/silent"]),
        (Err(ErrorKind::NotFound), Err(ErrorKind::TimedOut))
    );
    assert_eq!(cut["/"], Err(ErrorKind::TimedOut));
    runtime.shutdown(Duration::ZERO);
}

fn stages_pass_numbers_on(setup: Setup) {
    setup.runtime().run(|| {
        let text: String = (2..500).map(|n| format!("{n}\n")).collect();
        let all = pipeline::run(&text).unwrap();
        assert!(all.iter().map(|(number, _)| *number).eq(2..500));
        assert!(
            all.iter()
                .all(|(number, factors)| factors.iter().product::<u64>() == *number)
        );
        assert_eq!(all[10].1, [2, 2, 3]);
        let error = pipeline::run("7\nseven\n8\n").unwrap_err();

        assert!(error.to_string().starts_with("\"seven\": "), "{error}");
    });
}

fn scopes_end_together(setup: Setup) {
    setup.runtime().run(|| {
        let mut numbers: Vec<u32> = (0..1000).map(|n| n * 7919 % 1000).collect();
        scopes::merge_sort(&mut numbers);
        assert!(numbers.iter().copied().eq(0..1000));
        let (never, waits) = channel::bounded::<&str>(0);
        let first = scopes::first(vec![
            Box::new(|| waits.recv().map_err(std::io::Error::other)),
            Box::new(|| Ok("second")),
            Box::new(|| Err(ErrorKind::NotFound.into())),
        ]);

        drop(never);
        assert_eq!(first.unwrap(), "second");
        assert!(scopes::a_panic_ends_all());
    });
}

#[test]
fn the_newest_runs_first() {
    assert_eq!(own_policy::order().unwrap(), [3, 2, 1, 0]);
}

#[test]
fn computing_has_a_pool_of_its_own() {
    let pools = two_pools::pools().unwrap();
    let answers = two_pools::answer_all(
        &pools,
        &["hello", "primes 1000", "good morning", "primes 10"],
    )
    .unwrap();
    assert_eq!(
        answers,
        [
            "hello to you",
            "168 primes below 1000",
            "good morning to you",
            "4 primes below 10"
        ]
    );
    assert!(two_pools::answer_all(&pools, &["primes many"]).is_err());
}

#[test]
fn composed_policies_run() {
    tiers::run().unwrap();
}
