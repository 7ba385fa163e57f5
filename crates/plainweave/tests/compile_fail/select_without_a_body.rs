//! A branch whose body was forgotten is an error, not the end of the branches before it.

use plainweave::sync::{channel, select};

fn main() {
    let (_first, one) = channel::bounded::<u8>(1);
    let (_second, other) = channel::bounded::<u8>(1);
    plainweave::run(|| {
        select! {
            recv(one) -> message => drop(message),
            after(std::time::Duration::from_secs(1))
            recv(other) -> message => drop(message),
        }
        .unwrap();
    });
}
