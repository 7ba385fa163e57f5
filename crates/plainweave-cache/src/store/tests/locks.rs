//! Which locks a command takes.

use std::sync::mpsc;
use std::time::Duration;

use super::super::{lock, shard};
use super::{Config, Count, Expiry, NOW, Removal, Removed, Store, set};

/// A key of each shard.
fn keys(store: &Store) -> Vec<Vec<u8>> {
    let mut keys = vec![None; store.shards.len()];
    for key in (0..10_000).map(|n| format!("key {n}").into_bytes()) {
        let shard = store.number(shard::hash(&store.hasher, &key));
        keys[shard].get_or_insert(key);
    }

    keys.into_iter()
        .map(|key| key.expect("keys are spread"))
        .collect()
}

/// Every kind of command on one key, many times.
fn work(store: &Store, key: &[u8]) {
    for _ in 0..200 {
        set(store, key, b"7");
        store.prefetch([key].into_iter());
        assert!(store.get(key, NOW).is_some());
        assert!(store.read(key, Some(Expiry::NEVER), NOW, |_| ()).is_some());
        assert!(store.touch(key, Expiry::NEVER, NOW));
        store.count(key, &Count::up(1), NOW);
        assert_eq!(
            store.remove(key, &Removal::default(), NOW),
            Removed::Removed
        );
    }
}

/// With the locks of all other shards held, two threads work on a key of a shard each.
#[test]
fn a_command_takes_the_lock_of_its_key_s_shard_and_no_other() {
    let store = Store::new(Config::default());
    let keys = keys(&store);
    assert!(keys.len() > 2, "there are others");
    let (tell, told) = mpsc::channel();

    std::thread::scope(|scope| {
        let locks: Vec<_> = store.shards[2..].iter().map(|shard| lock(shard)).collect();
        for key in &keys[..2] {
            let store = &store;
            let tell = tell.clone();
            scope.spawn(move || {
                work(store, key);
                tell.send(()).expect("awaited");
            });
        }

        let ended = [0, 1].map(|_| told.recv_timeout(Duration::from_secs(20)));
        drop(locks);
        assert_eq!(ended, [Ok(()), Ok(())], "a lock was waited for");
    });
}
