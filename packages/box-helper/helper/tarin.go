package main

import (
	"archive/tar"
	"bufio"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	sentinelName  = ".breakwater-end"
	maxNameBytes  = 64 << 10
	maxComponents = 4096
)

// tarIn unpacks a plain tar stream below a folder. Nothing is written through a link.
func tarIn(args []string) {
	directory, uid, gid := "", -1, -1
	maxBytes := int64(-1)
	for i := 0; i+1 < len(args); i += 2 {
		value := args[i+1]
		var err error
		switch args[i] {
		case "--directory":
			directory = value
		case "--owner":
			user, group, _ := strings.Cut(value, ":")
			if uid, err = strconv.Atoi(user); err == nil {
				gid, err = strconv.Atoi(group)
			}
		case "--max-bytes":
			maxBytes, err = strconv.ParseInt(value, 10, 64)
		default:
			fail("ERR_USAGE", args[i], "unknown option of tar-in")
		}
		if err != nil {
			fail("ERR_USAGE", args[i], err.Error())
		}
	}
	if directory == "" {
		fail("ERR_USAGE", "--directory", "is needed")
	}
	if uid < 0 || gid < 0 {
		uid, gid = 0, 0
	}
	root, err := openFolder(directory, true)
	if err != nil {
		p := problemOf(err, directory)
		fail(p.Code, p.Path, p.Message)
	}
	target := &unpacking{root: root, directory: strings.TrimSuffix(directory, "/"), uid: uid, gid: gid, maxBytes: maxBytes}
	if err := target.run(os.Stdin); err != nil {
		p := problemOf(err, directory)
		fail(p.Code, p.Path, p.Message)
	}
	// What is still in the pipe (padding after the end of the archive) is read, so that the sender is not cut off.
	io.Copy(io.Discard, os.Stdin)
	say(map[string]any{"entries": target.entries, "bytes": target.bytes})
}

type unpacking struct {
	root      int
	directory string
	uid, gid  int
	maxBytes  int64
	entries   int
	bytes     int64
	folders   []folderTimes
	// The folder of the last member: most members have the same one as the one before.
	lastParent string
	lastFd     int
	buffer     []byte
}

type folderTimes struct {
	parts []string
	mode  uint32
	mtime time.Time
}

func (u *unpacking) run(from io.Reader) error {
	u.buffer = make([]byte, 256<<10)
	reader := tar.NewReader(bufio.NewReaderSize(from, 256<<10))
	ended := false
	for {
		header, err := reader.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return &problem{"ERR_TRUNCATED", u.directory, "the archive is cut or broken: " + err.Error()}
		}
		if ended {
			return &problem{"EINVAL", header.Name, "there is a member after the last one"}
		}
		if header.Name == sentinelName {
			text, err := io.ReadAll(io.LimitReader(reader, 32))
			if err != nil || string(text) != strconv.Itoa(u.entries) {
				return &problem{"ERR_TRUNCATED", u.directory, "the archive says that it has another number of members"}
			}
			ended = true
			continue
		}
		if err := u.member(header, reader); err != nil {
			return problemOf(err, u.directory+"/"+header.Name)
		}
		u.entries++
	}
	if !ended {
		return &problem{"ERR_TRUNCATED", u.directory, "the archive ended before its last member"}
	}
	return u.finishFolders()
}

func (u *unpacking) member(header *tar.Header, content io.Reader) error {
	if len(header.Name) > maxNameBytes || strings.HasPrefix(header.Name, "/") || strings.Contains(header.Name, "\x00") {
		return unix.EINVAL
	}
	parts := components(header.Name)
	if len(parts) > maxComponents {
		return unix.ENAMETOOLONG
	}
	for _, part := range parts {
		if part == ".." {
			return unix.EINVAL
		}
	}
	mode := uint32(header.Mode) & 0o7777
	if len(parts) == 0 {
		if header.Typeflag != tar.TypeDir {
			return unix.EINVAL
		}
		return nil
	}
	parent, err := u.parentOf(parts)
	if err != nil {
		return err
	}
	name := parts[len(parts)-1]
	switch header.Typeflag {
	case tar.TypeDir:
		return u.folder(parent, name, parts, mode, header.ModTime)
	case tar.TypeReg:
		return u.file(parent, name, mode, header, content)
	case tar.TypeSymlink:
		if err := u.clear(parent, name); err != nil {
			return err
		}
		if err := unix.Symlinkat(header.Linkname, parent, name); err != nil {
			return err
		}
		if err := unix.Fchownat(parent, name, u.uid, u.gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		setTime(parent, name, header.ModTime)
		return nil
	case tar.TypeLink:
		source := components(header.Linkname)
		for _, part := range source {
			if part == ".." {
				return unix.EINVAL
			}
		}
		if len(source) == 0 || strings.HasPrefix(header.Linkname, "/") {
			return unix.EINVAL
		}
		from, err := u.walk(source[:len(source)-1])
		if err != nil {
			return err
		}
		defer unix.Close(from)
		if err := u.clear(parent, name); err != nil {
			return err
		}
		return unix.Linkat(from, source[len(source)-1], parent, name, 0)
	default:
		return &problem{"EINVAL", header.Name, "a member is neither a file, a folder nor a link"}
	}
}

// parentOf opens the folder that the member goes into; missing folders are made, what is no folder is replaced by one.
func (u *unpacking) parentOf(parts []string) (int, error) {
	key := strings.Join(parts[:len(parts)-1], "/")
	if u.lastFd > 0 && key == u.lastParent {
		return u.lastFd, nil
	}
	fd, err := u.walk(parts[:len(parts)-1])
	if err != nil {
		return -1, err
	}
	if u.lastFd > 0 {
		unix.Close(u.lastFd)
	}
	u.lastParent, u.lastFd = key, fd
	return fd, nil
}

func (u *unpacking) walk(parts []string) (int, error) {
	fd, err := unix.FcntlInt(uintptr(u.root), unix.F_DUPFD_CLOEXEC, 3)
	for _, part := range parts {
		if err != nil {
			return -1, err
		}
		var next int
		next, err = u.makeFolder(fd, part)
		unix.Close(fd)
		fd = next
	}
	return fd, err
}

func (u *unpacking) makeFolder(parent int, name string) (int, error) {
	fd, err := enter(parent, name)
	if err == unix.ELOOP || err == unix.ENOTDIR {
		if err := unix.Unlinkat(parent, name, 0); err != nil {
			return -1, err
		}
		err = unix.ENOENT
	}
	if err != unix.ENOENT {
		return fd, err
	}
	if err := unix.Mkdirat(parent, name, 0o755); err != nil && err != unix.EEXIST {
		return -1, err
	}
	fd, err = enter(parent, name)
	if err == nil {
		err = unix.Fchown(fd, u.uid, u.gid)
	}
	return fd, err
}

func (u *unpacking) folder(parent int, name string, parts []string, mode uint32, mtime time.Time) error {
	fd, err := u.makeFolder(parent, name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// A folder that was there before belongs to the member's owner, too.
	if err := unix.Fchown(fd, u.uid, u.gid); err != nil {
		return err
	}
	u.folders = append(u.folders, folderTimes{parts, mode, mtime})
	return nil
}

// finishFolders sets modes and times last: a folder may be read-only, and writing into it changes its time.
func (u *unpacking) finishFolders() error {
	for i := len(u.folders) - 1; i >= 0; i-- {
		each := u.folders[i]
		fd, err := u.walk(each.parts)
		if err == nil {
			err = unix.Fchmod(fd, each.mode)
			times := []unix.Timeval{unix.NsecToTimeval(each.mtime.UnixNano()), unix.NsecToTimeval(each.mtime.UnixNano())}
			unix.Futimes(fd, times)
			unix.Close(fd)
		}
		if err != nil {
			return problemOf(err, u.directory+"/"+strings.Join(each.parts, "/"))
		}
	}
	return nil
}

func (u *unpacking) file(parent int, name string, mode uint32, header *tar.Header, content io.Reader) error {
	if u.maxBytes >= 0 && u.bytes+header.Size > u.maxBytes {
		return unix.EFBIG
	}
	if err := u.clear(parent, name); err != nil {
		return err
	}
	fd, err := unix.Openat(parent, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), name)
	written, err := io.CopyBuffer(struct{ io.Writer }{file}, content, u.buffer)
	if err == nil && written != header.Size {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = unix.Fchown(fd, u.uid, u.gid)
	}
	if err == nil {
		err = unix.Fchmod(fd, mode)
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	setTime(parent, name, header.ModTime)
	u.bytes += written
	return nil
}

// clear makes room for a file or a link. A folder is not replaced by one.
func (u *unpacking) clear(parent int, name string) error {
	err := unix.Unlinkat(parent, name, 0)
	if err == unix.ENOENT {
		return nil
	}
	return err
}

func setTime(parent int, name string, when time.Time) {
	stamp := unix.NsecToTimespec(when.UnixNano())
	unix.UtimesNanoAt(parent, name, []unix.Timespec{stamp, stamp}, unix.AT_SYMLINK_NOFOLLOW)
}
