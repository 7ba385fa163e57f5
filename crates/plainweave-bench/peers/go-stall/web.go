package main

import (
	"io"
	"net"
	"net/http"
)

// web answers over HTTP with a body of a word.
func web(listener net.Listener, slow slowness) {
	http.HandleFunc("/fast", func(response http.ResponseWriter, _ *http.Request) {
		io.WriteString(response, "fast")
	})
	http.HandleFunc("/slow", func(response http.ResponseWriter, _ *http.Request) {
		slow.run()
		io.WriteString(response, "slow")
	})
	http.Serve(listener, nil)
}
