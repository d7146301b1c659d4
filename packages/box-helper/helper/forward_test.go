package main

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const testTimeout = 30 * time.Second

// gatewaySocket is the gateway's side of one port: each connection is given to serve.
func gatewaySocket(t *testing.T, folder, name string, serve func(*net.UnixConn)) {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(folder, name), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			connection.SetDeadline(time.Now().Add(testTimeout))
			go serve(connection)
		}
	}()
}

func echo(connection *net.UnixConn) {
	io.Copy(connection, connection)
	connection.CloseWrite()
}

// startForwarder listens on free ports and gives the address of each route.
func startForwarder(t *testing.T, f *forwarder, wanted ...route) []string {
	t.Helper()
	result, err := f.open([]string{"127.0.0.1"}, wanted)
	if err != nil || len(result.Listening) != len(wanted) {
		t.Fatal(result, err)
	}
	for i, name := range result.Listening {
		result.Listening[i] = name[strings.Index(name, ":")+1:]
	}
	return result.Listening
}

func dial(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	connection, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	connection.SetDeadline(time.Now().Add(testTimeout))
	return connection.(*net.TCPConn)
}

func TestEachPortLeadsToItsOwnSocket(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"80", "443"} {
		gatewaySocket(t, folder, name, func(c *net.UnixConn) { c.Write([]byte("port " + name)); c.Close() })
	}
	for i, address := range startForwarder(t, newForwarder(folder), route{0, "80", false}, route{0, "443", false}) {
		got, err := io.ReadAll(dial(t, address))
		if want := "port " + []string{"80", "443"}[i]; err != nil || string(got) != want {
			t.Errorf("%q %v, not %q", got, err, want)
		}
	}
}

func TestBytesAndBothEndsPass(t *testing.T) {
	folder := t.TempDir()
	gatewaySocket(t, folder, "443", echo)
	address := startForwarder(t, newForwarder(folder), route{0, "443", false})[0]
	sent := make([]byte, 5<<20)
	rand.New(rand.NewSource(1)).Read(sent)
	connection := dial(t, address)
	go func() {
		connection.Write(sent)
		connection.CloseWrite()
	}()
	got, err := io.ReadAll(connection)
	if err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("%d of %d bytes came back: %v", len(got), len(sent), err)
	}
}

func TestHalfCloseOfEitherSideLeavesTheOther(t *testing.T) {
	folder := t.TempDir()
	// Ends its own direction first, and still reads.
	heard := make(chan string, 1)
	gatewaySocket(t, folder, "80", func(c *net.UnixConn) {
		c.Write([]byte("early answer"))
		c.CloseWrite()
		rest, _ := io.ReadAll(c)
		heard <- string(rest)
		c.Close()
	})
	connection := dial(t, startForwarder(t, newForwarder(folder), route{0, "80", false})[0])
	got, err := io.ReadAll(connection)
	if err != nil || string(got) != "early answer" {
		t.Fatalf("%q %v", got, err)
	}
	connection.Write([]byte("late question"))
	connection.CloseWrite()
	if rest := <-heard; rest != "late question" {
		t.Fatalf("the gateway heard %q", rest)
	}
}

func TestAnEarlyAnswerArrivesAlthoughTheRequestGoesOn(t *testing.T) {
	folder := t.TempDir()
	answer := strings.Repeat("too much ", 1000)
	gatewaySocket(t, folder, "80", func(c *net.UnixConn) {
		io.ReadFull(c, make([]byte, 10))
		c.Write([]byte(answer))
		c.Close()
	})
	f := newForwarder(folder)
	address := startForwarder(t, f, route{0, "80", false})[0]
	for range 50 {
		connection := dial(t, address)
		// Reads only when it cannot send any more, or has sent all.
		for piece, i := make([]byte, 64<<10), 0; i < 64; i++ {
			if _, err := connection.Write(piece); err != nil {
				break
			}
		}
		connection.CloseWrite()
		got, err := io.ReadAll(connection)
		if err != nil || string(got) != answer {
			t.Fatalf("%d of %d bytes of the answer: %v", len(got), len(answer), err)
		}
	}
	waitUntil(t, func() bool { return len(f.connections) == 0 })
}

func TestAConnectionEndsWithTheGatewaysSide(t *testing.T) {
	folder := t.TempDir()
	gatewaySocket(t, folder, "443", func(c *net.UnixConn) {
		io.ReadFull(c, make([]byte, 2))
		c.Close()
	})
	f := newForwarder(folder)
	connection := dial(t, startForwarder(t, f, route{0, "443", false})[0])
	connection.Write([]byte("hi"))
	io.Copy(io.Discard, connection)
	// The box goes on holding its side: its place must be free all the same.
	waitUntil(t, func() bool { return len(f.connections) == 0 })
}

func TestASilentGatewayStopsTheWriter(t *testing.T) {
	folder := t.TempDir()
	release := make(chan struct{})
	var total atomic.Int64
	gatewaySocket(t, folder, "443", func(c *net.UnixConn) {
		<-release
		n, _ := io.Copy(io.Discard, c)
		total.Add(n)
		c.Close()
	})
	address := startForwarder(t, newForwarder(folder), route{0, "443", false})[0]
	const each, writers = 16 << 20, 20
	var before, during runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var done sync.WaitGroup
	var sent atomic.Int64
	for range writers {
		connection := dial(t, address)
		done.Add(1)
		go func() {
			defer done.Done()
			piece := make([]byte, 64<<10)
			for range each / len(piece) {
				if n, err := connection.Write(piece); err != nil {
					t.Error(err)
					return
				} else {
					sent.Add(int64(n))
				}
			}
			connection.CloseWrite()
			io.Copy(io.Discard, connection)
		}()
	}
	settled(&sent)
	runtime.GC()
	runtime.ReadMemStats(&during)
	if stuck := sent.Load(); stuck == 0 || stuck == each*writers {
		t.Fatalf("%d bytes were taken while nobody read", stuck)
	}
	if grown := int64(during.HeapInuse) - int64(before.HeapInuse); grown > 16<<20 {
		t.Errorf("the heap grew by %d bytes while nobody read", grown)
	}
	close(release)
	done.Wait()
	waitUntil(t, func() bool { return total.Load() == each*writers })
}

func TestAFloodOfHalfOpenConnectionsIsBoundedAndPasses(t *testing.T) {
	folder := t.TempDir()
	gatewaySocket(t, folder, "443", echo)
	f := newForwarder(folder)
	f.connections = make(chan struct{}, 50)
	address := startForwarder(t, f, route{0, "443", false})[0]
	var held []*net.TCPConn
	for range 50 {
		connection := dial(t, address)
		connection.Write([]byte("x"))
		if _, err := io.ReadFull(connection, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		held = append(held, connection)
	}
	for range 200 {
		expectReset(t, address)
	}
	for _, connection := range held {
		connection.Close()
	}
	waitUntil(t, func() bool { return len(f.connections) == 0 })
	again := dial(t, address)
	again.Write([]byte("y"))
	if _, err := io.ReadFull(again, make([]byte, 1)); err != nil {
		t.Fatal("nothing passes after the flood:", err)
	}
}

func TestAThousandAtOnceWaitForASlowGateway(t *testing.T) {
	folder := t.TempDir()
	gatewaySocket(t, folder, "443", echo)
	address := startForwarder(t, newForwarder(folder), route{0, "443", false})[0]
	var done sync.WaitGroup
	for range maxConnections {
		connection := dial(t, address)
		done.Add(1)
		go func() {
			defer done.Done()
			connection.Write([]byte("hello"))
			if _, err := io.ReadFull(connection, make([]byte, 5)); err != nil {
				t.Error(err)
			}
		}()
	}
	done.Wait()
}

func TestWithoutAGatewayConnectionsAreReset(t *testing.T) {
	f := newForwarder(t.TempDir())
	expectReset(t, startForwarder(t, f, route{0, "443", false})[0])
	waitUntil(t, func() bool { return len(f.connections) == 0 })
}

// answers gives back each question behind "re:", as a name server over a stream.
func answers(c *net.UnixConn) {
	defer c.Close()
	var length [2]byte
	if _, err := io.ReadFull(c, length[:]); err != nil {
		return
	}
	question := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(c, question); err != nil {
		return
	}
	answer := append([]byte("re:"), question...)
	c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
}

func TestDatagramsAreAskedOverTheStream(t *testing.T) {
	folder := t.TempDir()
	gatewaySocket(t, folder, "53", answers)
	connection := dialUDP(t, startForwarder(t, newForwarder(folder), route{0, "53", true})[0])
	for _, question := range []string{"a", strings.Repeat("q", 512)} {
		connection.Write([]byte(question))
		if got := readDatagram(t, connection); got != "re:"+question {
			t.Errorf("%q", got)
		}
	}
}

func TestAnAnswerWithoutRoomIsAskedForAgainOverTCP(t *testing.T) {
	folder := t.TempDir()
	gatewaySocket(t, folder, "53", func(c *net.UnixConn) {
		defer c.Close()
		io.ReadFull(c, make([]byte, 14))
		c.Write(binary.BigEndian.AppendUint16(nil, maxDatagramBytes+1))
		c.Write(make([]byte, maxDatagramBytes+1))
	})
	connection := dialUDP(t, startForwarder(t, newForwarder(folder), route{0, "53", true})[0])
	connection.Write([]byte("id\x01\x00question"))
	if got := readDatagram(t, connection); got != "id\x83\x00question" {
		t.Errorf("%q", got)
	}
}

func TestGiantDatagramsAndFloodsAreDropped(t *testing.T) {
	folder := t.TempDir()
	var asked atomic.Int64
	hold := make(chan struct{})
	gatewaySocket(t, folder, "53", func(c *net.UnixConn) {
		asked.Add(1)
		<-hold
		answers(c)
	})
	f := newForwarder(folder)
	address := startForwarder(t, f, route{0, "53", true})[0]
	flood := dialUDP(t, address)
	for _, size := range []int{0, maxDatagramBytes + 1, 9000, 65507} {
		flood.Write(make([]byte, size))
	}
	for range 2000 {
		flood.Write([]byte("flood"))
	}
	waitUntil(t, func() bool { return asked.Load() == maxQuestions })
	time.Sleep(100 * time.Millisecond)
	if n := asked.Load(); n != maxQuestions {
		t.Errorf("%d questions at a time", n)
	}
	close(hold)
	waitUntil(t, func() bool { return len(f.questions) == 0 })
	after := dialUDP(t, address)
	after.Write([]byte("after"))
	if got := readDatagram(t, after); got != "re:after" {
		t.Errorf("%q", got)
	}
}

func TestAPortOfTheBoxIsLeftToIt(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	result, err := newForwarder(t.TempDir()).open([]string{"127.0.0.1"}, []route{{port, "80", false}, {0, "443", false}})
	if err != nil || len(result.Listening) != 1 || len(result.InUse) != 1 || result.InUse[0] != "tcp:"+taken.Addr().String() {
		t.Fatal(result, err)
	}
}

// expectReset accepts that the reset comes before the connection was noticed to be there.
func expectReset(t *testing.T, address string) {
	t.Helper()
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(testTimeout))
	if n, err := connection.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Fatalf("the connection was not reset: %d bytes, %v", n, err)
	}
}

func dialUDP(t *testing.T, address string) *net.UDPConn {
	t.Helper()
	connection, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	connection.SetDeadline(time.Now().Add(testTimeout))
	return connection.(*net.UDPConn)
}

func readDatagram(t *testing.T, connection *net.UDPConn) string {
	t.Helper()
	buffer := make([]byte, 65536)
	n, err := connection.Read(buffer)
	if err != nil {
		t.Fatal(err)
	}
	return string(buffer[:n])
}

// settled waits until the number has not changed for a while.
func settled(number *atomic.Int64) {
	for last := int64(-1); last != number.Load(); time.Sleep(500 * time.Millisecond) {
		last = number.Load()
	}
}

func waitUntil(t *testing.T, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("did not come about")
		}
	}
}
