package main

import (
	"errors"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// openFolder opens an absolute folder component by component and follows no link. With create, what is missing is made (0755).
func openFolder(path string, create bool) (int, error) {
	if !strings.HasPrefix(path, "/") {
		return -1, &problem{"EINVAL", path, "the path is not absolute"}
	}
	fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, problemOf(err, "/")
	}
	walked := ""
	for _, component := range components(path) {
		walked += "/" + component
		next, err := enter(fd, component)
		if err == unix.ENOENT && create {
			if err = unix.Mkdirat(fd, component, 0o755); err == nil || err == unix.EEXIST {
				next, err = enter(fd, component)
			}
		}
		unix.Close(fd)
		if err != nil {
			return -1, problemOf(err, walked)
		}
		fd = next
	}
	return fd, nil
}

func components(path string) []string {
	var parts []string
	for _, part := range strings.Split(path, "/") {
		if part != "" && part != "." {
			parts = append(parts, part)
		}
	}
	return parts
}

// enter opens a folder inside another; a link is ELOOP, anything else that is no folder ENOTDIR.
func enter(parent int, name string) (int, error) {
	if name == ".." {
		return -1, unix.EINVAL
	}
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ENOTDIR || err == unix.ELOOP {
		var facts unix.Stat_t
		if unix.Fstatat(parent, name, &facts, unix.AT_SYMLINK_NOFOLLOW) == nil && facts.Mode&unix.S_IFMT == unix.S_IFLNK {
			return -1, unix.ELOOP
		}
		return -1, unix.ENOTDIR
	}
	return fd, err
}

func problemOf(err error, path string) *problem {
	var known *problem
	if errors.As(err, &known) {
		return known
	}
	var number syscall.Errno
	if errors.As(err, &number) {
		return &problem{errnoName(number), path, number.Error()}
	}
	return &problem{"EIO", path, err.Error()}
}

// removeTree removes name inside parent with all below it, following nothing. A mount point is emptied and stays.
func removeTree(parent int, name string, depth int) error {
	err := unix.Unlinkat(parent, name, 0)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if err != unix.EISDIR && err != unix.EPERM {
		return err
	}
	if depth > 4096 {
		return unix.ENAMETOOLONG
	}
	fd, openErr := enter(parent, name)
	if openErr != nil {
		return err
	}
	defer unix.Close(fd)
	names, err := namesIn(fd)
	if err != nil {
		return err
	}
	for _, child := range names {
		if err := removeTree(fd, child, depth+1); err != nil {
			return err
		}
	}
	err = unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
	if err == unix.EBUSY || err == unix.ENOENT {
		return nil
	}
	return err
}

func namesIn(fd int) ([]string, error) {
	var names []string
	buffer := make([]byte, 32<<10)
	if _, err := unix.Seek(fd, 0, 0); err != nil {
		return nil, err
	}
	for {
		n, err := unix.ReadDirent(fd, buffer)
		if err != nil {
			return nil, err
		}
		if n <= 0 {
			return names, nil
		}
		_, _, names = unix.ParseDirent(buffer[:n], -1, names)
	}
}

// removeVerb removes paths with all below them.
func removeVerb(paths []string) {
	for _, path := range paths {
		parts := components(path)
		if len(parts) == 0 {
			fail("EINVAL", path, "the root is not removed")
		}
		parent, err := openFolder("/"+strings.Join(parts[:len(parts)-1], "/"), false)
		if err != nil {
			// Nothing is there, or a file is on the way: nothing can be below it.
			if p := problemOf(err, path); p.Code != "ENOENT" && p.Code != "ENOTDIR" {
				fail(p.Code, p.Path, p.Message)
			}
			continue
		}
		name := parts[len(parts)-1]
		if err := removeTree(parent, name, 0); err != nil {
			p := problemOf(err, path)
			fail(p.Code, p.Path, p.Message)
		}
		var facts unix.Stat_t
		if unix.Fstatat(parent, name, &facts, unix.AT_SYMLINK_NOFOLLOW) == nil {
			// Only an emptied mount point may be left.
			fd, err := enter(parent, name)
			var names []string
			if err == nil {
				names, err = namesIn(fd)
				unix.Close(fd)
			}
			if err != nil || len(names) > 0 {
				fail("EBUSY", path, "something is left")
			}
		}
		unix.Close(parent)
	}
	say(map[string]any{"removed": len(paths)})
}
