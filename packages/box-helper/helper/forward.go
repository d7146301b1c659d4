package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// Connections of the box at a time. More are reset.
	maxConnections = 1024
	// Questions over UDP that wait for their answer. More are dropped, as datagrams are.
	maxQuestions = 64
	// The longest question and answer over UDP; what a name server sends without fragments.
	maxDatagramBytes = 1232
	// What a connection holds at most for each direction, and only while the other side does not take it.
	pumpBytes = 16 << 10
	// What the kernel may hold of a connection for each direction; it doubles the number. Left to itself it takes megabytes.
	kernelBytes     = 32 << 10
	questionTimeout = 5 * time.Second
	dialTimeout     = 10 * time.Second
	lingerTimeout   = 2 * time.Second
)

// A route is a port of the box's loopback and the socket of the gateway that it leads to. The socket says which port it was: nothing
// of ours travels within the connection, so there is nothing that a box could forge.
type route struct {
	port      int
	socket    string
	datagrams bool
}

var routes = []route{{53, "53", false}, {53, "53", true}, {80, "80", false}, {443, "443", false}, {3128, "3128", false}}

// forwardVerb runs in the network namespace of a box, in a container of its own, and passes what comes to the box's loopback on to
// the gateway. It ends with the gateway's connection, on TERM and when its lifetime is over.
func forwardVerb(args []string) {
	folder, lifetime := parseForward(args)
	runtime.GOMAXPROCS(workingThreads)
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)

	status, err := dialGateway(filepath.Join(folder, "status"))
	if err != nil {
		fail("ERR_GATEWAY", folder, err.Error())
	}
	f := newForwarder(folder)
	opened, err := f.open([]string{"127.0.0.1", "::1"}, routes)
	if err != nil {
		fail("ERR_LISTEN", "", err.Error())
	}
	say(opened)
	line, _ := json.Marshal(opened)
	if _, err := status.Write(append(line, '\n')); err != nil {
		fail("ERR_GATEWAY", folder, err.Error())
	}
	gone := make(chan struct{})
	go func() {
		io.Copy(io.Discard, status)
		close(gone)
	}()
	select {
	case <-ended:
	case <-gone:
	case <-time.After(lifetime):
		os.Exit(exitLifetime)
	}
}

func parseForward(args []string) (folder string, lifetime time.Duration) {
	for len(args) >= 2 {
		switch args[0] {
		case "--sockets":
			folder = args[1]
		case "--lifetime-ms":
			lifetime = milliseconds(args[0], args[1])
		default:
			fail("ERR_USAGE", args[0], "unknown option of forward")
		}
		args = args[2:]
	}
	if len(args) > 0 || folder == "" || lifetime == 0 {
		fail("ERR_USAGE", "", "forward needs --sockets FOLDER and --lifetime-ms N")
	}
	return folder, lifetime
}

type forwarder struct {
	folder      string
	connections chan struct{}
	questions   chan struct{}
}

func newForwarder(folder string) *forwarder {
	limit := maxConnections
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) == nil && files.Cur < 2*maxConnections+256 {
		limit = max(1, (int(files.Cur)-256)/2)
	}
	return &forwarder{folder, make(chan struct{}, limit), make(chan struct{}, maxQuestions)}
}

// opened is what the gateway is told: where we listen, and which ports the box itself had taken before. Those are left to it.
type opened struct {
	Listening []string `json:"listening"`
	InUse     []string `json:"inUse"`
}

func (f *forwarder) open(addresses []string, routes []route) (opened, error) {
	result := opened{[]string{}, []string{}}
	for _, address := range addresses {
		for _, each := range routes {
			name, err := f.listen(address, each)
			switch {
			case err == nil:
				result.Listening = append(result.Listening, name)
			case errors.Is(err, unix.EADDRINUSE):
				result.InUse = append(result.InUse, name)
			case address == "::1" && (errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT)):
				// A box without IPv6.
			default:
				return result, err
			}
		}
	}
	return result, nil
}

// listen opens one port and serves it. Gives its name, for instance tcp:127.0.0.1:80.
func (f *forwarder) listen(address string, to route) (string, error) {
	where := net.JoinHostPort(address, strconv.Itoa(to.port))
	socket := filepath.Join(f.folder, to.socket)
	if to.datagrams {
		endpoint, err := net.ResolveUDPAddr("udp", where)
		if err != nil {
			return "", err
		}
		connection, err := net.ListenUDP("udp", endpoint)
		if err != nil {
			return "udp:" + where, err
		}
		go f.serveDatagrams(connection, socket)
		return "udp:" + connection.LocalAddr().String(), nil
	}
	listener, err := net.Listen("tcp", where)
	if err != nil {
		return "tcp:" + where, err
	}
	go f.serve(listener.(*net.TCPListener), socket)
	return "tcp:" + listener.Addr().String(), nil
}

func (f *forwarder) serve(listener *net.TCPListener, socket string) {
	for {
		connection, err := listener.AcceptTCP()
		if err != nil {
			// Out of descriptors or memory: connections that end give some back.
			time.Sleep(20 * time.Millisecond)
			continue
		}
		connection.SetReadBuffer(kernelBytes)
		connection.SetWriteBuffer(kernelBytes)
		select {
		case f.connections <- struct{}{}:
			go func() {
				defer func() { <-f.connections }()
				relay(connection, socket)
			}()
		default:
			reset(connection)
		}
	}
}

// relay joins a connection of the box with one to the gateway until both directions have ended.
func relay(box *net.TCPConn, socket string) {
	defer box.Close()
	gateway, err := dialGateway(socket)
	if err != nil {
		reset(box)
		return
	}
	defer gateway.Close()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if side, err := pump(gateway, box); err != nil && side == readSide {
			// The box has given up.
			box.Close()
			gateway.Close()
		}
		// A gateway that takes no more may still be answering: an early answer to a long request.
	}()
	switch side, err := pump(box, gateway); {
	case err != nil && side == writeSide:
		box.Close()
		gateway.Close()
	case err != nil || isGone(gateway):
		// Also an error is its end: it has closed while there was more to read for it.
		box.CloseWrite()
		linger(box, sent)
	}
	<-sent
}

// linger gives the box a moment to take the end of the answer: closing on what it still sends would reset the connection.
func linger(box *net.TCPConn, sent <-chan struct{}) {
	box.SetReadDeadline(time.Now().Add(lingerTimeout))
	<-sent
	io.Copy(io.Discard, box)
	box.Close()
}

type halfDuplex interface {
	net.Conn
	syscall.Conn
	CloseWrite() error
}

var buffers = sync.Pool{New: func() any { return new([pumpBytes]byte) }}

type side int

const (
	readSide side = iota
	writeSide
)

// pump passes on what comes until its end, and then the end; otherwise it says which side failed. It holds a buffer only while there
// is something in it: a thousand silent connections cost nothing, and a reader that does not read stops the writer.
func pump(to, from halfDuplex) (side, error) {
	raw, err := from.SyscallConn()
	if err != nil {
		return readSide, err
	}
	for {
		var buffer *[pumpBytes]byte
		var n int
		var failure error
		err := raw.Read(func(fd uintptr) bool {
			buffer = buffers.Get().(*[pumpBytes]byte)
			for {
				n, failure = unix.Read(int(fd), buffer[:])
				if failure != unix.EINTR {
					break
				}
			}
			if failure != unix.EAGAIN {
				return true
			}
			buffers.Put(buffer)
			buffer = nil
			return false
		})
		if err == nil {
			err = failure
		}
		failed := readSide
		if err == nil && n > 0 {
			failed = writeSide
			_, err = to.Write(buffer[:n])
		}
		if buffer != nil {
			buffers.Put(buffer)
		}
		if err != nil {
			return failed, err
		}
		if n == 0 {
			return writeSide, to.CloseWrite()
		}
	}
}

// isGone says whether the other side has closed both directions, where it may have ended only its own.
func isGone(connection *net.UnixConn) bool {
	raw, err := connection.SyscallConn()
	if err != nil {
		return true
	}
	var events int16
	err = raw.Control(func(fd uintptr) {
		poll := []unix.PollFd{{Fd: int32(fd)}}
		unix.Poll(poll, 0)
		events = poll[0].Revents
	})
	return err != nil || events&unix.POLLHUP != 0
}

func reset(connection *net.TCPConn) {
	connection.SetLinger(0)
	connection.Close()
}

// dialGateway waits for room in the gateway's queue: a socket of this kind refuses at once where others wait.
func dialGateway(socket string) (*net.UnixConn, error) {
	deadline := time.Now().Add(dialTimeout)
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		connection, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
		if err == nil || !errors.Is(err, unix.EAGAIN) || time.Now().After(deadline) {
			return connection, err
		}
		time.Sleep(pause)
	}
}

// serveDatagrams answers questions over UDP by asking over the gateway's stream: two bytes of length before each message, as name
// servers have it, and one connection for each question.
func (f *forwarder) serveDatagrams(connection *net.UDPConn, socket string) {
	buffer := make([]byte, maxDatagramBytes+1)
	for {
		n, from, err := connection.ReadFromUDPAddrPort(buffer)
		if err != nil {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		if n == 0 || n > maxDatagramBytes {
			continue
		}
		select {
		case f.questions <- struct{}{}:
			question := append([]byte(nil), buffer[:n]...)
			go func() {
				defer func() { <-f.questions }()
				if answer, err := ask(socket, question); err == nil {
					connection.WriteToUDPAddrPort(answer, from)
				}
			}()
		default:
		}
	}
}

func ask(socket string, question []byte) ([]byte, error) {
	gateway, err := dialGateway(socket)
	if err != nil {
		return nil, err
	}
	defer gateway.Close()
	gateway.SetDeadline(time.Now().Add(questionTimeout))
	framed := binary.BigEndian.AppendUint16(nil, uint16(len(question)))
	if _, err := gateway.Write(append(framed, question...)); err != nil {
		return nil, err
	}
	var length [2]byte
	if _, err := io.ReadFull(gateway, length[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint16(length[:])
	if size > maxDatagramBytes {
		return askAgainOverTCP(question), nil
	}
	answer := make([]byte, size)
	_, err = io.ReadFull(gateway, answer)
	return answer, err
}

// askAgainOverTCP makes of a question the answer that there is no room for the answer.
func askAgainOverTCP(question []byte) []byte {
	const response, truncated = 0x80, 0x02
	answer := append([]byte(nil), question...)
	if len(answer) > 2 {
		answer[2] |= response | truncated
	}
	return answer
}
