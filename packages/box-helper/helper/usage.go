package main

import (
	"io"
	"os"
	"strconv"
	"strings"
)

// usageVerb tells what the box has used, from the counters of its own control group: null where there is none to be seen. The engine
// forgets its own records of this when it is busy.
func usageVerb() {
	first := func(values ...*int64) *int64 {
		for _, value := range values {
			if value != nil {
				return value
			}
		}
		return nil
	}
	scaled := func(value *int64, divisor int64) *int64 {
		if value == nil {
			return nil
		}
		result := *value / divisor
		return &result
	}
	const root = "/sys/fs/cgroup/"
	say(map[string]any{
		"oomKills":        first(counter(root+"memory.events", "oom_kill"), counter(root+"memory/memory.oom_control", "oom_kill")),
		"memoryPeakBytes": first(counter(root+"memory.peak", ""), counter(root+"memory/memory.max_usage_in_bytes", "")),
		"cpuMs":           first(scaled(counter(root+"cpu.stat", "usage_usec"), 1000), scaled(counter(root+"cpuacct/cpuacct.usage", ""), 1_000_000)),
	})
}

// counter reads a number from a file of the control group: the one after the name, or the only one.
func counter(path, name string) *int64 {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, 64<<10))
	if err != nil {
		return nil
	}
	for _, line := range strings.Split(string(text), "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || name != "" && (len(fields) != 2 || fields[0] != name) {
			continue
		}
		value, err := strconv.ParseInt(fields[len(fields)-1], 10, 64)
		if err != nil {
			return nil
		}
		return &value
	}
	return nil
}
