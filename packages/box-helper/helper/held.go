package main

import (
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// outputHeld says whether one of the processes has our output open. One that we may not look into counts as well.
func outputHeld(list []process) bool {
	var stdout, stderr unix.Stat_t
	if unix.Fstat(1, &stdout) != nil || unix.Fstat(2, &stderr) != nil {
		return true
	}
	// Without CAP_SYS_PTRACE root may look only into processes of its own user: each is looked into as its own.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer unix.Setfsuid(os.Geteuid())
	for _, each := range list {
		if holds(each.pid, stdout, stderr) {
			return true
		}
	}
	return false
}

func holds(pid int, streams ...unix.Stat_t) bool {
	folder := "/proc/" + strconv.Itoa(pid)
	var facts unix.Stat_t
	if unix.Stat(folder, &facts) != nil {
		return false // it has ended
	}
	unix.Setfsuid(int(facts.Uid))
	descriptors, err := os.ReadDir(folder + "/fd")
	if err != nil {
		return os.IsPermission(err)
	}
	for _, descriptor := range descriptors {
		var open unix.Stat_t
		switch err := unix.Stat(folder+"/fd/"+descriptor.Name(), &open); err {
		case nil:
			for _, stream := range streams {
				if open.Dev == stream.Dev && open.Ino == stream.Ino {
					return true
				}
			}
		case unix.EACCES, unix.EPERM:
			return true
		}
	}
	return false
}
