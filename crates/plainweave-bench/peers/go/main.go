// The micro-benchmarks on goroutines, as micro/cases has them for the other systems. One case a run; prints a figure a
// line: metric, value.
package main

import (
	"flag"
	"fmt"
	"math/rand"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

var (
	name    = flag.String("case", "", "the case")
	workers = flag.Int("workers", 1, "GOMAXPROCS")
	threads = flag.Int("threads", 100, "goroutines, in cycle of a ring")
	rings   = flag.Int("rings", 100, "rings of cycle")
	spots   = flag.Int("spots", 50, "places to wait at")
	words   = flag.Int("words", 2, "locality: words of an array")
	writes  = flag.Int("writes", 2, "locality: words written at once")
	goal    = flag.Uint64("iterations", 0, "operations of each goroutine, in place of a time")
	seconds = flag.Float64("seconds", 0.3, "how long")
	parking = flag.Bool("parking", false, "transfer: the others park")
	share   = flag.Bool("share", false, "locality: hand over the data")
	moves   = flag.Bool("migrations", false, "locality: count migrations in place of time")
	barging = flag.Bool("barging", false, "churn: whoever releases a semaphore may have it again at once")
	stop    atomic.Bool
	over    = make(chan time.Time, 1)
	short   atomic.Int64 // Goroutines that have not done their iterations yet.
)

// finish ends a run by iterations. Who comes later changes nothing.
func finish() {
	select {
	case over <- time.Now():
	default:
	}
	stop.Store(true)
}

// goes says whether a goroutine does another operation; it asks once for each.
func goes(c *count) bool {
	if c.n == *goal && *goal > 0 && short.Add(-1) == 0 {
		finish()
	}
	return !stop.Load()
}

// A goroutine's count, on a line of its own.
type count struct {
	n, blocked, moved, fetched uint64
	_                          [96]byte
}

// A semaphore on a line of its own.
type seat struct {
	s uint32
	_ [124]byte
}

// run starts n goroutines, waits until the time is over and they have ended, and gives their counts.
func run(n int, body func(i int, c *count), sweep func()) ([]count, time.Duration) {
	counts := make([]count, n)
	var group sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(n))
	short.Store(int64(n))
	group.Add(n)
	started := time.Now()
	for i := 0; i < n; i++ {
		go func() {
			body(i, &counts[i])
			left.Add(-1)
			group.Done()
		}()
	}
	var elapsed time.Duration
	if *goal > 0 {
		elapsed = (<-over).Sub(started)
	} else {
		time.Sleep(time.Duration(*seconds * float64(time.Second)))
		stop.Store(true)
		elapsed = time.Since(started)
	}
	for sweep != nil && left.Load() > 0 {
		sweep()
		runtime.Gosched()
	}
	group.Wait()
	return counts, elapsed
}

func report(counts []count, elapsed time.Duration) {
	var sum, squares, least, most float64
	for i, c := range counts {
		n := float64(c.n)
		sum += n
		squares += n * n
		if i == 0 || n < least {
			least = n
		}
		most = max(most, n)
	}
	fmt.Println("ns_per_op", float64(elapsed.Nanoseconds())/sum)
	fmt.Println("ops", sum)
	fmt.Println("jain", sum*sum/(float64(len(counts))*squares))
	fmt.Println("max_over_min", most/max(least, 1))
}

func yield() {
	report(run(*threads, func(_ int, c *count) {
		for goes(c) {
			runtime.Gosched()
			c.n++
		}
	}, nil))
}

func cycle() {
	size := *threads
	seats := make([]seat, size**rings)
	for ring := 0; ring < *rings; ring++ {
		release(&seats[ring*size].s, false, 0)
	}
	report(run(len(seats), func(i int, c *count) {
		me, next := &seats[i].s, &seats[i/size*size+(i+1)%size].s
		for {
			acquire(me)
			c.n++
			more := goes(c)
			release(next, false, 0)
			if !more {
				return
			}
		}
	}, nil))
}

// A semaphore that is handed to who has waited longest, as those of the other systems are. Go's own is whoever's comes
// first, and that is who has just released it: then next to no operation blocks.
type fair struct {
	lock    sync.Mutex
	n       uint32
	waiters []*seat
	_       [88]byte
}

func (f *fair) release() {
	f.lock.Lock()
	if len(f.waiters) == 0 {
		f.n++
		f.lock.Unlock()
		return
	}
	first := f.waiters[0]
	f.waiters = f.waiters[:copy(f.waiters, f.waiters[1:])]
	f.lock.Unlock()
	release(&first.s, false, 0)
}

// acquire says whether it had to wait.
func (f *fair) acquire(mine *seat) bool {
	f.lock.Lock()
	if f.n > 0 {
		f.n--
		f.lock.Unlock()
		return false
	}
	f.waiters = append(f.waiters, mine)
	f.lock.Unlock()
	acquire(&mine.s)
	return true
}

func churn() {
	own, places, seats := make([]seat, *spots), make([]fair, *spots), make([]seat, *threads)
	give := func(at int) {
		if *barging {
			release(&own[at].s, false, 0)
		} else {
			places[at].release()
		}
	}
	take := func(at, me int) (waited bool) {
		if !*barging {
			return places[at].acquire(&seats[me])
		}
		waited = atomic.LoadUint32(&own[at].s) == 0
		acquire(&own[at].s)
		return waited
	}
	counts, elapsed := run(*threads, func(i int, c *count) {
		random := rand.New(rand.NewSource(int64(i)))
		if i < *spots {
			take(i, i)
		}
		for goes(c) {
			at := random.Intn(*spots)
			give(at)
			if take(at, i) {
				c.blocked++
			}
			c.n++
		}
	}, func() {
		for at := 0; at < *spots; at++ {
			give(at)
		}
	})
	report(counts, elapsed)
	var sum, blocked uint64
	for _, c := range counts {
		sum += c.n
		blocked += c.blocked
	}
	fmt.Println("blocks_per_op", float64(blocked)/float64(sum))
}

func locality() {
	places := make([]atomic.Int64, *spots*16)
	seats := make([]seat, *threads)
	arrays := make([][]uint64, *threads)
	for i := range arrays {
		arrays[i] = make([]uint64, (*words+15)/16*16)
	}
	handed := make([]int, *threads*16)
	writers := make([]int, *threads*16) // Counted from 1.
	counts, elapsed := run(*threads, func(i int, c *count) {
		random := rand.New(rand.NewSource(int64(i)))
		mine, here := i, 0
		if *moves {
			here = worker()
		}
		for goes(c) {
			if *moves {
				if last := writers[mine*16]; last != 0 && last != here+1 {
					c.fetched++
				}
				writers[mine*16] = here + 1
			}
			for k := 0; k < *writes; k++ {
				arrays[mine][random.Intn(*words)]++
			}
			other := places[random.Intn(*spots)*16].Swap(int64(i + 1))
			if other != 0 {
				handed[(other-1)*16] = mine
				release(&seats[other-1].s, false, 0)
			}
			acquire(&seats[i].s)
			if *share && !stop.Load() {
				mine = handed[i*16]
			}
			if *moves {
				now := worker()
				if now != here {
					c.moved++
				}
				here = now
			}
			c.n++
		}
	}, func() {
		for i := 0; i < *spots; i++ {
			if other := places[i*16].Swap(0); other != 0 {
				handed[(other-1)*16] = int(other - 1)
				release(&seats[other-1].s, false, 0)
			}
		}
	})
	if !*moves {
		report(counts, elapsed)
		return
	}
	var sum, moved, fetched uint64
	for _, c := range counts {
		sum += c.n
		moved += c.moved
		fetched += c.fetched
	}
	fmt.Println("thread_migrations_per_op", float64(moved)/float64(sum))
	fmt.Println("data_migrations_per_op", float64(fetched)/float64(sum))
}

func transfer() {
	seats := make([]seat, *threads)
	seen := make([]atomic.Uint64, *threads*16)
	var epoch, leader atomic.Uint64
	starved := false
	wake := func(i int) {
		if *parking {
			release(&seats[i].s, false, 0)
		}
	}
	counts, elapsed := run(*threads, func(i int, c *count) {
		random := rand.New(rand.NewSource(int64(i)))
		for !stop.Load() {
			if leader.Load() != uint64(i) {
				seen[i*16].Store(epoch.Load())
				if *parking {
					acquire(&seats[i].s)
				} else {
					runtime.Gosched()
				}
				continue
			}
			now := epoch.Add(1)
			seen[i*16].Store(now)
			for k := range seats {
				if k != i {
					wake(k)
				}
			}
			began := time.Now()
			for k := 0; k < *threads && !starved; {
				if seen[k*16].Load() == now {
					k++
				} else if time.Since(began) > 5*time.Second {
					starved = true
					stop.Store(true)
				}
			}
			if !starved {
				c.n++
			}
			if starved || *goal > 0 && now == *goal {
				finish()
			}
			next := random.Intn(*threads)
			leader.Store(uint64(next))
			wake(next)
		}
	}, func() {
		for i := range seats {
			wake(i)
		}
	})
	total := uint64(0)
	for _, c := range counts {
		total += c.n
	}
	if starved {
		fmt.Println("starved 1")
		return
	}
	fmt.Println("us_per_transfer", float64(elapsed.Microseconds())/float64(total))
	fmt.Println("starved 0")
}

func spawnJoin(batch int) {
	n, started := 0, time.Now()
	for {
		if *goal > 0 {
			batch = min(batch, int(*goal)-n)
		}
		if batch == 0 || *goal == 0 && time.Since(started).Seconds() >= *seconds {
			break
		}
		var group sync.WaitGroup
		group.Add(batch)
		for i := 0; i < batch; i++ {
			go group.Done()
		}
		group.Wait()
		n += batch
	}
	fmt.Println("ns_per_op", float64(time.Since(started).Nanoseconds())/float64(n))
	fmt.Println("ops", n)
}

func pingPong() {
	there, back := make(chan int, 1), make(chan int, 1)
	go func() {
		for v := range there {
			back <- v
		}
		close(back)
	}()
	n, started := 0, time.Now()
	if *goal == 0 {
		go func() {
			time.Sleep(time.Duration(*seconds * float64(time.Second)))
			stop.Store(true)
		}()
	}
	for !stop.Load() && (*goal == 0 || n < int(*goal)) {
		there <- n
		<-back
		n++
	}
	fmt.Println("ns_per_op", float64(time.Since(started).Nanoseconds())/float64(n))
	fmt.Println("ops", n)
	close(there)
}

func mutex() {
	var lock sync.Mutex
	total := uint64(0)
	counts, elapsed := run(*threads, func(_ int, c *count) {
		for goes(c) {
			lock.Lock()
			total++
			lock.Unlock()
			runtime.Gosched()
			c.n++
		}
	}, nil)
	report(counts, elapsed)
}

// One of this many operations on a readers-writer lock writes.
const writesOneIn = 20

func rwLock() {
	var lock sync.RWMutex
	var total [2]uint64
	var torn atomic.Bool
	counts, elapsed := run(*threads, func(i int, c *count) {
		for goes(c) {
			if (c.n+uint64(i))%writesOneIn == 0 {
				lock.Lock()
				total[0]++
				total[1]++
				lock.Unlock()
			} else {
				lock.RLock()
				first, second := total[0], total[1]
				lock.RUnlock()
				if first != second {
					torn.Store(true)
				}
			}
			runtime.Gosched()
			c.n++
		}
	}, nil)
	written := uint64(0)
	for i, c := range counts {
		first := uint64(i)
		written += (first+c.n+writesOneIn-1)/writesOneIn - (first+writesOneIn-1)/writesOneIn
	}
	if torn.Load() || total != [2]uint64{written, written} {
		fail("torn:", torn.Load(), "written:", written, "found:", total)
	}
	report(counts, elapsed)
}

// choose has eight servers answer on a channel each and takes whichever answer comes first; together requests are under
// way at once.
func choose(together int) {
	var asks, answers [8]chan int
	for i := range asks {
		asks[i], answers[i] = make(chan int, 1), make(chan int, 1)
		go func() {
			for v := range asks[i] {
				answers[i] <- v + 1
			}
			close(answers[i])
		}()
	}
	random := rand.New(rand.NewSource(0))
	var pending [8]int
	asked, answered, started := 0, 0, time.Now()
	ask := func(i int) {
		pending[i] = asked + 1
		asks[i] <- asked
		asked++
	}
	for i := 0; i < together && (*goal == 0 || i < int(*goal)); i++ {
		ask(i)
	}
	if *goal == 0 {
		go func() {
			time.Sleep(time.Duration(*seconds * float64(time.Second)))
			stop.Store(true)
		}()
	}
	for answered < asked {
		i, v := 0, 0
		select {
		case v = <-answers[0]:
		case v = <-answers[1]:
			i = 1
		case v = <-answers[2]:
			i = 2
		case v = <-answers[3]:
			i = 3
		case v = <-answers[4]:
			i = 4
		case v = <-answers[5]:
			i = 5
		case v = <-answers[6]:
			i = 6
		case v = <-answers[7]:
			i = 7
		}
		if v == 0 || v != pending[i] {
			fail("server", i, "answered", v, "and not", pending[i])
		}
		pending[i] = 0
		answered++
		if !stop.Load() && (*goal == 0 || asked < int(*goal)) {
			if together == 1 {
				i = random.Intn(len(asks))
			}
			ask(i)
		}
	}
	fmt.Println("ns_per_op", float64(time.Since(started).Nanoseconds())/float64(answered))
	fmt.Println("ops", answered)
	for i := range asks {
		close(asks[i])
		if v, more := <-answers[i]; more {
			fail("server", i, "answered", v, "without having been asked")
		}
	}
}

// fail ends the run. The first line is the reason that the report gives.
func fail(why ...any) {
	fmt.Fprintln(os.Stderr, why...)
	os.Exit(2)
}

func main() {
	flag.Parse()
	runtime.GOMAXPROCS(*workers)
	switch *name {
	case "yield":
		yield()
	case "cycle":
		cycle()
	case "churn":
		churn()
	case "locality":
		locality()
	case "transfer":
		transfer()
	case "spawn-join":
		spawnJoin(1000)
	case "spawn-join-1":
		spawnJoin(1)
	case "ping-pong":
		pingPong()
	case "mutex":
		mutex()
	case "rwlock":
		rwLock()
	case "select":
		choose(8)
	case "select-1":
		choose(1)
	case "broadcast":
		fail("Go has no broadcast channel")
	default:
		fail("no case is called", *name)
	}
}
