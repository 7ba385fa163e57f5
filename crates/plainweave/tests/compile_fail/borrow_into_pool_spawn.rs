//! A fiber spawned into a pool outlives the call: it may not borrow. (A call may.)

use plainweave::pools::Pool;

fn spawn(pool: &Pool) {
    let local = String::from("here");
    pool.call(|| local.len()).unwrap();
    pool.spawn(|| local.len()).unwrap();
}

fn main() {}
