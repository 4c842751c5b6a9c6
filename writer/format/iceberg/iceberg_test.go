package iceberg_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	ice "github.com/apache/iceberg-go"
	iceio "github.com/apache/iceberg-go/io"
	icetable "github.com/apache/iceberg-go/table"

	"sluice/writer/datafile"
	"sluice/writer/format"
	"sluice/writer/format/formattest"
	"sluice/writer/format/iceberg"
	"sluice/writer/objstore"
	"sluice/writer/table"
)

func config(version int) formattest.Config {
	return formattest.Config{
		Open: func(t testing.TB, store objstore.Store) format.Format {
			return iceberg.Open(store, iceberg.Options{Now: time.Now, MergeManifests: 3})
		},
		Store: func(t testing.TB) objstore.Store {
			d, err := objstore.OpenDir(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			return d
		},
		Options:   format.Options{Version: version},
		Partition: partition,
		Scan:      scan,
	}
}

func TestVersion3(t *testing.T) { formattest.Run(t, config(3)) }
func TestVersion2(t *testing.T) { formattest.Run(t, config(2)) }

// partition computes partition values with iceberg-go's transforms.
func partition(s *table.Schema, b *table.Batch, i int) []any {
	var out []any
	for _, p := range s.Spec {
		c := slices.IndexFunc(s.Columns, func(c table.Column) bool { return c.FieldID == p.Source })
		v := format.Value(b.Cols[c], i)
		if v != nil && p.Transform != "identity" {
			v = transform(p.Transform, s.Columns[c].Type, v)
		}
		out = append(out, v)
	}
	return out
}

func transform(name string, t table.Type, v any) any {
	tr, err := ice.ParseTransform(name)
	if err != nil {
		panic(err)
	}
	var lit ice.Literal
	switch t.Kind {
	case table.Date:
		lit = ice.NewLiteral(ice.Date(v.(int32)))
	case table.Timestamp, table.TimestampTZ:
		lit = ice.NewLiteral(ice.Timestamp(v.(int64)))
	case table.Int64:
		lit = ice.NewLiteral(v.(int64))
	case table.Decimal64:
		if strings.HasPrefix(name, "truncate[100]") { // of the unscaled value, downwards
			n := v.(int64)
			return n - ((n%100)+100)%100
		}
	default:
		lit = ice.NewLiteral(v.(string))
	}
	switch v := tr.Apply(ice.Optional[ice.Literal]{Valid: true, Val: lit}).Val.Any().(type) {
	case ice.Date:
		return int32(v)
	default:
		return v
	}
}

// scan reads the table with iceberg-go's own scanner, a second reader of our metadata.
func scan(t testing.TB, _ objstore.Store, p table.Pointer, s *table.Schema) (rows []string, ok bool) {
	t.Helper()
	if slices.ContainsFunc(s.Columns, func(c table.Column) bool { return c.Initial != nil }) {
		return nil, false // iceberg-go does not understand the defaults of dates and times as the spec writes them
	}
	ctx := context.Background()
	tbl, err := icetable.NewFromLocation(ctx, icetable.Identifier{"t"}, p.Location, func(context.Context) (iceio.IO, error) { return iceio.LocalFS{}, nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, recs, err := tbl.Scan().ToArrowRecords(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for rec, err := range recs {
		if err != nil {
			t.Fatalf("scan %s: %v", p.Location, err)
		}
		fields := make([]arrow.Field, rec.NumCols())
		for i, f := range rec.Schema().Fields() {
			fields[i] = f
			if i < len(s.Columns) {
				fields[i].Metadata = arrow.NewMetadata([]string{"PARQUET:field_id"}, []string{fmt.Sprint(s.Columns[i].FieldID)})
			}
		}
		b, err := datafile.FromArrow(array.NewRecordBatch(arrow.NewSchema(fields, nil), rec.Columns(), rec.NumRows()), s)
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, formattest.Lines(b)...)
	}
	slices.Sort(rows)
	return rows, true
}
