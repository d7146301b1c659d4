package main

import (
	"runtime"
	"sync"
)

const (
	// How many threads run Go code at a time, whatever the machine has.
	workingThreads = 2
	// All that a verb ever blocks at the same time (input, output, waiting for children, signals, a collection), and some.
	threadsInReserve = 10
)

// reserveThreads has all threads made now that will be needed later. Go makes them when it wants one and ends the program if it
// cannot have it; a box that has reached its limit of processes gives none.
func reserveThreads() {
	runtime.GOMAXPROCS(workingThreads)
	var running sync.WaitGroup
	enough := make(chan struct{})
	for range threadsInReserve {
		running.Add(1)
		go func() {
			// Each has a thread of its own until all are there. Unlocked, the threads stay and wait for work.
			runtime.LockOSThread()
			running.Done()
			<-enough
			runtime.UnlockOSThread()
		}()
	}
	running.Wait()
	close(enough)
}
