package conformance_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The house rules of DESIGN section 8 and of docs/design, as tests. A package imports only packages of lower rank.

// ranks is the house: tenths order packages that share a rank but not a floor.
var ranks = map[string]int{
	"sql": 0, "writer/table": 0, "writer/invariants": 0,
	"sql/pgvalue": 10, "sql/pgvalue/copyfmt": 11, "writer/objstore": 10, "writer/catalog": 10, "writer/route": 10, "writer/bucketlog": 10, "writer/keyindex": 10,
	"planner": 20, "catalogpg": 20, "writer/wal": 20, "writer/datafile": 20, "writer/realtime": 20, "writer/lock": 20, "writer/window": 21,
	"writer/format": 30, "writer/flush": 31,
	"writer/format/iceberg": 40, "writer/commit": 40, "writer/compact": 40, "writer/fsck": 40,
	"writer/recovery": 50,
	"writer":          60,
	"server/wire":     70, "server/scan": 70, "server/auth": 71, "server/backend": 71, "server/rest": 71, "server/reader": 71,
	"server":     75,
	"cmd/sluice": 80, "conformance": 80,
}

// only names the packages that may import a library that is somebody's alone.
var only = map[string][]string{
	"github.com/duckdb/duckdb-go":         {"server/reader"},
	"github.com/apache/iceberg-go":        {"writer/format/iceberg"},
	"github.com/minio/minio-go":           {"writer/objstore"},
	"github.com/pganalyze/pg_query_go":    {"sql"},
	"github.com/jackc/pgx/v5":             {"catalogpg", "server", "sql/pgvalue/internal/oracle", "conformance"},
	"github.com/fergusstrange":            {"catalogpg"},
	"github.com/prometheus/client_golang": {"server/rest", "server", "cmd/sluice"},
}

var bannedWords = []string{"util", "utils", "common", "helper", "helpers", "base", "misc", "types", "manager", "handler", "processor", "service", "data", "info", "impl", "v2"}

type source struct {
	pkg, file string // slash-separated, relative to the root
	ast       *ast.File
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// sources parses every Go file of the repository.
func sources(t *testing.T) []source {
	t.Helper()
	top := root(t)
	var out []source
	err := filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && p != top || d.Name() == "testdata" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, p)
		rel = filepath.ToSlash(rel)
		out = append(out, source{pkg: path.Dir(rel), file: rel, ast: f})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 10 {
		t.Fatalf("found only %d Go files", len(out))
	}
	return out
}

// rankOf is the rank of a package; a suite or a subfolder without an own rank has that of its parent, plus one.
func rankOf(pkg string) (int, bool) {
	if r, ok := ranks[pkg]; ok {
		return r, true
	}
	if up := path.Dir(pkg); up != "." {
		r, ok := rankOf(up)
		return r + 1, ok
	}
	return 0, false
}

func TestImportsGoDownwards(t *testing.T) {
	for _, s := range sources(t) {
		rank, ok := rankOf(s.pkg)
		if !ok {
			t.Errorf("%s: package %s has no rank in the house", s.file, s.pkg)
			continue
		}
		if strings.HasSuffix(s.file, "_test.go") {
			continue
		}
		for _, imp := range s.ast.Imports {
			p, _ := strconv.Unquote(imp.Path.Value)
			if dep, ours := strings.CutPrefix(p, "sluice/"); ours {
				if r, _ := rankOf(dep); r >= rank && !strings.HasPrefix(s.pkg, "conformance") {
					t.Errorf("%s (rank %d) imports %s (rank %d)", s.file, rank, dep, r)
				}
			}
			checkOnly(t, s, p)
		}
	}
}

func checkOnly(t *testing.T, s source, imported string) {
	for lib, allowed := range only {
		if strings.HasPrefix(imported, lib) && !slices.ContainsFunc(allowed, func(a string) bool { return s.pkg == a || strings.HasPrefix(s.pkg, a+"/") }) {
			t.Errorf("%s imports %s, which only %v may", s.file, imported, allowed)
		}
	}
}

func TestEveryPackageHasOneComment(t *testing.T) {
	docs := map[string][]string{}
	for _, s := range sources(t) {
		if strings.HasSuffix(s.file, "_test.go") {
			continue
		}
		if s.ast.Doc != nil {
			docs[s.pkg] = append(docs[s.pkg], s.file)
		} else if docs[s.pkg] == nil {
			docs[s.pkg] = []string{}
		}
	}
	for pkg, files := range docs {
		if len(files) != 1 {
			t.Errorf("package %s has %d package comments: %v", pkg, len(files), files)
		}
	}
}

func TestNames(t *testing.T) {
	for _, s := range sources(t) {
		if last := path.Base(s.pkg); slices.Contains(bannedWords, last) {
			t.Errorf("package %s: %q says nothing", s.pkg, last)
		}
		for _, d := range s.ast.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.TYPE {
				continue
			}
			for _, spec := range g.Specs {
				name := spec.(*ast.TypeSpec).Name.Name
				if slices.Contains(bannedWords, lastWord(name)) {
					t.Errorf("%s: type %s: its last word says nothing", s.file, name)
				}
			}
		}
	}
}

var word = regexp.MustCompile(`[A-Z]?[a-z0-9]+$`)

func lastWord(name string) string { return strings.ToLower(word.FindString(name)) }

// TestArchitectureNamesThePackages keeps ARCHITECTURE.md true in both directions.
func TestArchitectureNamesThePackages(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z]+(?:/[a-z]+)*)`").FindAllStringSubmatch(string(text), -1) {
		named[m[1]] = true
	}
	exist := map[string]bool{}
	for _, s := range sources(t) {
		if _, ranked := ranks[s.pkg]; ranked {
			exist[s.pkg] = true
		}
	}
	for pkg := range exist {
		if !named[pkg] {
			t.Errorf("ARCHITECTURE.md does not name `%s`", pkg)
		}
	}
	for pkg := range ranks {
		if named[pkg] && !exist[pkg] {
			t.Errorf("ARCHITECTURE.md names `%s`, which does not exist", pkg)
		}
	}
}

// TestLinksResolve follows the relative links of every document.
func TestLinksResolve(t *testing.T) {
	top := root(t)
	link := regexp.MustCompile(`\]\(([^)#: ]+)(?:#[^)]*)?\)`)
	filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") && p != top {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(p, ".md") {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			t.Error(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(p), m[1])); err != nil {
				t.Errorf("%s: link to %s goes nowhere", p, m[1])
			}
		}
		return nil
	})
}
