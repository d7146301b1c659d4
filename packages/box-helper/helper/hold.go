package main

import (
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// hold is the first process of a box: it reaps, keeps the box alive for its lifetime, and cannot be ended from inside. From its own pid
// namespace the kernel gives a first process only signals that it handles; those that Go's runtime handles end here, unheard. A TERM from outside
// ends it.
func hold(args []string) {
	options := parseHold(args)
	ignored := make(chan os.Signal, 64)
	signal.Notify(ignored)
	go func() {
		for range ignored {
		}
	}()
	endOnOutsideTerm()
	reserveThreads()
	mixIdentities()
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)

	deadline := time.Now().Add(options.lifetime)
	program := 0
	if options.endsWithProgram {
		awaitGo(deadline)
	}
	if len(options.entrypoint) > 0 {
		program = startEntrypoint(options)
	}
	if options.endsWithProgram {
		if program == 0 {
			os.Exit(exitNoStart)
		}
		os.Remove(goPath)
	}
	go reapForEver(program, options.endsWithProgram)
	for left := time.Until(deadline); left > 0; left = time.Until(deadline) {
		time.Sleep(left)
	}
	os.Exit(exitLifetime)
}

// goPath is put into the box of a service when all is ready for its program, and taken away by us when that runs.
const goPath = "/.breakwater/go"

func awaitGo(deadline time.Time) {
	for {
		if _, err := os.Lstat(goPath); err == nil {
			return
		}
		if time.Now().After(deadline) {
			os.Exit(exitLifetime)
		}
		reapAll()
		time.Sleep(20 * time.Millisecond)
	}
}

// reapAll takes in the children that have ended.
func reapAll() {
	for {
		if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != nil || pid <= 0 {
			return
		}
	}
}

// mixIdentities makes our saved ids other than root's, so that no process of the box has the same ones: with the same ones root could
// take our resource limits away (prlimit), and the kernel ends even a first process that has no processor time left. A box without
// these ids keeps the old ones.
func mixIdentities() {
	const nobodyElse = 65533
	syscall.Setresgid(0, 0, nobodyElse)
	syscall.Setresuid(0, 0, nobodyElse)
}

type holdOptions struct {
	lifetime   time.Duration
	user, cwd  string
	entrypoint []string
	// The program gets no keep-alive, is started when goPath is there, and its end is the box's, with its exit code.
	endsWithProgram bool
}

func parseHold(args []string) holdOptions {
	options := holdOptions{cwd: "/"}
	for i := 0; i < len(args); i++ {
		if args[i] == "--" {
			options.entrypoint = args[i+1:]
			break
		}
		name := args[i]
		if name == "--ends-with-program" {
			options.endsWithProgram = true
			continue
		}
		i++
		if i >= len(args) {
			fail("ERR_USAGE", name, "the option lacks its value")
		}
		switch name {
		case "--lifetime-ms":
			options.lifetime = milliseconds(name, args[i])
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

func milliseconds(name, value string) time.Duration {
	ms, err := strconv.ParseInt(value, 10, 64)
	if err != nil || ms <= 0 {
		fail("ERR_USAGE", name, "expected a number above 0")
	}
	const longest = int64(^uint64(0)>>1) / int64(time.Millisecond)
	return time.Duration(min(ms, longest)) * time.Millisecond
}

// startEntrypoint runs the image's own program beside us, with a keep-alive as its arguments, and gives its process id; 0 if it could not be started.
func startEntrypoint(options holdOptions) int {
	argv := append([]string{}, options.entrypoint...)
	if !options.endsWithProgram {
		argv = append(argv, selfPath, "idle")
	}
	env := os.Environ()
	identity, err := lookUpUser(options.user)
	if err != nil {
		os.Stderr.WriteString("breakwater: the image's entrypoint was not started: " + err.Error() + "\n")
		return 0
	}
	null, _ := os.Open("/dev/null")
	candidates, err := findProgram(argv[0], env, options.cwd)
	for _, path := range candidates {
		var program *os.Process
		program, err = os.StartProcess(path, argv, &os.ProcAttr{
			Dir:   existingDirectory(options.cwd),
			Env:   withHome(env, identity.home),
			Files: []*os.File{null, os.Stdout, os.Stderr},
			Sys:   &syscall.SysProcAttr{Setpgid: true, Credential: identity.credential()},
		})
		if err == nil {
			return program.Pid
		}
	}
	os.Stderr.WriteString("breakwater: the image's entrypoint was not started: " + err.Error() + "\n")
	return 0
}

func existingDirectory(path string) string {
	if facts, err := os.Stat(path); err == nil && facts.IsDir() {
		return path
	}
	return "/"
}

func reapForEver(program int, endsWithProgram bool) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err == syscall.ECHILD {
			time.Sleep(20 * time.Millisecond)
		}
		if endsWithProgram && err == nil && pid == program {
			os.Exit(exitCodeOf(status))
		}
	}
}

// exitCodeOf is what a shell says of a program that has ended.
func exitCodeOf(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// idle is the keep-alive that an entrypoint gets as its arguments.
func idle() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	<-ended
}
