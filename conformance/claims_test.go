package conformance_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sluice/conformance"
)

var rewrite = flag.Bool("rewrite", false, "write CLAIMS.md")

// TestClaims fails when a test or script claims a behaviour that does not exist, or when one that CLAIMS.md has is claimed no more.
func TestClaims(t *testing.T) {
	top := root(t)
	list, err := conformance.Behaviours(top)
	if err != nil {
		t.Fatal(err)
	}
	claims, err := conformance.Claims(top)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, b := range list {
		if known[b.ID] {
			t.Errorf("ids.txt has %s twice", b.ID)
		}
		known[b.ID] = true
	}
	for id, places := range claims {
		if !known[id] {
			t.Errorf("%v claims %s, which ids.txt does not have", places, id)
		}
	}
	path, page := filepath.Join(top, "conformance", "CLAIMS.md"), conformance.Page(list, claims)
	if *rewrite {
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range claimed(string(have)) {
		if len(claims[id]) == 0 {
			t.Errorf("nobody claims %s any more", id)
		}
	}
	if string(have) != page {
		t.Log("CLAIMS.md is old: run with -rewrite")
	}
	for _, b := range list {
		if b.Owes() && len(claims[b.ID]) == 0 {
			t.Logf("nobody claims %s: %s", b.ID, b.What)
		}
	}
}

// claimed is the ids that a page has in its tables of claims.
func claimed(page string) []string {
	before, rest, _ := strings.Cut(page, "## Not named yet")
	_, after, _ := strings.Cut(rest, "## Named already")
	var ids []string
	for _, m := range regexp.MustCompile(`(?m)^\| ([A-Z]\d+) \|`).FindAllStringSubmatch(before+after, -1) {
		ids = append(ids, m[1])
	}
	return ids
}
