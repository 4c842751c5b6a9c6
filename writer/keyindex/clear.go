package keyindex

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Clear makes a folder for nameless files, and removes what a crash has left there of them.
func Clear(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("clear key folder: %w", err)
	}
	found, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("clear key folder: %w", err)
	}
	for _, e := range found {
		if !strings.HasSuffix(e.Name(), Suffix) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("clear key folder: %w", err)
		}
	}
	return nil
}
