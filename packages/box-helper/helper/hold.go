package main

import (
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hold is the first process of a box: it reaps, keeps the box alive for its lifetime, and cannot be ended from inside.
//
// From its own pid namespace the kernel gives a first process only signals that it handles, and Go's runtime handles nearly all. So
// they are all blocked and read from a signalfd, which tells who sent them: pid 0 is somebody outside. The mask has to be there before
// Go starts its threads, so the first stage sets it and executes itself again.
func hold(args []string) {
	const stage = "BREAKWATER_HOLD"
	if os.Getenv(stage) == "" {
		runtime.LockOSThread()
		setSignalMask(^uint64(0))
		env := append(os.Environ(), stage+"=1", "GODEBUG=asyncpreemptoff=1", "GOMAXPROCS=1")
		err := syscall.Exec("/proc/self/exe", append([]string{os.Args[0], "hold"}, args...), env)
		fail("ERR_HOLD", "/proc/self/exe", err.Error())
	}
	os.Unsetenv(stage)
	os.Unsetenv("GODEBUG")
	os.Unsetenv("GOMAXPROCS")

	options := parseHold(args)
	// The runtime unblocks some signals for itself (SEGV, BUS, ...). Sent by a process they come here, and nobody acts on them.
	ignored := make(chan os.Signal, 64)
	signal.Notify(ignored)
	go func() {
		for range ignored {
		}
	}()
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)

	deadline := time.Now().Add(options.lifetime)
	if len(options.entrypoint) > 0 {
		startEntrypoint(options)
	}
	go reapForEver()
	go obeyOutside()
	for left := time.Until(deadline); left > 0; left = time.Until(deadline) {
		time.Sleep(left)
	}
	os.Exit(exitLifetime)
}

type holdOptions struct {
	lifetime   time.Duration
	user, cwd  string
	entrypoint []string
}

func parseHold(args []string) holdOptions {
	options := holdOptions{cwd: "/"}
	for i := 0; i < len(args); i++ {
		if args[i] == "--" {
			options.entrypoint = args[i+1:]
			break
		}
		name := args[i]
		i++
		if i >= len(args) {
			fail("ERR_USAGE", name, "the option lacks its value")
		}
		switch name {
		case "--lifetime-ms":
			ms, err := strconv.ParseInt(args[i], 10, 64)
			if err != nil || ms <= 0 {
				fail("ERR_USAGE", name, "expected a number above 0")
			}
			const longest = int64(^uint64(0)>>1) / int64(time.Millisecond)
			options.lifetime = time.Duration(min(ms, longest)) * time.Millisecond
		case "--user":
			options.user = args[i]
		case "--cwd":
			options.cwd = args[i]
		default:
			fail("ERR_USAGE", name, "unknown option of hold")
		}
	}
	if options.lifetime == 0 {
		fail("ERR_USAGE", "--lifetime-ms", "is needed")
	}
	return options
}

// startEntrypoint runs the image's own program beside us, with a keep-alive as its arguments. How it ends changes nothing.
func startEntrypoint(options holdOptions) {
	argv := append([]string{}, options.entrypoint...)
	argv = append(argv, selfPath, "idle")
	env := os.Environ()
	identity, err := lookUpUser(options.user)
	if err != nil {
		os.Stderr.WriteString("breakwater: the image's entrypoint was not started: " + err.Error() + "\n")
		return
	}
	// Blocked signals are inherited: `launch` unblocks them before it becomes the program.
	launch := append([]string{os.Args[0], "launch", "--"}, argv...)
	null, _ := os.Open("/dev/null")
	_, err = os.StartProcess("/proc/self/exe", launch, &os.ProcAttr{
		Dir:   existingDirectory(options.cwd),
		Env:   withHome(env, identity.home),
		Files: []*os.File{null, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Credential: identity.credential()},
	})
	if err != nil {
		os.Stderr.WriteString("breakwater: the image's entrypoint was not started: " + err.Error() + "\n")
	}
}

func existingDirectory(path string) string {
	if facts, err := os.Stat(path); err == nil && facts.IsDir() {
		return path
	}
	return "/"
}

// launchVerb becomes the program after `--`, with an empty signal mask.
func launchVerb(args []string) {
	if len(args) < 2 || args[0] != "--" {
		fail("ERR_USAGE", "", "launch needs -- PROGRAM")
	}
	argv := args[1:]
	runtime.LockOSThread()
	candidates, err := findProgram(argv[0], os.Environ(), "/")
	for _, path := range candidates {
		setSignalMask(0)
		err = syscall.Exec(path, argv, os.Environ())
	}
	os.Stderr.WriteString("breakwater: " + argv[0] + ": " + err.Error() + "\n")
	os.Exit(exitNoStart)
}

func reapForEver() {
	for {
		if _, err := syscall.Wait4(-1, nil, 0, nil); err == syscall.ECHILD {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// obeyOutside ends us on TERM, INT or QUIT from outside the pid namespace.
func obeyOutside() {
	set := unix.Sigset_t{}
	for _, number := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT} {
		set.Val[0] |= 1 << (uint(number) - 1)
	}
	fd, err := unix.Signalfd(-1, &set, unix.SFD_CLOEXEC)
	if err != nil {
		return
	}
	info := unix.SignalfdSiginfo{}
	buffer := (*[unsafe.Sizeof(info)]byte)(unsafe.Pointer(&info))[:]
	for {
		n, err := unix.Read(fd, buffer)
		if err == nil && n == len(buffer) && info.Pid == 0 {
			os.Exit(exitOutside)
		}
		if err != nil && err != unix.EINTR {
			return
		}
	}
}

func setSignalMask(mask uint64) {
	const setMask = 2
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, setMask, uintptr(unsafe.Pointer(&mask)), 0, 8, 0, 0)
}

// idle is the keep-alive that an entrypoint gets as its arguments.
func idle() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	<-ended
}
