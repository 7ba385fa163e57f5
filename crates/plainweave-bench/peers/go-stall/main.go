// The server of `plainweave-bench stall` in Go: answers each byte, an 'S' after computing for a while. Prints its
// address; ends when its standard input does.
package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"time"
)

func serve(connection net.Conn, slow time.Duration) {
	defer connection.Close()
	var octet [1]byte
	for {
		if _, err := io.ReadFull(connection, octet[:]); err != nil {
			return
		}
		if octet[0] == 'S' {
			for start := time.Now(); time.Since(start) < slow; {
			}
		}
		if _, err := connection.Write(octet[:]); err != nil {
			return
		}
	}
}

func main() {
	workers := flag.Int("workers", 2, "GOMAXPROCS")
	slow := flag.Duration("slow", 50*time.Millisecond, "what an 'S' computes")
	flag.Parse()
	runtime.GOMAXPROCS(*workers)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(listener.Addr())
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(connection, *slow)
		}
	}()
	io.Copy(io.Discard, os.Stdin)
}
