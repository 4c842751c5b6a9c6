package objstore_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/writer/objstore"
	"sluice/writer/objstore/objstoretest"
)

func TestMemory(t *testing.T) {
	objstoretest.Run(t, func(*testing.T) objstore.Store { return objstore.NewMemory("memory:///lake") })
}

func TestDir(t *testing.T) {
	objstoretest.Run(t, func(t *testing.T) objstore.Store { return openDir(t, t.TempDir()) })
}

func openDir(t *testing.T, path string) *objstore.Dir {
	t.Helper()
	d, err := objstore.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDirTemp shows that files of interrupted writes are no objects and that RemoveTemp clears them.
func TestDirTemp(t *testing.T) {
	path := t.TempDir()
	d := openDir(t, path)
	if err := os.WriteFile(filepath.Join(path, ".tmp", "half"), []byte("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	for o := range d.List(context.Background(), d.Root()) {
		t.Errorf("listed %s", o.Location)
	}
	if _, err := d.Get(context.Background(), d.Root()+"/.tmp/half"); err == nil {
		t.Error("read a temporary file")
	}
	if err := d.RemoveTemp(); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Join(path, ".tmp")); len(left) != 0 {
		t.Errorf("%d temporary files left", len(left))
	}
}

// TestDirForeign reads an object that Java's writers name file:/… and put in a folder with characters we never use.
func TestDirForeign(t *testing.T) {
	path := t.TempDir()
	d := openDir(t, path)
	if err := os.MkdirAll(filepath.Join(path, "data", "region=EU x"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "data", "region=EU x", "f"), []byte("foreign"), 0o666); err != nil {
		t.Fatal(err)
	}
	loc := strings.Replace(d.Root(), "file:///", "file:/", 1) + "/data/region=EU x/f"
	if b, err := d.Get(context.Background(), loc); err != nil || string(b) != "foreign" {
		t.Errorf("got %q, %v", b, err)
	}
}
