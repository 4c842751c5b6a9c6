package pgvalue_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"sluice/sql/pgvalue"
	"sluice/sql/pgvalue/internal/oracle"
	"sluice/writer/table"
)

var settings = []map[string]string{
	{"timezone": "Europe/Berlin"}, {"timezone": "America/New_York"}, {"timezone": "Asia/Kolkata"}, {"timezone": "America/St_Johns"},
	{"timezone": "Pacific/Apia"}, {"timezone": "Europe/Dublin"}, {"timezone": "Africa/Casablanca"}, {"timezone": "Australia/Lord_Howe"},
	{"timezone": "Asia/Kathmandu"}, {"timezone": "Etc/GMT+3"}, {"timezone": "GMT"}, {"timezone": "EST5EDT"}, {"timezone": "America/Sao_Paulo"},
	{"bytea_output": "escape", "extra_float_digits": "0"}, {"extra_float_digits": "-3", "timezone": "Asia/Tokyo"}, {"extra_float_digits": "-15"},
	{"extra_float_digits": "3", "datestyle": "ISO, DMY"}, {"datestyle": "ISO, YMD", "timezone": "Antarctica/Troll"},
}

// TestSettings compares input and output under session settings.
func TestSettings(t *testing.T) {
	t.Logf("seed %d", *oracle.Seed)
	for i, set := range settings {
		t.Run(fmt.Sprint(set), func(t *testing.T) {
			conn := oracle.Connect(t)
			env := pgvalue.DefaultEnv()
			for name, value := range set {
				oracle.Exec(t, conn, "set "+name+" = '"+value+"'")
				env.Set(name, string(oracle.Exec(t, conn, "show "+name)[0][0]))
			}
			rng := rand.New(rand.NewPCG(*oracle.Seed, uint64(i)))
			for _, sql := range []string{"timestamptz", "timestamptz(1)[]", "date", "timestamp", "bytea", "bytea[]", "float8", "float4", "float8[]", "time"} {
				c := newColumn(t, conn, sql)
				v := table.NewVec(c.codec.Type())
				in := inputs(rng, sql)
				rng.Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
				for _, in := range in[:min(len(in), 150)] {
					c.check(t, conn, v, []byte(in), 0, env)
				}
				for range 100 { // around changes of the clock
					in := fmt.Sprintf("%d-%02d-%02d %02d:%02d:%02d", 1850+rng.IntN(250), 1+rng.IntN(12), 1+rng.IntN(28), rng.IntN(24), rng.IntN(60), rng.IntN(60))
					c.check(t, conn, v, []byte(in), 0, env)
				}
			}
		})
	}
}

// TestOtherStyles: what only Postgres prints is never guessed.
func TestOtherStyles(t *testing.T) {
	for _, c := range []struct {
		oid         uint32
		name, value string
		text        string
	}{
		{pgvalue.OIDDate, "DateStyle", "German, DMY", "2020-01-02"},
		{pgvalue.OIDTimestampTZ, "DateStyle", "SQL, MDY", "2020-01-02 03:04:05+00"},
		{pgvalue.OIDTimestampTZ, "TimeZone", "<+02>-02", "2020-01-02 03:04:05+00"},
		{pgvalue.OIDTimestampTZ, "TimeZone", "Local", "2020-01-02 03:04:05+00"},
		{1186, "IntervalStyle", "iso_8601", "1 day"},
		{3910, "TimeZone", "Europe/Berlin", "(,)"},
	} {
		typ, _, _ := pgvalue.Lake(c.oid, -1)
		codec, err := pgvalue.NewCodec(c.oid, -1, typ)
		if err != nil {
			t.Fatal(err)
		}
		v := table.NewVec(typ)
		if err := codec.AppendCanonical(v, []byte(c.text)); err != nil {
			t.Fatal(err)
		}
		env := pgvalue.DefaultEnv()
		if text, err := codec.Text(nil, v, 0, env); err != nil || string(text) != c.text {
			t.Errorf("%d: %q, %v", c.oid, text, err)
		}
		env.Set(c.name, c.value)
		if text, err := codec.Text(nil, v, 0, env); err != pgvalue.ErrNeedPostgres {
			t.Errorf("%d under %s %s: %q, %v", c.oid, c.name, c.value, text, err)
		}
	}
}

// FuzzArray checks that what the array parser takes survives printing.
func FuzzArray(f *testing.F) {
	for _, s := range hostileArrays {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) { survives(t, 1009, s) })
}

// FuzzJSONB checks that the normal form is its own normal form.
func FuzzJSONB(f *testing.F) {
	for _, s := range hostile["jsonb"] {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) { survives(t, pgvalue.OIDJSONB, s) })
}

// FuzzNumeric checks text and binary forms against each other.
func FuzzNumeric(f *testing.F) {
	for _, s := range hostile["numeric"] {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) { survives(t, pgvalue.OIDNumeric, s) })
}

// survives checks that text → vector → text → vector → binary → vector → text stays the same from the first text on.
func survives(t *testing.T, oid uint32, s string) {
	typ, _, _ := pgvalue.Lake(oid, -1)
	c, err := pgvalue.NewCodec(oid, -1, typ)
	if err != nil {
		t.Fatal(err)
	}
	v := table.NewVec(typ)
	if c.AppendText(v, []byte(s), nil) != nil {
		return
	}
	first, err := c.Text(nil, v, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.AppendText(v, first, nil); err != nil {
		t.Fatalf("%q: own text %q: %v", s, first, err)
	}
	bin, err := c.Binary(nil, v, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.AppendBinary(v, bin); err != nil {
		t.Fatalf("%q: own binary %x: %v", s, bin, err)
	}
	for i := 1; i < 3; i++ {
		if text, _ := c.Text(nil, v, i, nil); string(text) != string(first) {
			t.Fatalf("%q: first %q, then %q", s, first, text)
		}
		if string(pgvalue.Key(nil, v, i, oid)) != string(pgvalue.Key(nil, v, 0, oid)) {
			t.Fatalf("%q: keys differ", s)
		}
	}
}
