package pgvalue_test

import (
	"testing"

	"sluice/sql/pgvalue"
	"sluice/writer/table"
)

var benchValues = []struct {
	name   string
	oid    uint32
	typmod int32
	text   string
}{
	{"int4", pgvalue.OIDInt4, -1, "1234567"},
	{"int8", pgvalue.OIDInt8, -1, "123456789012"},
	{"float8", pgvalue.OIDFloat8, -1, "1234.5678"},
	{"text", pgvalue.OIDText, -1, "the quick brown fox"},
	{"timestamptz", pgvalue.OIDTimestampTZ, -1, "2024-05-06 07:08:09.123456+00"},
	{"uuid", pgvalue.OIDUUID, -1, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"},
	{"numeric(18,4)", pgvalue.OIDNumeric, 18<<16 | 4 + 4, "123456.7891"},
	{"numeric(38,10)", pgvalue.OIDNumeric, 38<<16 | 10 + 4, "123456789012.78912"},
	{"numeric", pgvalue.OIDNumeric, -1, "123456.7891"},
	{"jsonb", pgvalue.OIDJSONB, -1, `{"id": 17, "name": "sluice", "tags": ["a", "b"], "price": 12.50}`},
}

const benchLen = 4096

func benchmark(b *testing.B, run func(c *pgvalue.Codec, v *table.Vec, text, bin []byte) error) {
	for _, t := range benchValues {
		b.Run(t.name, func(b *testing.B) {
			typ, _, _ := pgvalue.Lake(t.oid, t.typmod)
			c, err := pgvalue.NewCodec(t.oid, t.typmod, typ)
			if err != nil {
				b.Fatal(err)
			}
			v := table.NewVec(typ)
			if err := c.AppendText(v, []byte(t.text), nil); err != nil {
				b.Fatal(err)
			}
			text := []byte(t.text)
			bin, err := c.Binary(nil, v, 0)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if v.Len == benchLen {
					v.Truncate(1)
				}
				if err := run(c, v, text, bin); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendText(b *testing.B) {
	benchmark(b, func(c *pgvalue.Codec, v *table.Vec, text, _ []byte) error { return c.AppendText(v, text, nil) })
}

func BenchmarkAppendBinary(b *testing.B) {
	benchmark(b, func(c *pgvalue.Codec, v *table.Vec, _, bin []byte) error { return c.AppendBinary(v, bin) })
}

func BenchmarkText(b *testing.B) {
	var dst []byte
	benchmark(b, func(c *pgvalue.Codec, v *table.Vec, _, _ []byte) (err error) {
		dst, err = c.Text(dst[:0], v, 0, nil)
		return err
	})
}

func BenchmarkBinary(b *testing.B) {
	var dst []byte
	benchmark(b, func(c *pgvalue.Codec, v *table.Vec, _, _ []byte) (err error) {
		dst, err = c.Binary(dst[:0], v, 0)
		return err
	})
}

func BenchmarkKey(b *testing.B) {
	var dst []byte
	benchmark(b, func(c *pgvalue.Codec, v *table.Vec, _, _ []byte) error {
		dst = pgvalue.Key(dst[:0], v, 0, c.OID())
		return nil
	})
}
