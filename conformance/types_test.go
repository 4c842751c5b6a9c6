package conformance_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"sluice/conformance/harness"
)

var typeRows = flag.Int("type-rows", 5, "rows of TestTypesRoundTrip")

// TestTypesRoundTrip writes random values of every type by INSERT, COPY and parameters, each in text and in binary, and reads them back in every form from
// memory, from files, and after a kill. A real Postgres says which values there are and how they look; every byte has to be the same.
func TestTypesRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(seedOf(t), 1))
	g := harness.StartGateway(t, harness.Options{})
	ref := connect(t, harness.NewPair(t).Ref.DSN)
	defer ref.Close(t.Context())
	v := &values{t: t, rng: rng, ref: ref}
	v.make(*typeRows)
	got := connect(t, g.DSN())
	v.setUp(got, "")
	v.write(got)
	v.compare(got, "in memory")
	if _, err := got.Exec(t.Context(), "select sluice.flush()").ReadAll(); err != nil {
		t.Fatal(err)
	}
	v.compare(got, "in files")
	got.Close(t.Context())
	g.Kill()
	if err := g.Start(); err != nil {
		t.Fatal(err)
	}
	got = connect(t, g.DSN())
	defer got.Close(t.Context())
	v.compare(got, "after a kill")
}

func connect(t *testing.T, dsn string) *pgconn.PgConn {
	t.Helper()
	c, err := pgconn.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// typed is a type and a maker of literals, some of which Postgres may refuse.
type typed struct {
	name string
	make func(*rand.Rand) string
}

// values is the same rows on both servers.
type values struct {
	t        *testing.T
	rng      *rand.Rand
	ref      *pgconn.PgConn
	literals [][]*string // of rows, of allTypes
	forms    map[string][]byte
	own      map[*pgconn.PgConn][][]byte // oids of the test's types
}

var copyForms = []string{"text", "csv", "binary"}

// ways is how rows get into the gateway, each into a table of its own.
var ways = []string{"literals", "statement", "copy_text", "copy_csv", "copy_binary", "text", "binary"}

// exec runs a statement that has to succeed.
func (v *values) exec(c *pgconn.PgConn, sql string) []*pgconn.Result {
	v.t.Helper()
	r, err := c.Exec(v.t.Context(), sql).ReadAll()
	if err != nil {
		v.t.Fatalf("%.200s: %v", sql, err)
	}
	return r
}

// setUp makes the types and the tables.
func (v *values) setUp(c *pgconn.PgConn, only string) {
	v.exec(c, `create type tmood as enum ('sad', 'ok', 'very "happy"'); create type tpair as (a int, b text, c numeric(6,2)); create domain tpos as numeric(8,2) check (value > 0)`)
	var columns []string
	for i, t := range allTypes {
		columns = append(columns, fmt.Sprintf("c%d %s", i, t.name))
	}
	for _, way := range ways {
		if only == "" || only == way {
			v.exec(c, fmt.Sprintf("create table tt_%s (id int primary key, %s)", way, strings.Join(columns, ", ")))
		}
	}
}

// make draws rows that Postgres takes, and has it print them.
func (v *values) make(rows int) {
	v.setUp(v.ref, "literals")
	for range rows {
		row := make([]*string, len(allTypes))
		for i, t := range allTypes {
			row[i] = v.draw(t)
		}
		v.literals = append(v.literals, row)
	}
	v.exec(v.ref, v.insert("literals"))
	v.forms = map[string][]byte{}
	for _, form := range copyForms {
		v.forms[form] = v.copyOut(v.ref, "literals", form)
	}
}

func (v *values) draw(t typed) *string {
	for range 6 {
		if v.rng.IntN(12) == 0 {
			return nil
		}
		s := t.make(v.rng)
		if _, err := v.ref.Exec(v.t.Context(), "select "+quoted(s)+"::"+t.name).ReadAll(); err == nil {
			return &s
		}
	}
	return nil
}

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func (v *values) insert(way string) string {
	var rows []string
	for id, row := range v.literals {
		values := []string{fmt.Sprint(id)}
		for _, s := range row {
			if s == nil {
				values = append(values, "null")
			} else {
				values = append(values, quoted(*s))
			}
		}
		rows = append(rows, "("+strings.Join(values, ", ")+")")
	}
	return "insert into tt_" + way + " values " + strings.Join(rows, ",\n")
}

// write fills the gateway's tables.
func (v *values) write(c *pgconn.PgConn) {
	v.exec(c, v.insert("literals"))
	v.exec(c, "insert into tt_statement select * from tt_literals where id + 0 >= 0")
	for _, form := range copyForms {
		if _, err := c.CopyFrom(v.t.Context(), bytes.NewReader(v.forms[form]), "copy tt_copy_"+form+" from stdin (format "+form+")"); err != nil {
			v.t.Fatalf("copy from %s: %v", form, err)
		}
	}
	for _, way := range []string{"text", "binary"} {
		v.bind(c, way)
	}
}

// bind inserts row by row with parameters.
func (v *values) bind(c *pgconn.PgConn, way string) {
	marks := []string{"$1"}
	for i := range allTypes {
		marks = append(marks, fmt.Sprintf("$%d", i+2))
	}
	rows := fields(v.forms["binary"])
	if way == "text" {
		rows = v.texts()
	}
	if _, err := c.Prepare(v.t.Context(), way, "insert into tt_"+way+" values ("+strings.Join(marks, ", ")+")", nil); err != nil {
		v.t.Fatal(err)
	}
	formats := []int16{0}
	if way == "binary" {
		formats = []int16{1}
	}
	for _, row := range rows {
		if r := c.ExecPrepared(v.t.Context(), way, row, formats, nil).Read(); r.Err != nil {
			v.t.Fatalf("%s parameters: %v", way, r.Err)
		}
	}
}

func (v *values) texts() (rows [][][]byte) {
	for id, literals := range v.literals {
		row := [][]byte{fmt.Append(nil, id)}
		for _, s := range literals {
			if s == nil {
				row = append(row, nil)
			} else {
				row = append(row, []byte(*s))
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// fields takes COPY's binary form apart.
func fields(b []byte) (rows [][][]byte) {
	b = b[19:]
	for {
		n := int16(binary.BigEndian.Uint16(b))
		if b = b[2:]; n < 0 {
			return rows
		}
		var row [][]byte
		for range n {
			size := int32(binary.BigEndian.Uint32(b))
			if b = b[4:]; size < 0 {
				row = append(row, nil)
				continue
			}
			row, b = append(row, b[:size:size]), b[size:]
		}
		rows = append(rows, row)
	}
}

func (v *values) copyOut(c *pgconn.PgConn, way, form string) []byte {
	v.t.Helper()
	var out bytes.Buffer
	if _, err := c.CopyTo(v.t.Context(), &out, "copy (select * from tt_"+way+" order by id) to stdout (format "+form+")"); err != nil {
		v.t.Fatalf("copy tt_%s to %s: %v", way, form, err)
	}
	return out.Bytes()
}

// compare reads every table in every form, and as the rows of queries.
func (v *values) compare(c *pgconn.PgConn, when string) {
	v.t.Helper()
	for _, way := range ways {
		for _, form := range copyForms {
			got := v.copyOut(c, way, form)
			if form == "binary" {
				if d := difference(v.anonymous(c, fields(got)), v.anonymous(v.ref, fields(v.forms[form]))); d != "" {
					v.t.Errorf("%s, written by %s, read by COPY in binary: %s", when, way, d)
				}
			} else if !bytes.Equal(got, v.forms[form]) {
				v.t.Errorf("%s, written by %s, read by COPY in %s: other bytes", when, way, form)
			}
		}
		for _, format := range []int16{0, 1} {
			if d := difference(v.rows(c, way, format), v.rows(v.ref, "literals", format)); d != "" {
				v.t.Errorf("%s, written by %s, read in format %d: %s", when, way, format, d)
			}
		}
	}
}

func (v *values) rows(c *pgconn.PgConn, way string, format int16) [][][]byte {
	v.t.Helper()
	r := c.ExecParams(v.t.Context(), "select * from tt_"+way+" order by id", nil, nil, nil, []int16{format}).Read()
	if r.Err != nil {
		v.t.Fatal(r.Err)
	}
	return v.anonymous(c, r.Rows)
}

// anonymous puts 0 for the oids of the test's own types, which arrays of them have in their binary form.
func (v *values) anonymous(c *pgconn.PgConn, rows [][][]byte) [][][]byte {
	if v.own == nil {
		v.own = map[*pgconn.PgConn][][]byte{}
	}
	if v.own[c] == nil {
		for _, row := range v.exec(c, "select oid from pg_type where typname in ('tmood', 'tpair', 'tpos')")[0].Rows {
			oid, _ := strconv.ParseUint(string(row[0]), 10, 32)
			v.own[c] = append(v.own[c], binary.BigEndian.AppendUint32(nil, uint32(oid)))
		}
	}
	for _, row := range rows {
		for i, t := range allTypes {
			for _, oid := range v.own[c] {
				if strings.HasPrefix(t.name, "t") && strings.HasSuffix(t.name, "[]") {
					row[i+1] = bytes.ReplaceAll(row[i+1], oid, make([]byte, 4))
				}
			}
		}
	}
	return rows
}

// difference is the first value of each type that differs.
func difference(got, want [][][]byte) string {
	var out []string
	for i := range allTypes {
		for row := range want {
			if row >= len(got) {
				return fmt.Sprintf("%d rows instead of %d", len(got), len(want))
			}
			if g, w := got[row][i+1], want[row][i+1]; !bytes.Equal(g, w) || (g == nil) != (w == nil) {
				out = append(out, fmt.Sprintf("\n%s: %q (%s) instead of %q (%s)", allTypes[i].name, g, hex.EncodeToString(g), w, hex.EncodeToString(w)))
				break
			}
		}
	}
	return strings.Join(out, "")
}

func one(list ...string) func(*rand.Rand) string {
	return func(r *rand.Rand) string { return list[r.IntN(len(list))] }
}

// or draws from edges now and then.
func or(fn func(*rand.Rand) string, edges ...string) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		if r.IntN(3) == 0 {
			return edges[r.IntN(len(edges))]
		}
		return fn(r)
	}
}

func integers(bits int) func(*rand.Rand) string {
	return or(func(r *rand.Rand) string { return fmt.Sprint(int64(r.Uint64()) >> (64 - bits) >> r.IntN(bits)) },
		"0", "-1", fmt.Sprint(int64(math.MaxInt64)>>(64-bits)), fmt.Sprint(int64(math.MinInt64)>>(64-bits)))
}

func decimals(digits, scale int) func(*rand.Rand) string {
	return or(func(r *rand.Rand) string {
		var b strings.Builder
		b.WriteString([]string{"", "-"}[r.IntN(2)])
		for range 1 + r.IntN(digits-scale) {
			b.WriteByte(byte('0' + r.IntN(10)))
		}
		if n := r.IntN(scale + 1); n > 0 {
			b.WriteByte('.')
			for range n {
				b.WriteByte(byte('0' + r.IntN(10)))
			}
		}
		return b.String()
	}, "0", "-0.0", "NaN", "1", "10000", "0.0001", "-9999", "1e3")
}

func floats(bits int) func(*rand.Rand) string {
	return or(func(r *rand.Rand) string {
		if bits == 32 {
			return fmt.Sprint(math.Float32frombits(r.Uint32()))
		}
		return fmt.Sprint(math.Float64frombits(r.Uint64()))
	}, "NaN", "Infinity", "-Infinity", "-0", "0", "1e-45", "0.1", "1e15", "123456789012345678")
}

var alphabet = []rune("aZ09 _'\"\\,;{}()[]<>\t\n\r\b\f\v|%$€éß語𝄞\u200b\u0301é.\x01\x7f")

func texts(most int) func(*rand.Rand) string {
	return or(func(r *rand.Rand) string {
		var b strings.Builder
		for range r.IntN(most + 1) {
			b.WriteRune(alphabet[r.IntN(len(alphabet))])
		}
		return b.String()
	}, "", " ", "NULL", "null", `\N`, `\.`, "a", "  trailing  "[:min(12, most)])
}

func bits(most int, exact bool) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		n := most
		if !exact {
			n = r.IntN(most + 1)
		}
		var b strings.Builder
		for range n {
			b.WriteByte(byte('0' + r.IntN(2)))
		}
		return b.String()
	}
}

func random(n int) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return hex.EncodeToString(b)
	}
}

func dates(r *rand.Rand) string {
	era := ""
	if r.IntN(5) == 0 {
		era = " BC"
	}
	return fmt.Sprintf("%04d-%02d-%02d%s", 1+r.IntN([]int{2100, 4700, 9999, 294000}[r.IntN(4)]), 1+r.IntN(12), 1+r.IntN(28), era)
}

func times(r *rand.Rand) string {
	return fmt.Sprintf("%02d:%02d:%02d.%06d", r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(1000000))
}

func zoned(r *rand.Rand) string {
	return fmt.Sprintf("%s%+03d:%02d", times(r), r.IntN(28)-14, []int{0, 30, 45}[r.IntN(3)])
}

// moments puts the time before the era.
func moments(time func(*rand.Rand) string) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		d, bc := strings.CutSuffix(dates(r), " BC")
		if bc {
			return d + " " + time(r) + " BC"
		}
		return d + " " + time(r)
	}
}

func intervals(r *rand.Rand) string {
	return fmt.Sprintf("%d mons %d days %d us", r.IntN(4000)-2000, r.IntN(4000)-2000, r.Int64N(1<<50)-1<<49)
}

func documents(r *rand.Rand) string { return document(r, 3) }

func document(r *rand.Rand, depth int) string {
	switch n := r.IntN(8); {
	case n < 2 && depth > 0:
		var items []string
		for range r.IntN(4) {
			items = append(items, fmt.Sprintf("%q :%s", string(rune('a'+r.IntN(5))), document(r, depth-1)))
		}
		return "{" + strings.Join(items, ",  ") + "}"
	case n < 4 && depth > 0:
		var items []string
		for range r.IntN(4) {
			items = append(items, document(r, depth-1))
		}
		return "[" + strings.Join(items, " ,") + "]"
	case n < 6:
		return one("1", "-0", "1.50", "1e5", "12345678901234567890.123", "0.00001")(r)
	}
	return one("null", "true", "false", `"é\u00e9\n"`, `"\ud834\udd1e"`, `""`, `"a\"b\\"`)(r)
}

// arrays makes arrays of one or two dimensions, some with NULLs and bounds of their own.
func arrays(fn func(*rand.Rand) string) func(*rand.Rand) string {
	return or(func(r *rand.Rand) string {
		n, m := 1+r.IntN(3), 1+r.IntN(3)
		list := func(n int) string {
			var items []string
			for range n {
				if r.IntN(5) == 0 {
					items = append(items, "NULL")
				} else {
					items = append(items, `"`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(fn(r))+`"`)
				}
			}
			return "{" + strings.Join(items, ",") + "}"
		}
		switch r.IntN(4) {
		case 0:
			var items []string
			for range n {
				items = append(items, list(m))
			}
			return "{" + strings.Join(items, ",") + "}"
		case 1:
			return fmt.Sprintf("[%d:%d]=%s", r.IntN(5)-2, 0, list(1)) // most are refused
		}
		return list(n)
	}, "{}", "{NULL}", "[0:0]={NULL}")
}

func ranges(fn func(*rand.Rand) string) func(*rand.Rand) string {
	return or(func(r *rand.Rand) string {
		bound := func() string { return `"` + fn(r) + `"` }
		return one("[", "(")(r) + bound() + "," + bound() + one("]", ")")(r)
	}, "empty", "(,)", "[,)")
}

func points(n int, open, close string) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		var items []string
		for range n {
			items = append(items, fmt.Sprintf("(%v,%v)", r.IntN(100)-50, float64(r.IntN(1000))/7))
		}
		return open + strings.Join(items, ",") + close
	}
}

// allTypes is every type that a column may have and that Postgres can send in binary.
var allTypes = []typed{
	{"boolean", one("t", "f", "yes", "off", " TRUE ")}, {"smallint", integers(16)}, {"integer", integers(32)}, {"bigint", integers(64)},
	{"real", floats(32)}, {"double precision", floats(64)}, {"numeric", decimals(60, 30)}, {"numeric(9,2)", decimals(9, 2)}, {"numeric(38,10)", decimals(38, 10)},
	{"numeric(60,20)", decimals(60, 20)}, {"numeric(5,-2)", decimals(7, 2)}, {"text", texts(30)}, {"varchar", texts(10)}, {"varchar(12)", texts(12)}, {"char(6)", texts(6)},
	{`"char"`, or(one("a", "\x7f", "é"), "")}, {"name", texts(20)}, {"bytea", func(r *rand.Rand) string { return `\x` + random(r.IntN(20))(r) }}, {"uuid", random(16)},
	{"date", or(dates, "infinity", "-infinity", "0001-01-01", "9999-12-31", "4713-01-01 BC")}, {"time", or(times, "24:00:00", "00:00:00")}, {"time(2)", times},
	{"timetz", or(zoned, "24:00:00+15:59")}, {"timestamp", or(moments(times), "infinity", "-infinity")}, {"timestamp(3)", moments(times)},
	{"timestamptz", or(moments(zoned), "infinity", "-infinity", "0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00")},
	{"interval", or(intervals, "0", "1 year 2 mons -3 days 04:05:06.789", "178000000 years")}, {"interval day to second(2)", intervals}, {"json", documents}, {"jsonb", documents},
	{"xml", one("<a/>", "<a>é &amp; <b c=\"d\"/></a>", "text")}, {"inet", one("10.1.2.3", "10.1.2.3/8", "::1", "2001:db8::1/32", "0.0.0.0/0")}, {"cidr", one("10.0.0.0/8", "2001:db8::/32", "1.2.3.4")},
	{"macaddr", random(6)}, {"macaddr8", random(8)}, {"bit(7)", bits(7, true)}, {"bit varying(11)", bits(11, false)}, {"varbit", bits(40, false)}, {"money", decimals(12, 2)},
	{"tmood", one("sad", "ok", `very "happy"`)}, {"tpair", one("(1,a,1.5)", `(,"b ""c"" \\",)`, "(,,)", `(7,"",-9999.99)`)}, {"tpos", decimals(8, 2)},
	{"int4range", ranges(integers(8))}, {"numrange", ranges(decimals(10, 3))}, {"daterange", ranges(dates)}, {"tstzrange", ranges(moments(zoned))}, {"int8multirange", one("{}", "{[1,3),[5,9)}", "{(,)}", "{[7,7]}")},
	{"point", points(1, "", "")}, {"lseg", points(2, "[", "]")}, {"box", points(2, "", "")}, {"path", points(3, "[", "]")}, {"polygon", points(4, "(", ")")}, {"circle", one("<(1,2),3>", "<(0.1,-7),0>")}, {"line", one("{1,-1,0}", "{0.5,2,3}")},
	{"tsvector", one("", "'a':1A 'fat':2,3", "'don''t'")}, {"tsquery", one("'fat' & !'rat'", "'a':*B <-> 'b'")}, {"oid", integers(31)}, {"regclass", one("pg_class", "12345", "-")}, {"regtype", one("integer", "text[]", "numeric")},
	{"pg_lsn", one("0/0", "16/B374D848")}, {"xid", one("0", "4294967295")}, {"xid8", one("18446744073709551615")}, {"cid", one("7")}, {"tid", one("(1,2)")}, {"pg_snapshot", one("10:20:10,14")}, {"refcursor", texts(8)}, {"jsonpath", one("$", `$."a"[*]?(@ > 1)`)},
	{"int2vector", one("1 2 -3")}, {"oidvector", one("1 2")},
	{"boolean[]", arrays(one("t", "f"))}, {"int[]", arrays(integers(32))}, {"bigint[]", arrays(integers(64))}, {"float8[]", arrays(floats(64))}, {"numeric[]", arrays(decimals(20, 5))}, {"text[]", arrays(texts(8))}, {"varchar(5)[]", arrays(texts(5))},
	{"uuid[]", arrays(random(16))}, {"bytea[]", arrays(func(r *rand.Rand) string { return `\x` + random(3)(r) })}, {"date[]", arrays(or(dates, "infinity"))}, {"timestamptz[]", arrays(moments(zoned))}, {"jsonb[]", arrays(documents)}, {"tmood[]", arrays(one("sad", "ok"))},
	{"tpair[]", arrays(one("(1,a,1.5)"))}, {"inet[]", arrays(one("10.1.2.3"))}, {"point[]", arrays(points(1, "", ""))}, {"int4range[]", arrays(ranges(integers(8)))}, {"interval[]", arrays(intervals)}, {"tpos[]", arrays(decimals(8, 2))}, {"box[]", one("{(1,1),(0,0);(2,2),(1,1)}", "{}")},
}
