package iceberg_test

import (
	"encoding/hex"
	"fmt"
	"testing"

	"sluice/writer/datafile"
	"sluice/writer/format/iceberg"
	"sluice/writer/table"
)

// TestBuckets has the hashes that the Iceberg specification gives for each type (Appendix B, 32-bit hash requirements): a value's bucket
// is (hash & 2^31-1) mod n. It depends on nothing else, so a key's bucket is the same everywhere and after any restart.
//
// claims: M8
func TestBuckets(t *testing.T) {
	raw, err := hex.DecodeString("00010203")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		typ  table.Type
		text string
		hash int32
	}{
		{table.Type{Kind: table.Int32}, "34", 2017239379},
		{table.Type{Kind: table.Int64}, "34", 2017239379},
		{table.DecimalType(9, 2), "14.20", -500754589},
		{table.DecimalType(38, 2), "14.20", -500754589},
		{table.Type{Kind: table.Date}, "2017-11-16", -653330422},
		{table.Type{Kind: table.Time}, "22:31:08", -662762989},
		{table.Type{Kind: table.Timestamp}, "2017-11-16 22:31:08", -2047944441},
		{table.Type{Kind: table.TimestampTZ}, "2017-11-16 14:31:08-08", -2047944441},
		{table.Type{Kind: table.String}, "iceberg", 1210000089},
		{table.Type{Kind: table.UUID}, "f79c3e09-677c-4bbd-a479-3f349cb785e7", 1488055340},
		{table.Type{Kind: table.Binary}, string(raw), -188683207},
	} {
		v := table.NewVec(c.typ)
		if c.typ.Kind == table.Binary {
			v.AppendBytes(raw)
		} else if v, err = datafile.ParseText(c.typ, c.text); err != nil {
			t.Fatalf("%s %s: %v", c.typ, c.text, err)
		}
		for _, n := range []int32{1, 4, 16, 1000, 100_000} {
			s := &table.Schema{Columns: []table.Column{{Name: "v", FieldID: 1, Type: c.typ}},
				Spec: []table.PartitionField{{Source: 1, FieldID: 1000, Name: "v_bucket", Transform: fmt.Sprintf("bucket[%d]", n)}}}
			got, err := iceberg.PartitionValues(s, &table.Batch{Schema: s, Cols: []*table.Vec{v}, Rows: 1}, 0)
			if want := c.hash & 0x7fffffff % n; err != nil || got[0] != want {
				t.Errorf("%s %s: bucket %v of %d, want %d: %v", c.typ, c.text, got, n, want, err)
			}
		}
	}
}
