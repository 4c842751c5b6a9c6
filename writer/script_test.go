package writer_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"sluice/writer"
	"sluice/writer/catalog"
	"sluice/writer/commit"
	"sluice/writer/lock"
	"sluice/writer/table"
)

// TestScripts runs testdata. Lines of a script's command are verbs:
//
//	table a [keyless]          make a table (k bigint, v text)
//	begin T [rr|serializable]  transactions are named as you like
//	write T a 1 x 2 y          insert rows
//	update T a 1 z             give the rows with k=1 a new v
//	upsert T a 1 x 2 y         insert rows, or make x the end of the v of who has the key; skip: leave him
//	delete T a 1               or * for all rows
//	truncate T a
//	savepoint T s | rollback-to T s | release T s
//	commit T [flip] | rollback T | prepare T | resolve T yes|no
//	create T c | drop T a      schema changes; commit-ddl T [fails] ends them
//	add T a c | unique T a     a column, a unique constraint on k
//	scan T a | scan a          in T's next statement, or in a new transaction
//	get T a 1 | get a 1        by key
//	view T n | scan-view n a   a view kept
//	flush | restart
//	state                      visible, progress, tail rows
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{world: newWorld(t), txns: map[string]*writer.Txn{}, names: map[string]table.ID{}, views: map[string]*writer.View{},
			points: map[string]writer.Savepoint{}, changed: map[string][]writer.TableDef{}}
		s.open()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			for _, line := range strings.Split(d.Input, "\n") {
				if f := strings.Fields(line); len(f) > 0 && f[0] != "#" {
					s.line(&out, f)
				}
			}
			return out.String()
		})
	})
}

type script struct {
	*world
	txns    map[string]*writer.Txn
	names   map[string]table.ID
	views   map[string]*writer.View
	points  map[string]writer.Savepoint
	changed map[string][]writer.TableDef
}

func (s *script) line(out *strings.Builder, f []string) {
	text, err := s.run(f)
	if text != "" {
		out.WriteString(text)
	}
	if err != nil {
		fmt.Fprintf(out, "%s: %s\n", strings.Join(f, " "), s.describe(err))
	}
}

func (s *script) describe(err error) string {
	var unique *writer.UniqueConflict
	var moved *writer.RowMoved
	switch {
	case errors.As(err, &unique):
		return fmt.Sprintf("conflict %s row %d", unique.Name, unique.Row)
	case errors.As(err, &moved):
		return fmt.Sprintf("moved %d self=%v", len(moved.Refs), moved.Self)
	case errors.Is(err, commit.ErrNotCommitted):
		return "not committed"
	}
	return err.Error()
}

func (s *script) run(f []string) (string, error) {
	ctx := context.Background()
	switch f[0] {
	case "table":
		id := table.ID(len(s.names) + 1)
		s.names[f[1]] = id
		s.create(kv(id, f[1], len(f) < 3))
		return "", nil
	case "flush":
		before := s.w.Progress()
		pos, err := s.w.Flush(ctx)
		if err == nil && pos == before {
			return "nothing to do\n", nil
		}
		return "", err
	case "restart":
		s.close()
		clear(s.txns)
		s.open()
		return "", nil
	case "state":
		g := s.w.Gauges()
		return fmt.Sprintf("visible %d progress %d tail %d\n", s.w.Visible(), s.w.Progress(), g.TotalRows), nil
	case "begin":
		s.txns[f[1]] = s.w.Begin(writer.TxnOptions{Isolation: isolation(f)})
		return "", nil
	case "scan":
		if len(f) == 2 {
			tx := s.w.Begin(writer.TxnOptions{})
			defer tx.Rollback()
			return s.print(tx.Statement(), f[1])
		}
		return s.print(s.txns[f[1]].Statement(), f[2])
	case "get":
		if len(f) == 3 {
			tx := s.w.Begin(writer.TxnOptions{})
			defer tx.Rollback()
			v := tx.Statement()
			def, _ := v.Table(s.names[f[1]])
			return get(v, def, f[2])
		}
	case "scan-view":
		return s.print(s.views[f[1]], f[2])
	}
	return s.inTxn(ctx, s.txns[f[1]], f)
}

func isolation(f []string) writer.Isolation {
	if len(f) < 3 {
		return writer.ReadCommitted
	}
	return map[string]writer.Isolation{"rr": writer.RepeatableRead, "serializable": writer.Serializable}[f[2]]
}

func (s *script) print(v *writer.View, name string) (string, error) {
	list, err := scan(v, s.names[name])
	var b strings.Builder
	for _, n := range list {
		where := "tail"
		switch {
		case n.ref.File == table.Own:
			where = "own"
		case n.ref.File > 0:
			where = fmt.Sprintf("file %d", n.ref.File)
		}
		fmt.Fprintf(&b, "%s  (%s %d)\n", n.text, where, n.ref.Row)
	}
	if err == nil && len(list) == 0 {
		b.WriteString("no rows\n")
	}
	return b.String(), err
}

func (s *script) inTxn(ctx context.Context, tx *writer.Txn, f []string) (string, error) {
	switch f[0] {
	case "commit":
		_, err := tx.Commit(ctx, writer.CommitOptions{WaitFlip: len(f) > 2})
		return "", err
	case "rollback":
		tx.Rollback()
		return "", nil
	case "prepare":
		_, err := tx.Prepare(ctx)
		return "", err
	case "resolve":
		s.catalog.Decide(tx.ID(), f[2] == "yes")
		return "", tx.Resolve(ctx, f[2] == "yes")
	case "commit-ddl":
		defer delete(s.changed, f[1])
		if len(f) > 2 {
			_, err := tx.CommitDDL(ctx, func(context.Context, *catalog.Flip) error { return errors.New("deferred constraint") })
			return "", err
		}
		return "", s.commitDDL(tx, s.changed[f[1]]...)
	case "savepoint":
		s.points[f[2]] = tx.Savepoint()
		return "", nil
	case "rollback-to":
		tx.RollbackTo(s.points[f[2]])
		return "", nil
	case "release":
		tx.Release(s.points[f[2]])
		return "", nil
	case "view":
		s.views[f[2]] = tx.Statement()
		return "", nil
	}
	if f[0] == "create" {
		id := table.ID(len(s.names) + 1)
		s.names[f[2]] = id
		d := kv(id, f[2], false)
		s.changed[f[1]] = append(s.changed[f[1]], d)
		return "", tx.Define(ctx, writer.TableChange{Kind: writer.Create, Def: d})
	}
	return s.onTable(ctx, tx, s.names[f[2]], f)
}

func (s *script) onTable(ctx context.Context, tx *writer.Txn, id table.ID, f []string) (string, error) {
	v := tx.Statement()
	switch f[0] {
	case "truncate":
		return "", tx.Truncate(ctx, id)
	case "drop":
		s.changed[f[1]] = append(s.changed[f[1]], writer.TableDef{ID: id})
		return "", tx.Define(ctx, writer.TableChange{Kind: writer.Drop, Def: writer.TableDef{ID: id}})
	case "unique":
		d := s.defined(f[1], id)
		schema := *d.Schema
		schema.ID++
		d.Schema = &schema
		d.Uniques = []writer.UniqueDef{{ID: uint32(id) + 2000, Name: d.Name + "_key", Key: intKey(0)}}
		s.changed[f[1]] = append(s.changed[f[1]], d)
		return "", tx.Define(ctx, writer.TableChange{Kind: writer.Alter, Def: d})
	case "add":
		d := s.defined(f[1], id)
		schema := *d.Schema
		initial := "new"
		schema.ID++
		schema.Columns = append(schema.Columns[:len(schema.Columns):len(schema.Columns)], table.Column{Name: f[3],
			FieldID: len(schema.Columns) + 1, Type: table.Type{Kind: table.String}, Initial: &initial})
		d.Schema = &schema
		s.changed[f[1]] = append(s.changed[f[1]], d)
		return "", tx.Define(ctx, writer.TableChange{Kind: writer.Alter, Def: d})
	}
	def, ok := v.Table(id)
	if !ok {
		return "", writer.ErrUnknownTable
	}
	switch f[0] {
	case "write":
		_, err := tx.Insert(ctx, id, rows(def.Schema, pairs(f[3:])...))
		return "", err
	case "upsert", "skip":
		merge := appendValues(def.Schema)
		if f[0] == "skip" {
			merge = nil
		}
		inserted, merged, err := tx.Upsert(ctx, id, def.Uniques[0].ID, rows(def.Schema, pairs(f[3:])...), merge)
		return fmt.Sprintf("%d rows\n", len(inserted)+len(merged)), err
	case "delete":
		refs, err := find(v, id, f[3])
		if err != nil {
			return "", err
		}
		return "", tx.Delete(ctx, id, refs, lock.ForUpdate)
	case "update":
		refs, err := find(v, id, f[3])
		if err != nil || len(refs) == 0 {
			return "no rows\n", err
		}
		_, err = tx.Update(ctx, id, refs, rows(def.Schema, pairs(f[3:])...), lock.ForNoKeyUpdate)
		return "", err
	case "get":
		return get(v, def, f[3])
	}
	return "", fmt.Errorf("unknown verb")
}

// appendValues is a merge to v || proposed.v.
func appendValues(s *table.Schema) *writer.Merge {
	return &writer.Merge{Old: true, Rows: func(old, proposed *table.Batch) (*table.Batch, error) {
		b := table.NewBatch(s)
		for i := range old.Rows {
			b.Cols[0].AppendFrom(old.Cols[0], i)
			b.Cols[1].AppendString(string(old.Cols[1].Bytes(i)) + string(proposed.Cols[1].Bytes(i)))
			b.Rows++
		}
		return b, nil
	}}
}

// defined is the table as transaction name last defined it.
func (s *script) defined(name string, id table.ID) writer.TableDef {
	d := s.defs[id]
	for _, c := range s.changed[name] {
		if c.ID == id {
			d = c
		}
	}
	return d
}

func get(v *writer.View, def *writer.Def, key string) (string, error) {
	k, _ := strconv.Atoi(key)
	r, found, err := v.ByKey(context.Background(), def.ID, def.Uniques[0].ID, keyOf(int64(k)))
	if !found || err != nil {
		return "none\n", err
	}
	return row(r.Batch, 0) + "\n", nil
}

func pairs(f []string) []any {
	list := make([]any, len(f))
	for i := range f {
		list[i] = f[i]
		if n, err := strconv.Atoi(f[i]); err == nil && i%2 == 0 {
			list[i] = n
		}
		if f[i] == "NULL" {
			list[i] = nil
		}
	}
	return list
}
