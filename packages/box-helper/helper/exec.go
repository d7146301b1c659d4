package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxRequestBytes = 8 << 20
	maxFrameBytes   = 1 << 20
	// How many frames of input wait for a program that does not read.
	waitingFrames = 16
	// How long we stay after the trailers for the input to end.
	maxStay = 2 * time.Second
)

type request struct {
	Nonce     string   `json:"nonce"`
	Argv      []string `json:"argv"`
	Env       []string `json:"env"`
	Cwd       string   `json:"cwd"`
	User      *string  `json:"user"`
	Stdin     bool     `json:"stdin"`
	TimeoutMs int64    `json:"timeoutMs"`
	// For backends that end the connection with us, input that is under way included: we stay until the input has ended.
	Stay bool `json:"stay"`
}

type startError struct {
	Step    string `json:"step"`
	Errno   string `json:"errno"`
	Message string `json:"message"`
}

type trailer struct {
	Exit        *int        `json:"exit,omitempty"`
	Signal      *int        `json:"signal,omitempty"`
	StartError  *startError `json:"startError,omitempty"`
	Killed      *string     `json:"killed"`
	KilledCount int         `json:"killedCount"`
	Survivors   []int       `json:"survivors"`
	OutputHeld  bool        `json:"outputHeld"`
}

// execVerb runs one program and tells how it ended, in its trailers.
func execVerb(args []string) {
	if len(args) != 1 {
		fail("ERR_USAGE", "", "exec needs an ID")
	}
	reserveThreads()
	// Whatever the backend left open is not for the program.
	unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	syscall.Umask(0o022)
	unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	// Handled, not ignored: what is ignored would be inherited by the program.
	asked := make(chan os.Signal, 4)
	signal.Notify(asked, syscall.SIGUSR1, syscall.SIGPIPE, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)

	ask, err := readRequest(os.Stdin)
	if err != nil {
		os.Stderr.WriteString("breakwater: " + err.Error() + "\n")
		os.Exit(exitUsage)
	}
	session := &session{nonce: ask.Nonce, kill: make(chan string, 8), ended: make(chan syscall.WaitStatus, 1)}
	pid, input, problem := start(ask)
	if problem != nil {
		session.finish(trailer{StartError: problem}, exitNoStart)
	}
	go session.reap(pid)
	go session.readFrames(os.Stdin, input)
	go func() {
		for number := range asked {
			if number == syscall.SIGUSR1 {
				session.kill <- "request"
			}
		}
	}()

	var deadline <-chan time.Time
	if ask.TimeoutMs > 0 {
		deadline = time.After(time.Duration(min(ask.TimeoutMs, 1<<40)) * time.Millisecond)
	}
	end := trailer{Survivors: []int{}}
	var status syscall.WaitStatus
	reason := ""
	select {
	case status = <-session.ended:
	case reason = <-session.kill:
	case <-deadline:
		reason = "timeout"
	}
	if reason != "" {
		end.Killed = &reason
		end.KilledCount, end.Survivors = killTree(descendantsOf(os.Getpid()))
		select {
		case status = <-session.ended:
		case <-time.After(time.Second):
			status = syscall.WaitStatus(syscall.SIGKILL)
		}
	}
	code := status.ExitStatus()
	if status.Signaled() {
		number := int(status.Signal())
		end.Signal, code = &number, 128+number
	} else {
		end.Exit = &code
	}
	end.OutputHeld = outputHeld(descendantsOf(os.Getpid())())
	session.stays = ask.Stay && reason != "owner-lost"
	session.finish(end, code)
}

type session struct {
	nonce string
	kill  chan string
	ended chan syscall.WaitStatus
	stays bool
}

// finish writes the trailers, each in one piece, and ends.
func (s *session) finish(end trailer, code int) {
	if end.Survivors == nil {
		end.Survivors = []int{}
	}
	if len(end.Survivors) > 100 {
		end.Survivors = end.Survivors[:100]
	}
	body, _ := json.Marshal(end)
	writeAll(1, trailerBytes(s.nonce, nil))
	writeAll(2, trailerBytes(s.nonce, body))
	if s.stays {
		s.awaitEndOfInput()
	}
	os.Exit(code)
}

// awaitEndOfInput lets whoever has read the trailers close the connection first. What still comes in is thrown away.
func (s *session) awaitEndOfInput() {
	late := time.After(maxStay)
	for {
		select {
		case reason := <-s.kill:
			if reason == "owner-lost" {
				return
			}
		case <-late:
			return
		}
	}
}

// writeAll waits for a full pipe, also when the program has left it non-blocking: the flag belongs to the pipe's end, which we share.
func writeAll(fd int, bytes []byte) {
	syscall.SetNonblock(fd, false)
	for len(bytes) > 0 {
		n, err := syscall.Write(fd, bytes)
		if err == syscall.EAGAIN {
			syscall.SetNonblock(fd, false)
			continue
		}
		if err != nil && err != syscall.EINTR {
			return
		}
		bytes = bytes[max(n, 0):]
	}
}

func trailerBytes(nonce string, body []byte) []byte {
	bytes := append([]byte(nonce), 0, 0, 0, 0)
	binary.BigEndian.PutUint32(bytes[len(nonce):], uint32(len(body)))
	return append(bytes, body...)
}

// reap waits for every child: the program, and what it left to us as its nearest subreaper.
func (s *session) reap(program int) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case pid == program:
			s.ended <- status
		case err == syscall.ECHILD:
			return
		}
	}
}

// readFrames feeds the program's input and hears when it is to be killed. The end of our own input means that nobody waits any more.
func (s *session) readFrames(from io.Reader, input *os.File) {
	frames := make(chan []byte, waitingFrames)
	var once sync.Once
	closeInput := func() { once.Do(func() { close(frames) }) }
	go func() {
		broken := false
		for frame := range frames {
			if input == nil || broken {
				continue
			}
			if _, err := input.Write(frame); err != nil {
				broken = true
			}
		}
		if input != nil {
			input.Close()
		}
	}()
	open := true
	for {
		kind, payload, err := readFrame(from, maxFrameBytes)
		if err != nil {
			s.kill <- "owner-lost"
			closeInput()
			return
		}
		switch kind {
		case 'D':
			if open {
				frames <- payload
			}
		case 'E':
			open = false
			closeInput()
		case 'K':
			s.kill <- "request"
		}
	}
}

func readFrame(from io.Reader, maxBytes uint32) (byte, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return 0, nil, err
	}
	length := binary.BigEndian.Uint32(head[1:])
	if length > maxBytes {
		return 0, nil, errors.New("a frame is too long")
	}
	payload := make([]byte, length)
	_, err := io.ReadFull(from, payload)
	return head[0], payload, err
}

func readRequest(from io.Reader) (*request, error) {
	kind, payload, err := readFrame(from, maxRequestBytes)
	if err != nil {
		return nil, err
	}
	ask := &request{}
	if kind != 'R' {
		return nil, errors.New("the first frame is not a request")
	}
	if err := json.Unmarshal(payload, ask); err != nil {
		return nil, err
	}
	if len(ask.Argv) == 0 || len(ask.Nonce) < 16 {
		return nil, errors.New("the request has no argv or no nonce")
	}
	return ask, nil
}

// start starts the program with our own output streams. Nothing of ours stands between it and whoever reads them.
func start(ask *request) (int, *os.File, *startError) {
	userText := ""
	if ask.User != nil {
		userText = *ask.User
	}
	who, err := lookUpUser(userText)
	if err != nil {
		return 0, nil, failedStep("user", err)
	}
	if ask.Cwd == "" {
		ask.Cwd = "/"
	}
	var stdin, input *os.File
	if ask.Stdin {
		stdin, input, err = os.Pipe()
	} else {
		stdin, err = os.Open("/dev/null")
	}
	if err != nil {
		return 0, nil, failedStep("exec", err)
	}
	defer stdin.Close()
	candidates, err := findProgram(ask.Argv[0], ask.Env, ask.Cwd)
	var tried error = err
	for _, path := range candidates {
		pid, err := syscall.ForkExec(path, ask.Argv, &syscall.ProcAttr{
			Dir:   ask.Cwd,
			Env:   withHome(ask.Env, who.home),
			Files: []uintptr{stdin.Fd(), 1, 2},
			Sys:   &syscall.SysProcAttr{Setpgid: true, Credential: who.credential()},
		})
		if err == nil {
			return pid, input, nil
		}
		tried = err
		if err != syscall.EACCES && err != syscall.ENOENT {
			break
		}
	}
	if problem := cannotEnter(ask.Cwd, who); problem != nil {
		return 0, nil, failedStep("cwd", problem)
	}
	return 0, nil, failedStep("exec", tried)
}

// cannotEnter says why the user cannot make the folder the working directory. Only our thread's file system ids change.
func cannotEnter(cwd string, who identity) error {
	result := make(chan error, 1)
	go func() {
		// The thread ends with the goroutine, so its ids need not be restored.
		runtime.LockOSThread()
		unix.Setfsgid(int(who.gid))
		unix.Setfsuid(int(who.uid))
		fd, err := unix.Open(cwd+"/.", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err == nil {
			unix.Close(fd)
		}
		result <- err
	}()
	return <-result
}

func failedStep(step string, err error) *startError {
	name := "EIO"
	var number syscall.Errno
	var known *problem
	if errors.As(err, &number) {
		name = errnoName(number)
	} else if errors.As(err, &known) {
		name = known.Code
	}
	return &startError{step, name, err.Error()}
}

// findProgram lists where the program may be, as execvp looks for it.
func findProgram(name string, env []string, cwd string) ([]string, error) {
	if name == "" {
		return nil, syscall.ENOENT
	}
	if strings.Contains(name, "/") {
		return []string{name}, nil
	}
	path := ""
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, "PATH="); ok {
			path = value
		}
	}
	var found []string
	for _, folder := range strings.Split(path, ":") {
		if folder == "" {
			folder = "."
		}
		if !filepath.IsAbs(folder) {
			folder = filepath.Join(cwd, folder)
		}
		candidate := filepath.Join(folder, name)
		if facts, err := os.Stat(candidate); err == nil && facts.Mode().IsRegular() {
			found = append(found, candidate)
		}
	}
	if len(found) == 0 {
		return nil, syscall.ENOENT
	}
	return found, nil
}
