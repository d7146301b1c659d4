package main

import (
	"io"
	"os"
)

// installVerb copies this program to PATH: an image that has nothing else puts it into a volume.
func installVerb(args []string) {
	if len(args) != 1 || args[0] == "" {
		fail("ERR_USAGE", "", "install needs a PATH")
	}
	target := args[0]
	unfinished := target + ".new"
	if err := copyProgram(unfinished); err != nil {
		p := problemOf(err, unfinished)
		fail(p.Code, p.Path, p.Message)
	}
	if err := os.Rename(unfinished, target); err != nil {
		p := problemOf(err, target)
		fail(p.Code, p.Path, p.Message)
	}
}

func copyProgram(target string) error {
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	to, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(to, from); err != nil {
		return err
	}
	// The mode whatever the umask is.
	if err := to.Chmod(0o755); err != nil {
		return err
	}
	return to.Close()
}
