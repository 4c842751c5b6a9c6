package reader

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"

	"sluice/server/scan"
)

// bind makes the view that t's name stands for: the live rows of its files and the rows in memory.
func (q *query) bind(n int, t *scan.Table) error {
	parts, err := q.files(n, t)
	if err != nil {
		return err
	}
	if len(t.Rows) > 0 {
		name := fmt.Sprintf("rows%d", n)
		if err := q.register(name, t.Rows); err != nil {
			return err
		}
		parts = append(parts, "SELECT * FROM "+name)
	}
	if len(parts) == 0 {
		parts = append(parts, "SELECT "+nothing(t.Columns, t.RowID)+" WHERE false")
	}
	return q.exec(fmt.Sprintf("CREATE TEMP VIEW %s AS %s", ident(t.Name), strings.Join(parts, " UNION ALL ")))
}

// register makes a table of rows: a stream could be read only once, and a query may read a table twice.
func (q *query) register(name string, rows []arrow.RecordBatch) error {
	r, err := array.NewRecordReader(rows[0].Schema(), rows)
	if err != nil {
		return err
	}
	release, err := q.arrow.RegisterView(r, name+"_stream")
	if err != nil {
		return err
	}
	q.release = append(q.release, release)
	return q.exec(fmt.Sprintf("CREATE TEMP TABLE %s AS SELECT * FROM %s_stream", name, name))
}

// files is one SELECT for all files with the same columns and without deleted rows, and one for each of the others.
func (q *query) files(n int, t *scan.Table) ([]string, error) {
	var parts, order []string
	whole := map[string][]string{} // what stands around the list of files → files
	for i, f := range t.Files {
		l, err := footers.layout(f)
		if err != nil {
			return nil, err
		}
		list, err := l.selectList(t.Columns)
		if err != nil {
			return nil, err
		}
		frame := "SELECT " + list + " FROM read_parquet([%s]%s) AS p(" + l.aliases() + "%s)"
		if t.RowID != "" {
			part, err := q.numbered(n, i, t, frame)
			if err != nil {
				return nil, err
			}
			parts = append(parts, part)
			continue
		}
		if f.Dead != nil && !f.Dead.IsEmpty() {
			dead := fmt.Sprintf("dead%d_%d", n, i)
			if err := q.register(dead, []arrow.RecordBatch{positions(f)}); err != nil {
				return nil, err
			}
			parts = append(parts, fmt.Sprintf(frame, quote(f.Path), ", file_row_number = true", `, "row"`)+fmt.Sprintf(` ANTI JOIN %s AS d ON p."row" = d."row"`, dead))
			continue
		}
		if whole[frame] == nil {
			order = append(order, frame)
		}
		whole[frame] = append(whole[frame], quote(f.Path))
	}
	for _, frame := range order {
		parts = append(parts, fmt.Sprintf(frame, strings.Join(whole[frame], ", "), "", ""))
	}
	return parts, nil
}

// numbered is the SELECT for one file whose rows are told by their numbers.
func (q *query) numbered(n, i int, t *scan.Table, frame string) (string, error) {
	f := t.Files[i]
	part := fmt.Sprintf(frame, quote(f.Path), ", file_row_number = true", `, "row"`)
	part = strings.Replace(part, " FROM read_parquet(", fmt.Sprintf(`, CAST(%d + p."row" AS BIGINT) AS %s FROM read_parquet(`, scan.FileRow(i, 0), ident(t.RowID)), 1)
	if f.Dead == nil || f.Dead.IsEmpty() {
		return part, nil
	}
	dead := fmt.Sprintf("dead%d_%d", n, i)
	if err := q.register(dead, []arrow.RecordBatch{positions(f)}); err != nil {
		return "", err
	}
	return part + fmt.Sprintf(` ANTI JOIN %s AS d ON p."row" = d."row"`, dead), nil
}

// positions is the deleted rows of f as a column.
func positions(f scan.File) arrow.RecordBatch {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	for it := f.Dead.Iterator(); it.HasNext(); {
		b.Append(int64(it.Next()))
	}
	schema := arrow.NewSchema([]arrow.Field{{Name: "row", Type: arrow.PrimitiveTypes.Int64}}, nil)
	rows := b.NewArray()
	return array.NewRecordBatch(schema, []arrow.Array{rows}, int64(rows.Len()))
}

// layout is what the footer of a file says: the field ids of its top-level columns, in order; -1 without one.
type layout struct{ ids []int }

// footerCache remembers layouts: files never change (invariant I5).
type footerCache struct {
	mu  sync.Mutex // guards all
	all map[string]layout
}

var footers = footerCache{all: map[string]layout{}}

// cachedFooters bounds the cache; past it everything is forgotten.
const cachedFooters = 10_000

func (c *footerCache) layout(f scan.File) (layout, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l, ok := c.all[f.Path]; ok {
		return l, nil
	}
	l, err := readLayout(f)
	if err != nil {
		return l, fmt.Errorf("read footer of %s: %w", f.Path, err)
	}
	if len(c.all) >= cachedFooters {
		clear(c.all)
	}
	c.all[f.Path] = l
	return l, nil
}

func readLayout(f scan.File) (layout, error) {
	in, err := os.Open(f.Path)
	if err != nil {
		return layout{}, err
	}
	defer in.Close()
	pf, err := file.NewParquetReader(in)
	if err != nil {
		return layout{}, err
	}
	if uint64(pf.NumRows()) != f.Rows {
		return layout{}, fmt.Errorf("file has %d rows, want %d", pf.NumRows(), f.Rows)
	}
	root := pf.MetaData().Schema.Root()
	var l layout
	for i := range root.NumFields() {
		l.ids = append(l.ids, int(root.Field(i).FieldID()))
	}
	return l, nil
}

// aliases names the file's columns by place: their own names may differ only in case, which DuckDB does not tell apart.
func (l layout) aliases() string {
	out := make([]string, len(l.ids))
	for i := range l.ids {
		out[i] = fmt.Sprintf(`"f%d"`, i)
	}
	return strings.Join(out, ", ")
}

// selectList is cols as the file has them: found by field id, widened to their type of today, or the value of rows older than the column.
func (l layout) selectList(cols []scan.Column) (string, error) {
	if !slices.ContainsFunc(l.ids, func(id int) bool { return id >= 0 }) {
		return "", &scan.Error{Code: scan.Unfit, Message: "a data file has no field ids"}
	}
	out := make([]string, len(cols))
	for i, c := range cols {
		if c.ExactID != 0 && slices.Contains(l.ids, c.ExactID) {
			return "", scan.ErrExact
		}
		value := initialValue(c)
		if at := slices.Index(l.ids, c.FieldID); at >= 0 {
			value = fmt.Sprintf(`p."f%d"`, at)
		}
		out[i] = fmt.Sprintf("CAST(%s AS %s) AS %s", value, c.Type, ident(c.Name))
	}
	return selectable(out), nil
}

func initialValue(c scan.Column) string {
	if c.Initial == nil {
		return "NULL"
	}
	return quote(*c.Initial)
}

func nothing(cols []scan.Column, rowID string) string {
	out := make([]string, len(cols))
	for i, c := range cols {
		out[i] = fmt.Sprintf("CAST(NULL AS %s) AS %s", c.Type, ident(c.Name))
	}
	if rowID != "" {
		out = append(out, "CAST(NULL AS BIGINT) AS "+ident(rowID))
	}
	return selectable(out)
}

// selectable is the list, or something to count where a query needs no column at all.
func selectable(list []string) string {
	if len(list) == 0 {
		return `0 AS "c0"`
	}
	return strings.Join(list, ", ")
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func ident(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
