package catalogpg

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the operating system user that Postgres runs as: ourselves, or an unprivileged one if we are root, whom Postgres refuses.
type account struct {
	name     string
	uid, gid uint32
	switched bool // it is not ourselves
}

func serverAccount() (account, error) {
	if os.Getuid() != 0 {
		return account{name: "this user", uid: uint32(os.Getuid()), gid: uint32(os.Getgid())}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uerr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gerr := strconv.ParseUint(u.Gid, 10, 32)
		if uerr == nil && gerr == nil {
			return account{name: name, uid: uint32(uid), gid: uint32(gid), switched: true}, nil
		}
	}
	return account{}, errors.New("we run as root, and there is neither a user postgres nor a user nobody to run it as")
}

// run makes cmd run as the account in dir, with nothing of our environment but what Postgres needs. It returns the name by which the command
// can open dir: if the account cannot pass the folders above (a root gateway with its data below /root), that is a descriptor which the
// command and its children inherit. The caller closes the returned file when the command has started.
func (a account) run(cmd *exec.Cmd, dir string) (name string, opened *os.File, err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
	cmd.Dir = "/"
	if !a.switched {
		return dir, nil, nil
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	if a.reaches(dir) {
		return dir, nil, nil
	}
	if opened, err = os.Open(dir); err != nil {
		return "", nil, fmt.Errorf("open folder: %w", err)
	}
	cmd.ExtraFiles = []*os.File{opened}
	return "/proc/self/fd/3", opened, nil
}

// makeDir makes dir, or accepts it, as a folder that belongs to the account and that nobody else can enter.
func (a account) makeDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		return os.Chown(dir, int(a.uid), int(a.gid))
	}
	if !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make folder: %w", err)
	}
	st, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	owner := st.Sys().(*syscall.Stat_t).Uid
	switch {
	case !st.IsDir():
		return fmt.Errorf("make folder: %s is not one", dir)
	case owner != a.uid && a.switched && owner == 0 && isEmpty(dir):
		return errors.Join(os.Chown(dir, int(a.uid), int(a.gid)), os.Chmod(dir, 0o700))
	case owner != a.uid:
		return fmt.Errorf("make folder: %s belongs to another user (uid %d, want %d)", dir, owner, a.uid)
	}
	return os.Chmod(dir, 0o700)
}

func isEmpty(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) == 0
}

// reaches reports whether the account can pass all folders above dir.
func (a account) reaches(dir string) bool {
	for p := filepath.Dir(dir); ; p = filepath.Dir(p) {
		st, err := os.Stat(p)
		if err != nil {
			return false
		}
		s := st.Sys().(*syscall.Stat_t)
		mode := st.Mode().Perm()
		if mode&0o001 == 0 && (s.Gid != a.gid || mode&0o010 == 0) && (s.Uid != a.uid || mode&0o100 == 0) {
			return false
		}
		if p == filepath.Dir(p) {
			return true
		}
	}
}

// socketDir is a short path for the socket of the cluster in dir: socket paths end at 107 bytes, data directories do not.
func (a account) socketDir(dir string) (string, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", fmt.Errorf("find socket folder: %w", err)
	}
	name := fmt.Sprintf("sluice-%x", sha256.Sum256([]byte(real)))[:len("sluice-")+16]
	path := filepath.Join(os.TempDir(), name)
	if len(path)+len("/.s.PGSQL.5432.lock") > 100 || !a.reaches(path) && a.switched {
		path = filepath.Join("/tmp", name)
	}
	return path, nil
}
