package objstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// tempDir holds, below the root, the objects that are being written. It starts with a dot, so no object can be called so.
const tempDir = ".tmp"

// Dir is a Store in a local directory. An object appears by a hard link of a file that is complete and synced, which is
// create-only and atomic; a crash before the link leaves a file in .tmp, which RemoveTemp clears.
type Dir struct {
	path string // absolute
	root string // file:// + path
}

var _ Store = (*Dir)(nil)

// OpenDir opens the store in directory path and makes the directory if needed.
func OpenDir(path string) (*Dir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open directory store: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(abs, tempDir), 0o777); err != nil {
		return nil, fmt.Errorf("open directory store: %w", err)
	}
	return &Dir{path: abs, root: (&url.URL{Scheme: "file", Path: abs}).String()}, nil
}

// Root implements Store.
func (d *Dir) Root() string { return d.root }

// RemoveTemp removes what interrupted writes left. Only one who knows that nobody else writes below the root may call it.
func (d *Dir) RemoveTemp() error {
	left, err := os.ReadDir(filepath.Join(d.path, tempDir))
	if err != nil {
		return fmt.Errorf("remove temporary files: %w", err)
	}
	for _, e := range left {
		if err := os.Remove(filepath.Join(d.path, tempDir, e.Name())); err != nil {
			return fmt.Errorf("remove temporary files: %w", err)
		}
	}
	return nil
}

// file is the path of an object. Java writes file:/path where we write file:///path.
func (d *Dir) file(location string) (string, error) {
	if rest, ok := strings.CutPrefix(location, "file:/"); ok && !strings.HasPrefix(rest, "/") {
		location = "file:///" + rest
	}
	k, err := key(d.root, location)
	if err == nil && strings.HasPrefix(k, tempDir+"/") {
		err = fmt.Errorf("locate object: %q is a temporary file", location)
	}
	return filepath.Join(d.path, filepath.FromSlash(k)), err
}

// Put implements Store.
func (d *Dir) Put(ctx context.Context, location string, body []byte) error {
	k, err := newKey(d.root, location)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("put %s: %w", location, err)
	}
	if err := d.put(filepath.Join(d.path, filepath.FromSlash(k)), body); err != nil {
		return fmt.Errorf("put %s: %w", location, err)
	}
	return nil
}

func (d *Dir) put(path string, body []byte) error {
	temp := filepath.Join(d.path, tempDir, rand.Text())
	if err := writeSynced(temp, body); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	defer os.Remove(temp) // a crash before this line leaves a second name in .tmp, which costs no space
	err := os.Link(temp, path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeDirs(filepath.Dir(path)); err == nil {
			err = os.Link(temp, path)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return ErrExists
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(path)) // without it a crash of the machine may take the name away again
}

func writeSynced(path string, body []byte) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(body); err != nil {
		return err
	}
	return f.Sync()
}

// makeDirs is MkdirAll that syncs the parent of every directory it makes.
func makeDirs(path string) error {
	err := os.Mkdir(path, 0o777)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeDirs(filepath.Dir(path)); err != nil {
			return err
		}
		err = os.Mkdir(path, 0o777)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(filepath.Dir(path)) // also when it was there: its maker may not have come to this line yet
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func notExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNotExist
	}
	return err
}

// Get implements Store.
func (d *Dir) Get(ctx context.Context, location string) ([]byte, error) {
	path, err := d.file(location)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("get %s: %w", location, err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", location, notExist(err))
	}
	return b, nil
}

// GetRange implements Store.
func (d *Dir) GetRange(ctx context.Context, location string, offset, length int64) ([]byte, error) {
	path, err := d.file(location)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("get range of %s: %w", location, err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("get range of %s: %w", location, notExist(err))
	}
	defer f.Close()
	b := make([]byte, length)
	n, err := f.ReadAt(b, offset)
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("get range of %s: %w", location, err)
	}
	return b[:n], nil
}

// Stat implements Store.
func (d *Dir) Stat(ctx context.Context, location string) (Object, error) {
	path, err := d.file(location)
	if err != nil {
		return Object{}, err
	}
	st, err := os.Stat(path)
	if err != nil {
		return Object{}, fmt.Errorf("stat %s: %w", location, notExist(err))
	}
	return Object{Location: location, Size: st.Size(), Modified: st.ModTime()}, ctx.Err()
}

// Delete implements Store. The removal is not synced: after a crash of the machine the object may be back.
func (d *Dir) Delete(ctx context.Context, location string) error {
	path, err := d.file(location)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete %s: %w", location, err)
	}
	return ctx.Err()
}

// List implements Store.
func (d *Dir) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		k, err := listKey(d.root, prefix)
		if err == nil {
			_, err = d.walk(ctx, k[:strings.LastIndexByte(k, '/')+1], k, yield)
		}
		yieldError(yield, err)
	}
}

// walk yields the files below directory dir, a key that is empty or ends in a slash. It reports whether to go on.
func (d *Dir) walk(ctx context.Context, dir, prefix string, yield func(Object, error) bool) (bool, error) {
	entries, err := os.ReadDir(filepath.Join(d.path, filepath.FromSlash(dir)))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("list %s: %w", dir, err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		name := dir + e.Name()
		if e.IsDir() {
			name += "/" // sorts as its objects do
		}
		if (strings.HasPrefix(name, prefix) || strings.HasPrefix(prefix, name)) && name != tempDir+"/" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		var more bool
		if strings.HasSuffix(name, "/") {
			more, err = d.walk(ctx, name, prefix, yield)
		} else if more, err = true, ctx.Err(); err == nil {
			more, err = d.yieldFile(ctx, name, yield)
		}
		if !more || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (d *Dir) yieldFile(ctx context.Context, name string, yield func(Object, error) bool) (bool, error) {
	o, err := d.Stat(ctx, Join(d.root, name))
	if errors.Is(err, ErrNotExist) {
		return true, nil // deleted while we listed
	}
	if err != nil {
		return false, err
	}
	return yield(o, nil), nil
}
