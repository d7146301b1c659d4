package main

import (
	"os"
	"strconv"
)

// factsVerb tells what a program gets that is started as the image says: user, working directory and environment. Backends that do not show an
// image's settings are asked so.
func factsVerb() {
	cwd, _ := os.Getwd()
	uid := os.Getuid()
	// What the box's own files say of that user.
	known, err := lookUpUser(strconv.Itoa(uid))
	if err != nil {
		known = identity{home: "/"}
	}
	say(map[string]any{
		"uid": uid, "gid": os.Getgid(), "cwd": cwd, "env": os.Environ(),
		"user": map[string]any{"gid": known.gid, "home": known.home},
	})
}
