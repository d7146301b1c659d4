package main

import (
	"encoding/binary"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// probeVerb tries a network path: tcp ADDRESS PORT, udp ADDRESS PORT, dns NAME SERVER. Addresses only: the box's resolver is not trusted.
func probeVerb(args []string) {
	timeout := 3 * time.Second
	if len(args) >= 2 && args[len(args)-2] == "--timeout-ms" {
		ms, err := strconv.Atoi(args[len(args)-1])
		if err != nil || ms <= 0 {
			fail("ERR_USAGE", "--timeout-ms", "expected a number above 0")
		}
		timeout, args = time.Duration(ms)*time.Millisecond, args[:len(args)-2]
	}
	if len(args) != 3 {
		fail("ERR_USAGE", "", "probe needs tcp|udp ADDRESS PORT or dns NAME SERVER")
	}
	var answer []byte
	var err error
	switch args[0] {
	case "tcp":
		err = probeStream(args[1], args[2], timeout)
	case "udp":
		answer, err = probeDatagram(args[1], args[2], []byte("breakwater"), timeout)
	case "dns":
		answer, err = probeDatagram(args[2], "53", question(args[1]), timeout)
	default:
		fail("ERR_USAGE", args[0], "unknown kind of probe")
	}
	if err != nil {
		p := problemOf(err, args[1])
		say(map[string]any{"ok": false, "errno": p.Code, "message": p.Message})
		os.Exit(exitFailed)
	}
	say(map[string]any{"ok": true, "bytes": len(answer)})
}

func openSocket(address, port string, kind int, timeout time.Duration) (int, error) {
	ip, err := netip.ParseAddr(address)
	number, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || portErr != nil {
		return -1, unix.EINVAL
	}
	family := unix.AF_INET
	var target unix.Sockaddr = &unix.SockaddrInet4{Port: int(number), Addr: ipv4(ip)}
	if ip.Is6() && !ip.Is4In6() {
		family, target = unix.AF_INET6, &unix.SockaddrInet6{Port: int(number), Addr: ip.As16()}
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	limit := unix.NsecToTimeval(int64(timeout))
	unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit)
	unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit)
	if err := unix.Connect(fd, target); err != nil {
		unix.Close(fd)
		if err == unix.EINPROGRESS || err == unix.EAGAIN {
			return -1, unix.ETIMEDOUT
		}
		return -1, err
	}
	return fd, nil
}

func probeStream(address, port string, timeout time.Duration) error {
	fd, err := openSocket(address, port, unix.SOCK_STREAM, timeout)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func probeDatagram(address, port string, payload []byte, timeout time.Duration) ([]byte, error) {
	fd, err := openSocket(address, port, unix.SOCK_DGRAM, timeout)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, payload); err != nil {
		return nil, err
	}
	answer := make([]byte, 4096)
	n, err := unix.Read(fd, answer)
	if err == unix.EAGAIN {
		err = unix.ETIMEDOUT
	}
	if err != nil {
		return nil, err
	}
	return answer[:n], nil
}

// question asks for the IPv4 address of a name.
func question(name string) []byte {
	message := []byte{0x42, 0x57, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for _, label := range strings.Split(strings.TrimSuffix(name, "."), ".") {
		message = append(append(message, byte(len(label))), label...)
	}
	message = append(message, 0)
	message = binary.BigEndian.AppendUint16(message, 1)
	return binary.BigEndian.AppendUint16(message, 1)
}

func ipv4(ip netip.Addr) [4]byte {
	if ip.Unmap().Is4() {
		return ip.Unmap().As4()
	}
	return [4]byte{}
}
