package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

func errnoName(number syscall.Errno) string {
	if name := unix.ErrnoName(number); name != "" {
		return name
	}
	return "EIO"
}
