package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

type component struct {
	Path       string  `json:"path"`
	Type       string  `json:"type"`
	Mode       uint32  `json:"mode"`
	Uid        uint32  `json:"uid"`
	Gid        uint32  `json:"gid"`
	Size       int64   `json:"size"`
	LinkTarget *string `json:"linkTarget"`
	FileSystem string  `json:"fileSystem"`
}

// statVerb describes each component of the paths as it is; the chain ends with the last that exists or the first that is no folder.
func statVerb(paths []string) {
	for _, path := range paths {
		chain := []component{}
		fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		walked := ""
		for _, name := range components(path) {
			if err != nil {
				break
			}
			walked += "/" + name
			var facts unix.Stat_t
			if err = unix.Fstatat(fd, name, &facts, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				break
			}
			each := component{Path: walked, Type: typeName(facts.Mode), Mode: facts.Mode & 0o7777, Uid: facts.Uid, Gid: facts.Gid, Size: facts.Size}
			if each.Type == "link" {
				each.LinkTarget = linkTarget(fd, name)
			}
			var next int
			if next, err = enter(fd, name); err == nil {
				unix.Close(fd)
				fd = next
				each.FileSystem = fileSystem(fd)
			} else {
				each.FileSystem = fileSystem(fd)
			}
			chain = append(chain, each)
		}
		if fd >= 0 {
			unix.Close(fd)
		}
		if err != nil && err != unix.ENOENT && err != unix.ENOTDIR && err != unix.ELOOP {
			p := problemOf(err, walked)
			fail(p.Code, p.Path, p.Message)
		}
		say(map[string]any{"path": path, "components": chain})
	}
}

func linkTarget(parent int, name string) *string {
	target := make([]byte, 4096)
	n, err := unix.Readlinkat(parent, name, target)
	if err != nil {
		return nil
	}
	text := string(target[:n])
	return &text
}

func typeName(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return "file"
	case unix.S_IFDIR:
		return "directory"
	case unix.S_IFLNK:
		return "link"
	default:
		return "other"
	}
}

func fileSystem(fd int) string {
	var facts unix.Statfs_t
	if unix.Fstatfs(fd, &facts) != nil {
		return "unknown"
	}
	switch facts.Type {
	case unix.TMPFS_MAGIC:
		return "tmpfs"
	case unix.RAMFS_MAGIC:
		return "ramfs"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlay"
	case unix.PROC_SUPER_MAGIC:
		return "proc"
	case unix.SYSFS_MAGIC:
		return "sysfs"
	default:
		return strconv.FormatInt(int64(facts.Type), 16)
	}
}

// manifestVerb lists everything below a folder, with the hash of each file.
func manifestVerb(args []string) {
	maxEntries := 1_000_000
	if len(args) == 3 && args[0] == "--max-entries" {
		value, err := strconv.Atoi(args[1])
		if err != nil {
			fail("ERR_USAGE", args[0], err.Error())
		}
		maxEntries, args = value, args[2:]
	}
	if len(args) != 1 {
		fail("ERR_USAGE", "", "manifest needs one folder")
	}
	fd, err := openFolder(args[0], false)
	if err == nil {
		err = listTree(fd, "", &maxEntries)
	}
	if err != nil {
		p := problemOf(err, args[0])
		fail(p.Code, p.Path, p.Message)
	}
}

func listTree(fd int, prefix string, left *int) error {
	names, err := namesIn(fd)
	if err != nil {
		return err
	}
	for _, name := range names {
		if *left--; *left < 0 {
			return &problem{"ERR_LIMIT", prefix + name, "too many entries"}
		}
		var facts unix.Stat_t
		if err := unix.Fstatat(fd, name, &facts, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		entry := map[string]any{
			"path": prefix + name, "type": typeName(facts.Mode), "mode": facts.Mode & 0o7777,
			"uid": facts.Uid, "gid": facts.Gid, "size": facts.Size,
		}
		switch entry["type"] {
		case "link":
			entry["linkTarget"] = linkTarget(fd, name)
		case "file":
			hash, err := hashOf(fd, name)
			if err != nil {
				return problemOf(err, prefix+name)
			}
			entry["sha256"] = hash
		}
		say(entry)
		if entry["type"] == "directory" {
			child, err := enter(fd, name)
			if err != nil {
				return problemOf(err, prefix+name)
			}
			err = listTree(child, prefix+name+"/", left)
			unix.Close(child)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func hashOf(parent int, name string) (string, error) {
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// mountsVerb lists the box's mounts.
func mountsVerb() {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		p := problemOf(err, "/proc/self/mountinfo")
		fail(p.Code, p.Path, p.Message)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(make([]byte, 64<<10), 1<<20)
	for lines.Scan() {
		before, after, found := strings.Cut(lines.Text(), " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !found || len(fields) < 6 || len(kind) < 1 {
			continue
		}
		say(map[string]any{"path": unescapeMount(fields[4]), "fileSystem": kind[0], "readOnly": strings.HasPrefix(fields[5], "ro")})
	}
}

// unescapeMount turns \040 and the like back into what they stand for.
func unescapeMount(text string) string {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) {
			if value, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(value))
				i += 3
				continue
			}
		}
		out.WriteByte(text[i])
	}
	return out.String()
}
