package main

import (
	"bytes"
	"crypto/md5"
	"encoding/binary"
	"math"
	"math/rand"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// A template is a packet and where its line ends are.
type template struct {
	bytes []byte
	ends  []int
}

func templates() []template {
	all := make([]template, 10)
	for i := range all {
		all[i].bytes = bytes.Repeat([]byte("-"), 2000+30*i)
		for k := 20 + i; k < 300; k += 20 + i {
			all[i].bytes[k] = '\n'
			all[i].ends = append(all[i].ends, k)
		}
	}
	return all
}

// isRight searches a copy and says whether its line ends are where they belong.
func (t *template) isRight(copy []byte) bool {
	found := 0
	for place, b := range copy {
		if b == '\n' {
			if found == len(t.ends) || t.ends[found] != place {
				return false
			}
			found++
		}
	}
	return found == len(t.ends)
}

// block has the thread sleep, as nanosleep(2) does, behind the scheduler's back.
func block(length time.Duration) {
	left := syscall.NsecToTimespec(int64(length))
	for errno := syscall.EINTR; errno == syscall.EINTR; {
		// The runtime's signals for preemption interrupt it.
		_, _, errno = syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&left)),
			uintptr(unsafe.Pointer(&left)), 0)
	}
}

func burst() []figure {
	all, room, ledger := templates(), newRoom(), newLedger(*packets)
	length := time.Duration(*delayNs)
	numbers := make([]random, *spawners)
	for i := range numbers {
		numbers[i] = newRandom(i)
	}
	spawnAll(*packets, func(i int) {
		room.enter()
		chosen := &all[0]
		if *copied == "spawner" {
			chosen = &all[numbers[i%*spawners].below(len(all))]
		}
		spawned := time.Now()
		var packet []byte
		if *copied == "spawner" {
			packet = slices.Clone(chosen.bytes)
		}
		go func() {
			if packet == nil {
				packet = slices.Clone(chosen.bytes)
			}
			right := chosen.isRight(packet)
			switch *delay {
			case "spin":
				spin(length)
			case "sleep":
				block(length)
			case "suspend":
				time.Sleep(length)
			}
			ledger.record(i, spawned, right)
			room.leave()
		}()
	})
	return ledger.figures()
}

func cacheEffects() []figure {
	const n = 100
	value := func(template, place int) byte { return byte(place*31 + template*7) }
	all := make([][]byte, n)
	for i := range all {
		all[i] = make([]byte, 1001+i)
		for place := range all[i] {
			all[i][place] = value(i, place)
		}
	}
	room, ledger := newRoom(), newLedger(*packets)
	spawnAll(*packets, func(i int) {
		room.enter()
		numbers := newRandom(i)
		chosen := numbers.below(n)
		spawned := time.Now()
		packet := slices.Clone(all[chosen])
		place, right := 0, true
		var task func(left int)
		task = func(left int) {
			found, wanted := 0, 0
			for range *reads {
				if *access == "sequential" {
					place = (place + 1) % len(packet)
				} else {
					place = numbers.below(len(packet))
				}
				found += int(packet[place])
				wanted += int(value(chosen, place))
			}
			right = right && found == wanted
			if left > 1 {
				go task(left - 1)
				return
			}
			ledger.record(i, spawned, right)
			room.leave()
		}
		go task(*chain)
	})
	return ledger.figures()
}

func bimodal() []figure {
	all, room, ledger := templates(), newRoom(), newLedger(*packets)
	length := time.Duration(*sleepMs) * time.Millisecond
	spawnAll(*packets, func(i int) {
		room.enter()
		numbers := newRandom(i)
		isHeavy := float64(numbers.below(1000000)) < *heavy*1e4
		chosen := &all[numbers.below(len(all))]
		spawned := time.Now()
		packet := slices.Clone(chosen.bytes)
		right := true
		var task func(left int)
		task = func(left int) {
			if !isHeavy || left > *sleeps {
				right = right && chosen.isRight(packet)
			} else if *wait == "block" {
				block(length)
			} else {
				time.Sleep(length)
			}
			if left > 1 {
				go task(left - 1)
				return
			}
			ledger.record(i, spawned, right)
			room.leave()
		}
		go task(*chain)
	})
	return ledger.figures()
}

func sum(frame []byte) (total int64) {
	for i := 0; i+1 < len(frame); i += 2 {
		total += int64(int16(binary.LittleEndian.Uint16(frame[i:])))
	}
	return total
}

func mixer() []figure {
	sends := *mixers * *legs * *rounds
	ledger := newLedger(sends)
	length := time.Duration(*frameMs) * time.Millisecond
	due := func(round int) time.Time { return ledger.began.Add(time.Duration(round) * length) }
	var total, readings atomic.Int64
	var group sync.WaitGroup
	for m := range *mixers {
		slots := make([]atomic.Pointer[[]byte], *legs)
		for leg := range slots {
			group.Add(1)
			go func() {
				defer group.Done()
				numbers := newRandom(m**legs + leg)
				for round := range *rounds {
					frame := make([]byte, *frameBytes)
					for i := range frame {
						frame[i] = byte(numbers.below(256))
					}
					total.Add(sum(frame))
					digest := md5.Sum(frame)
					runtime.KeepAlive(digest)
					read := int64(1)
					for time.Now().Before(due(round)) || slots[leg].Load() != nil {
						read++
						runtime.Gosched()
					}
					readings.Add(read)
					slots[leg].Store(&frame)
				}
			}()
		}
		group.Add(1)
		go func() {
			defer group.Done()
			for round := range *rounds {
				added := make([]int32, *frameBytes/2)
				for leg := range slots {
					frame := slots[leg].Swap(nil)
					for ; frame == nil; frame = slots[leg].Swap(nil) {
						runtime.Gosched()
					}
					for i := range added {
						added[i] += int32(int16(binary.LittleEndian.Uint16((*frame)[2*i:])))
					}
				}
				out := make([]byte, 0, 4*len(added))
				for _, sample := range added {
					total.Add(-int64(sample))
					out = binary.LittleEndian.AppendUint32(out, uint32(sample))
				}
				for leg := range slots {
					go func() {
						digest := md5.Sum(out)
						runtime.KeepAlive(digest)
						ledger.record((m**legs+leg)**rounds+round, due(round), true)
					}()
				}
			}
		}()
	}
	group.Wait()
	ledger.left.Wait()
	if rest := total.Load(); rest != 0 {
		fail("the mixed samples differ from those of the legs: their sum by %d", rest)
	}
	ledger.readings = int64(sends) + readings.Load()
	figures := ledger.figures()
	above := func(ms int) float64 {
		first, _ := slices.BinarySearch(ledger.latencies, int64(ms)*1e6)
		return float64(sends-first) / float64(sends)
	}
	fair, poor := above(150), above(300)
	return append(figures, figure{"breach_rate", above(*lateMs)}, figure{"excellent_share", 1 - fair},
		figure{"good_share", fair - poor}, figure{"poor_share", poor})
}

// A tree is a binomial one over a year, folded from its leaves.
type tree struct {
	values   []float64
	up, down float64
}

func newTree(depth int) *tree {
	spot, strike, sigma, rate := 100.0, 110.0, 0.02, 0.01
	if *set == "known" {
		strike, sigma, rate = 100, 0.2, 0.05
	}
	step := 1 / float64(depth)
	factor, discount := math.Exp(sigma*math.Sqrt(step)), math.Exp(-rate*step)
	share := (1/discount - 1/factor) / (factor - 1/factor)
	t := &tree{make([]float64, depth+1), discount * share, discount * (1 - share)}
	for i := range t.values {
		t.values[i] = max(spot*math.Pow(factor, float64(depth-2*i))-strike, 0)
	}
	return t
}

// fold folds one time step and says whether it was the last.
func (t *tree) fold() bool {
	for i := 1; i < len(t.values); i++ {
		t.values[i-1] = t.up*t.values[i-1] + t.down*t.values[i]
	}
	t.values = t.values[:len(t.values)-1]
	return len(t.values) <= 1
}

func reference(depth int) float64 {
	t := newTree(depth)
	for !t.fold() {
	}
	known, tolerance := 4.450130377e-6, 100*0.02/float64(depth)
	if *set == "known" {
		known, tolerance = 10.450583572, 100*0.2/float64(depth)
	}
	if math.Abs(t.values[0]-known) > tolerance {
		fail("%d steps price to %g, which is not %g", depth, t.values[0], known)
	}
	return t.values[0]
}

func optionPricing() []figure {
	shallow, far := reference(*depth), reference(*deep)
	room, ledger := newRoom(), newLedger(*options)
	numbers := newRandom(0)
	for i := range *options {
		room.enter()
		steps, price := *depth, shallow
		if numbers.below(*deepIn) == 0 {
			steps, price = *deep, far
		}
		go func() {
			t := newTree(steps)
			var step func()
			step = func() {
				if !t.fold() {
					go step()
					return
				}
				ledger.record(i, ledger.began, t.values[0] == price)
				room.leave()
			}
			go step()
		}()
	}
	return ledger.figures()
}

func fibonacci() []figure {
	var fib func(n int, to chan<- int)
	fib = func(n int, to chan<- int) {
		if n < 2 {
			to <- n
			return
		}
		results := make(chan int, 2)
		go fib(n-1, results)
		go fib(n-2, results)
		to <- <-results + <-results
	}
	value, next := 0, 1
	for range *number {
		value, next = next, value+next
	}
	result, began := make(chan int, 1), time.Now()
	fib(*number, result)
	if got := <-result; got != value {
		fail("fib(%d) came to %d, not %d", *number, got, value)
	}
	elapsed := time.Since(began).Seconds()
	return []figure{{"throughput", float64(2*next-1) / elapsed}, {"time_ms", elapsed * 1e3}}
}

// threadTime gives the CPU time of the calling thread.
func threadTime() time.Duration {
	const threadClock = 3
	var spec syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadClock, uintptr(unsafe.Pointer(&spec)), 0)
	return time.Duration(spec.Nano())
}

func overload() []figure {
	capacity := float64(*workers) / (float64(*stages) * float64(*workUs) / 1e6)
	mean := 1e9 / (*load * capacity)
	work, most := time.Duration(*workUs)*time.Microsecond, int64(*queue)*int64(*stages)
	come := make([]atomic.Int64, *stages+1)
	type done struct{ latency, end int64 }
	var (
		lock sync.Mutex
		all  []done
		task func(stage int, due time.Time)
		jobs sync.WaitGroup
	)
	began := time.Now()
	task = func(stage int, due time.Time) {
		// The thread may be taken away meanwhile, and the goroutine go on with another: its clock stands elsewhere.
		runtime.LockOSThread()
		for end := threadTime() + work; threadTime() < end; {
		}
		runtime.UnlockOSThread()
		come[stage+1].Add(1)
		if stage+1 < *stages {
			go task(stage+1, due)
			return
		}
		now := time.Now()
		lock.Lock()
		all = append(all, done{max(int64(now.Sub(due)), 0), int64(now.Sub(began))})
		lock.Unlock()
		jobs.Done()
	}
	numbers := rand.New(rand.NewSource(1))
	gap := func() time.Duration { return time.Duration(numbers.ExpFloat64() * mean) }
	var offered, taken int
	var backlogs, spreads []int64
	look, end := began.Add(time.Millisecond), began.Add(time.Duration(*seconds*1e9))
	for due := began.Add(gap()); due.Before(end); {
		if now := time.Now(); !now.Before(due) {
			offered++
			if come[0].Load()-come[*stages].Load() < most {
				taken++
				come[0].Add(1)
				jobs.Add(1)
				go task(0, due)
			}
			due = due.Add(gap())
		} else {
			time.Sleep(min(due.Sub(now), look.Sub(now)))
		}
		if !time.Now().Before(look) {
			var least, greatest int64 = math.MaxInt64, 0
			for stage := range *stages {
				here := come[stage].Load() - come[stage+1].Load()
				least, greatest = min(least, here), max(greatest, here)
			}
			backlogs = append(backlogs, come[0].Load()-come[*stages].Load())
			spreads = append(spreads, greatest-least)
			look = look.Add(time.Millisecond)
		}
	}
	jobs.Wait()
	if taken == 0 || len(all) != taken || len(backlogs) == 0 {
		fail("%d of %d jobs were done", len(all), taken)
	}
	ledger := newLedger(taken)
	for i, job := range all {
		ledger.latencies[i], ledger.ends[i] = job.latency, job.end
		ledger.left.Done()
	}
	slices.Sort(backlogs)
	var spread int64
	for _, each := range spreads {
		spread += each
	}
	at := func(share float64) float64 { return float64(backlogs[int(share*float64(len(backlogs)-1))]) }
	return append(ledger.figures(), figure{"offered_per_s", float64(offered) / *seconds},
		figure{"shed_share", float64(offered-taken) / float64(offered)}, figure{"backlog_p50", at(0.5)},
		figure{"backlog_p99", at(0.99)}, figure{"backlog_spread", float64(spread) / float64(len(spreads))})
}

func creation() []figure {
	room, ledger := newRoom(), newLedger(*tasks)
	began := time.Now()
	for i := range *tasks {
		room.enter()
		since := time.Now()
		go func() {
			if *workNs > 0 {
				spin(time.Duration(*workNs))
			}
			ledger.record(i, since, true)
			room.leave()
		}()
	}
	creating := time.Since(began)
	figures := ledger.figures()
	total := figures[1].value * 1e6
	return append(figures, figure{"create_ns", float64(creating) / float64(*tasks)},
		figure{"created_per_s", float64(*tasks) / creating.Seconds()},
		figure{"drain_ms", max(total-float64(creating), 0) / 1e6})
}
