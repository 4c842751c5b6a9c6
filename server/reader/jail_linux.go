package reader

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// addressRoom is what a child may map beyond DuckDB's memory: the runtimes' reservations, libraries and stacks.
const addressRoom = 2 << 30

// confine closes the jail around this process and starts the program in it anew. Landlock holds for one thread and what it
// executes: a Go process with C in it has threads that the runtime cannot reach, but none survives exec.
func (l *limits) confine() error {
	runtime.LockOSThread()
	space := uint64(l.memory + addressRoom)
	if err := unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: space, Max: space}); err != nil {
		return fmt.Errorf("limit address space: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("forbid core files: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if err := landlock(program, l.roots); err != nil && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("landlock: %w", err)
	}
	args := slices.Concat([]string{os.Args[0], "reader"}, l.args(), []string{"-confined"})
	return fmt.Errorf("start again inside the jail: %w", syscall.Exec(program, args, os.Environ()))
}

// What the kernel calls the rights that are handled. Reading is then given back below the roots, the rest to nobody.
const (
	fsExecute = 1 << 0
	fsRead    = 1<<2 | 1<<3 // files, folders
	fsAll     = 1<<13 - 1   // of the first version of Landlock
	netAll    = 1<<0 | 1<<1 // TCP bind and connect, from the fourth version on
)

func landlock(program string, roots []string) error {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, 1)
	if errno != 0 {
		return errno
	}
	attr := unix.LandlockRulesetAttr{Access_fs: fsAll}
	size := unsafe.Sizeof(attr.Access_fs)
	if version >= 4 {
		attr.Access_net, size = netAll, size+unsafe.Sizeof(attr.Access_net)
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return errno
	}
	defer unix.Close(int(fd))
	for _, r := range roots {
		if err := allow(int(fd), r, fsRead); err != nil {
			return err
		}
	}
	for path, rights := range map[string]uint64{
		program: fsExecute | 1<<2, "/lib": fsExecute | fsRead, "/lib64": fsExecute | fsRead, "/usr/lib": fsExecute | fsRead,
		"/etc/ld.so.cache": 1 << 2, "/sys/devices/system": fsRead, "/sys/kernel/mm": fsRead, "/dev/null": 1<<1 | 1<<2,
		"/sys/fs/cgroup": fsRead, "/proc/self": fsRead, "/proc/meminfo": 1 << 2, "/proc/cpuinfo": 1 << 2, // DuckDB's start reads its limits
	} {
		if err := allow(int(fd), path, rights); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// allow gives rights on path and what lies below it.
func allow(ruleset int, path string, rights uint64) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	fd, err := unix.Open(real, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	attr := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	const pathBeneath = 1
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), pathBeneath, uintptr(unsafe.Pointer(&attr)), 0, 0, 0); errno != 0 {
		return fmt.Errorf("allow %s: %w", path, errno)
	}
	return nil
}
