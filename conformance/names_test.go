package conformance_test

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLifeOfAnInsert holds docs/life-of-an-insert.md to the code: every `package.Function` or `package.Type.Method` that it names exists.
func TestLifeOfAnInsert(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "docs", "life-of-an-insert.md"))
	if err != nil {
		t.Fatal(err)
	}
	exists := declared(t)
	names := 0
	for _, m := range regexp.MustCompile("`([a-z]+(?:\\.[A-Za-z]\\w*)+)`").FindAllStringSubmatch(string(text), -1) {
		if strings.HasPrefix(m[1], "sluice.") { // SQL
			continue
		}
		if names++; !exists[m[1]] {
			t.Errorf("the code has no %s", m[1])
		}
	}
	if names < 50 {
		t.Errorf("found only %d names", names)
	}
}

// declared is all functions, methods, types, constants and variables outside of tests, as package.Name or package.Type.Name.
func declared(t *testing.T) map[string]bool {
	out := map[string]bool{}
	for _, s := range sources(t) {
		if strings.HasSuffix(s.file, "_test.go") {
			continue
		}
		pkg := s.ast.Name.Name
		for _, d := range s.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if d.Recv != nil {
					name = receiver(d.Recv.List[0].Type) + "." + name
				}
				out[pkg+"."+name] = true
			case *ast.GenDecl:
				declare(out, pkg, d)
			}
		}
	}
	return out
}

func declare(out map[string]bool, pkg string, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		switch x := spec.(type) {
		case *ast.ValueSpec:
			for _, n := range x.Names {
				out[pkg+"."+n.Name] = true
			}
		case *ast.TypeSpec:
			out[pkg+"."+x.Name.Name] = true
			if i, ok := x.Type.(*ast.InterfaceType); ok {
				for _, m := range i.Methods.List {
					for _, n := range m.Names {
						out[pkg+"."+x.Name.Name+"."+n.Name] = true
					}
				}
			}
		}
	}
}

func receiver(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return ""
}
