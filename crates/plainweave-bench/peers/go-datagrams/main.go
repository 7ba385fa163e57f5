// Sends back each datagram, until standard input ends.
package main

import (
	"fmt"
	"net"
	"os"
	"runtime"
)

func main() {
	runtime.GOMAXPROCS(1)
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(socket.LocalAddr())
	go func() {
		os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}()
	buf := make([]byte, 64)
	for {
		n, peer, err := socket.ReadFromUDPAddrPort(buf)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if _, err := socket.WriteToUDPAddrPort(buf[:n], peer); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
