package copyfmt_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"sluice/sql/pgvalue"
	"sluice/sql/pgvalue/copyfmt"
	"sluice/sql/pgvalue/internal/oracle"
	"sluice/writer/table"
)

// odd is a table with values that are hard to carry: in t by INSERT, so that no COPY is involved.
func odd(t *testing.T, conn *pgconn.PgConn, rng *rand.Rand) *relation {
	r := newRelation(t, conn, "a int, b text, c numeric, d timestamptz, e jsonb, f text[], g bytea, h float8, i char(4), j uuid, k bool, l date, m interval")
	texts := []string{"", " ", `\N`, `\.`, "NULL", `a\b`, "tab\there", "line\nfeed", "cr\rhere", "crlf\r\n", `"quoted"`, "'", ",", "ä日😀", `\\`, "a|b;c", "\b\f\v\x01\x7f", `"`, `""`, "\\n"}
	pick := func(of ...string) any {
		if rng.IntN(6) == 0 {
			return nil
		}
		return of[rng.IntN(len(of))]
	}
	for range 120 {
		row := []any{pick("0", "-2147483648", "7"), pick(texts...), pick("1.10", "NaN", "-Infinity", "1e30", "0.0000000000000000000001", "0.00", "12"),
			pick("infinity", "2020-01-02 03:04:05.6+00", "0044-03-15 12:00:00+00 BC", "12000-01-01 00:00:00+00"),
			pick(`{"a": "x\ny", "b": [1.0, null]}`, `"\t"`, `[]`), pick(`{}`, `{a,NULL,"x,y","\\\\"}`, `{{1,2},{3,4}}`, `[0:1]={"a b",""}`),
			pick(`\x`, `\x00ff0a0d5c`), pick("NaN", "-0", "1e23", "0.1", "Infinity"), pick("", "ab", "ä"), pick("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
			pick("t", "f"), pick("infinity", "0001-01-01 BC", "2024-02-29"), nil}
		insert(t, conn, row)
	}
	return r
}

func insert(t *testing.T, conn *pgconn.PgConn, row []any) {
	t.Helper()
	values := make([][]byte, len(row))
	var marks []string
	for i, v := range row {
		if s, ok := v.(string); ok {
			values[i] = []byte(s)
		}
		marks = append(marks, "$"+string("123456789"[min(i, 8)]))
		if i > 8 {
			marks[i] = "$1" + string("0123456789"[i-9])
		}
	}
	if r := conn.ExecParams(t.Context(), "insert into t values ("+strings.Join(marks, ",")+")", values, nil, nil, nil).Read(); r.Err != nil {
		t.Fatalf("%q: %v", row, r.Err)
	}
}

var roundTrips = append(slices.Clone(optionSets[:10]), copyfmt.Options{Format: copyfmt.Binary},
	copyfmt.Options{Format: copyfmt.CSV, Escape: `\`}, copyfmt.Options{Format: copyfmt.CSV, ForceQuoteAll: true},
	copyfmt.Options{Format: copyfmt.CSV, ForceQuote: []string{"a", "b"}, Null: str("NULL")}, copyfmt.Options{Format: copyfmt.CSV, Quote: "'", Escape: `"`})

// TestRoundTrip: COPY TO of Postgres → Parser → Writer must give the same bytes, and they must be the same rows again for
// COPY FROM of Postgres.
func TestRoundTrip(t *testing.T) {
	t.Logf("seed %d", *oracle.Seed)
	conn := oracle.Connect(t)
	rng := rand.New(rand.NewPCG(*oracle.Seed, 2))
	r := odd(t, conn, rng)
	all := showRows(oracle.Exec(t, conn, "select * from t"))
	for _, o := range roundTrips {
		var data bytes.Buffer
		if _, err := conn.CopyTo(t.Context(), &data, "copy t to stdout "+optionList(withoutMatch(o), true)); err != nil {
			t.Fatal(err)
		}
		in := o
		in.ForceQuote, in.ForceQuoteAll = nil, false
		want := reread(t, conn, in, data.Bytes())
		if o.Null == nil && !equal(slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(all))) {
			t.Fatalf("%s: Postgres does not read back its own rows", optionList(o, true))
		}
		b, err := r.parse(t, conn, in, data.Bytes(), rng)
		if err != nil {
			t.Errorf("%s: %v", optionList(o, true), err)
			continue
		}
		compareRows(t, optionList(o, true)+" parsed", r.show(t, b), want)
		out := r.write(t, withoutMatch(o), b)
		if !bytes.Equal(out, data.Bytes()) {
			t.Errorf("%s: written\n got %q\nwant %q", optionList(o, true), out, data.Bytes())
		}
		compareRows(t, optionList(o, true)+" read back", reread(t, conn, in, out), want)
	}
}

// compareRows compares multisets: Postgres puts a row where there is room, which need not be behind the one before.
func compareRows(t *testing.T, what string, got, want []string) {
	t.Helper()
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if len(got) != len(want) {
		t.Errorf("%s: %d rows, want %d", what, len(got), len(want))
		return
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("%s: row %d\n got %s\nwant %s", what, i, got[i], want[i])
		}
	}
}

// reread lets Postgres read data.
func reread(t *testing.T, conn *pgconn.PgConn, o copyfmt.Options, data []byte) []string {
	t.Helper()
	oracle.Exec(t, conn, "drop table if exists u; create temp table u (like t)")
	if _, err := conn.CopyFrom(t.Context(), bytes.NewReader(data), "copy u from stdin "+optionList(o, true)); err != nil {
		t.Errorf("%s: read back: %v", optionList(o, true), err)
	}
	return showRows(oracle.Exec(t, conn, "select * from u"))
}

// withoutMatch is the options for COPY TO, which has no HEADER MATCH.
func withoutMatch(o copyfmt.Options) copyfmt.Options {
	if o.Header == copyfmt.MatchHeader {
		o.Header = copyfmt.WithHeader
	}
	return o
}

func (r *relation) write(t *testing.T, o copyfmt.Options, b *table.Batch) []byte {
	t.Helper()
	w, err := copyfmt.NewWriter(o, r.columns, nil)
	if err != nil {
		t.Fatal(err)
	}
	out := w.Head(nil)
	for i := range b.Rows {
		if out, err = w.Row(out, b, i); err != nil {
			t.Fatal(err)
		}
	}
	return w.Tail(out)
}

// TestBinaryAgainstPostgres cuts and changes binary data and compares rows and errors.
func TestBinaryAgainstPostgres(t *testing.T) {
	t.Logf("seed %d", *oracle.Seed)
	conn := oracle.Connect(t)
	rng := rand.New(rand.NewPCG(*oracle.Seed, 3))
	r := newRelation(t, conn, "a int, b text, c numeric(5,2)")
	oracle.Exec(t, conn, "insert into t values (1, 'x', 2), (null, null, null), (-7, 'ä', 9.99)")
	var data bytes.Buffer
	if _, err := conn.CopyTo(t.Context(), &data, "copy t to stdout (format binary)"); err != nil {
		t.Fatal(err)
	}
	o := copyfmt.Options{Format: copyfmt.Binary}
	for n := range data.Len() + 1 {
		r.compare(t, conn, o, data.Bytes()[:n], rng)
	}
	r.compare(t, conn, o, append(bytes.Clone(data.Bytes()), 0), rng)
	for range 600 {
		d := bytes.Clone(data.Bytes())
		d[rng.IntN(len(d))] ^= byte(1 << rng.IntN(8))
		r.compare(t, conn, o, d, rng)
	}
}

// TestOptions compares what combinations of options are refused, and how.
func TestOptions(t *testing.T) {
	conn := oracle.Connect(t)
	newRelation(t, conn, "a int, b text, c numeric(5,2)")
	sets := []copyfmt.Options{
		{Delimiter: "ab"}, {Delimiter: "\n"}, {Delimiter: "a"}, {Delimiter: `\`}, {Delimiter: "."}, {Delimiter: "é"}, {Null: str("a\nb")}, {Null: str("a\tb")},
		{Quote: `"`}, {Escape: `"`}, {ForceQuote: []string{"a"}}, {ForceQuoteAll: true}, {ForceNotNull: []string{"a"}}, {ForceNull: []string{"a"}},
		{Format: copyfmt.CSV, Delimiter: "a"}, {Format: copyfmt.CSV, Quote: "ab"}, {Format: copyfmt.CSV, Quote: ","}, {Format: copyfmt.CSV, Escape: "ab"},
		{Format: copyfmt.CSV, Null: str(`"`)}, {Format: copyfmt.CSV, Null: str(",")}, {Format: copyfmt.CSV, ForceQuoteAll: true},
		{Format: copyfmt.CSV, ForceNotNull: []string{"a"}}, {Format: copyfmt.CSV, ForceNull: []string{"a"}}, {Format: copyfmt.CSV, Delimiter: "\r"},
		{Format: copyfmt.Binary, Delimiter: ","}, {Format: copyfmt.Binary, Null: str("")}, {Format: copyfmt.Binary, Header: copyfmt.WithHeader},
		{Format: copyfmt.Binary, Quote: "'"}, {Null: str("")}, {Header: copyfmt.WithHeader},
	}
	for _, o := range sets {
		_, err := conn.CopyFrom(t.Context(), strings.NewReader(""), "copy t from stdin "+optionList(o, true))
		compareOptions(t, o, o.Check(true), err)
		_, err = conn.CopyTo(t.Context(), &bytes.Buffer{}, "copy t to stdout "+optionList(o, true))
		compareOptions(t, o, o.Check(false), err)
	}
	latin := copyfmt.Options{Encoding: "latin1"}
	if err := latin.Check(true); err != copyfmt.ErrEncoding {
		t.Errorf("encoding latin1: %v", err)
	}
}

func compareOptions(t *testing.T, o copyfmt.Options, got, want error) {
	t.Helper()
	var g *pgvalue.Error
	var w *pgconn.PgError
	if errors.As(want, &w) != errors.As(got, &g) {
		t.Errorf("%s: got %v, want %v", optionList(o, true), got, want)
	} else if w != nil && (g.Code != w.Code || g.Message != w.Message) {
		t.Errorf("%s: got %v, want %v", optionList(o, true), g, w)
	}
}

// plainRelation is int, text, numeric(5,2) without an oracle.
func plainRelation(tb testing.TB) *relation {
	r := &relation{schema: &table.Schema{}}
	for i, c := range []struct {
		oid    uint32
		typmod int32
	}{{pgvalue.OIDInt4, -1}, {pgvalue.OIDText, -1}, {pgvalue.OIDNumeric, 5<<16 + 2 + 4}} {
		typ, _, _ := pgvalue.Lake(c.oid, c.typmod)
		codec, err := pgvalue.NewCodec(c.oid, c.typmod, typ)
		if err != nil {
			tb.Fatal(err)
		}
		name := string(rune('a' + i))
		r.schema.Columns = append(r.schema.Columns, table.Column{Name: name, Type: typ})
		r.columns = append(r.columns, copyfmt.Column{Name: name, Index: i, Codec: codec})
	}
	return r
}

// run feeds data in pieces of n bytes.
func (r *relation) run(tb testing.TB, o copyfmt.Options, data []byte, n int) (*table.Batch, error) {
	p, err := copyfmt.NewParser(o, copyfmt.Target{Table: "t", Columns: r.columns})
	if err != nil {
		tb.Skip()
	}
	b := table.NewBatch(r.schema)
	for len(data) > 0 {
		k := min(n, len(data))
		if err := p.Feed(b, data[:k]); err != nil {
			return b, err
		}
		data = data[k:]
	}
	return b, p.End(b)
}

// FuzzParser checks that the result does not depend on how the data is cut, and that rows survive the Writer.
func FuzzParser(f *testing.F) {
	for i, data := range hostileData {
		f.Add([]byte(data), uint8(i), uint8(1+i%7))
	}
	f.Fuzz(func(t *testing.T, data []byte, set, n uint8) {
		o := optionSets[int(set)%len(optionSets)]
		if set > 200 {
			o = copyfmt.Options{Format: copyfmt.Binary}
		}
		r := plainRelation(t)
		whole, errWhole := r.run(t, o, data, len(data)+1)
		parts, errParts := r.run(t, o, data, int(n)+1)
		one, two := r.show(t, whole), r.show(t, parts)
		if !equal(one, two) || (errWhole == nil) != (errParts == nil) || errWhole != nil && errWhole.Error() != errParts.Error() {
			t.Fatalf("%q in one piece: %q %v\nin pieces of %d: %q %v", data, one, errWhole, int(n)+1, two, errParts)
		}
		o.ForceNull, o.ForceNotNull = nil, nil
		again, err := r.run(t, o, r.write(t, o, whole), 1<<20)
		if err != nil {
			t.Fatalf("rows %q do not survive: %v", one, err)
		}
		if three := r.show(t, again); !equal(one, three) {
			t.Fatalf("rows %q came back as %q", one, three)
		}
	})
}
