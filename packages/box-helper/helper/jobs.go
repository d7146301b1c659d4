package main

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"time"
)

// Programs in boxes whose backend has nothing but short calls: no stream, no input. `jobs` asks and feeds any number of them at once; each has
// a keeper (`job-keep ID`), which is what `exec ID` is connected to. Every call can be made again: what is sent and what is fetched has an offset.
const (
	jobsFolder = "/.breakwater/jobs"
	// What is kept of each stream until it is fetched. The program waits when there is more.
	keptBytes = 8 << 20
	// What is taken of the input before the program has taken it.
	takenBytes = 8 << 20
	// Without a call for so long the owner is lost.
	jobLease = 2 * time.Minute
	// The most output of one stream that is in an answer itself.
	inlineBytes = 64 << 10
	// How long a keeper may take to listen.
	keeperPatience = 20 * time.Second
	// News of other jobs that come so soon after the first ones travel with them.
	together = 15 * time.Millisecond
	// How long a keeper may take to answer once it is asked to.
	answerPatience = 10 * time.Second
)

var jobID = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)

type jobsRequest struct {
	WaitMs int64        `json:"waitMs"`
	Jobs   []jobRequest `json:"jobs"`
}

type jobRequest struct {
	ID    string   `json:"id"`
	Start []string `json:"start,omitempty"`
	Input *piece   `json:"input,omitempty"`
	// How much of each stream is not needed any more.
	Had [2]int64 `json:"had"`
	// The most that is wanted of each stream; 0 = nobody waits for output.
	Want   int   `json:"want"`
	Close  bool  `json:"close,omitempty"`
	WaitMs int64 `json:"waitMs,omitempty"`
}

type piece struct {
	At   int64  `json:"at"`
	Data []byte `json:"data"`
	// Output that is too much for an answer: a file with it, there until more of the stream is had.
	File  string `json:"file,omitempty"`
	Bytes int    `json:"bytes,omitempty"`
}

type jobAnswer struct {
	ID string `json:"id"`
	// There is no such job, or its keeper was ended.
	Gone  bool     `json:"gone,omitempty"`
	Taken int64    `json:"taken"`
	Out   [2]piece `json:"out"`
	// The streams that have ended.
	Ended [2]bool `json:"ended"`
	// Of the helper that runs the program, once it has ended.
	Exit *int `json:"exit,omitempty"`
	News bool `json:"news,omitempty"`
}

// jobsVerb is one call: it starts what is to be started, hands over input, and answers as soon as one of the jobs has news, or after waitMs.
func jobsVerb(args []string) {
	text := []byte{}
	switch {
	case len(args) == 1:
		text = []byte(args[0])
	case len(args) == 2 && args[0] == "--file":
		content, err := os.ReadFile(args[1])
		os.Remove(args[1])
		if err != nil {
			fail("ENOENT", args[1], err.Error())
		}
		text = content
	default:
		fail("ERR_USAGE", "", "jobs needs a request, or --file and a file with one")
	}
	var ask jobsRequest
	if json.Unmarshal(text, &ask) != nil {
		fail("ERR_USAGE", "", "the request is not the JSON that it has to be")
	}
	answers := make([]jobAnswer, len(ask.Jobs))
	enough := make(chan struct{})
	var first sync.Once
	var all sync.WaitGroup
	for index, job := range ask.Jobs {
		all.Add(1)
		go func() {
			defer all.Done()
			job.WaitMs = ask.WaitMs
			answers[index] = askKeeper(job, enough)
			if answers[index].News || answers[index].Gone {
				first.Do(func() { time.AfterFunc(together, func() { close(enough) }) })
			}
		}()
	}
	all.Wait()
	say(map[string]any{"jobs": answers})
}

func askKeeper(job jobRequest, enough <-chan struct{}) jobAnswer {
	gone := jobAnswer{ID: job.ID, Gone: true}
	if !jobID.MatchString(job.ID) {
		return gone
	}
	folder := filepath.Join(jobsFolder, job.ID)
	patience := time.Duration(0)
	if len(job.Start) > 0 {
		patience = keeperPatience
		os.MkdirAll(jobsFolder, 0o700)
		// Made once: who asks again finds it.
		if os.Mkdir(folder, 0o700) == nil && startKeeper(job) != nil {
			os.RemoveAll(folder)
			return gone
		}
	}
	connection, err := net.Dial("unix", filepath.Join(folder, "socket"))
	for late := time.Now().Add(patience); err != nil && time.Now().Before(late); {
		time.Sleep(5 * time.Millisecond)
		connection, err = net.Dial("unix", filepath.Join(folder, "socket"))
	}
	if err != nil {
		return gone
	}
	defer connection.Close()
	line, _ := json.Marshal(job)
	if _, err := connection.Write(append(line, '\n')); err != nil {
		return gone
	}
	connection.SetReadDeadline(time.Now().Add(time.Duration(job.WaitMs)*time.Millisecond + answerPatience))
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-enough:
			connection.Write([]byte("\n"))
		case <-done:
		}
	}()
	var answer jobAnswer
	if json.NewDecoder(connection).Decode(&answer) != nil {
		return gone
	}
	return answer
}

func startKeeper(job jobRequest) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	keeper := exec.Command(self, append([]string{"job-keep", job.ID}, job.Start...)...)
	keeper.Dir = "/"
	// Whoever called us does not wait for it: it holds none of our streams.
	keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := keeper.Start(); err != nil {
		return err
	}
	return keeper.Process.Release()
}

// kept is the part of an output stream that has not been fetched.
type kept struct {
	base  int64
	data  []byte
	ended bool
}

type keeper struct {
	folder string
	mutex  sync.Mutex
	// Closed and replaced whenever something below changes.
	changed chan struct{}
	streams [2]kept
	input   [][]byte
	waiting int
	taken   int64
	exit    *int
	closed  bool
	callers int
	seen    time.Time
}

// jobKeepVerb runs a verb of ours and keeps what it says until it is fetched. It ends when its job was closed and nothing holds its output any
// more: what a program left behind can go on writing.
func jobKeepVerb(args []string) {
	if len(args) < 2 || !jobID.MatchString(args[0]) {
		fail("ERR_USAGE", "", "job-keep needs an ID and a verb")
	}
	folder := filepath.Join(jobsFolder, args[0])
	k := &keeper{folder: folder, changed: make(chan struct{}), seen: time.Now()}
	if !k.run(folder, args[1:]) {
		os.RemoveAll(folder)
		os.Exit(exitFailed)
	}
}

func (k *keeper) run(folder string, argv []string) bool {
	inputEnd, feed, err1 := os.Pipe()
	stdout, outputEnd, err2 := os.Pipe()
	stderr, errorEnd, err3 := os.Pipe()
	listener, err4 := net.Listen("unix", filepath.Join(folder, "socket"))
	self, err5 := os.Executable()
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil || err5 != nil {
		return false
	}
	program := exec.Command(self, argv...)
	program.Dir, program.Env = "/", []string{}
	program.Stdin, program.Stdout, program.Stderr = inputEnd, outputEnd, errorEnd
	if program.Start() != nil {
		return false
	}
	inputEnd.Close()
	outputEnd.Close()
	errorEnd.Close()
	go k.feed(feed)
	go k.keep(0, stdout)
	go k.keep(1, stderr)
	go func() {
		program.Wait()
		code := program.ProcessState.ExitCode()
		if code < 0 {
			code = 128 + int(syscall.SIGKILL)
		}
		k.change(func() { k.exit = &code })
	}()
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go k.serve(connection)
		}
	}()
	for range time.Tick(time.Second) {
		k.mutex.Lock()
		if k.callers == 0 && time.Since(k.seen) > jobLease && !k.closed {
			k.closed = true
			k.announce()
		}
		over := k.closed && k.callers == 0
		done := over && k.exit != nil && k.streams[0].ended && k.streams[1].ended
		k.mutex.Unlock()
		if over {
			os.RemoveAll(folder)
		}
		if done {
			return true
		}
	}
	return true
}

// change does something that others wait for.
func (k *keeper) change(what func()) {
	k.mutex.Lock()
	what()
	k.announce()
	k.mutex.Unlock()
}

func (k *keeper) announce() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// wait lets go of the lock until something changes.
func (k *keeper) wait() {
	changed := k.changed
	k.mutex.Unlock()
	<-changed
	k.mutex.Lock()
}

// keep reads a stream, no further ahead of who fetches it than keptBytes. What nobody will fetch is thrown away.
func (k *keeper) keep(which int, from *os.File) {
	buffer := make([]byte, 64<<10)
	stream := &k.streams[which]
	for {
		n, err := from.Read(buffer)
		k.mutex.Lock()
		for n > 0 && len(stream.data) >= keptBytes && !k.closed {
			k.wait()
		}
		if k.closed {
			stream.data = nil
		} else {
			stream.data = append(stream.data, buffer[:n]...)
		}
		stream.ended = err != nil
		k.announce()
		k.mutex.Unlock()
		if err != nil {
			return
		}
	}
}

// feed hands the input over. When the job is closed its end tells the program's helper that the owner is gone.
func (k *keeper) feed(to *os.File) {
	defer to.Close()
	k.mutex.Lock()
	defer k.mutex.Unlock()
	for {
		for len(k.input) == 0 && !k.closed {
			k.wait()
		}
		if k.closed {
			return
		}
		next := k.input[0]
		k.input = k.input[1:]
		k.mutex.Unlock()
		_, err := to.Write(next)
		k.mutex.Lock()
		k.waiting -= len(next)
		k.announce()
		if err != nil {
			for !k.closed {
				k.input, k.waiting = nil, 0
				k.wait()
			}
			return
		}
	}
}

func (k *keeper) serve(connection net.Conn) {
	defer connection.Close()
	k.change(func() { k.callers++ })
	defer func() { k.change(func() { k.callers--; k.seen = time.Now() }) }()
	reader := bufio.NewReader(connection)
	line, err := reader.ReadBytes('\n')
	var ask jobRequest
	if err != nil || json.Unmarshal(line, &ask) != nil {
		return
	}
	over := make(chan struct{})
	go func() {
		// A further line, or the caller's end: an answer is wanted now.
		reader.ReadByte()
		close(over)
	}()
	late := time.After(time.Duration(ask.WaitMs) * time.Millisecond)
	// The end of a program often follows its output at once.
	var settled <-chan time.Time
	k.mutex.Lock()
	defer k.mutex.Unlock()
	for isLate := false; ; {
		k.take(&ask)
		answer := k.answer(&ask)
		handedOver := ask.Input == nil || k.taken >= ask.Input.At+int64(len(ask.Input.Data))
		if answer.News && answer.Exit == nil && settled == nil && !isLate {
			settled = time.After(together)
		}
		if (answer.News && answer.Exit != nil) || isLate || ask.Close || (ask.Want == 0 && handedOver) {
			k.send(connection, answer)
			return
		}
		changed := k.changed
		k.mutex.Unlock()
		select {
		case <-changed:
		case <-settled:
			isLate = true
		case <-over:
			isLate = true
		case <-late:
			isLate = true
		}
		k.mutex.Lock()
	}
}

// take forgets what the caller has, and takes of its input what is new and has room.
func (k *keeper) take(ask *jobRequest) {
	for which := range k.streams {
		stream := &k.streams[which]
		if gone := min(ask.Had[which]-stream.base, int64(len(stream.data))); gone > 0 {
			stream.data = append([]byte{}, stream.data[gone:]...)
			stream.base += gone
			os.Remove(k.outputFile(which))
			k.announce()
		}
	}
	if ask.Input != nil {
		fresh := ask.Input.Data[min(max(k.taken-ask.Input.At, 0), int64(len(ask.Input.Data))):]
		room := takenBytes - k.waiting
		if len(fresh) > 0 && room > 0 && ask.Input.At <= k.taken {
			fresh = fresh[:min(room, len(fresh))]
			k.input = append(k.input, fresh)
			k.waiting += len(fresh)
			k.taken += int64(len(fresh))
			k.announce()
		}
	}
	if ask.Close && !k.closed {
		k.closed = true
		k.announce()
	}
}

func (k *keeper) answer(ask *jobRequest) jobAnswer {
	answer := jobAnswer{ID: ask.ID, Taken: k.taken, Exit: k.exit}
	for which := range k.streams {
		stream := &k.streams[which]
		skip := min(max(ask.Had[which]-stream.base, 0), int64(len(stream.data)))
		data := stream.data[skip:min(int64(len(stream.data)), skip+int64(ask.Want))]
		answer.Out[which] = piece{At: stream.base + skip, Data: data}
		answer.Ended[which] = stream.ended && int(skip)+len(data) == len(stream.data)
		answer.News = answer.News || len(data) > 0
	}
	answer.News = answer.News || (ask.Want > 0 && k.exit != nil)
	return answer
}

// send says the answer; what is too much for it goes into a file.
func (k *keeper) send(connection net.Conn, answer jobAnswer) {
	for which := range answer.Out {
		out := &answer.Out[which]
		switch file := k.outputFile(which); {
		case len(out.Data) <= inlineBytes:
			out.Data = append([]byte{}, out.Data...)
		case os.WriteFile(file, out.Data, 0o600) == nil:
			out.File, out.Bytes, out.Data = file, len(out.Data), nil
		default:
			// A full disk.
			out.Data = append([]byte{}, out.Data[:inlineBytes]...)
			answer.Ended[which] = false
		}
	}
	k.mutex.Unlock()
	defer k.mutex.Lock()
	json.NewEncoder(connection).Encode(answer)
}

func (k *keeper) outputFile(which int) string {
	return filepath.Join(k.folder, "output-"+string('0'+rune(which)))
}
