// Package conformance is what we promise, proven from outside.
//
// Its own code is the count of claims: testdata/claims/ids.txt lists the behaviours that the gateway owes, and a test or script that
// observes one says so in a line "claims: M5 S13", in the comment of a Go test or after a # on top of a script. Start with Behaviours and
// Claims. CLAIMS.md is printed by TestClaims. Everything else here is tests; harness is what they stand on.
package conformance

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Behaviour is one line of ids.txt.
type Behaviour struct {
	ID   string
	Owed []string // the slices that owe it: A to F, or later
	What string   // what a test has to observe
}

// owing is the slices whose behaviours have to be named by now.
var owing = []string{"A", "B"}

// Owes reports whether a test has to name it by now.
func (b Behaviour) Owes() bool {
	return slices.ContainsFunc(b.Owed, func(slice string) bool { return slices.Contains(owing, slice) })
}

// Behaviours reads ids.txt below the repository's root.
func Behaviours(root string) ([]Behaviour, error) {
	text, err := os.ReadFile(filepath.Join(root, "conformance", "testdata", "claims", "ids.txt"))
	if err != nil {
		return nil, err
	}
	var list []Behaviour
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 3 {
			return nil, fmt.Errorf("ids.txt: %q has %d fields, want 3", line, len(f))
		}
		list = append(list, Behaviour{f[0], strings.Split(f[1], ","), f[2]})
	}
	return list, nil
}

// claim is the line that names ids. Go comments come without their slashes.
var claim = regexp.MustCompile(`(?m)^(?:# ?)?claims: ([A-Z0-9 ]+)$`)

// Claims maps each id to who says that he observes it: a script's path, or package.Test.
func Claims(root string) (map[string][]string, error) {
	out := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if strings.HasPrefix(d.Name(), ".") && path != root || d.Name() == "bin" {
				return filepath.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		switch {
		case strings.HasSuffix(rel, ".go"):
			return goClaims(out, path, rel)
		case strings.Contains(rel, "/testdata/"), strings.HasSuffix(rel, ".py"), strings.HasSuffix(rel, ".sh"):
			return scriptClaims(out, path, rel)
		}
		return nil
	})
	for _, places := range out {
		slices.Sort(places)
	}
	return out, err
}

func goClaims(out map[string][]string, path, rel string) error {
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Doc != nil {
			note(out, fn.Doc.Text(), filepath.ToSlash(filepath.Dir(rel))+"."+fn.Name.Name)
		}
	}
	return nil
}

func scriptClaims(out map[string][]string, path, rel string) error {
	text, err := os.ReadFile(path)
	if err == nil {
		note(out, string(text), rel)
	}
	return err
}

func note(out map[string][]string, text, place string) {
	for _, m := range claim.FindAllStringSubmatch(text, -1) {
		for _, id := range strings.Fields(m[1]) {
			out[id] = append(out[id], place)
		}
	}
}

// Page is CLAIMS.md: what is owed now, who claims it, and what is missing.
func Page(list []Behaviour, claims map[string][]string) string {
	var named, missing, rest strings.Builder
	owed, claimed := 0, 0
	for _, b := range list {
		places := strings.Join(claims[b.ID], ", ")
		switch now := b.Owes(); {
		case now && places != "":
			owed, claimed = owed+1, claimed+1
			fmt.Fprintf(&named, "| %s | %s |\n", b.ID, places)
		case now:
			owed++
			fmt.Fprintf(&missing, "| %s | %s |\n", b.ID, strings.ReplaceAll(b.What, "|", "\\|"))
		case places != "":
			fmt.Fprintf(&rest, "| %s | %s |\n", b.ID, places)
		}
	}
	return fmt.Sprintf("# Claims\n\nPrinted by `TestClaims` (`go test ./conformance -run TestClaims -rewrite`). %d of the %d behaviours that slices %s owe are named by a test or "+
		"script; %d are not. A name says that the test observes the behaviour, not that nothing is left to do.\n\n"+
		"| Id | Named by |\n|---|---|\n%s\n## Not named yet\n\n| Id | What a test has to observe |\n|---|---|\n%s\n"+
		"## Named already, owed by a later slice\n\n| Id | Named by |\n|---|---|\n%s", claimed, owed, strings.Join(owing, " and "), owed-claimed, named.String(), missing.String(), rest.String())
}
