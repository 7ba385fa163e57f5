// The thesis' workloads on goroutines, as src/thesis has them for the other systems. One experiment a run; prints the
// figures of each iteration that counts, one a line: metric, value.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

var (
	name       = flag.String("case", "", "the experiment")
	workers    = flag.Int("workers", 1, "GOMAXPROCS")
	iterations = flag.Int("iterations", 2, "iterations")
	dropped    = flag.Int("dropped", 1, "how many of them do not count")
	inFlight   = flag.Int("in-flight", 0, "under way at most; 0: no bound")
	spawners   = flag.Int("spawners", 1, "goroutines that spawn")
	packets    = flag.Int("packets", 50000, "packets")
	copied     = flag.String("copy", "spawner", "who copies")
	delay      = flag.String("delay", "none", "of each handler")
	delayNs    = flag.Int("delay-ns", 500, "nanoseconds of it")
	chain      = flag.Int("chain", 10, "tasks of a packet")
	reads      = flag.Int("reads", 21, "reads of a task")
	access     = flag.String("access", "random", "where they read")
	heavy      = flag.Float64("heavy", 0.2, "percentage of heavy packets")
	sleeps     = flag.Int("sleeps", 2, "tasks that sleep")
	sleepMs    = flag.Int("sleep-ms", 20, "milliseconds of a sleep")
	wait       = flag.String("wait", "block", "whether a sleep holds up its thread")
	side       = flag.Int("side", 1, "of other systems")
	pools      = flag.String("pools", "single", "only this")
	mixers     = flag.Int("mixers", 50, "conferences")
	legs       = flag.Int("legs", 2, "legs of each")
	rounds     = flag.Int("rounds", 21, "frames of each leg")
	frameMs    = flag.Int("frame-ms", 20, "milliseconds from frame to frame")
	frameBytes = flag.Int("bytes", 1600, "bytes of a frame")
	lateMs     = flag.Int("late-ms", 10, "when a send is a breach")
	legsShare  = flag.Int("legs-share", 20, "of other systems")
	mixShare   = flag.Int("mix-share", 30, "of other systems")
	silos      = flag.Int("silos", 10, "of other systems")
	options    = flag.Int("options", 2000, "options")
	depth      = flag.Int("depth", 20, "time steps of most")
	deep       = flag.Int("deep", 5000, "time steps of the deep ones")
	deepIn     = flag.Int("deep-in", 200, "one in so many is deep")
	set        = flag.String("set", "published", "the call's parameters")
	number     = flag.Int("n", 20, "which Fibonacci number")
	load       = flag.Float64("load", 0.5, "share of the capacity")
	seconds    = flag.Float64("seconds", 0.5, "how long jobs arrive")
	stages     = flag.Int("stages", 2, "tasks of a job")
	workUs     = flag.Int("work-us", 20, "microseconds that each computes")
	queue      = flag.Int("queue", 1000, "jobs that wait for a stage")
	tasks      = flag.Int("tasks", 50000, "goroutines to create")
	workNs     = flag.Int("work-ns", 0, "nanoseconds that each computes")
)

type figure struct {
	metric string
	value  float64
}

// A ledger has a place for each result, so that nobody meets at it.
type ledger struct {
	began     time.Time
	latencies []int64
	ends      []int64
	wrong     atomic.Int64
	readings  int64
	left      sync.WaitGroup
}

func newLedger(n int) *ledger {
	l := &ledger{latencies: make([]int64, n), ends: make([]int64, n), readings: 2 * int64(n)}
	for i := range l.ends {
		l.ends[i] = -1
	}
	l.left.Add(n)
	l.began = time.Now()
	return l
}

func (l *ledger) record(i int, since time.Time, right bool) {
	now := time.Now()
	l.latencies[i] = max(int64(now.Sub(since)), 0)
	l.ends[i] = int64(now.Sub(l.began))
	if !right {
		l.wrong.Add(1)
	}
	l.left.Done()
}

// figures checks the results and gives what all experiments report.
func (l *ledger) figures() []figure {
	l.left.Wait()
	var last int64
	for i, end := range l.ends {
		if end < 0 {
			fail("%d of %d has not been done", i, len(l.ends))
		}
		last = max(last, end)
	}
	if wrong := l.wrong.Load(); wrong > 0 {
		fail("%d of %d have not come to what they should have", wrong, len(l.ends))
	}
	slices.Sort(l.latencies)
	quantile := func(share float64) float64 {
		return float64(l.latencies[min(int(share*float64(len(l.latencies))), len(l.latencies)-1)]) / 1e3
	}
	all := []figure{
		{"throughput", float64(len(l.ends)) / (float64(last) / 1e9)},
		{"time_ms", float64(last) / 1e6},
		{"p50_us", quantile(0.5)},
		{"p99_us", quantile(0.99)},
		{"p999_us", quantile(0.999)},
		{"p9999_us", quantile(0.9999)},
		{"clock_readings", float64(l.readings)},
	}
	return append(all, clock(float64(l.readings), float64(last))...)
}

// clock gives what readings of the clock have cost.
func clock(readings, ns float64) []figure {
	const n = 100000
	began := time.Now()
	for i := 0; i < n; i++ {
		sink += int64(time.Now().Nanosecond())
	}
	each := float64(time.Since(began)) / n
	return []figure{{"clock_ns", each}, {"clock_ppm", 1e6 * readings * each / (ns * float64(*workers))}}
}

var sink int64

// A room has places for those under way, if there is a bound.
type room chan struct{}

func newRoom() room {
	if *inFlight == 0 {
		return nil
	}
	return make(room, *inFlight)
}

func (r room) enter() {
	if r != nil {
		r <- struct{}{}
	}
}

func (r room) leave() {
	if r != nil {
		<-r
	}
}

// spawnAll has each spawner call f for its numbers, and waits for the spawners.
func spawnAll(n int, f func(i int)) {
	var group sync.WaitGroup
	for first := 0; first < *spawners; first++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := first; i < n; i += *spawners {
				f(i)
			}
		}()
	}
	group.Wait()
}

// A random is the generator of src/random.rs.
type random uint64

func newRandom(seed int) random {
	return random((uint64(seed)+1)*0x9E3779B97F4A7C15 | 1)
}

func (r *random) below(n int) int {
	x := uint64(*r)
	x ^= x << 13
	x ^= x >> 7
	x ^= x << 17
	*r = random(x)
	return int((x >> 32) * uint64(n) >> 32)
}

func spin(length time.Duration) {
	for began := time.Now(); time.Since(began) < length; {
	}
}

func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
	os.Exit(1)
}

func main() {
	flag.Parse()
	runtime.GOMAXPROCS(*workers)
	experiments := map[string]func() []figure{
		"packets":         burst,
		"cache-effects":   cacheEffects,
		"bimodal":         bimodal,
		"mixer":           mixer,
		"options":         optionPricing,
		"fib":             fibonacci,
		"overload-stages": overload,
		"creation":        creation,
	}
	run := experiments[*name]
	if run == nil || *pools != "single" {
		fail("there is no experiment '%s' with pools '%s'", *name, *pools)
	}
	for i := 0; i < *iterations; i++ {
		figures := run()
		for _, f := range figures {
			if i >= *dropped {
				fmt.Println(f.metric, f.value)
			}
		}
	}
}
