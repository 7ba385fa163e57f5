"""pymemcache against a running cache: python3 pymemcache_commands.py HOST PORT. Exit code 77: not installed."""

import sys

try:
    from pymemcache.client.base import Client
    from pymemcache.client.base import PooledClient
except ImportError:
    sys.exit(77)

host, port = sys.argv[1], int(sys.argv[2])
client = Client((host, port), default_noreply=False, timeout=10, connect_timeout=10)


def same(got, want):
    if got != want:
        raise SystemExit(f"got {got!r}, not {want!r}")


same(client.set("a", "1"), True)
same(client.get("a"), b"1")
same(client.get("none"), None)
same(client.add("a", "2"), False)
same(client.replace("a", "2"), True)
same(client.append("a", "3"), True)
same(client.prepend("a", "1"), True)
same(client.get("a"), b"123")
same(client.incr("a", 2), 125)
same(client.decr("a", 25), 100)
value, cas = client.gets("a")
same(client.cas("a", "x", cas), True)
same(client.cas("a", "y", cas), False)
same(client.cas("none", "y", cas), None)
same(client.touch("a", 100), True)
same(client.delete("a"), True)
same(client.delete("a"), False)
same(client.set_many({f"k{n}": "v" * n for n in range(200)}), [])
same(len(client.get_many([f"k{n}" for n in range(300)])), 200)
same(client.set("large", b"x" * 900_000), True)
same(len(client.get("large")), 900_000)
same(client.version().startswith(b"1.6.18"), True)
same(client.stats()[b"curr_items"] >= 200, True)
same(client.flush_all(), True)
same(client.get("k1"), None)
pool = PooledClient((host, port), max_pool_size=4, timeout=10)
same(pool.set("p", "q", noreply=False), True)
same(pool.get("p"), b"q")
print("pymemcache: all as expected")
