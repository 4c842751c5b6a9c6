package table_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"sluice/writer/table"
)

// TestVecModel drives a vector and a slice of printed values with the same operations and compares them.
func TestVecModel(t *testing.T) {
	types := []table.Type{{Kind: table.Int32}, {Kind: table.Int64}, {Kind: table.String}, {Kind: table.Bool}, table.ListOf(table.Type{Kind: table.String})}
	rapid.Check(t, func(rt *rapid.T) {
		typ := rapid.SampledFrom(types).Draw(rt, "type")
		v, other := table.NewVec(typ), table.NewVec(typ)
		var want, otherWant []string
		push := func(v *table.Vec, want *[]string) {
			n := rapid.IntRange(-3, 1000).Draw(rt, "n")
			*want = append(*want, appendValue(v, n))
		}
		for range rapid.IntRange(0, 60).Draw(rt, "ops") {
			switch rapid.IntRange(0, 4).Draw(rt, "op") {
			case 0:
				n := rapid.IntRange(0, v.Len).Draw(rt, "keep")
				v.Truncate(n)
				want = want[:n]
			case 1:
				b := rapid.IntRange(0, other.Len).Draw(rt, "begin")
				e := rapid.IntRange(b, other.Len).Draw(rt, "end")
				v.AppendRange(other, b, e)
				want = append(want, otherWant[b:e]...)
			case 2:
				push(other, &otherWant)
			default:
				push(v, &want)
			}
			compare(rt, v, want)
		}
	})
}

func appendValue(v *table.Vec, n int) string {
	if n == -1 {
		v.AppendExact("infinity")
		return "exact infinity"
	}
	if n < 0 {
		v.AppendNull()
		return "NULL"
	}
	switch v.Type.Kind {
	case table.Int32:
		v.AppendInt32(int32(n))
	case table.Int64:
		v.AppendInt64(int64(n))
	case table.String:
		v.AppendString(fmt.Sprint(n))
	case table.Bool:
		v.AppendBool(n%2 == 1)
		return fmt.Sprint(n%2 == 1)
	case table.List:
		s := "["
		for i := range n % 4 {
			v.Elems.AppendString(fmt.Sprint(i + n))
			s += fmt.Sprint(i+n) + " "
		}
		v.EndList()
		return s
	}
	return fmt.Sprint(n)
}

func printValue(v *table.Vec, i int) string {
	if s, ok := v.ExactText(i); ok {
		return "exact " + s
	}
	if v.IsNull(i) {
		return "NULL"
	}
	switch v.Type.Kind {
	case table.Int32:
		return fmt.Sprint(v.Int32(i))
	case table.Int64:
		return fmt.Sprint(v.Int64(i))
	case table.Bool:
		return fmt.Sprint(v.Bool(i))
	case table.List:
		s := "["
		b, e := v.ListRange(i)
		for k := b; k < e; k++ {
			s += string(v.Elems.Bytes(k)) + " "
		}
		return s
	}
	return string(v.Bytes(i))
}

func compare(t *rapid.T, v *table.Vec, want []string) {
	if v.Len != len(want) {
		t.Fatalf("length %d, want %d", v.Len, len(want))
	}
	for i, w := range want {
		if got := printValue(v, i); got != w {
			t.Fatalf("value %d is %q, want %q", i, got, w)
		}
	}
}
