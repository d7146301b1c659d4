// Command helper is the one program of ours in every box. It trusts nothing in the image.
package main

import (
	"encoding/json"
	"os"
	"runtime/debug"
)

// Exit codes that callers know.
const (
	exitFailed   = 1
	exitUsage    = 64
	exitLifetime = 73
	exitNoStart  = 125
)

// selfPath is where every driver puts this program.
const selfPath = "/.breakwater/helper"

func main() {
	debug.SetGCPercent(50)
	args := os.Args[1:]
	if len(args) == 0 {
		fail("ERR_USAGE", "", "a verb is needed")
	}
	verb, rest := args[0], args[1:]
	switch verb {
	case "hold":
		hold(rest)
	case "idle":
		idle()
	case "exec":
		execVerb(rest)
	case "jobs":
		jobsVerb(rest)
	case "job-keep":
		jobKeepVerb(rest)
	case "kill":
		killVerb(rest)
	case "kill-all":
		killAllVerb()
	case "tar-in":
		tarIn(rest)
	case "tar-out":
		tarOut(rest)
	case "stat":
		statVerb(rest)
	case "remove":
		removeVerb(rest)
	case "manifest":
		manifestVerb(rest)
	case "mounts":
		mountsVerb()
	case "usage":
		usageVerb()
	case "probe":
		probeVerb(rest)
	case "install":
		installVerb(rest)
	case "facts":
		factsVerb()
	case "listen":
		listenVerb(rest)
	case "forward":
		forwardVerb(rest)
	default:
		fail("ERR_USAGE", "", "unknown verb "+verb)
	}
}

type problem struct {
	Code    string `json:"code"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
}

func (p *problem) Error() string { return p.Code + ": " + p.Path + ": " + p.Message }

func say(value any) {
	line, _ := json.Marshal(value)
	os.Stdout.Write(append(line, '\n'))
}

// fail prints the error as JSON and ends.
func fail(code, path, message string) {
	say(map[string]any{"error": problem{code, path, message}})
	if code == "ERR_USAGE" {
		os.Exit(exitUsage)
	}
	os.Exit(exitFailed)
}
