// Go's file server on a directory, with entity tags, which it does not make itself. Says its address when it
// listens, and in a file what it was asked.
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
)

func main() {
	root := os.Args[1]
	files := http.FileServer(http.Dir(root))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	log, err := os.OpenFile(os.Args[2], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	panic(http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(log, "%s %s\n", r.Method, r.RequestURI)
		if info, err := os.Stat(filepath.Join(root, r.URL.Path)); err == nil {
			w.Header().Set("ETag", fmt.Sprintf("\"%x-%x\"", info.ModTime().UnixNano(), info.Size()))
		}
		files.ServeHTTP(w, r)
	})))
}
