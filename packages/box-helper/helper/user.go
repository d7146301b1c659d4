package main

import (
	"bufio"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// maxDatabaseBytes bounds what is read of the box's own /etc/passwd and /etc/group.
const maxDatabaseBytes = 4 << 20

type identity struct {
	uid, gid uint32
	groups   []uint32
	home     string
}

func (who identity) credential() *syscall.Credential {
	return &syscall.Credential{Uid: who.uid, Gid: who.gid, Groups: who.groups}
}

// lookUpUser understands "", NAME, UID, and either with :GROUP or :GID. Ids need no entry in the box's files.
func lookUpUser(text string) (identity, error) {
	if text == "" || text == "0" || text == "0:0" {
		return identity{home: homeOf(0, "/root")}, nil
	}
	name, group, hasGroup := strings.Cut(text, ":")
	who := identity{home: "/"}
	userName := ""
	number, err := strconv.ParseUint(name, 10, 31)
	isNumber := err == nil
	found := false
	eachLine("/etc/passwd", 7, func(fields []string) bool {
		uid, uidErr := strconv.ParseUint(fields[2], 10, 32)
		gid, gidErr := strconv.ParseUint(fields[3], 10, 32)
		if uidErr != nil || gidErr != nil || !(fields[0] == name || isNumber && uid == number) {
			return true
		}
		userName, who.uid, who.gid, found = fields[0], uint32(uid), uint32(gid), true
		if fields[5] != "" {
			who.home = fields[5]
		}
		return fields[0] != name && isNumber // an exact name wins over an id
	})
	if !found {
		if !isNumber {
			return who, &problem{"ENOENT", name, "there is no such user in the box"}
		}
		who.uid, who.gid = uint32(number), 0
	}
	if hasGroup {
		gid, err := strconv.ParseUint(group, 10, 31)
		known := err == nil
		eachLine("/etc/group", 3, func(fields []string) bool {
			if id, err := strconv.ParseUint(fields[2], 10, 32); err == nil && fields[0] == group {
				gid, known = id, true
				return false
			}
			return true
		})
		if !known {
			return who, &problem{"ENOENT", group, "there is no such group in the box"}
		}
		who.gid = uint32(gid)
	} else if userName != "" {
		eachLine("/etc/group", 4, func(fields []string) bool {
			for _, member := range strings.Split(fields[3], ",") {
				if member == userName && len(who.groups) < 1024 {
					if id, err := strconv.ParseUint(fields[2], 10, 32); err == nil {
						who.groups = append(who.groups, uint32(id))
					}
				}
			}
			return true
		})
	}
	return who, nil
}

func homeOf(uid uint64, fallback string) string {
	home := fallback
	eachLine("/etc/passwd", 7, func(fields []string) bool {
		if id, err := strconv.ParseUint(fields[2], 10, 32); err == nil && id == uid && fields[5] != "" {
			home = fields[5]
			return false
		}
		return true
	})
	return home
}

func eachLine(path string, fields int, visit func([]string) bool) {
	// Not blocking: root in the box may have put a FIFO there.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer file.Close()
	if facts, err := file.Stat(); err != nil || !facts.Mode().IsRegular() {
		return
	}
	lines := bufio.NewScanner(io.LimitReader(file, maxDatabaseBytes))
	for lines.Scan() {
		if parts := strings.Split(lines.Text(), ":"); len(parts) >= fields && !visit(parts) {
			return
		}
	}
}

func withHome(env []string, home string) []string {
	for _, entry := range env {
		if strings.HasPrefix(entry, "HOME=") {
			return env
		}
	}
	return append(env, "HOME="+home)
}
