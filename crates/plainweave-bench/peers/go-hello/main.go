// The server of `plainweave-bench http` in Go: net/http with a fixed answer, on one thread for goroutines. Prints its
// address; ends when its standard input does. With --chunked it flushes what it has written, without which net/http
// would find out its length.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
)

func main() {
	runtime.GOMAXPROCS(1)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(listener.Addr())
	body := []byte("Hello, World!")
	chunked := len(os.Args) > 1 && os.Args[1] == "--chunked"
	go http.Serve(listener, http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
		response.Header()["Content-Type"] = []string{"text/plain"}
		response.Write(body)
		if chunked {
			response.(http.Flusher).Flush()
		}
	}))
	io.Copy(io.Discard, os.Stdin)
}
