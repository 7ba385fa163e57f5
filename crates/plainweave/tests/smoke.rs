//! A first look at the whole.

use plainweave::{Io, Runtime};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

#[test]
fn spawn_join() {
    for policy in ["fifo", "lifo-slot"] {
        let rt = Runtime::builder().workers(2).io(Io::Epoll).policy(policy).build().unwrap();
        let n = rt.run(|| {
            let hs: Vec<_> = (0..1000u64)
                .map(|i| {
                    plainweave::spawn(move || {
                        plainweave::yield_now();
                        i
                    })
                })
                .collect();
            hs.into_iter().map(|h| h.join().unwrap()).sum::<u64>()
        });
        assert_eq!(n, 499500);
    }
}

#[test]
fn echo() {
    for io in [Io::Epoll, Io::Uring] {
        let rt = Runtime::builder().workers(2).io(io).build().unwrap();
        rt.run(|| {
            let l = plainweave::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let addr = l.local_addr().unwrap();
            plainweave::spawn(move || {
                let (mut s, _) = l.accept().unwrap();
                let mut b = [0; 100];
                loop {
                    let n = s.read(&mut b).unwrap();
                    if n == 0 {
                        break;
                    }
                    s.write_all(&b[..n]).unwrap();
                }
            });
            let mut c = plainweave::net::TcpStream::connect(addr).unwrap();
            for _ in 0..100 {
                c.write_all(b"hello").unwrap();
                let mut b = [0; 5];
                c.read_exact(&mut b).unwrap();
                assert_eq!(&b, b"hello");
            }
            let t = Instant::now();
            c.set_read_timeout(Some(Duration::from_millis(30))).unwrap();
            assert_eq!(c.read(&mut [0; 4]).unwrap_err().kind(), std::io::ErrorKind::TimedOut);
            assert!(t.elapsed() >= Duration::from_millis(30));
            plainweave::time::sleep(Duration::from_millis(5)).unwrap();
        });
    }
}
#[test]
fn scope() {
    plainweave::run(|| {
        let mut v = vec![1, 2, 3];
        plainweave::scope(|s| {
            for x in &mut v {
                s.spawn(move || {
                    *x += 1;
                    plainweave::yield_now()
                });
            }
        });
        assert_eq!(v, [2, 3, 4]);
    });
}
