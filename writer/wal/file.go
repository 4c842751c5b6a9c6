package wal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// folder is the directory of a log. The second implementation, in the tests, loses what was not synced and fails on demand.
type folder interface {
	// list is the names of the files in it.
	list() ([]string, error)
	open(name string) (file, error)
	// create makes an empty file and fails if there is one.
	create(name string) (file, error)
	rename(from, to string) error
	remove(name string) error
	// sync makes what create, rename and remove did durable, in that order.
	sync() error
}

// file is a segment. Its writes are durable only after sync.
type file interface {
	io.ReaderAt
	// writev writes the buffers one behind the other at off.
	writev(bufs [][]byte, off int64) error
	// sync makes the content (and a grown size) durable. After an error nothing is known, see UnknownError.
	sync() error
	size() (int64, error)
	close() error
}

// disk is a folder of the file system.
type disk struct{ dir string }

func (d disk) list() ([]string, error) {
	entries, err := os.ReadDir(d.dir)
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

func (d disk) open(name string) (file, error) {
	f, err := os.OpenFile(filepath.Join(d.dir, name), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return diskFile{f}, nil
}

func (d disk) create(name string) (file, error) {
	f, err := os.OpenFile(filepath.Join(d.dir, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return diskFile{f}, nil
}

func (d disk) rename(from, to string) error {
	return os.Rename(filepath.Join(d.dir, from), filepath.Join(d.dir, to))
}

func (d disk) remove(name string) error { return os.Remove(filepath.Join(d.dir, name)) }

func (d disk) sync() error {
	f, err := os.Open(d.dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

type diskFile struct{ *os.File }

// maxVectors is IOV_MAX: more buffers take more system calls, which are still one append since the sync comes after all.
const maxVectors = 1024

func (f diskFile) writev(bufs [][]byte, off int64) error {
	for len(bufs) > 0 {
		n, err := unix.Pwritev(int(f.Fd()), bufs[:min(len(bufs), maxVectors)], off)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return &os.PathError{Op: "write", Path: f.Name(), Err: err}
		}
		if n == 0 {
			return &os.PathError{Op: "write", Path: f.Name(), Err: io.ErrShortWrite}
		}
		off += int64(n)
		bufs = skip(bufs, n)
	}
	return nil
}

// skip drops the first n bytes of bufs.
func skip(bufs [][]byte, n int) [][]byte {
	for len(bufs) > 0 && n >= len(bufs[0]) {
		n -= len(bufs[0])
		bufs = bufs[1:]
	}
	if n > 0 {
		bufs[0] = bufs[0][n:]
	}
	return bufs
}

func (f diskFile) sync() error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return &os.PathError{Op: "sync", Path: f.Name(), Err: err}
		}
		return nil
	}
}

func (f diskFile) size() (int64, error) {
	s, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return s.Size(), nil
}

func (f diskFile) close() error { return f.Close() }

const lockName = "LOCK"

// hold takes the folder's lock for as long as the file is open. The kernel gives it back when the process dies, so there
// is no stale lock; what stands in the file is only for the message of the next one who tries.
func hold(dir string, now time.Time) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &HeldError{Dir: dir, Holder: holder(f)}
		}
		return nil, &os.PathError{Op: "lock", Path: f.Name(), Err: err}
	}
	if err := sign(f, now); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func holder(f *os.File) string {
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	if s := strings.TrimSpace(string(text)); err == nil && s != "" {
		return s
	}
	return "another process"
}

func sign(f *os.File, now time.Time) error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(fmt.Appendf(nil, "pid %d on host %s since %s\n", os.Getpid(), host, now.UTC().Format(time.RFC3339)), 0)
	return err
}
