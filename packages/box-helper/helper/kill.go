package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// How long a kill may take before what is left counts as survivors.
	killPatience = 5 * time.Second
	cleanScans   = 2
)

// findTargets lists what is to be killed now; it is asked again until nothing is left.
type findTargets func() []process

// killTree kills everything that find lists, again and again: what is being killed may still fork. A process group is killed by one call,
// which no fork inside it escapes; one process after the other would never win against a fork bomb.
func killTree(find findTargets) (killed int, survivors []int) {
	seen := map[int]bool{}
	ownGroup := syscall.Getpgrp()
	clean := 0
	for deadline := time.Now().Add(killPatience); clean < cleanScans && time.Now().Before(deadline); {
		targets := find()
		if len(targets) == 0 {
			clean++
			continue
		}
		clean = 0
		groups := map[int]bool{}
		for _, each := range targets {
			seen[each.pid] = true
			if each.group > 1 && each.group != ownGroup {
				groups[each.group] = true
			}
		}
		for group := range groups {
			syscall.Kill(-group, syscall.SIGKILL)
		}
		for _, each := range targets {
			syscall.Kill(each.pid, syscall.SIGKILL)
		}
		time.Sleep(time.Millisecond)
	}
	for _, each := range find() {
		survivors = append(survivors, each.pid)
	}
	return len(seen), survivors
}

// process is one line of /proc/PID/stat.
type process struct {
	pid, parent, group int
	state              byte
}

func processes() []process {
	folder, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer folder.Close()
	names, _ := folder.Readdirnames(-1)
	var list []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		// The program's own name stands in parentheses and may contain anything.
		text := string(stat)
		fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		if len(fields) < 3 {
			continue
		}
		parent, _ := strconv.Atoi(fields[1])
		group, _ := strconv.Atoi(fields[2])
		list = append(list, process{pid, parent, group, fields[0][0]})
	}
	return list
}

func (p process) dead() bool { return p.state == 'Z' || p.state == 'X' }

// descendantsOf finds what the process started, directly or not. As a subreaper it stays their ancestor whatever they do.
func descendantsOf(root int) findTargets {
	return func() []process {
		list := processes()
		children := map[int][]process{}
		for _, each := range list {
			children[each.parent] = append(children[each.parent], each)
		}
		var found []process
		for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
			for _, child := range children[queue[0]] {
				queue = append(queue, child.pid)
				if !child.dead() {
					found = append(found, child)
				}
			}
		}
		return found
	}
}

// killVerb ends what `exec ID` runs: it asks that helper, and does it itself if nothing happens.
func killVerb(args []string) {
	if len(args) != 1 || args[0] == "" {
		fail("ERR_USAGE", "", "kill needs an ID")
	}
	target := 0
	for _, each := range processes() {
		argv := argvOf(each.pid)
		if len(argv) == 3 && argv[1] == "exec" && argv[2] == args[0] && !each.dead() {
			target = each.pid
		}
	}
	if target == 0 {
		say(map[string]any{"found": false, "killed": 0, "remaining": []int{}})
		return
	}
	syscall.Kill(target, syscall.SIGUSR1)
	for deadline := time.Now().Add(killPatience + time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if syscall.Kill(target, 0) != nil {
			say(map[string]any{"found": true, "killed": 0, "remaining": []int{}})
			return
		}
	}
	killed, left := killTree(descendantsOf(target))
	if left == nil {
		left = []int{}
	}
	say(map[string]any{"found": true, "killed": killed, "remaining": left})
}

type remainingProcess struct {
	Pid  int      `json:"pid"`
	Argv []string `json:"argv"`
}

// killAllVerb ends everything but the first process, itself and its ancestors.
func killAllVerb() {
	ours := map[int]bool{1: true}
	parents := map[int]int{}
	for _, each := range processes() {
		parents[each.pid] = each.parent
	}
	for pid := os.Getpid(); pid > 1; pid = parents[pid] {
		ours[pid] = true
	}
	killed, left := killTree(func() []process {
		var found []process
		for _, each := range processes() {
			if !ours[each.pid] && !each.dead() {
				found = append(found, each)
			}
		}
		return found
	})
	remaining := []remainingProcess{}
	for _, pid := range left {
		if len(remaining) < 100 {
			remaining = append(remaining, remainingProcess{pid, argvOf(pid)})
		}
	}
	say(map[string]any{"killed": killed, "remaining": remaining})
}

func argvOf(pid int) []string {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil || len(line) == 0 {
		return []string{}
	}
	if len(line) > 1024 {
		line = line[:1024]
	}
	return strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
}
