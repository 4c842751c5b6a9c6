package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"sluice/catalogpg"
	"sluice/sql/pgvalue"
	"sluice/writer"
	"sluice/writer/table"
)

// rel is a lake table: what Postgres says of its shadow and what the lake makes of it. A rel is never changed once shared.
type rel struct {
	OID             uint32
	Namespace, Name string
	Columns         []column // live columns, by attnum; the same places as in Schema
	Schema          *table.Schema
	Uniques         []unique
	Options         map[string]string
	fields          []catalogpg.Field // of every column that ever was
	lastField       int
	desc            *catalogpg.Rel
}

// column is one column with its codec.
type column struct {
	Name      string
	Attnum    int16
	Generated bool
	Codec     *pgvalue.Codec
	attr      *catalogpg.Attr
	fallback  *fallback // its default; nil: only Postgres knows it
}

// unique is one enforced unique index.
type unique struct {
	OID  uint32
	Name string
	Cols []int // places in Schema
	Key  writer.KeyFunc
}

func (u *unique) has(col int) bool {
	for _, c := range u.Cols {
		if c == col {
			return true
		}
	}
	return false
}

// registry is all committed lake tables. version grows with every committed DDL.
type registry struct {
	version atomic.Uint64
	mu      sync.RWMutex // guards rels
	rels    map[uint32]*rel
}

func (g *registry) get(oid uint32) *rel {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.rels[oid]
}

// any reports whether a table is as f says.
func (g *registry) any(f func(*rel) bool) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for _, r := range g.rels {
		if f(r) {
			return true
		}
	}
	return false
}

// hasKind reports whether a column's type is of this kind (pg_type.typtype).
func (r *rel) hasKind(kind string) bool {
	return slices.ContainsFunc(r.Columns, func(c column) bool { return c.attr.TypeKind == kind })
}

// referenced reports whether a foreign key leads to the table.
func (g *registry) referenced(oid uint32) bool {
	return g.any(func(r *rel) bool { return r.references(oid) })
}

// merge takes over what a committed transaction did; nil is a dropped table.
func (g *registry) merge(ddl map[uint32]*rel) {
	g.mu.Lock()
	for oid, r := range ddl {
		if r == nil {
			delete(g.rels, oid)
		} else {
			g.rels[oid] = r
		}
	}
	g.mu.Unlock()
	g.version.Add(1)
}

// rel is a lake table as this session sees it, or nil.
func (s *session) rel(oid uint32) *rel {
	if s.tx != nil {
		if r, ok := s.tx.ddl[oid]; ok {
			return r
		}
	}
	return s.srv.rels.get(oid)
}

// learn is rel for a relation that Postgres calls a lake table. One that is not known is of a transaction whose COMMIT Postgres has carried out
// and whose publication is under way, behind the gate; nil after that: this statement makes it.
func (s *session) learn(ctx context.Context, oid uint32) (*rel, error) {
	if r := s.rel(oid); r != nil || s.srv.inside[oid] != nil {
		return r, nil
	}
	release, err := s.srv.Writer.Gate().Shared(ctx)
	if err != nil {
		return nil, err
	}
	release()
	return s.rel(oid), nil
}

// overlay is the transaction's uncommitted DDL, to come back to.
func (s *session) overlay() map[uint32]*rel { return maps.Clone(s.tx.ddl) }

func (s *session) restore(ddl map[uint32]*rel) {
	s.tx.ddl = ddl
	s.names.clear()
}

// newRel makes the lake's view of a shadow. prev is the table before; nil: what the catalog has recorded, or a new table.
func newRel(d *catalogpg.Rel, prev *rel) (*rel, error) {
	r := &rel{OID: d.OID, Namespace: d.Namespace, Name: d.Name, desc: d, Options: map[string]string{}, Schema: &table.Schema{ID: 1}}
	switch {
	case prev != nil:
		r.fields, r.lastField, r.Options, r.Schema.ID = slices.Clone(prev.fields), prev.lastField, prev.Options, prev.Schema.ID+1
	case d.Lake != nil:
		r.fields, r.lastField, r.Options, r.Schema.ID = d.Lake.Fields, d.Lake.LastFieldID, d.Lake.Options, d.Lake.Version
	}
	for i := range d.Columns {
		if err := r.addColumn(&d.Columns[i], prev); err != nil {
			return nil, err
		}
	}
	for _, x := range d.Indexes {
		if x.Unique && !r.stored() { // of a materialized view Postgres has checked them
			r.addUnique(x)
		}
	}
	if prev != nil || d.Lake != nil {
		return r, r.partition()
	}
	return r, nil
}

func (r *rel) addColumn(a *catalogpg.Attr, prev *rel) error {
	t, exact, known := pgvalue.Lake(a.Base, a.BaseTypmod)
	codec, err := pgvalue.NewCodec(a.Base, a.BaseTypmod, t)
	if err != nil {
		return fmt.Errorf("column %q: %w", a.Name, err)
	}
	if !known && a.TypeKind == "e" {
		codec = codec.Plain()
	}
	f := r.field(a, t, exact, prev)
	c := column{Name: a.Name, Attnum: a.Num, Generated: a.Generated != "", Codec: codec, attr: a}
	c.setFallback()
	r.Columns = append(r.Columns, c)
	r.Schema.Columns = append(r.Schema.Columns, table.Column{Name: a.Name, FieldID: f.ID, ElemID: f.ElemID, Type: t, NotNull: a.NotNull && !exact,
		Exact: exact, ExactID: f.ExactID, Doc: a.TypeName, Initial: f.Initial})
	return nil
}

// field is the column's Iceberg identity: the one it has, unless its type has become one that Iceberg cannot promote to.
func (r *rel) field(a *catalogpg.Attr, t table.Type, exact bool, prev *rel) catalogpg.Field {
	for i := range r.fields {
		if r.fields[i].Attnum != a.Num {
			continue
		}
		if prev == nil || prev.keeps(a.Num, t) {
			return r.fields[i]
		}
		f := r.newField(a.Num, t, exact)
		r.fields[i] = f
		return f
	}
	f := r.newField(a.Num, t, exact)
	if a.HasMissing {
		f.Initial = a.Missing
	}
	r.fields = append(r.fields, f)
	return f
}

// keeps reports whether a column keeps its field when its type becomes t.
func (r *rel) keeps(attnum int16, t table.Type) bool {
	for i := range r.Columns {
		if r.Columns[i].Attnum == attnum {
			return sameField(r.Schema.Columns[i].Type.String(), t)
		}
	}
	return false
}

// newField reserves the ids of a column, its list element and its companion.
func (r *rel) newField(attnum int16, t table.Type, exact bool) catalogpg.Field {
	next := func() int { r.lastField++; return r.lastField }
	f := catalogpg.Field{Attnum: attnum, ID: next()}
	if t.Kind == table.List {
		f.ElemID = next()
	}
	if exact {
		f.ExactID = next()
	}
	return f
}

// sameField reports whether a column keeps its field id when its type becomes t: the type is the same, or Iceberg can promote it.
func sameField(was string, t table.Type) bool {
	is := t.String()
	if was == is || was == "int" && is == "long" || was == "float" && is == "double" {
		return true
	}
	var p, s int
	if n, _ := fmt.Sscanf(was, "decimal(%d, %d)", &p, &s); n == 2 && (t.Kind == table.Decimal64 || t.Kind == table.Decimal128) {
		return t.Scale == s && t.Precision >= p
	}
	return false
}

func (r *rel) addUnique(x catalogpg.Index) {
	u := unique{OID: x.OID, Name: x.Name}
	for _, att := range x.Attnums {
		for i := range r.Columns {
			if r.Columns[i].Attnum == att {
				u.Cols = append(u.Cols, i)
			}
		}
	}
	u.Key = keyFunc(u.Cols, r.keyTypes(u.Cols), !x.NullsNotDistinct)
	r.Uniques = append(r.Uniques, u)
	if x.Primary {
		r.Schema.Key = u.Cols
	}
}

// columnsAt is the places in Schema of columns by their numbers; there are such columns.
func (r *rel) columnsAt(attnums []int16) []int {
	out := make([]int, len(attnums))
	for i, n := range attnums {
		out[i] = slices.IndexFunc(r.Columns, func(c column) bool { return c.Attnum == n })
	}
	return out
}

// keyTypes is the types by whose equality columns are compared.
func (r *rel) keyTypes(cols []int) []uint32 {
	oids := make([]uint32, len(cols))
	for i, c := range cols {
		if oids[i] = r.Columns[c].Codec.OID(); r.Columns[c].attr.TypeKind == "e" {
			oids[i] = pgvalue.OIDText // its values are never renamed
		}
	}
	return oids
}

// keyFunc makes keys of columns of the given types. distinct says that one NULL makes a key unlike all others.
func keyFunc(cols []int, oids []uint32, distinct bool) writer.KeyFunc {
	return func(dst []byte, b *table.Batch, row int) ([]byte, bool) {
		for i, c := range cols {
			if null(b, c, row) {
				if distinct {
					return dst, true
				}
				dst = append(dst, 0)
				continue
			}
			dst = pgvalue.Key(append(dst, 1), b.Cols[c], row, oids[i])
		}
		return dst, false
	}
}

// null reports whether a value is NULL to Postgres.
func null(b *table.Batch, col, row int) bool {
	_, exact := b.Cols[col].ExactText(row)
	return b.Cols[col].IsNull(row) && !exact
}

// def is the table as the writer knows it.
func (r *rel) def() writer.TableDef {
	d := writer.TableDef{ID: table.ID(r.OID), Namespace: r.Namespace, Name: r.Name, Schema: r.Schema, Options: r.Options}
	for _, u := range r.Uniques {
		d.Uniques = append(d.Uniques, writer.UniqueDef{ID: u.OID, Name: u.Name, Columns: u.Cols, Key: u.Key})
	}
	return d
}

// record is what sluice.rel keeps of the table.
func (r *rel) record() catalogpg.RelPut {
	kind := "lake"
	if r.stored() {
		kind = "matview"
	}
	return catalogpg.RelPut{Kind: kind, Version: r.Schema.ID, Fields: r.fields, LastFieldID: r.lastField, Options: r.Options}
}
