// gomemcache against a running cache: go run . HOST:PORT.
package main

import (
	"bytes"
	"fmt"
	"os"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

func same[T comparable](what string, got, want T) {
	if got != want {
		fmt.Printf("%s: got %v, not %v\n", what, got, want)
		os.Exit(1)
	}
}

func main() {
	client := memcache.New(os.Args[1])
	client.Timeout = 10 * time.Second
	same("set", client.Set(&memcache.Item{Key: "a", Value: []byte("1"), Flags: 7}), nil)
	item, err := client.Get("a")
	same("get", err, nil)
	same("value", string(item.Value), "1")
	same("flags", item.Flags, 7)
	_, err = client.Get("none")
	same("a miss", err, memcache.ErrCacheMiss)
	same("add", client.Add(&memcache.Item{Key: "a", Value: []byte("2")}), memcache.ErrNotStored)
	same("replace", client.Replace(&memcache.Item{Key: "a", Value: []byte("20")}), nil)
	same("append", client.Append(&memcache.Item{Key: "a", Value: []byte("0")}), nil)
	same("prepend", client.Prepend(&memcache.Item{Key: "a", Value: []byte("1")}), nil)
	number, err := client.Increment("a", 5)
	same("incr", err, nil)
	same("its value", number, 1205)
	number, err = client.Decrement("a", 5)
	same("decr", err, nil)
	same("its value", number, 1200)
	item, err = client.Get("a")
	same("get", err, nil)
	item.Value = []byte("x")
	same("cas", client.CompareAndSwap(item), nil)
	same("cas again", client.CompareAndSwap(item), memcache.ErrCASConflict)
	same("touch", client.Touch("a", 100), nil)
	item, err = client.GetAndTouch("a", 200)
	same("gat", err, nil)
	same("its value", string(item.Value), "x")
	same("delete", client.Delete("a"), nil)
	same("delete again", client.Delete("a"), memcache.ErrCacheMiss)
	keys := []string{}
	for n := 0; n < 300; n++ {
		keys = append(keys, fmt.Sprintf("k%d", n))
		if n < 200 {
			same("set", client.Set(&memcache.Item{Key: keys[n], Value: bytes.Repeat([]byte("v"), n)}), nil)
		}
	}
	items, err := client.GetMulti(keys)
	same("many", err, nil)
	same("their number", len(items), 200)
	same("large", client.Set(&memcache.Item{Key: "large", Value: make([]byte, 900_000)}), nil)
	item, err = client.Get("large")
	same("large", err, nil)
	same("its length", len(item.Value), 900_000)
	same("ping", client.Ping(), nil)
	same("flush", client.FlushAll(), nil)
}
