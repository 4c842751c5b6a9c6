package pgvalue_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"sluice/sql/pgvalue"
	"sluice/sql/pgvalue/internal/oracle"
	"sluice/writer/table"
)

func TestMain(m *testing.M) { oracle.Main(m) }

// column is a Postgres type under test.
type column struct {
	sql    string
	oid    uint32
	typmod int32
	codec  *pgvalue.Codec
}

func newColumn(t *testing.T, conn *pgconn.PgConn, sql string) *column {
	t.Helper()
	oracle.Exec(t, conn, "drop table if exists t")
	oracle.Exec(t, conn, "create temp table t (a "+sql+")")
	rows := oracle.Exec(t, conn, "select atttypid, atttypmod from pg_attribute where attrelid = 't'::regclass and attname = 'a'")
	oid, _ := strconv.Atoi(string(rows[0][0]))
	typmod, _ := strconv.Atoi(string(rows[0][1]))
	c := &column{sql: sql, oid: uint32(oid), typmod: int32(typmod)}
	typ, _, _ := pgvalue.Lake(c.oid, c.typmod)
	var err error
	if c.codec, err = pgvalue.NewCodec(c.oid, c.typmod, typ); err != nil {
		t.Fatal(err)
	}
	return c
}

// answer is what Postgres makes of an input.
type answer struct {
	text, binary []byte
	err          *pgconn.PgError
}

// ask stores the value in a column of the type and reads it back in both formats.
func (c *column) ask(t *testing.T, conn *pgconn.PgConn, in []byte, format int16) (a answer) {
	t.Helper()
	r := conn.ExecParams(t.Context(), "insert into t values ($1) returning a, a", [][]byte{in}, []uint32{c.oid}, []int16{format},
		[]int16{0, 1}).Read()
	if r.Err != nil {
		if !errors.As(r.Err, &a.err) {
			t.Fatalf("%q: %v", in, r.Err)
		}
		return a
	}
	return answer{text: r.Rows[0][0], binary: r.Rows[0][1]}
}

// check compares one input; it returns the value's row in v, or -1.
func (c *column) check(t *testing.T, conn *pgconn.PgConn, v *table.Vec, in []byte, format int16, env *pgvalue.Env) int {
	t.Helper()
	want := c.ask(t, conn, in, format)
	row := v.Len
	var err error
	if format == 0 {
		err = c.codec.AppendText(v, in, env)
	} else {
		err = c.codec.AppendBinary(v, in)
	}
	if err != nil && v.Len != row {
		t.Errorf("%s %q: error %v, but the vector grew", c.sql, in, err)
	}
	if err == pgvalue.ErrNeedPostgres {
		needed[c.sql]++
		if want.err != nil {
			return -1
		}
		if env != nil {
			return -1
		}
		if err = c.codec.AppendCanonical(v, want.text); err != nil {
			t.Errorf("%s %q: canonical %q: %v", c.sql, in, want.text, err)
			return -1
		}
	}
	if err != nil {
		c.compareError(t, in, format, err, want)
		return -1
	}
	if want.err != nil {
		got, _ := c.codec.Text(nil, v, row, env)
		t.Errorf("%s %q (format %d): taken as %q, but Postgres says %s %s", c.sql, in, format, got, want.err.Code, want.err.Message)
		return -1
	}
	c.compareValue(t, v, row, in, want, env)
	return row
}

// needed counts by type how often Postgres had to be asked.
var needed = map[string]int{}

func (c *column) compareError(t *testing.T, in []byte, format int16, err error, want answer) {
	t.Helper()
	var got *pgvalue.Error
	if !errors.As(err, &got) {
		t.Errorf("%s %q: %v", c.sql, in, err)
		return
	}
	if want.err == nil {
		t.Errorf("%s %q: refused with %q, but Postgres takes it as %q", c.sql, in, got.Message, want.text)
		return
	}
	if format == 1 && got.Message == "incorrect binary data format" {
		got = &pgvalue.Error{Code: got.Code, Message: "incorrect binary data format in bind parameter 1"}
	}
	w := want.err
	if got.Code != w.Code || got.Message != w.Message || got.Detail != w.Detail || got.Hint != w.Hint {
		t.Errorf("%s %q:\n got %s %s | %s | %s\nwant %s %s | %s | %s", c.sql, in, got.Code, got.Message, got.Detail, got.Hint,
			w.Code, w.Message, w.Detail, w.Hint)
	}
}

func (c *column) compareValue(t *testing.T, v *table.Vec, row int, in []byte, want answer, env *pgvalue.Env) {
	t.Helper()
	text, err := c.codec.Text(nil, v, row, env)
	if err != nil {
		t.Errorf("%s %q: text: %v", c.sql, in, err)
	} else if !bytes.Equal(text, want.text) {
		t.Errorf("%s %q: text %q, want %q", c.sql, in, text, want.text)
	}
	if c.sql == "float8[]" && bytes.Contains(want.text, []byte("NaN")) {
		return // the sign and payload of a NaN do not survive in an array kept as text
	}
	b, err := c.codec.Binary(nil, v, row)
	if err == pgvalue.ErrNoBinary && c.codec.Kept() {
		return
	}
	if err != nil {
		t.Errorf("%s %q: binary: %v", c.sql, in, err)
	} else if !bytes.Equal(b, want.binary) {
		t.Errorf("%s %q: binary %x, want %x", c.sql, in, b, want.binary)
	}
}

// TestAgainstPostgres feeds every type with hostile and random texts, reads what comes out, feeds the binary form (whole,
// cut and mutated) back in, and compares keys with Postgres' equality.
func TestAgainstPostgres(t *testing.T) {
	t.Logf("seed %d", *oracle.Seed)
	for _, sql := range typesUnderTest {
		t.Run(sql, func(t *testing.T) {
			conn := oracle.Connect(t)
			c := newColumn(t, conn, sql)
			rng := rand.New(rand.NewPCG(*oracle.Seed, uint64(len(sql))))
			v := table.NewVec(c.codec.Type())
			var rows []int
			for _, in := range inputs(rng, sql) {
				if row := c.check(t, conn, v, []byte(in), 0, nil); row >= 0 {
					rows = append(rows, row)
				}
			}
			if len(rows) == 0 {
				t.Fatal("no value was taken")
			}
			c.checkBinary(t, conn, v, rows, rng)
			c.checkKeys(t, conn, v, rows, rng)
			c.checkLiteral(t, conn, v, rows)
			t.Logf("%d values taken, Postgres needed %d times", len(rows), needed[sql])
		})
	}
}

func (c *column) checkBinary(t *testing.T, conn *pgconn.PgConn, v *table.Vec, rows []int, rng *rand.Rand) {
	if c.codec.Kept() {
		return
	}
	w := table.NewVec(c.codec.Type())
	for _, row := range rows {
		b, err := c.codec.Binary([]byte{}, v, row)
		if err != nil {
			t.Error(err)
			continue
		}
		c.check(t, conn, w, b, 1, nil)
		if rng.IntN(3) == 0 {
			c.check(t, conn, w, b[:rng.IntN(len(b)+1)], 1, nil)
			c.check(t, conn, w, append(b[:len(b):len(b)], 0), 1, nil)
		}
		if len(b) > 0 && rng.IntN(2) == 0 {
			m := bytes.Clone(b)
			m[rng.IntN(len(m))] ^= byte(1 << rng.IntN(8))
			c.check(t, conn, w, m, 1, nil)
		}
	}
}

// checkLiteral sends all values through unnest of an array literal.
func (c *column) checkLiteral(t *testing.T, conn *pgconn.PgConn, v *table.Vec, rows []int) {
	w := table.NewVec(c.codec.Type())
	for _, row := range rows {
		w.AppendFrom(v, row)
	}
	w.AppendNull()
	lit, err := pgvalue.ArrayLiteral(nil, w, nil, c.codec)
	if err != nil {
		t.Error(err)
		return
	}
	r := conn.ExecParams(t.Context(), "select x::"+c.sql+" from unnest($1::text[]) with ordinality u(x, n) order by n",
		[][]byte{lit}, nil, nil, nil).Read()
	if r.Err != nil || len(r.Rows) != w.Len {
		t.Fatalf("unnest: %d rows of %d, %v", len(r.Rows), w.Len, r.Err)
	}
	for i := range w.Len - 1 {
		got, _ := c.codec.Text(nil, w, i, nil)
		if !bytes.Equal(got, r.Rows[i][0]) {
			t.Errorf("literal: row %d is %q, want %q", i, r.Rows[i][0], got)
		}
	}
	if r.Rows[w.Len-1][0] != nil {
		t.Errorf("literal: NULL came back as %q", r.Rows[w.Len-1][0])
	}
}

// checkKeys compares the equality of keys with Postgres' for all pairs.
func (c *column) checkKeys(t *testing.T, conn *pgconn.PgConn, v *table.Vec, rows []int, rng *rand.Rand) {
	if !pgvalue.KeyOK(c.oid) {
		return
	}
	rng.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	rows = rows[:min(len(rows), 400)]
	w := table.NewVec(c.codec.Type())
	for _, row := range rows {
		w.AppendFrom(v, row)
	}
	lit, err := pgvalue.ArrayLiteral(nil, w, nil, c.codec)
	if err != nil {
		t.Fatal(err)
	}
	r := conn.ExecParams(t.Context(), `with v as materialized (select x::`+c.sql+` as x, n from unnest($1::text[]) with ordinality u(x, n))
		select a.n, b.n from v a, v b where a.n < b.n and a.x = b.x`, [][]byte{lit}, nil, nil, nil).Read()
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	equal := map[string]bool{}
	for _, row := range r.Rows {
		equal[string(row[0])+" "+string(row[1])] = true
	}
	keys := make([]string, w.Len)
	for i := range keys {
		keys[i] = string(pgvalue.Key(nil, w, i, c.oid))
	}
	for i := range keys {
		for j := i + 1; j < len(keys); j++ {
			if want := equal[fmt.Sprintf("%d %d", i+1, j+1)]; want != (keys[i] == keys[j]) {
				a, _ := c.codec.Text(nil, w, i, nil)
				b, _ := c.codec.Text(nil, w, j, nil)
				t.Errorf("%s: %q = %q is %v in Postgres; keys %x and %x", c.sql, a, b, want, keys[i], keys[j])
			}
		}
	}
}
