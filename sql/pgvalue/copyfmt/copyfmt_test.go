package copyfmt_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"sluice/sql/pgvalue"
	"sluice/sql/pgvalue/copyfmt"
	"sluice/sql/pgvalue/internal/oracle"
	"sluice/writer/table"
)

func TestMain(m *testing.M) { oracle.Main(m) }

// relation is a table of the oracle with what a parser needs to fill a batch of it.
type relation struct {
	schema  *table.Schema
	columns []copyfmt.Column
	list    string
}

func newRelation(t *testing.T, conn *pgconn.PgConn, columns string) *relation {
	t.Helper()
	oracle.Exec(t, conn, "drop table if exists t")
	oracle.Exec(t, conn, "create temp table t ("+columns+")")
	r := &relation{schema: &table.Schema{}}
	var names []string
	for i, row := range oracle.Exec(t, conn, "select attname, atttypid, atttypmod from pg_attribute where attrelid = 't'::regclass and attnum > 0 order by attnum") {
		oid, _ := strconv.Atoi(string(row[1]))
		typmod, _ := strconv.Atoi(string(row[2]))
		typ, _, _ := pgvalue.Lake(uint32(oid), int32(typmod))
		codec, err := pgvalue.NewCodec(uint32(oid), int32(typmod), typ)
		if err != nil {
			t.Fatal(err)
		}
		name := string(row[0])
		names = append(names, name)
		r.schema.Columns = append(r.schema.Columns, table.Column{Name: name, Type: typ})
		r.columns = append(r.columns, copyfmt.Column{Name: name, Index: i, Codec: codec})
	}
	r.list = strings.Join(names, ", ")
	return r
}

// parse feeds data in pieces of random size.
func (r *relation) parse(t *testing.T, conn *pgconn.PgConn, o copyfmt.Options, data []byte, rng *rand.Rand) (*table.Batch, error) {
	t.Helper()
	target := copyfmt.Target{Table: "t", Columns: r.columns, Resolve: r.resolver(t, conn)}
	p, err := copyfmt.NewParser(o, target)
	if err != nil {
		return nil, err
	}
	b := table.NewBatch(r.schema)
	most := 1 + rng.IntN(len(data)+5)
	for len(data) > 0 {
		n := min(len(data), 1+rng.IntN(most))
		chunk := bytes.Clone(data[:n])
		err := p.Feed(b, chunk)
		for i := range chunk { // the parser must not keep it
			chunk[i] = '!'
		}
		if err != nil {
			return b, err
		}
		data = data[n:]
	}
	return b, p.End(b)
}

func (r *relation) resolver(t *testing.T, conn *pgconn.PgConn) func(int, []byte) ([]byte, error) {
	return func(col int, text []byte) ([]byte, error) {
		c := r.columns[col].Codec
		res := conn.ExecParams(t.Context(), "select $1", [][]byte{text}, []uint32{c.OID()}, nil, nil).Read()
		var pg *pgconn.PgError
		if errors.As(res.Err, &pg) {
			return nil, &pgvalue.Error{Code: pg.Code, Message: pg.Message, Detail: pg.Detail, Hint: pg.Hint}
		}
		if res.Err != nil {
			return nil, res.Err
		}
		return res.Rows[0][0], nil
	}
}

// show prints the rows of a batch as text for comparison.
func (r *relation) show(t *testing.T, b *table.Batch) (rows []string) {
	t.Helper()
	for i := range b.Rows {
		var row []string
		for _, c := range r.columns {
			v := b.Cols[c.Index]
			if v.Len != b.Rows {
				t.Fatalf("column %s has %d of %d rows", c.Name, v.Len, b.Rows)
			}
			if pgvalue.IsNull(v, i) {
				row = append(row, "NULL")
				continue
			}
			text, err := c.Codec.Text(nil, v, i, nil)
			if err != nil {
				t.Fatal(err)
			}
			row = append(row, strconv.Quote(string(text)))
		}
		rows = append(rows, strings.Join(row, " "))
	}
	return rows
}

func showRows(in [][][]byte) (rows []string) {
	for _, r := range in {
		var row []string
		for _, v := range r {
			if v == nil {
				row = append(row, "NULL")
			} else {
				row = append(row, strconv.Quote(string(v)))
			}
		}
		rows = append(rows, strings.Join(row, " "))
	}
	return rows
}

// compare feeds both with data and compares rows or errors.
func (r *relation) compare(t *testing.T, conn *pgconn.PgConn, o copyfmt.Options, data []byte, rng *rand.Rand) {
	t.Helper()
	oracle.Exec(t, conn, "truncate t")
	_, pgErr := conn.CopyFrom(t.Context(), bytes.NewReader(data), "copy t from stdin "+optionList(o, true))
	b, err := r.parse(t, conn, o, data, rng)
	if pgErr != nil || err != nil {
		compareErrors(t, o, data, err, pgErr)
		return
	}
	want := showRows(oracle.Exec(t, conn, "select * from t"))
	if got := r.show(t, b); !equal(got, want) {
		t.Errorf("%s %q:\n got %q\nwant %q", optionList(o, true), data, got, want)
	}
}

func compareErrors(t *testing.T, o copyfmt.Options, data []byte, err, pgErr error) {
	t.Helper()
	var got *pgvalue.Error
	var want *pgconn.PgError
	if !errors.As(err, &got) || !errors.As(pgErr, &want) {
		t.Errorf("%s %q:\n got error %v\nwant error %v", optionList(o, true), data, err, pgErr)
		return
	}
	if strings.HasPrefix(want.Where, "JSON data") {
		want.Where = want.Where[strings.Index(want.Where, "COPY"):]
	}
	if want.Code == "22021" && (got.Code != want.Code || strings.HasPrefix(want.Message, got.Message)) {
		return // Postgres checks the encoding ahead of the line it reads, by whole buffers
	}
	if got.Code != want.Code || got.Message != want.Message || got.Detail != want.Detail || got.Hint != want.Hint || got.Context != want.Where {
		t.Errorf("%s %q:\n got %s %s | %s | %s | %s\nwant %s %s | %s | %s | %s", optionList(o, true), data,
			got.Code, got.Message, got.Detail, got.Hint, got.Context, want.Code, want.Message, want.Detail, want.Hint, want.Where)
	}
}

func equal(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func literal(s string) string {
	return "E'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\t", `\t`, "\n", `\n`, "\r", `\r`).Replace(s) + "'"
}

// optionList prints the options as SQL.
func optionList(o copyfmt.Options, from bool) string {
	l := []string{"format " + [...]string{"text", "csv", "binary"}[o.Format]}
	add := func(name, value string) {
		if value != "" {
			l = append(l, name+" "+literal(value))
		}
	}
	add("delimiter", o.Delimiter)
	add("quote", o.Quote)
	add("escape", o.Escape)
	if o.Null != nil {
		l = append(l, "null "+literal(*o.Null))
	}
	if o.Header != copyfmt.NoHeader {
		l = append(l, "header "+[...]string{"", "true", "match"}[o.Header])
	}
	if o.ForceQuoteAll {
		l = append(l, "force_quote *")
	}
	for name, cols := range map[string][]string{"force_quote": o.ForceQuote, "force_not_null": o.ForceNotNull, "force_null": o.ForceNull} {
		if len(cols) > 0 {
			l = append(l, name+" ("+strings.Join(cols, ",")+")")
		}
	}
	return "(" + strings.Join(l, ", ") + ")"
}

func str(s string) *string { return &s }

var optionSets = []copyfmt.Options{
	{}, {Header: copyfmt.WithHeader}, {Header: copyfmt.MatchHeader}, {Delimiter: "|"}, {Null: str("")}, {Null: str("NULL"), Delimiter: ","},
	{Format: copyfmt.CSV}, {Format: copyfmt.CSV, Header: copyfmt.WithHeader}, {Format: copyfmt.CSV, Header: copyfmt.MatchHeader},
	{Format: copyfmt.CSV, Delimiter: ";", Null: str(`\N`)}, {Format: copyfmt.CSV, Quote: "'"}, {Format: copyfmt.CSV, Escape: `\`},
	{Format: copyfmt.CSV, Quote: "'", Escape: `"`, Delimiter: "|"}, {Format: copyfmt.CSV, ForceNotNull: []string{"b"}, ForceNull: []string{"a", "c"}},
	{Format: copyfmt.CSV, Null: str("x"), ForceNull: []string{"b"}, ForceNotNull: []string{"c"}},
}

var hostileData = []string{
	"", "\n", "1\tx\t2\n", "1\tx\t2", "1\tx\t2\n\\.\n", "1\tx\t2\n\\.\njunk", "1\tx\n", "1\n", "\n\n", "1\tx\t2\t3\n", "1\tx\t2\t\n", "abc\tx\t2\n",
	"1\tx\t2\nabc\tx\t2\n", "1\tx\t2\n2\tx\t99999\n", "abc\tx\n", "abc\tx\t2\t4\n", "\\N\t\\N\t\\N\n", "1\t\\\\N\t2\n", "1\t\\\\\t2\n", "1\ta\\tb\\nc\\rd\\be\\ff\\vg\t2\n",
	"1\t\\101\\x41\\x4g\\xg\\8\\777\t2\n", "1\t\\xff\t2\n", "1\t\\0\t2\n", "1\t\\xc3\\xa4\t2\n", "1\ta\\\nb\t2\n", "1\ta\\\tb\t2\n", "1\tx\t2\r\n2\ty\t3\r\n",
	"1\tx\t2\r\n2\ty\t3\n", "1\tx\t2\n2\ty\t3\r\n", "1\tx\t2\r2\ty\t3\r", "1\tx\t2\r2\ty\t3\n", "1\tx\t2\r\n2\ty\r\t3\r\n", "1\tx\t2\n2\ta\rb\t3\n", "1\tx\\.\t2\n",
	"1\tx\t2\\.\n", "\\.\n", "\\.", "1\tx\t2\n\\.", "1\tx\t2\n\\.x\n", "1\tx\t2\r\n\\.\n", "1\tx\t2\r\n\\.\r\n", "1\tx\t2\n\\.\r\n", "1\tx\t2\r\\.\r", "1\tx\t2\r\\.\n",
	"1\t\xff\t2\n", "1\ta\x00b\t2\n", "\xff\tx\t2\n", "a\\\\\xff\n", "1\tx\t2\\", "1\tx\t\\N\\", "1\tx\\", "a\tb\tc\n1\tx\t2\n", "a\tb\n", "a\tb\tc\td\n", "a\tB\tc\n", "a\t\\N\tc\n", "a\tb\tc",
	"1\t" + strings.Repeat("ä", 80) + "\tbad\n", "1\t2\t" + strings.Repeat("x", 200) + "\n", "1\t" + strings.Repeat("y", 5000) + "\t2\n",
	"1,x,2\n", "1,\"x\",2\n", "\"1\",\"x\",\"2\"\n", "1,\"a\"\"b\",2\n", "1,\"a\nb\",2\n3,y,bad\n", "1,\"a\r\nb\",2\n3,y,bad\n", "1,\"a\r\nb\",2\r\n3,y,bad\r\n", "1,\"a\n\n\nb,2\n", "1,\"abc", "1,\"x\"y,2\n",
	"1,x\"y\"z,2\n", "1,\"\",2\n", "1,,2\n", ",,\n", "\"\",\"\",\"\"\n", "1,x,2\n\\.\n", "1,\\.,2\n", "\\.,x,2\n", "\\.x\n", "1,x,2\n\\.\r\n", "1,x,2\r\n\\.\n", "1,x,2\r\n\\.\r\n", "\\.", "1,x,2\n\\.", "a,b,c\n1,x,2\n", "a,b\n", ",b,c\n",
	"1,x,2\r\n2,y\r,3\r\n", "1,x,2\n2,y\r,3\n", "1,x,2\r\n2,y,3\n", "1,x,2,3\n", "1,x\n", "1,x,abc\n", "'1','x''y','2'\n", "1,'a\\'b',2\n", "1,\"a\\\"b\",2\n", "1,\"a\\\\\",2\n", "1,\"a\\b\",2\n", "1,\"a\\\",2\n", "1;x;2\n", "\\N;\\N;\\N\n",
	"1|'a\"'b'|2\n", "1|'a\"\"b'|2\n", "1|x|2\n", "\"x\",\"x\",x\n", "1,NULL,2\n", "NULL,NULL,NULL\n", "1,\"a\tb\",2\n", "1,\xff,2\n", "1,\"\xff\n\",2\n", "1,\"a\rb\",2\r3,y,bad\r", "1,x,2\n\n3,y,4\n", "1,x,999.999\n", "1,x,NaN\n", " 1 , x , 2 \n",
	"1\tx\t2\n\r\n", "1\t\t\n", "\t\t\n", "||\n", "1|\\||2\n", "1,\\,,2\n",
}

// TestAgainstPostgres feeds hostile and random data in all option sets to Postgres and to the parser, in random pieces.
func TestAgainstPostgres(t *testing.T) {
	t.Logf("seed %d", *oracle.Seed)
	conn := oracle.Connect(t)
	r := newRelation(t, conn, "a int, b text, c numeric(5,2)")
	rng := rand.New(rand.NewPCG(*oracle.Seed, 1))
	for _, o := range optionSets {
		for _, data := range hostileData {
			r.compare(t, conn, o, []byte(data), rng)
			r.compare(t, conn, o, []byte(mutate(rng, data)), rng)
		}
		for range 100 {
			r.compare(t, conn, o, randomData(rng, o), rng)
		}
	}
}

// TestNumbersAgainstPostgres is about the shortcuts for numbers and timestamps, with delimiters that occur in them.
func TestNumbersAgainstPostgres(t *testing.T) {
	t.Logf("seed %d", *oracle.Seed)
	conn := oracle.Connect(t)
	r := newRelation(t, conn, "a bigint, b double precision, c timestamptz, d timestamp(2), e int")
	rng := rand.New(rand.NewPCG(*oracle.Seed, 4))
	sets := []copyfmt.Options{{}, {Delimiter: "|"}, {Delimiter: ":"}, {Delimiter: "-"}, {Delimiter: " "}, {Null: str("0")}, {Null: str("-1")},
		{Format: copyfmt.CSV}, {Format: copyfmt.CSV, Delimiter: "."}, {Format: copyfmt.CSV, Delimiter: "5"}, {Format: copyfmt.CSV, Quote: "1"},
		{Format: copyfmt.CSV, Quote: "-"}, {Format: copyfmt.CSV, Delimiter: "+"}, {Format: copyfmt.CSV, Delimiter: "T"}, {Format: copyfmt.CSV, Null: str("7")}}
	for _, o := range sets {
		for range 60 {
			r.compare(t, conn, o, randomNumbers(rng, o), rng)
		}
	}
}

func randomNumbers(rng *rand.Rand, o copyfmt.Options) []byte {
	var b bytes.Buffer
	delim := o.Delimiter
	if delim == "" {
		delim = map[copyfmt.Format]string{copyfmt.Text: "\t", copyfmt.CSV: ","}[o.Format]
	}
	ints := []string{"0", "7", "-1", "5", "-0", "+3", "9223372036854775807", "9223372036854775808", "123456789012345678", "2147483648", " 1", "1x", "", "1.5"}
	floats := []string{"1.5", "-0.25", "1e5", "123456789.123456789", "12345678901234567", "9007199254740993", ".5", "5.", "0.1234567890123", "-7", "1.2.3", "NaN", "0"}
	stamps := []string{"2024-02-29 01:02:03", "2024-02-29T01:02:03.5", "2024-02-29 01:02:03.123456+00", "2024-02-30 01:02:03", "0000-01-01 00:00:00", "infinity",
		"2024-02-29 01:02:03+0530", "1999-12-31 23:59:59.999", "2024-02-29 24:00:00", "2024-02-29 01:02:03.", "2024-02-29", "2024-02-29 01:02:03.1234567"}
	for range 1 + rng.IntN(6) {
		for i, of := range [][]string{ints, floats, stamps, stamps, ints} {
			if i > 0 {
				b.WriteString(delim)
			}
			n := len(of)
			if rng.IntN(8) > 0 {
				n = 3
			}
			b.WriteString(of[rng.IntN(n)])
		}
		b.WriteString("\n")
	}
	return b.Bytes()
}

// randomData is lines of random fields, most of them right.
func randomData(rng *rand.Rand, o copyfmt.Options) []byte {
	var b bytes.Buffer
	delim, quote := o.Delimiter, o.Quote
	if delim == "" {
		delim = map[copyfmt.Format]string{copyfmt.Text: "\t", copyfmt.CSV: ","}[o.Format]
	}
	if quote == "" {
		quote = `"`
	}
	end := []string{"\n", "\n", "\r\n", "\r"}[rng.IntN(4)]
	if o.Header != copyfmt.NoHeader {
		b.WriteString("a" + delim + "b" + delim + "c" + end)
	}
	for range rng.IntN(8) {
		for i := range 3 {
			if i > 0 {
				b.WriteString(delim)
			}
			s := randomField(rng, i)
			if o.Format == copyfmt.CSV && rng.IntN(2) == 0 {
				s = quote + strings.ReplaceAll(s, quote, quote+quote) + quote
			}
			b.WriteString(s)
		}
		b.WriteString(end)
	}
	return b.Bytes()
}

func randomField(rng *rand.Rand, i int) string {
	switch rng.IntN(12) {
	case 0:
		return `\N`
	case 1:
		return ""
	}
	switch i {
	case 0:
		return strconv.Itoa(int(rng.Int32()) >> rng.IntN(32))
	case 2:
		return strconv.FormatFloat(float64(rng.IntN(200000)-100000)/100, 'f', rng.IntN(4), 64)
	}
	alphabet := []string{"a", "b", " ", `\\`, `\n`, `\t`, "ä", "日", `"`, "'", ",", `\`, "😀", `\x41`, "|", "xyzxyzxyz"}
	var b strings.Builder
	for range rng.IntN(8) {
		b.WriteString(alphabet[rng.IntN(len(alphabet))])
	}
	return b.String()
}

func mutate(rng *rand.Rand, s string) string {
	if s == "" {
		return s
	}
	i := rng.IntN(len(s))
	switch rng.IntN(3) {
	case 0:
		return s[:i] + s[i+1:]
	case 1:
		return s[:i] + s[i:i+1] + s[i:]
	}
	return s[:i] + string("\t\n\r\\.\",'0N|"[rng.IntN(11)]) + s[i+1:]
}
