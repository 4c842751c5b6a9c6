// Package objstoretest is the suite every objstore.Store passes. Start with Run; it never sleeps and leaves no object behind
// that matters, as each store is its own.
package objstoretest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"sluice/writer/objstore"
)

// Run runs the suite; open makes an empty store.
func Run(t *testing.T, open func(t *testing.T) objstore.Store) {
	for name, test := range map[string]func(*testing.T, objstore.Store){
		"CreateOnly": createOnly, "OneWinner": oneWinner, "Range": ranges, "Missing": missing, "List": list, "Names": names,
		"Cancelled": cancelled,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func put(t *testing.T, s objstore.Store, key, body string) string {
	t.Helper()
	loc := objstore.Join(s.Root(), key)
	if err := s.Put(context.Background(), loc, []byte(body)); err != nil {
		t.Fatal(err)
	}
	return loc
}

func createOnly(t *testing.T, s objstore.Store) {
	ctx := context.Background()
	body := []byte("first")
	loc := objstore.Join(s.Root(), "a/b/c.bin")
	if err := s.Put(ctx, loc, body); err != nil {
		t.Fatal(err)
	}
	body[0] = 'X' // the store has its own copy
	if err := s.Put(ctx, loc, []byte("second")); !errors.Is(err, objstore.ErrExists) {
		t.Fatalf("second put: %v, want ErrExists", err)
	}
	got, err := s.Get(ctx, loc)
	if err != nil || string(got) != "first" {
		t.Fatalf("get: %q, %v", got, err)
	}
	st, err := s.Stat(ctx, loc)
	if err != nil || st.Size != 5 || st.Location != loc {
		t.Fatalf("stat: %+v, %v", st, err)
	}
	put(t, s, "a/b/empty", "")
	if st, err := s.Stat(ctx, objstore.Join(s.Root(), "a/b/empty")); err != nil || st.Size != 0 {
		t.Fatalf("stat of empty: %+v, %v", st, err)
	}
}

func oneWinner(t *testing.T, s objstore.Store) {
	var wg sync.WaitGroup
	errs := make([]error, 8)
	loc := objstore.Join(s.Root(), "race/x")
	for i := range errs {
		wg.Go(func() { errs[i] = s.Put(context.Background(), loc, bytes.Repeat([]byte{byte('0' + i)}, 1000)) })
	}
	wg.Wait()
	won := slices.IndexFunc(errs, func(err error) bool { return err == nil })
	for i, err := range errs {
		if i != won && !errors.Is(err, objstore.ErrExists) {
			t.Errorf("put %d: %v, want ErrExists", i, err)
		}
	}
	got, err := s.Get(context.Background(), loc)
	if err != nil || won < 0 || !bytes.Equal(got, bytes.Repeat([]byte{byte('0' + won)}, 1000)) {
		t.Fatalf("winner %d, object starts with %.5q, %v", won, got, err)
	}
}

func ranges(t *testing.T, s objstore.Store) {
	loc := put(t, s, "r", "0123456789")
	for _, c := range []struct {
		off, n int64
		want   string
	}{{0, 10, "0123456789"}, {3, 4, "3456"}, {8, 10, "89"}, {10, 5, ""}, {20, 5, ""}, {4, 0, ""}} {
		got, err := s.GetRange(context.Background(), loc, c.off, c.n)
		if err != nil || string(got) != c.want {
			t.Errorf("range %d+%d: %q, %v, want %q", c.off, c.n, got, err, c.want)
		}
	}
}

func missing(t *testing.T, s objstore.Store) {
	ctx := context.Background()
	loc := objstore.Join(s.Root(), "no/such")
	if _, err := s.Get(ctx, loc); !errors.Is(err, objstore.ErrNotExist) {
		t.Errorf("get: %v, want ErrNotExist", err)
	}
	if _, err := s.GetRange(ctx, loc, 0, 1); !errors.Is(err, objstore.ErrNotExist) {
		t.Errorf("get range: %v, want ErrNotExist", err)
	}
	if _, err := s.Stat(ctx, loc); !errors.Is(err, objstore.ErrNotExist) {
		t.Errorf("stat: %v, want ErrNotExist", err)
	}
	if err := s.Delete(ctx, loc); err != nil {
		t.Errorf("delete: %v", err)
	}
	for o, err := range s.List(ctx, objstore.Join(s.Root(), "no/")) {
		t.Errorf("list: %v, %v", o, err)
	}
	there := put(t, s, "there", "x")
	if err := s.Delete(ctx, there); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(ctx, there, nil); err != nil {
		t.Errorf("put after delete: %v", err)
	}
}

func list(t *testing.T, s objstore.Store) {
	for _, k := range []string{"t/data/1", "t/data/2", "t/data-x", "t/meta/0", "t2/a", "t/data.b/c"} {
		put(t, s, k, k)
	}
	for prefix, want := range map[string]string{
		"t/":     "[t/data-x t/data.b/c t/data/1 t/data/2 t/meta/0]",
		"t/data": "[t/data-x t/data.b/c t/data/1 t/data/2]",
		"t":      "[t/data-x t/data.b/c t/data/1 t/data/2 t/meta/0 t2/a]",
		"":       "[t/data-x t/data.b/c t/data/1 t/data/2 t/meta/0 t2/a]",
	} {
		var got []string
		for o, err := range s.List(context.Background(), s.Root()+"/"+prefix) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, o.Location[len(s.Root())+1:])
			if o.Size != int64(len(got[len(got)-1])) {
				t.Errorf("%s has size %d", o.Location, o.Size)
			}
		}
		if fmt.Sprint(got) != want {
			t.Errorf("list %q: %v, want %v", prefix, got, want)
		}
	}
	n := 0
	for range s.List(context.Background(), s.Root()) {
		n++
		break
	}
	if n != 1 {
		t.Errorf("list after break: %d", n)
	}
}

func names(t *testing.T, s objstore.Store) {
	for _, k := range []string{"../x", "a//b", "a/../b", ".hidden", "a/.x", "ä", "a b", "a?b", "a%20b", "", "x=1/y", "a/"} {
		err := s.Put(context.Background(), s.Root()+"/"+k, nil)
		if err == nil || errors.Is(err, objstore.ErrExists) {
			t.Errorf("put %q: %v, want refusal", k, err)
		}
	}
	if err := s.Put(context.Background(), "elsewhere://x/y", nil); err == nil {
		t.Error("put outside the root succeeded")
	}
	if _, err := s.Get(context.Background(), s.Root()+"/../x"); err == nil || errors.Is(err, objstore.ErrNotExist) {
		t.Errorf("get outside the root: %v", err)
	}
}

func cancelled(t *testing.T, s objstore.Store) {
	loc := put(t, s, "c", "x")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Get(ctx, loc); !errors.Is(err, context.Canceled) {
		t.Errorf("get: %v, want context.Canceled", err)
	}
	if err := s.Put(ctx, loc+"2", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("put: %v, want context.Canceled", err)
	}
}
