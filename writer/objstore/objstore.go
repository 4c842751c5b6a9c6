// Package objstore is where tables' files live: objects that are created once, read by range and never changed (invariant I5).
//
// It owns the three places an object can be: a local directory (Dir), an S3 bucket (S3) and memory (Memory, for tests).
// Start with Store. Objects are named by their full location, for example file:///srv/lake/ab/data/1.parquet or
// s3://bucket/lake/ab/data/1.parquet, the same text that stands in table metadata; Join makes one. It never overwrites,
// never guesses what an object means, and refuses to create names outside a plain character set, so that no text of a
// user can end up in a key.
//
//	Put(ctx, location, body) error                          // create-only and durable, else ErrExists
//	Get(ctx, location) ([]byte, error)                      // else ErrNotExist
//	GetRange(ctx, location, offset, length) ([]byte, error) // short only at the object's end
//	Stat(ctx, location) (Object, error)
//	Delete(ctx, location) error                             // a missing object is fine
//	List(ctx, prefix) iter.Seq2[Object, error]              // in order of location
package objstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"
)

// ErrNotExist says that there is no object at a location.
var ErrNotExist = errors.New("object does not exist")

// ErrExists says that Put found an object at its location and left it as it was.
var ErrExists = errors.New("object exists already")

// Object is what is known of an object without reading it.
type Object struct {
	Location string
	Size     int64
	Modified time.Time // by the store's clock: good for "older than a day", not for order
}

// Store holds objects below one root. All methods are safe for concurrent use, and a method that returns an error other
// than ErrExists and ErrNotExist says nothing about whether its effect took place.
type Store interface {
	// Root is the location below which the store's objects are, without a slash at its end.
	Root() string
	// Put creates an object. When it returns nil the object is durable and everybody sees all of it; before that nobody
	// sees any of it. It returns ErrExists if there is an object already.
	Put(ctx context.Context, location string, body []byte) error
	// Get reads an object.
	Get(ctx context.Context, location string) ([]byte, error)
	// GetRange reads length bytes from offset on, fewer if the object ends before.
	GetRange(ctx context.Context, location string, offset, length int64) ([]byte, error)
	// Stat says how large an object is.
	Stat(ctx context.Context, location string) (Object, error)
	// Delete removes an object; it is no error if there is none.
	Delete(ctx context.Context, location string) error
	// List yields the objects whose location starts with prefix, in order of location, and ends after the first error.
	// The prefix must lie below Root.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
}

// Join puts a location together: Join(root, "data", name).
func Join(root string, parts ...string) string {
	return strings.TrimRight(root, "/") + "/" + strings.Join(parts, "/")
}

// key is the part of location below root. Locations of other writers may hold any characters (partition folders), so
// reads are only kept inside the root.
func key(root, location string) (string, error) {
	k, ok := strings.CutPrefix(location, root+"/")
	if !ok {
		return "", fmt.Errorf("locate object: %q is not below %q", location, root)
	}
	for part := range strings.SplitSeq(k, "/") {
		if part == "" || part == "." || part == ".." || strings.ContainsRune(part, 0) {
			return "", fmt.Errorf("locate object: %q is not a clean path", location)
		}
	}
	return k, nil
}

// newKey is key for an object that is to be created: letters, digits, dot, dash, underscore; no part starts with a dot.
func newKey(root, location string) (string, error) {
	k, err := key(root, location)
	if err != nil {
		return "", err
	}
	for i, c := range []byte(k) {
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '/' ||
			c == '.' && i > 0 && k[i-1] != '/'
		if !plain {
			return "", fmt.Errorf("create object: character %q in %q", c, location)
		}
	}
	return k, nil
}

// listKey is the part of a List prefix below root; it may be empty or end in a slash.
func listKey(root, prefix string) (string, error) {
	if prefix == root || prefix == root+"/" {
		return "", nil
	}
	if _, err := key(root, strings.TrimSuffix(prefix, "/")); err != nil {
		return "", err
	}
	return prefix[len(root)+1:], nil
}
