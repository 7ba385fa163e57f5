package main

import _ "unsafe" // For go:linkname.

// The counting semaphore that the sync package is built on: Go's own, not one emulated by a channel.

//go:linkname acquire sync.runtime_Semacquire
func acquire(s *uint32)

//go:linkname release sync.runtime_Semrelease
func release(s *uint32, handoff bool, skipframes int)

//go:linkname pin runtime.procPin
func pin() int

//go:linkname unpin runtime.procUnpin
func unpin()

// worker gives the number of the P that runs the caller.
func worker() int {
	p := pin()
	unpin()
	return p
}
