package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestJudge: whatever the lists do not say is an error, and so is what they say too much.
func TestJudge(t *testing.T) {
	text := `{"Action":"run","Package":"p","Test":"Lost"}
{"Action":"run","Package":"p","Test":"A"}
{"Action":"pass","Package":"p","Test":"A"}
{"Action":"fail","Package":"p"}
fail b c
skip d
pass e
`
	path := filepath.Join(t.TempDir(), "results")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := readResults(path)
	if err != nil {
		t.Fatal(err)
	}
	if have := got.counts(); have != "2 passed, 2 failed, 1 skipped" {
		t.Error(have)
	}
	fails := func(names ...string) list {
		l := list{fails: map[string]string{}}
		for _, n := range names {
			name, reason, _ := strings.Cut(n, "\t")
			l.fails[name] = reason
		}
		return l
	}
	for _, c := range []struct {
		anywhere, ours list
		passes         int
		want           string // a part of the error, or nothing
	}{
		{fails("p.Lost"), fails("b c\twhy"), 3, ""},
		{fails("p.Lost"), fails(), 2, "fails and is on no list: b c"},
		{fails("p.Lost"), fails("b c"), 3, "is listed without a reason: b c"},
		{fails("p.Lost", "b c"), fails("e\twhy"), 2, "is listed and passes: e"},
		{fails("p.Lost", "b c"), fails("e\tsometimes"), 2, ""},
		{fails("p.Lost"), fails("b c\twhy"), 4, "only 2 tests passed"},
	} {
		c.anywhere.passes = c.passes
		err := judge(got, c.anywhere, c.ours)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: want %q", err, c.want)
		}
	}
}
