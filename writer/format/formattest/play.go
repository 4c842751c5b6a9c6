package formattest

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"sluice/writer/table"
)

// Wide is a schema with a column of every kind.
func Wide() *table.Schema {
	s := &table.Schema{ID: 1, Key: []int{0}}
	add := func(name string, t table.Type, change func(c *table.Column)) {
		c := table.Column{Name: name, FieldID: 10 * (len(s.Columns) + 1), Type: t, Doc: "pg " + name}
		if t.Kind == table.List {
			c.ElemID = c.FieldID + 1
		}
		if change != nil {
			change(&c)
		}
		s.Columns = append(s.Columns, c)
	}
	exact := func(c *table.Column) { c.Exact, c.ExactID = true, c.FieldID+2 }
	add("id", table.Type{Kind: table.Int64}, func(c *table.Column) { c.NotNull = true })
	add("ok", table.Type{Kind: table.Bool}, nil)
	add("i", table.Type{Kind: table.Int32}, nil)
	add("f", table.Type{Kind: table.Float32}, nil)
	add("g", table.Type{Kind: table.Float64}, nil)
	add("d9", table.DecimalType(9, 2), nil)
	add("d18", table.DecimalType(18, 5), nil)
	add("n", table.DecimalType(38, 18), exact)
	add("day", table.Type{Kind: table.Date}, nil)
	add("tm", table.Type{Kind: table.Time}, nil)
	add("ts", table.Type{Kind: table.Timestamp}, nil)
	add("tz", table.Type{Kind: table.TimestampTZ}, exact)
	add("u", table.Type{Kind: table.UUID}, nil)
	add("s", table.Type{Kind: table.String}, nil)
	add("b", table.Type{Kind: table.Binary}, nil)
	add("ls", table.ListOf(table.Type{Kind: table.String}), nil)
	add("ll", table.ListOf(table.DecimalType(20, 4)), nil)
	return s
}

// Rows is rows of s with ids [begin, end): every column has NULLs, extremes and ordinary values.
func Rows(s *table.Schema, begin, end int) *table.Batch {
	b := table.NewBatch(s)
	for id := begin; id < end; id++ {
		for k, c := range s.Columns {
			switch {
			case c.FieldID == 10:
				if c.Type.Kind == table.Int64 {
					b.Cols[k].AppendInt64(int64(id))
				} else {
					b.Cols[k].AppendInt32(int32(id))
				}
			case (id+k)%5 == 0 && !c.NotNull:
				b.Cols[k].AppendNull()
			default:
				value(b.Cols[k], id+3*k)
			}
		}
		b.Rows++
	}
	return b
}

// value appends a value that follows from n; each kind has its extremes among n = 0 … 6 modulo 7.
func value(v *table.Vec, n int) {
	pick := func(xs ...int64) int64 {
		if m := n % 7; m < len(xs) {
			return xs[m]
		}
		return int64(n * 37)
	}
	switch v.Type.Kind {
	case table.Bool:
		v.AppendBool(n%2 == 0)
	case table.Int32:
		v.AppendInt32(int32(pick(math.MaxInt32, math.MinInt32, 0, -1)))
	case table.Float32:
		v.AppendFloat32([]float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.Copysign(0, -1)),
			math.MaxFloat32, 0.1, float32(n)}[n%7])
	case table.Float64:
		v.AppendFloat64([]float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), math.MaxFloat64, 0.1, float64(n)}[n%7])
	case table.Decimal64:
		limit := int64(math.Pow10(v.Type.Precision)) - 1
		v.AppendInt64(pick(limit, -limit, 0, 1))
	case table.Decimal128:
		lo := pick(math.MaxInt64, math.MinInt64, 0, -1)
		b := binary.LittleEndian.AppendUint64(nil, uint64(lo))
		v.AppendFixed(binary.LittleEndian.AppendUint64(b, uint64(lo>>63)))
	case table.Date:
		v.AppendInt32(int32(pick(-719162, 2932896, 0, -1))) // years 1 and 9999
	case table.Time:
		v.AppendInt64(pick(0, 86399999999, 1))
	case table.Timestamp, table.TimestampTZ:
		v.AppendInt64(pick(-62135596800000000, 253402300799999999, 0, -1, 1700000000123456))
	case table.UUID:
		v.AppendFixed([]byte{0xff, byte(n), 2, 3, 4, 5, 6, 7, 0x80, 9, 10, 11, 12, 13, 14, byte(n >> 8)})
	case table.String:
		v.AppendString([]string{"", "a<b>&\u2028\"\\", "\U0010FFFF\U0010FFFF\U0010FFFF\U0010FFFF\U0010FFFF\U0010FFFF\U0010FFFF\U0010FFFF" +
			"\U0010FFFF\U0010FFFF\U0010FFFF\U0010FFFF\U0010FFFF\U0010FFFF\U0010FFFF\U0010FFFF\U0010FFFF", "\uD7FFÄöü",
			fmt.Sprint("row ", n), "x", fmt.Sprint("a rather long text of row ", n)}[n%7])
	case table.Binary:
		v.AppendBytes([][]byte{{}, {0}, {0xff, 0xff}, []byte("bytes"), {1, 2, 3}, {0x80}, []byte(fmt.Sprint(n))}[n%7])
	case table.List:
		for k := range n % 4 {
			if k == 1 {
				v.Elems.AppendNull()
			} else {
				value(v.Elems, n+k)
			}
		}
		v.EndList()
	default:
		v.AppendInt64(pick(math.MaxInt64, math.MinInt64, 0, -1))
	}
}

// Play drives a table through everything an edit can do and returns its states.
func Play(t testing.TB, cfg Config) []State {
	t.Helper()
	m := NewTable(t, cfg, Wide())
	p := &player{m: m}
	p.keep("created")
	m.Append(Rows(m.Schema, 0, 40))
	p.commit("append")
	m.Append(Rows(m.Schema, 40, 60))
	m.DeleteWhere(func(id table.FileID, row int) bool { return row%7 == 3 })
	p.commit("append and delete")
	m.DeleteWhere(func(id table.FileID, row int) bool { return row < 5 || row == 17 })
	p.commit("delete again")
	m.Append(exactRows(m.Schema, 60))
	p.commit("values beyond the type")
	m.DeleteWhere(func(id table.FileID, row int) bool { return id == 2 })
	m.Append(Rows(m.Schema, 70, 75))
	p.commit("delete a whole file")
	if cfg.Options.Version != 2 {
		m.Change(evolve)
	} else {
		m.Change(evolveV2)
	}
	p.commit("schema change without rows")
	m.Append(Rows(m.Schema, 80, 100))
	m.DeleteWhere(func(id table.FileID, row int) bool { return id == 1 && row == 39 })
	p.commit("append after schema change")
	m.DeleteWhere(func(id table.FileID, row int) bool { return row%2 == 0 })
	p.commit("delete in old and new files")
	m.Change(func(s *table.Schema) { s.Columns[1].NotNull = true })
	m.Truncate()
	fill := Rows(m.Schema, 100, 130)
	m.Append(fill)
	p.commit("truncate, not null, append")
	m.DeleteWhere(func(table.FileID, int) bool { return true })
	p.commit("delete everything")
	m.Append(Rows(m.Schema, 200, 203))
	p.commit("append to the empty table")
	return p.states
}

// PlayPartitioned does the same for a table partitioned by spec, which then changes.
func PlayPartitioned(t testing.TB, cfg Config) []State {
	t.Helper()
	s := Wide()
	s.Spec = []table.PartitionField{
		{Source: 140, FieldID: 1000, Name: "s", Transform: "identity"}, {Source: 90, FieldID: 1001, Name: "day_month", Transform: "month"},
		{Source: 10, FieldID: 1002, Name: "id_bucket", Transform: "bucket[4]"}, {Source: 120, FieldID: 1003, Name: "tz_day", Transform: "day"},
		{Source: 60, FieldID: 1004, Name: "d9_trunc", Transform: "truncate[100]"}, {Source: 110, FieldID: 1005, Name: "ts_hour", Transform: "hour"},
		{Source: 130, FieldID: 1007, Name: "u", Transform: "identity"},
	}
	m := NewTable(t, cfg, s)
	p := &player{m: m}
	m.Append(Rows(m.Schema, 0, 30))
	p.commit("append to partitions")
	m.DeleteWhere(func(id table.FileID, row int) bool { return id%3 == 0 })
	m.Append(Rows(m.Schema, 30, 45))
	p.commit("delete in partitions")
	m.Change(func(s *table.Schema) {
		s.Spec = []table.PartitionField{{Source: 10, FieldID: 1008, Name: "id_bucket_8", Transform: "bucket[8]"},
			{Source: 90, FieldID: 1009, Name: "day_year", Transform: "year"}, {Source: 140, FieldID: 1010, Name: "s_trunc", Transform: "truncate[2]"}}
	})
	m.Append(Rows(m.Schema, 50, 70))
	p.commit("append under another spec")
	m.DeleteWhere(func(id table.FileID, row int) bool { return (int(id)+row)%4 == 0 })
	p.commit("delete under both specs")
	m.Change(func(s *table.Schema) { s.Spec = nil })
	m.Append(Rows(m.Schema, 80, 90))
	p.commit("append without partitions")
	return p.states
}

type player struct {
	m      *Table
	states []State
}

func (p *player) commit(name string) {
	p.m.t.Helper()
	p.m.Commit()
	p.keep(name)
}

func (p *player) keep(name string) {
	p.m.t.Helper()
	p.m.Check(name)
	p.states = append(p.states, State{name, p.m.Pointer, p.m.Schema, p.m.Want()})
}

// exactRows is two rows with values that their types cannot hold.
func exactRows(s *table.Schema, id int) *table.Batch {
	b := table.NewBatch(s)
	for _, text := range []string{"infinity", "NaN"} {
		for k, c := range s.Columns {
			switch {
			case c.Exact:
				b.Cols[k].AppendExact(text)
			case c.NotNull:
				b.Cols[k].AppendInt64(int64(id + b.Rows))
			default:
				b.Cols[k].AppendNull()
			}
		}
		b.Rows++
	}
	return b
}

// evolve drops, renames, widens, reorders and adds columns; an added one takes the name of a dropped one.
func evolve(s *table.Schema) {
	evolveV2(s)
	for name, text := range map[string]string{"n7": "7", "d1": "-1.25", "when": "2024-02-29 12:34:56.789+00", "who": "nobody",
		"uu": "f79c3e09-677c-4bbd-a479-3f349cb785e7", "raw": `\x00ff`, "on": "1969-12-31", "yes": "t", "half": "0.5"} {
		s.Columns[s.Index(name)].Initial = &text
	}
}

func evolveV2(s *table.Schema) {
	at := func(name string) *table.Column { return &s.Columns[s.Index(name)] }
	at("i").Type = table.Type{Kind: table.Int64}
	at("d9").Type = table.DecimalType(20, 2)
	at("s").Name = "renamed"
	b := s.Index("b")
	s.Columns = append(s.Columns[:b:b], s.Columns[b+1:]...)
	s.Columns = append(s.Columns, table.Column{Name: "b", FieldID: 300, Type: table.Type{Kind: table.Int32}},
		table.Column{Name: "n7", FieldID: 301, Type: table.Type{Kind: table.Int32}},
		table.Column{Name: "d1", FieldID: 302, Type: table.DecimalType(38, 2)},
		table.Column{Name: "when", FieldID: 303, Type: table.Type{Kind: table.TimestampTZ}},
		table.Column{Name: "who", FieldID: 304, Type: table.Type{Kind: table.String}},
		table.Column{Name: "uu", FieldID: 305, Type: table.Type{Kind: table.UUID}},
		table.Column{Name: "raw", FieldID: 306, Type: table.Type{Kind: table.Binary}},
		table.Column{Name: "on", FieldID: 307, Type: table.Type{Kind: table.Date}},
		table.Column{Name: "yes", FieldID: 308, Type: table.Type{Kind: table.Bool}},
		table.Column{Name: "half", FieldID: 309, Type: table.Type{Kind: table.Float64}})
	s.Columns[1], s.Columns[5] = s.Columns[5], s.Columns[1]
}
