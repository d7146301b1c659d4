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
	home := "/"
	if who, err := lookUpUser(strconv.Itoa(uid)); err == nil {
		home = who.home
	}
	say(map[string]any{"uid": uid, "gid": os.Getgid(), "cwd": cwd, "env": os.Environ(), "home": home})
}
