package main

import _ "unsafe" // For go:linkname.

// The counting semaphore that the sync package is built on: Go's own, not one emulated by a channel.

//go:linkname acquire sync.runtime_Semacquire
func acquire(s *uint32)

//go:linkname release sync.runtime_Semrelease
func release(s *uint32, handoff bool, skipframes int)
