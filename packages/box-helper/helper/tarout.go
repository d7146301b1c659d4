package main

import (
	"archive/tar"
	"bufio"
	"encoding/json"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tarOut writes paths with all below them as a plain tar stream; names are the paths without the leading slash. No link is followed.
func tarOut(args []string) {
	maxBytes, maxEntries := int64(1)<<62, int64(1)<<62
	i := 0
	for ; i+1 < len(args) && strings.HasPrefix(args[i], "--"); i += 2 {
		value, err := strconv.ParseInt(args[i+1], 10, 64)
		if err != nil {
			complain(&problem{"ERR_USAGE", args[i], err.Error()})
		}
		switch args[i] {
		case "--max-bytes":
			maxBytes = value
		case "--max-entries":
			maxEntries = value
		default:
			complain(&problem{"ERR_USAGE", args[i], "unknown option of tar-out"})
		}
	}
	out := bufio.NewWriterSize(os.Stdout, 256<<10)
	pack := &packing{writer: tar.NewWriter(out), bytesLeft: maxBytes, entriesLeft: maxEntries, buffer: make([]byte, 256<<10)}
	for _, path := range args[i:] {
		parts := components(path)
		if len(parts) == 0 {
			complain(&problem{"EINVAL", path, "the root is not packed"})
		}
		parent, err := openFolder("/"+strings.Join(parts[:len(parts)-1], "/"), false)
		if err == nil {
			err = pack.entry(parent, parts[len(parts)-1], strings.Join(parts, "/"), 0)
			unix.Close(parent)
		}
		if err != nil {
			complain(problemOf(err, path))
		}
	}
	if err := pack.writer.Close(); err != nil {
		complain(problemOf(err, ""))
	}
	if err := out.Flush(); err != nil {
		complain(problemOf(err, ""))
	}
}

// complain ends with the error on stderr, as stdout carries the archive.
func complain(p *problem) {
	line, _ := json.Marshal(map[string]any{"error": p})
	os.Stderr.Write(append(line, '\n'))
	os.Exit(exitFailed)
}

type packing struct {
	writer                 *tar.Writer
	bytesLeft, entriesLeft int64
	buffer                 []byte
}

func (p *packing) entry(parent int, name, path string, depth int) error {
	var facts unix.Stat_t
	if err := unix.Fstatat(parent, name, &facts, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return problemOf(err, "/"+path)
	}
	if p.entriesLeft--; p.entriesLeft < 0 {
		return &problem{"ERR_LIMIT", "/" + path, "too many entries"}
	}
	header := &tar.Header{
		Format: tar.FormatPAX, Name: path, Mode: int64(facts.Mode & 0o7777), Uid: int(facts.Uid), Gid: int(facts.Gid),
		ModTime: time.Unix(facts.Mtim.Unix()).Truncate(time.Second),
	}
	switch facts.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		target := make([]byte, 4096)
		n, err := unix.Readlinkat(parent, name, target)
		if err != nil {
			return problemOf(err, "/"+path)
		}
		header.Typeflag, header.Linkname = tar.TypeSymlink, string(target[:n])
		return p.writer.WriteHeader(header)
	case unix.S_IFREG:
		return p.file(parent, name, path, header)
	case unix.S_IFDIR:
		return p.folder(parent, name, path, header, depth)
	default:
		line, _ := json.Marshal(map[string]any{"skipped": "/" + path})
		os.Stderr.Write(append(line, '\n'))
		return nil
	}
}

func (p *packing) file(parent int, name, path string, header *tar.Header) error {
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return problemOf(err, "/"+path)
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	facts, err := file.Stat()
	if err != nil || !facts.Mode().IsRegular() {
		return problemOf(unix.EINVAL, "/"+path)
	}
	header.Typeflag, header.Size = tar.TypeReg, facts.Size()
	if p.bytesLeft -= header.Size; p.bytesLeft < 0 {
		return &problem{"ERR_LIMIT", "/" + path, "too many bytes"}
	}
	if err := p.writer.WriteHeader(header); err != nil {
		return err
	}
	written, err := io.CopyBuffer(struct{ io.Writer }{p.writer}, io.LimitReader(file, header.Size), p.buffer)
	if err == nil && written != header.Size {
		return &problem{"ERR_CHANGED", "/" + path, "the file became shorter while it was read"}
	}
	return err
}

func (p *packing) folder(parent int, name, path string, header *tar.Header, depth int) error {
	if depth > maxComponents {
		return problemOf(unix.ENAMETOOLONG, "/"+path)
	}
	fd, err := enter(parent, name)
	if err != nil {
		return problemOf(err, "/"+path)
	}
	defer unix.Close(fd)
	header.Typeflag, header.Name = tar.TypeDir, path+"/"
	if err := p.writer.WriteHeader(header); err != nil {
		return err
	}
	names, err := namesIn(fd)
	if err != nil {
		return problemOf(err, "/"+path)
	}
	for _, child := range names {
		if err := p.entry(fd, child, path+"/"+child, depth+1); err != nil {
			var gone *problem
			if gone = problemOf(err, path); gone.Code == "ENOENT" {
				continue
			}
			return err
		}
	}
	return nil
}
