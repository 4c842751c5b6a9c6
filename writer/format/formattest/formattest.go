// Package formattest is the suite that every format.Format passes, and the table states that engines are shown.
//
// It owns a model of a table: rows in Go, changed beside the real one and compared after every commit. Start with Run for
// the suite, with Play for a list of states of one table, each with the rows it must have. It knows no format.
package formattest

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"sluice/writer/datafile"
	"sluice/writer/format"
	"sluice/writer/objstore"
	"sluice/writer/table"
)

// Config is what the suite runs on.
type Config struct {
	Open    func(t testing.TB, store objstore.Store) format.Format
	Store   func(t testing.TB) objstore.Store
	Options format.Options
	// Partition computes the partition values of row i; nil leaves the partitioned tables out.
	Partition func(s *table.Schema, b *table.Batch, i int) ([]any, error)
	// Scan, if set, is a second reader: the rows of p as Lines gives them, sorted; not ok if it cannot read such a table.
	Scan func(t testing.TB, store objstore.Store, p table.Pointer, s *table.Schema) (rows []string, ok bool)
}

// State is a table after some commits.
type State struct {
	Name    string
	Pointer table.Pointer
	Schema  *table.Schema
	Rows    []string // canonical, sorted
}

// Table is a real table and its model.
type Table struct {
	Pointer table.Pointer
	Schema  *table.Schema

	t      testing.TB
	cfg    Config
	f      format.Format
	store  objstore.Store
	files  map[table.FileID]*modelFile
	next   table.FileID
	commit table.Position
	edit   format.Edit
}

// modelFile is a data file: what was written, and which rows are deleted.
type modelFile struct {
	rows    *table.Batch // under the schema of its time
	deleted map[int]bool
}

// NewTable creates a table of schema s in its own store.
func NewTable(t testing.TB, cfg Config, s *table.Schema) *Table {
	t.Helper()
	m := &Table{t: t, cfg: cfg, store: cfg.Store(t), files: map[table.FileID]*modelFile{}, Schema: s, next: 1}
	m.f = cfg.Open(t, m.store)
	p, err := m.f.Create(context.Background(), objstore.Join(m.store.Root(), format.NewUUID()), s, cfg.Options)
	if err != nil {
		t.Fatal(err)
	}
	m.Pointer = p
	return m
}

// Append adds rows to the edit that is being made: one file, or one for each partition.
func (m *Table) Append(b *table.Batch) {
	m.t.Helper()
	var keys []string
	parts := map[string]*table.Batch{}
	values := map[string][]any{}
	for i := range b.Rows {
		var part []any
		if len(m.Schema.Spec) > 0 {
			var err error
			if part, err = m.cfg.Partition(m.Schema, b, i); err != nil {
				m.t.Fatal(err)
			}
		}
		k := fmt.Sprint(part)
		if parts[k] == nil {
			parts[k], values[k] = table.NewBatch(m.Schema), part
			keys = append(keys, k)
		}
		parts[k].AppendRow(b, i)
	}
	for _, k := range keys {
		id := m.next
		m.next++
		f, err := datafile.Write(context.Background(), m.store, format.DataLocation(m.Pointer, id), m.Schema, datafile.All(parts[k]),
			datafile.WriteOptions{Exact: datafile.ExactColumns(parts[k])})
		if err != nil {
			m.t.Fatal(err)
		}
		m.edit.Added = append(m.edit.Added, format.DataFile{ID: id, File: f, Partition: values[k]})
		m.files[id] = &modelFile{parts[k], map[int]bool{}}
	}
}

// DeleteWhere adds the deletion of committed rows to the edit.
func (m *Table) DeleteWhere(match func(id table.FileID, row int) bool) {
	if m.edit.Deletes == nil {
		m.edit.Deletes = map[table.FileID]*roaring.Bitmap{}
	}
	for id, f := range m.files {
		if slices.ContainsFunc(m.edit.Added, func(a format.DataFile) bool { return a.ID == id }) {
			continue
		}
		for row := range f.rows.Rows {
			if !match(id, row) {
				continue
			}
			if m.edit.Deletes[id] == nil {
				m.edit.Deletes[id] = roaring.New()
			}
			m.edit.Deletes[id].Add(uint32(row))
		}
	}
	for id, rows := range m.edit.Deletes {
		for it := rows.Iterator(); it.HasNext(); {
			m.files[id].deleted[int(it.Next())] = true
		}
	}
}

// Truncate adds the removal of all committed files to the edit. It must come first.
func (m *Table) Truncate() {
	m.edit.Truncate = true
	clear(m.files)
}

// Change changes the schema.
func (m *Table) Change(change func(s *table.Schema)) {
	s := *m.Schema
	s.Columns = slices.Clone(s.Columns)
	s.ID++
	change(&s)
	m.Schema = &s
}

// Commit stages the edit and moves to it.
func (m *Table) Commit() {
	m.t.Helper()
	m.commit++
	e := m.edit
	m.edit = format.Edit{}
	e.Table, e.Schema, e.Position, e.FlushID = 7, m.Schema, m.commit, fmt.Sprint("flush-", m.commit)
	p, err := m.f.Stage(context.Background(), m.Pointer, e)
	if err != nil {
		m.t.Fatal(err)
	}
	if err := m.f.Publish(context.Background(), p); err != nil {
		m.t.Fatal(err)
	}
	m.Pointer = p
	for id, f := range m.files {
		if len(f.deleted) == f.rows.Rows {
			delete(m.files, id)
		}
	}
}

// Want is the model's rows.
func (m *Table) Want() []string {
	var rows []string
	for _, f := range m.files {
		for i := range f.rows.Rows {
			if !f.deleted[i] {
				rows = append(rows, line(m.modelRow(f.rows, i)))
			}
		}
	}
	slices.Sort(rows)
	return rows
}

// modelRow is a row under the schema of today, found by field ids as any reader should.
func (m *Table) modelRow(b *table.Batch, i int) []any {
	row := make([]any, len(m.Schema.Columns))
	for k, c := range m.Schema.Columns {
		at := slices.IndexFunc(b.Schema.Columns, func(old table.Column) bool { return old.FieldID == c.FieldID })
		switch {
		case at >= 0:
			row[k] = Canonical(b.Cols[at], i)
		case c.Initial != nil:
			v, err := datafile.ParseText(c.Type, *c.Initial)
			if err != nil {
				m.t.Fatal(err)
			}
			row[k] = Canonical(v, 0)
		}
	}
	return row
}

// Read is the rows of the table at p through Snapshot and datafile.
func (m *Table) Read(p table.Pointer, s *table.Schema) []string {
	m.t.Helper()
	snap, err := m.f.Snapshot(context.Background(), p)
	if err != nil {
		m.t.Fatal(err)
	}
	var rows []string
	for _, f := range snap.Files {
		for c, err := range datafile.Read(context.Background(), m.store, f.File, s, datafile.ReadOptions{}) {
			if err != nil {
				m.t.Fatal(err)
			}
			for i := range c.Rows.Rows {
				if f.Deleted == nil || !f.Deleted.Contains(uint32(c.First)+uint32(i)) {
					rows = append(rows, Lines(c.Rows)[i])
				}
			}
		}
	}
	slices.Sort(rows)
	return rows
}

// Check compares the table with the model.
func (m *Table) Check(what string) {
	m.t.Helper()
	want := m.Want()
	Same(m.t, what, m.Read(m.Pointer, m.Schema), want)
	if m.cfg.Scan != nil {
		if rows, ok := m.cfg.Scan(m.t, m.store, m.Pointer, m.Schema); ok {
			Same(m.t, what+", second reader", rows, want)
		}
	}
	// What was staged must not live in the process that staged it.
	fresh := *m
	fresh.f = m.cfg.Open(m.t, m.store)
	Same(m.t, what+", reopened", fresh.Read(m.Pointer, m.Schema), want)
}

// Same fails the test unless the two sorted lists of rows are equal.
func Same(t testing.TB, what string, got, want []string) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	for _, l := range got {
		if !slices.Contains(want, l) {
			t.Errorf("%s: has\n  %s", what, l)
			break
		}
	}
	for _, l := range want {
		if !slices.Contains(got, l) {
			t.Errorf("%s: lacks\n  %s", what, l)
			break
		}
	}
	t.Fatalf("%s: %d rows, want %d", what, len(got), len(want))
}

// Lines is the rows of a batch in canonical form: a JSON array each, with dates and times as days and microseconds, floats
// as hexadecimal bits, decimals, UUIDs and bytes as text. Exact values count as NULL, which is what engines see.
func Lines(b *table.Batch) []string {
	lines := make([]string, b.Rows)
	for i := range lines {
		row := make([]any, len(b.Cols))
		for k, v := range b.Cols {
			row[k] = Canonical(v, i)
		}
		lines[i] = line(row)
	}
	return lines
}

func line(row []any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(row); err != nil {
		panic(err)
	}
	return b.String()[:b.Len()-1]
}

// Reline is the first n cells of a line that another program printed, printed by this one, so that equal rows are equal text.
func Reline(text string, n int) (string, error) {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber()
	var row []any
	if err := d.Decode(&row); err != nil {
		return "", err
	}
	return line(row[:min(n, len(row))]), nil
}

// Canonical is value i of v as it stands in a line.
func Canonical(v *table.Vec, i int) any {
	if v.IsNull(i) {
		return nil
	}
	switch v.Type.Kind {
	case table.Bool:
		return v.Bool(i)
	case table.Int32, table.Date:
		return v.Int32(i)
	case table.Float32:
		return fmt.Sprintf("%08x", floatBits(float64(v.Float32(i)), uint64(v.Int32(i))&math.MaxUint32, 0x7fc00000))
	case table.Float64:
		return fmt.Sprintf("%016x", floatBits(v.Float64(i), uint64(v.Int64(i)), 0x7ff8000000000000))
	case table.Decimal64:
		return decimalText(big.NewInt(v.Int64(i)), v.Type.Scale)
	case table.Decimal128:
		b := slices.Clone(v.FixedAt(i))
		slices.Reverse(b)
		n := new(big.Int).SetBytes(b)
		if b[0] >= 0x80 {
			n.Sub(n, new(big.Int).Lsh(big.NewInt(1), 128))
		}
		return decimalText(n, v.Type.Scale)
	case table.UUID:
		h := hex.EncodeToString(v.FixedAt(i))
		return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
	case table.String:
		return string(v.Bytes(i))
	case table.Binary:
		return "0x" + hex.EncodeToString(v.Bytes(i))
	case table.List:
		list := []any{}
		for k, end := v.ListRange(i); k < end; k++ {
			list = append(list, Canonical(v.Elems, k))
		}
		return list
	}
	return v.Int64(i)
}

// floatBits is bits, but the one quiet NaN for all NaNs: engines may keep or change its payload.
func floatBits(x float64, bits, nan uint64) uint64 {
	if x != x {
		return nan
	}
	return bits
}

func decimalText(n *big.Int, scale int) string {
	s := fmt.Sprintf("%0*s", scale+1, new(big.Int).Abs(n).String())
	if scale > 0 {
		s = s[:len(s)-scale] + "." + s[len(s)-scale:]
	}
	if n.Sign() < 0 {
		s = "-" + s
	}
	return s
}
