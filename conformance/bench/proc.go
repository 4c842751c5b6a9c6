package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond is USER_HZ, the unit of times in /proc; it is 100 wherever Go runs on Linux.
const ticksPerSecond = 100

// process is what /proc/PID/stat says of one process.
type process struct {
	pid, parent int
	ticks       int64 // user and system, its own and that of children it has waited for
}

// tree is the state of a server's processes at one moment.
type tree struct {
	cpu  time.Duration
	live int
	pids []int
}

// readTree adds up the processes below the roots. A child that ended is in the figures of the parent that waited for it;
// one that ends between the reading of its parent and its own would be in neither, so it reads until nothing has changed.
func readTree(roots ...int) tree {
	last := readOnce(roots...)
	for range 20 {
		t := readOnce(roots...)
		if slices.Equal(t.pids, last.pids) {
			return t
		}
		last = t
	}
	return last
}

func readOnce(roots ...int) tree {
	all := processes()
	children := map[int][]process{}
	var next []process
	for _, p := range all {
		children[p.parent] = append(children[p.parent], p)
		for _, r := range roots {
			if p.pid == r {
				next = append(next, p)
			}
		}
	}
	var t tree
	seen := map[int]bool{}
	for len(next) > 0 {
		p := next[len(next)-1]
		next = next[:len(next)-1]
		if seen[p.pid] {
			continue
		}
		seen[p.pid] = true
		t.cpu += time.Duration(p.ticks) * time.Second / ticksPerSecond
		t.live++
		t.pids = append(t.pids, p.pid)
		next = append(next, children[p.pid]...)
	}
	slices.Sort(t.pids)
	return t
}

func processes() []process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var all []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", name, "stat"))
		if err != nil {
			continue // it ended
		}
		if p, ok := parseStat(pid, text); ok {
			all = append(all, p)
		}
	}
	return all
}

// parseStat reads what follows the command, which is in parentheses and may hold anything.
func parseStat(pid int, text []byte) (process, bool) {
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(f) < 15 {
		return process{}, false
	}
	p := process{pid: pid}
	var err error
	if p.parent, err = strconv.Atoi(f[1]); err != nil {
		return process{}, false
	}
	for _, field := range f[11:15] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return process{}, false
		}
		p.ticks += n
	}
	return p, true
}

// memory is what the processes hold: private memory of each, plus the largest shared one, which is Postgres' buffers.
// Cached file pages are not counted.
func memory(pids []int) int64 {
	var private, shared int64
	for _, pid := range pids {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
		if err != nil {
			continue
		}
		private += statusBytes(text, "RssAnon:")
		shared = max(shared, statusBytes(text, "RssShmem:"))
	}
	return private + shared
}

func statusBytes(text []byte, name string) int64 {
	_, rest, ok := bytes.Cut(text, []byte(name))
	if !ok {
		return 0
	}
	line, _, _ := bytes.Cut(rest, []byte(" kB"))
	n, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}
