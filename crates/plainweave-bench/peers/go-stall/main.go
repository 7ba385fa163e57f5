// The servers of `plainweave-bench stall` in Go: one answers each byte, an 'S' after computing or blocking its thread
// for a while; the other is net/http's. Prints its address; ends when its standard input does.
package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"time"
)

// What a slow request does, and for how long.
type slowness struct {
	sleeps bool
	time   time.Duration
}

// run computes, or blocks the thread: nanosleep(2) as the scheduler sees it, like any system call that may block, where
// time.Sleep would suspend the goroutine only. A signal, such as the runtime sends its threads, ends nanosleep early.
func (slow slowness) run() {
	if !slow.sleeps {
		for start := time.Now(); time.Since(start) < slow.time; {
		}
		return
	}
	left := syscall.NsecToTimespec(slow.time.Nanoseconds())
	for syscall.Nanosleep(&left, &left) == syscall.EINTR {
	}
}

func serve(connection net.Conn, slow slowness) {
	defer connection.Close()
	var octet [1]byte
	for {
		if _, err := io.ReadFull(connection, octet[:]); err != nil {
			return
		}
		if octet[0] == 'S' {
			slow.run()
		}
		if _, err := connection.Write(octet[:]); err != nil {
			return
		}
	}
}

func echo(listener net.Listener, slow slowness) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		go serve(connection, slow)
	}
}

func main() {
	workers := flag.Int("workers", 2, "GOMAXPROCS")
	length := flag.Duration("slow", 50*time.Millisecond, "how long a slow request takes")
	by := flag.String("slow-by", "compute", "what it does meanwhile: compute or sleep")
	isWeb := flag.Bool("web", false, "speak HTTP")
	flag.Parse()
	slow := slowness{sleeps: *by == "sleep", time: *length}
	runtime.GOMAXPROCS(*workers)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(listener.Addr())
	if *isWeb {
		go web(listener, slow)
	} else {
		go echo(listener, slow)
	}
	io.Copy(io.Discard, os.Stdin)
}
