package main

import (
	"net"
	"strconv"
)

// listenVerb accepts connections on TCP ports and closes them again: something that network policies can be tried on.
func listenVerb(args []string) {
	if len(args) == 0 {
		fail("ERR_USAGE", "", "listen needs a PORT")
	}
	for _, port := range args {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			fail("ERR_USAGE", port, "expected a port")
		}
		listener, err := net.Listen("tcp", ":"+port)
		if err != nil {
			fail("EIO", port, err.Error())
		}
		go func() {
			for {
				if connection, err := listener.Accept(); err == nil {
					connection.Close()
				}
			}
		}()
	}
	idle()
}
