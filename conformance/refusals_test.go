package conformance_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sluice/conformance/harness"
)

// refusal is one place in the code that says 0A000.
type refusal struct{ message, hint string }

// elsewhere is the refusals that no script of testdata can provoke, and the test that does.
var elsewhere = map[string]string{
	"the answer to this statement of a repeated transaction was too long to be kept":     "`TestOnceRules`",
	"arguments of sluice.%s that are neither constants nor parameters are not supported": "`TestTokens`",
	"this statement is not supported":                                                    "nothing known: should the gateway's parser refuse what Postgres takes",
	"this statement is not supported: %v":                                                "nothing known: the same in the extended protocol",
	"this password cannot be stored":                                                     "`TestRoles` in `server`",
	"%s":                                                                                 "`TestScanLane`: why `sluice.lane = 'scan'` cannot answer",
}

// TestRefusals prints the table of what is refused in docs/sql.md from the code that refuses it (-rewrite), and sees that each refusal is met by a
// script, or by the test that elsewhere names.
//
// claims: P66
func TestRefusals(t *testing.T) {
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	list := refusals(t, root)
	if len(list) < 20 {
		t.Fatalf("only %d refusals found: the search is broken", len(list))
	}
	met := provoked(t)
	var rows []string
	for _, r := range list {
		by := elsewhere[r.message]
		for _, m := range met {
			if r.message != "%s" && r.matches(m.message) {
				by = m.script
				break
			}
		}
		if by == "" {
			t.Errorf("nothing meets the refusal %q", r.message)
		}
		if r.hint == "" {
			t.Errorf("the refusal %q has no hint", r.message)
		}
		rows = append(rows, fmt.Sprintf("| %s | %s | %s |", cell(r.message), cell(r.hint), by))
	}
	inDocs(t, filepath.Join(root, "docs", "sql.md"), "refusals", "| Message | Hint | Met by |\n|---|---|---|\n"+strings.Join(rows, "\n")+"\n")
}

func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }

// refusals finds the calls of unsupported and of wire.Errorf with the code 0A000, and the hints on them, in the packages that answer clients.
func refusals(t *testing.T, root string) []refusal {
	t.Helper()
	found := map[refusal]bool{}
	for _, dir := range []string{"server", "sql", "planner"} {
		paths, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			refusalsIn(file, found)
		}
	}
	list := make([]refusal, 0, len(found))
	for r := range found {
		if r.hint == "" && slices.ContainsFunc(slices.Collect(keys(found)), func(o refusal) bool { return o.message == r.message && o.hint != "" }) {
			continue // the call inside the one that adds the hint
		}
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b refusal) int { return strings.Compare(a.message+a.hint, b.message+b.hint) })
	return list
}

func keys(m map[refusal]bool) func(func(refusal) bool) {
	return func(yield func(refusal) bool) {
		for r := range m {
			if !yield(r) {
				return
			}
		}
	}
}

func refusalsIn(file *ast.File, found map[refusal]bool) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "WithHint" && len(call.Args) > 0 {
			if message, ok := refused(unwrapped(sel.X)); ok {
				found[refusal{message, literal(call.Args[0])}] = true
			}
		}
		if message, ok := refused(call); ok {
			found[refusal{message, ""}] = true
		}
		return true
	})
}

// unwrapped is the call inside x.(*wire.Error).WithDetail(…).
func unwrapped(x ast.Expr) ast.Expr {
	switch x := x.(type) {
	case *ast.TypeAssertExpr:
		return unwrapped(x.X)
	case *ast.CallExpr:
		if sel, ok := x.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "WithDetail" {
			return unwrapped(sel.X)
		}
	}
	return x
}

// refused is the format of a call that makes an error of the class 0A000.
func refused(x ast.Expr) (string, bool) {
	call, ok := x.(*ast.CallExpr)
	if !ok || len(call.Args) == 0 {
		return "", false
	}
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		if fun.Name == "unsupported" {
			return literal(call.Args[0]), true
		}
	case *ast.SelectorExpr:
		if code, ok := call.Args[0].(*ast.SelectorExpr); ok && fun.Sel.Name == "Errorf" && code.Sel.Name == "CodeFeatureNotSupported" && literal(call.Args[1]) != "" {
			return literal(call.Args[1]), true
		}
	}
	return "", false
}

// literal is the text of a string constant, or of several that are added up.
func literal(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.BasicLit:
		s, _ := strconv.Unquote(x.Value)
		return s
	case *ast.BinaryExpr:
		return literal(x.X) + literal(x.Y)
	}
	return ""
}

var verbs = regexp.MustCompile(`%[a-zA-Z]`)

func (r refusal) matches(message string) bool {
	parts := verbs.Split(r.message, -1)
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(message)
}

// metRefusal is a refusal that a script met.
type metRefusal struct{ script, message string }

// provoked plays the scripts that expect refusals, and collects what is said.
func provoked(t *testing.T) (met []metRefusal) {
	t.Helper()
	paths, err := filepath.Glob("testdata/*/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if dir := filepath.Base(filepath.Dir(path)); !strings.Contains(string(text), "\nrefused") || dir != "sql" {
			continue
		}
		script, err := harness.ReadScript(path)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".txt")
		script.Run(t, harness.NewPair(t), harness.Mode{Refused: func(message string) { met = append(met, metRefusal{name, message}) }})
	}
	return met
}

// inDocs replaces what stands between <!-- name --> and <!-- /name --> in a page with -rewrite, else it must be that.
func inDocs(t *testing.T, path, name, want string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := fmt.Sprintf("<!-- %s -->\n", name), fmt.Sprintf("<!-- /%s -->", name)
	before, rest, ok := strings.Cut(string(text), begin)
	have, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s: no place for %s", path, name)
	}
	if have == want {
		return
	}
	if !*rewrite {
		t.Errorf("%s: the table %s is not what the code says; run with -rewrite:\n%s", path, name, harness.Diff(strings.Split(want, "\n"), strings.Split(have, "\n")))
		return
	}
	if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil { //nolint:gosec // a page of the repository
		t.Fatal(err)
	}
}
