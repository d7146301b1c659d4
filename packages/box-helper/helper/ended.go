package main

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Addresses of what is in ended_*.s; Go code would get wrappers.
var (
	endedFromOutsideAddr uintptr
	signalReturnAddr     uintptr
)

// kernelSigaction is what rt_sigaction takes, the same on both architectures.
type kernelSigaction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

// endOnOutsideTerm lets a TERM from outside our pid namespace end the first process at once, with 143. The kernel writes 0 for a sender that cannot be
// seen from here, and lets nobody else write such a thing. Go's runtime hides the sender, so the handler is not Go's: it looks, and ends or returns.
func endOnOutsideTerm() {
	const saSiginfo, saRestorer, saOnstack, saRestart = 4, 0x04000000, 0x08000000, 0x10000000
	action := kernelSigaction{
		handler:  endedFromOutsideAddr,
		flags:    saSiginfo | saRestorer | saOnstack | saRestart,
		restorer: signalReturnAddr,
		mask:     ^uint64(0),
	}
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(syscall.SIGTERM), uintptr(unsafe.Pointer(&action)), 0, unsafe.Sizeof(action.mask), 0, 0)
}
