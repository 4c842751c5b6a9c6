package sql_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sluice/sql"
)

// pieces are what random INSERTs are put together from: plain and odd spellings, and the characters that end them.
var pieces = []string{"(", ")", ",", " ", "\n", "'a'", "'it''s'", "''", "''''", "'", "1", "-5", "- 5", "--5", "+5", "1.5", ".5", "5.", "1e3", "1e", "-0", "1x", "0x1F",
	"9223372036854775807", "9223372036854775808", "-9223372036854775808", "null", "NULL", "true", "False", "default", "nulls", "E'a\\n'", "$1", "$$a$$",
	"/* c */", "-- c\n", ";", "x", "\"x\"", "1 + 1", "'a' 'b'", "'a'\n'b'", "('a')", "'a'::text", "e'", "\\", "é", "current_date", "1,2", "(1, 2)", "(3, 'b')", "values"}

var heads = []string{"insert into t values ", "INSERT INTO t (a, b) VALUES", "insert into \"T\"\"x\" (\"values\", b) values ", "insert into s.t as x (a, b) values ",
	"insert into t (a, b) values -- c\n", "insert into t select ", "with x as (values (1, 2)) insert into t values ", "values ", "insert into t overriding user value values "}

var tails = []string{"", ";", " ; ", "; select 1", " on conflict do nothing", " on conflict (a) do update set b = excluded.b", " returning a", ", (1, 2)", ")"}

// TestLiterals compares what is cut out of a text with what the parser says of it: whatever is cut has the same values, columns and
// ON CONFLICT, and long lists of plain rows are cut.
func TestLiterals(t *testing.T) {
	cut := 0
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		b.WriteString(rapid.SampledFrom(heads).Draw(t, "head"))
		if rapid.Bool().Draw(t, "rows") {
			for i := range rapid.IntRange(1, 3).Draw(t, "n") {
				if i > 0 {
					b.WriteString(rapid.SampledFrom([]string{",", " , ", ",\n"}).Draw(t, "between"))
				}
				fmt.Fprintf(&b, "(%s,%s)", rapid.SampledFrom(pieces).Draw(t, "a"), rapid.SampledFrom(pieces).Draw(t, "b"))
			}
		} else {
			for range rapid.IntRange(0, 12).Draw(t, "n") {
				b.WriteString(rapid.SampledFrom(pieces).Draw(t, "piece"))
			}
		}
		b.WriteString(rapid.SampledFrom(tails).Draw(t, "tail"))
		if compareLiterals(t, b.String()) {
			cut++
		}
	})
	if cut == 0 {
		t.Error("no text was cut")
	}
}

// compareLiterals reports whether the text was cut.
func compareLiterals(t interface{ Fatalf(string, ...any) }, text string) bool {
	l, ok := sql.CutInsert(text)
	if !ok {
		return false
	}
	first, err := sql.Parse(l.First())
	if err != nil || len(first) != 1 || first[0].Insert() == nil || len(first[0].Insert().Rows) != 1 {
		return false // the caller sees that, too
	}
	frame := first[0].Insert()
	width := len(frame.Rows[0])
	var values []sql.Value
	rows, ok := l.Each(width, func(column int, kind sql.ValueKind, text []byte) bool {
		if column != len(values)%width {
			t.Fatalf("%q: value %d is said to be of column %d", text, len(values), column)
		}
		values = append(values, sql.Value{Kind: kind, Text: string(text)})
		return true
	})
	if !ok {
		return false
	}
	stmts, err := sql.Parse(text)
	if err != nil || len(stmts) != 1 || stmts[0].Insert() == nil {
		t.Fatalf("%q is cut into %d rows; the parser says %v, %d statements", text, rows, err, len(stmts))
	}
	in := stmts[0].Insert()
	var want []sql.Value
	for _, row := range in.Rows {
		for _, v := range row {
			if v.Kind == sql.Integer && v.Text == "0" && values[len(want)].Text == "-0" {
				v.Text = "-0" // told apart on purpose: it is left to the parser's callers
			}
			want = append(want, v)
		}
	}
	if len(in.Rows) != rows || !slices.Equal(values, want) {
		t.Fatalf("%q: %d rows %+v, the parser says %d rows %+v", text, rows, values, len(in.Rows), want)
	}
	if fmt.Sprintf("%+v", in.Conflict) != fmt.Sprintf("%+v", frame.Conflict) || !slices.Equal(in.Columns, frame.Columns) || in.Table != frame.Table {
		t.Fatalf("%q: the statement with its first row only is another one", text)
	}
	return true
}

// TestLiteralsPlain lists texts that have to be cut.
func TestLiteralsPlain(t *testing.T) {
	for _, text := range []string{
		"insert into t values (1)", "INSERT INTO t (a,b) VALUES (1,'x'),(2,'y');", "insert into s.\"T\" values\n(null, true, default, -1.5e-3)\n,\t('''', '(', ');', '--')",
		"insert into t values (1) on conflict do nothing",
	} {
		if !compareLiterals(t, text) {
			t.Errorf("%q is not cut", text)
		}
	}
}

func FuzzLiterals(f *testing.F) {
	for _, head := range heads {
		f.Add(head + "(1, 'a'), (-2.5, null)" + tails[4])
	}
	f.Fuzz(func(t *testing.T, text string) { compareLiterals(t, text) })
}

func BenchmarkLiterals(b *testing.B) {
	var text strings.Builder
	text.WriteString("insert into t values ")
	for i := range 1000 {
		if i > 0 {
			text.WriteString(", ")
		}
		fmt.Fprintf(&text, "(%d, %d, 'name of row %d', '2024-01-02 03:04:05.678')", i, i*7, i)
	}
	for b.Loop() {
		l, _ := sql.CutInsert(text.String())
		if rows, ok := l.Each(4, func(int, sql.ValueKind, []byte) bool { return true }); rows != 1000 || !ok {
			b.Fatal(rows, ok)
		}
	}
}
