package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"sluice/catalogpg"
	"sluice/server/backend"
	"sluice/server/wire"
	"sluice/sql/pgvalue"
	"sluice/writer"
	"sluice/writer/table"
)

// Copying rows into shadows and reading what a statement made of them.

// guard is the state of one attempt while copied rows are in place.
type guard struct {
	filled    map[uint32]*copied
	baseline  catalogpg.Counts
	filenodes map[uint32]uint32 // before the statement, if it may truncate
	merge     *merging
	failed    *wire.Error // of the statement
}

// copied is the rows of one table that were copied into its shadow.
type copied struct {
	fill catalogpg.Fill
	rows *table.Batch
	refs []table.Ref // the names of the same rows
	anew bool        // whatever the statement did: all are gone, and all in the shadow are new
}

// change is what a statement did to one table.
type change struct {
	rel      *rel
	gone     []table.Ref  // copied rows that it deleted, or whose key it changed
	replaced []table.Ref  // copied rows that have a new version with the same keys
	versions *table.Batch // those versions, in the same order
	locked   []table.Ref  // copied rows that it only locked
	added    *table.Batch // new rows and new versions
}

// openGuard sets the savepoints, fills, and takes the baseline of the counters, in one round trip.
func (s *session) openGuard(ctx context.Context, a *attempt, view *writer.View) (*guard, error) {
	g := &guard{filled: map[uint32]*copied{}}
	var list []backend.Statement
	if a.plan.Keep {
		list = append(list, backend.Text(saveDeferred))
	}
	list = append(list, backend.Text("SAVEPOINT _sluice_a"))
	before := len(list)
	var fills []*copied
	for _, oid := range a.tables() {
		c, fill, err := s.copyTable(ctx, a, view, oid)
		if err != nil {
			return nil, errors.Join(s.be.do(ctx, "SAVEPOINT _sluice_a"), err)
		}
		if g.filled[oid] = c; fill != nil {
			list, fills = append(list, privileged(*fill)), append(fills, c)
		}
	}
	if g.merge = a.merge; a.merge != nil {
		list = append(list, backend.Text("SET LOCAL sluice.merge = "+catalogpg.QuoteLiteral(a.merge.mode)))
	}
	list = append(list, backend.Text("SAVEPOINT _sluice_b"))
	if s.tx.readOnly {
		list = append(list, backend.Text("SET LOCAL transaction_read_only = on"))
	}
	if a.mayTruncate() {
		list = append(list, backend.Text(filenodesQuery))
	}
	r, err := s.be.batch(append(list, privileged(catalogpg.CountsCall()))...)
	if err != nil {
		return nil, err
	}
	for i, c := range fills {
		if c.fill, err = catalogpg.DecodeFill(r[before+i].Rows[0]); err != nil {
			return nil, err
		}
	}
	if a.mayTruncate() {
		g.filenodes = readFilenodes(r[len(r)-2].Rows)
	}
	g.baseline, err = catalogpg.DecodeCounts(r[len(r)-1].Rows[0])
	return g, err
}

// saveDeferred has Postgres note, at the user's own savepoint, which constraints are deferred: it notes that where the first SET CONSTRAINTS
// runs, and forgets it with the release of ours, so that the user's ROLLBACK TO would bring nothing back. No row is under this constraint.
const saveDeferred = "SET CONSTRAINTS sluice.deferring DEFERRED"

// writeAnew notes tables whose rows are all to be written anew, and returns those that were not filled.
func (g *guard) writeAnew(tables []uint32) (unread []uint32) {
	for _, oid := range tables {
		if c := g.filled[oid]; c != nil {
			c.anew = true
		} else {
			unread = append(unread, oid)
		}
	}
	return unread
}

// observe reads what the statement did: the counters and, if it may have changed copied rows, those of every table that was filled.
func (s *session) observe(a *attempt, g *guard) (h hits, changes map[uint32][][][]byte, err error) {
	list := []backend.Statement{privileged(catalogpg.CountsCall())}
	tables := a.tables()
	if a.readOnly() {
		tables = nil
	}
	for _, oid := range tables {
		fill := g.filled[oid].fill
		if g.filled[oid].anew {
			fill = catalogpg.Fill{}
		}
		list = append(list, privileged(s.pg.Load().ChangeCall(oid, fill)))
	}
	r, err := s.be.batch(list...)
	if err != nil {
		return h, nil, err
	}
	changes = map[uint32][][][]byte{}
	for i, oid := range tables {
		changes[oid] = r[i+1].Rows
	}
	h, err = g.hits(r[0].Rows[0])
	return h, changes, err
}

// hits is what the statement did to shadows, by the row of counts behind it.
func (g *guard) hits(row [][]byte) (h hits, err error) {
	now, err := catalogpg.DecodeCounts(row)
	h.scanned, h.inserted = now.Since(g.baseline)
	if m := g.merge; m != nil && m.mode != decides {
		h.scanned = slices.DeleteFunc(h.scanned, func(oid uint32) bool { return oid == m.rel.OID && m.only(now[oid], g.baseline[oid], g.failed) })
	}
	return h, err
}

type hits struct{ scanned, inserted []uint32 }

// missing is the scanned tables that were not filled. A table that the statement itself made has no rows to miss.
func (s *session) missing(ctx context.Context, a *attempt, h hits) ([]uint32, error) {
	var out []uint32
	for _, oid := range h.scanned {
		if a.fill[oid] && !a.merge.narrowed(oid) || a.st.PlainIndex() {
			continue
		}
		if _, err := s.learn(ctx, oid); err != nil {
			return nil, err
		}
		if s.fillable(oid) != nil {
			out = append(out, oid)
		}
	}
	return out, nil
}

// copyTable reads the rows to copy of one table and prepares the fill of its shadow; no fill if there are no rows.
func (s *session) copyTable(ctx context.Context, a *attempt, view *writer.View, oid uint32) (*copied, *catalogpg.Call, error) {
	r := s.fillable(oid)
	if r == nil {
		return nil, nil, fmt.Errorf("fill: relation %d is unknown", oid)
	}
	batch, refs, err := s.rowsOf(ctx, a, view, r)
	if err != nil {
		return nil, nil, err
	}
	c := &copied{rows: batch, refs: refs}
	if batch.Rows == 0 {
		return c, nil, nil
	}
	attnums, cols, err := r.literals(batch)
	if err != nil {
		return nil, nil, err
	}
	fill := s.pg.Load().FillCall(oid, attnums, cols, batch.Rows)
	return c, &fill, nil
}

// rowsOf is the rows to copy: all, those of the statement's look-up, or those that stood in the way before.
func (s *session) rowsOf(ctx context.Context, a *attempt, view *writer.View, r *rel) (*table.Batch, []table.Ref, error) {
	if v := s.srv.inside[r.OID]; v != nil {
		return v.batch(ctx, s, view)
	}
	id := table.ID(r.OID)
	if !a.fill[r.OID] {
		refs, err := view.Live(id, a.rows[r.OID])
		if err != nil {
			return nil, nil, err
		}
		batch, err := view.Fetch(ctx, id, refs)
		return batch, refs, err
	}
	if sets, ok := a.keys[r.OID]; ok {
		return s.byKeys(ctx, a, view, r, sets)
	}
	rows, size := view.Size(id)
	if fits, err := s.fitsExact(ctx, rows, size); err != nil {
		return nil, nil, err
	} else if !fits {
		return s.foundRows(ctx, a, view, r, rows)
	}
	all := table.NewBatch(r.Schema)
	var refs []table.Ref
	err := view.Scan(ctx, id, func(rows writer.Rows) error {
		refs = appendRows(all, refs, rows)
		return nil
	})
	if len(a.skip) > 0 {
		all, refs = without(all, refs, a.skip)
	}
	return all, refs, err
}

// without leaves the rows in skip out.
func without(b *table.Batch, refs []table.Ref, skip map[table.Ref]bool) (*table.Batch, []table.Ref) {
	out, kept := table.NewBatch(b.Schema), refs[:0:0]
	for i, ref := range refs {
		if !skip[ref] {
			out.AppendRow(b, i)
			kept = append(kept, ref)
		}
	}
	return out, kept
}

// exactBytes is the size up to which the exact lane copies a table, in bytes of column vectors.
const exactBytes = 256 << 20

// appendRows adds the live rows of r to b and their names to refs.
func appendRows(b *table.Batch, refs []table.Ref, r writer.Rows) []table.Ref {
	if r.Sel == nil {
		b.AppendRange(r.Batch, 0, r.Batch.Rows)
		for i := range r.Batch.Rows {
			refs = append(refs, table.Ref{File: r.File, Row: r.First + uint64(i)})
		}
		return refs
	}
	for _, i := range r.Sel {
		b.AppendRow(r.Batch, int(i))
		refs = append(refs, table.Ref{File: r.File, Row: r.First + uint64(i)})
	}
	return refs
}

// byKeys copies the rows with the given keys of unique constraints, and more, each once.
func (s *session) byKeys(ctx context.Context, a *attempt, view *writer.View, r *rel, sets []keySet) (all *table.Batch, refs []table.Ref, err error) {
	all = table.NewBatch(r.Schema)
	defer func() {
		if len(a.skip) > 0 {
			all, refs = without(all, refs, a.skip)
		}
	}()
	seen := map[table.Ref]bool{}
	for _, k := range sets {
		err = view.ByKeys(ctx, table.ID(r.OID), k.unique, k.keys, func(rows writer.Rows) error {
			n := len(refs)
			if refs = appendRows(all, refs, rows); seen[refs[n]] {
				all.Truncate(n)
				refs = refs[:n]
				return nil
			}
			seen[refs[n]] = true
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
	}
	rest, err := view.Live(table.ID(r.OID), a.rows[r.OID])
	if err != nil {
		return nil, nil, err
	}
	rest = slices.DeleteFunc(rest, func(ref table.Ref) bool { return seen[ref] })
	if len(rest) > 0 {
		b, err := view.Fetch(ctx, table.ID(r.OID), rest)
		if err != nil {
			return nil, nil, err
		}
		all.AppendRange(b, 0, b.Rows)
		refs = append(refs, rest...)
	}
	return all, refs, nil
}

// readChanges decodes what the statement did to the tables that were filled, and reads those that it only inserted into.
func (s *session) readChanges(a *attempt, g *guard, h hits, seen map[uint32][][][]byte) ([]change, error) {
	var out []change
	for _, oid := range a.tables() {
		ch := change{rel: s.fillable(oid)}
		if ch.rel == nil {
			continue // dropped
		}
		if err := ch.read(g.filled[oid], seen[oid]); err != nil {
			return nil, err
		}
		out = append(out, ch)
	}
	if len(h.inserted) > 0 {
		if err := s.refuseEncoding(); err != nil {
			return nil, err
		}
	}
	for _, oid := range h.inserted {
		if r := s.rel(oid); g.filled[oid] != nil || r != nil && r.stored() {
			continue
		}
		ch := change{rel: s.rel(oid)}
		if ch.rel == nil {
			return nil, fmt.Errorf("read change: relation %d is unknown", oid)
		}
		rows, err := s.be.call(s.pg.Load().ChangeCall(oid, catalogpg.Fill{}))
		if err != nil {
			return nil, err
		}
		if err := ch.read(&copied{}, rows); err != nil {
			return nil, err
		}
		out = append(out, ch)
	}
	return out, nil
}

func (ch *change) read(c *copied, rows [][][]byte) error {
	ch.added = table.NewBatch(ch.rel.Schema)
	var gone []int
	at := make(map[catalogpg.TID]int, len(c.fill.TIDs))
	for i, t := range c.fill.TIDs {
		at[t] = i
	}
	for _, r := range rows {
		d, err := catalogpg.DecodeChange(r)
		if err != nil {
			return err
		}
		switch d.Kind {
		case catalogpg.New:
			if err := ch.rel.appendCanonical(ch.added, d.Vals); err != nil {
				return err
			}
		case catalogpg.Gone:
			gone = append(gone, at[d.TID])
		default:
			ch.locked = append(ch.locked, c.refs[at[d.TID]])
		}
	}
	if c.anew {
		gone = nil
		for i := range c.refs {
			gone = append(gone, i)
		}
	}
	ch.sortGone(c, gone)
	return nil
}

// sortGone tells rows that were updated without a change of their keys from the others: whoever only relies on a row's keys, as a foreign
// key does, need not wait for the first, and follows them to their new version.
func (ch *change) sortGone(c *copied, gone []int) {
	if len(gone) > 0 && c.rows.Schema.ID != ch.added.Schema.ID {
		gone = ch.unchanged(c, gone)
	}
	successor := ch.successors()
	taken := make([]bool, ch.added.Rows)
	versions := table.NewBatch(ch.added.Schema)
	for _, row := range gone {
		next, ok := ch.successor(successor, c.rows, row)
		if !ok || taken[next] {
			ch.gone = append(ch.gone, c.refs[row])
			continue
		}
		taken[next] = true
		ch.replaced = append(ch.replaced, c.refs[row])
		versions.AppendRow(ch.added, next)
	}
	if len(ch.replaced) == 0 {
		return
	}
	rest := table.NewBatch(ch.added.Schema)
	for row, used := range taken {
		if !used {
			rest.AppendRow(ch.added, row)
		}
	}
	ch.versions, ch.added = versions, rest
}

// unchanged takes rows out of the change that are the same under the table's new definition, so that their files stay: Postgres has
// rewritten them, Iceberg promotes their types. It returns the others of gone.
func (ch *change) unchanged(c *copied, gone []int) []int {
	old, err := writer.Adapt(c.rows, ch.added.Schema)
	if err != nil {
		return gone // the rows have to be written anew
	}
	have := map[string][]int{}
	for row := range ch.added.Rows {
		text, err := ch.rel.rowText(ch.added, row)
		if err != nil {
			return gone
		}
		have[text] = append(have[text], row)
	}
	same := make([]bool, ch.added.Rows)
	rest := gone[:0:0]
	for _, row := range gone {
		text, err := ch.rel.rowText(old, row)
		if rows := have[text]; err == nil && len(rows) > 0 {
			same[rows[0]], have[text] = true, rows[1:]
		} else {
			rest = append(rest, row)
		}
	}
	added := table.NewBatch(ch.added.Schema)
	for row, drop := range same {
		if !drop {
			added.AppendRow(ch.added, row)
		}
	}
	ch.added = added
	return rest
}

// successors maps the keys of the new rows to the rows, for each unique constraint.
func (ch *change) successors() []map[string]int {
	keys := make([]map[string]int, len(ch.rel.Uniques))
	for u := range keys {
		keys[u] = make(map[string]int, ch.added.Rows)
		for row := range ch.added.Rows {
			if key, null := ch.rel.Uniques[u].Key(nil, ch.added, row); !null {
				keys[u][string(key)] = row
			}
		}
	}
	return keys
}

// successor is the new row that has all keys of a copied row.
func (ch *change) successor(keys []map[string]int, rows *table.Batch, row int) (next int, ok bool) {
	if rows.Schema.ID != ch.added.Schema.ID || ch.added.Rows == 0 { // a changed definition: its rows are written under another one
		return 0, false
	}
	next = -1
	for u := range keys {
		key, null := ch.rel.Uniques[u].Key(nil, rows, row)
		if null {
			continue
		}
		at, found := keys[u][string(key)]
		if !found || next >= 0 && at != next {
			return 0, false
		}
		next = at
	}
	return next, next >= 0
}

// literals is the batch as arguments of a fill: the column numbers and one array literal a column.
func (r *rel) literals(b *table.Batch) (attnums []int16, cols []string, err error) {
	var lit []byte
	for i := range r.Columns {
		c := &r.Columns[i]
		if c.Generated {
			continue
		}
		if lit, err = pgvalue.ArrayLiteral(lit[:0], b.Cols[i], nil, c.Codec); err != nil {
			return nil, nil, fmt.Errorf("copy column %q: %w", c.Name, err)
		}
		attnums, cols = append(attnums, c.Attnum), append(cols, string(lit))
	}
	return attnums, cols, nil
}

// appendQuoted appends an element of an array literal in quotes.
func appendQuoted(dst, v []byte) []byte {
	dst = append(dst, '"')
	for _, c := range v {
		if c == '"' || c == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, c)
	}
	return append(dst, '"')
}

// appendCanonical appends one row that the backend printed.
func (r *rel) appendCanonical(b *table.Batch, vals [][]byte) error {
	if len(vals) != len(r.Columns) {
		return fmt.Errorf("read change of %q: %d columns, want %d", r.Name, len(vals), len(r.Columns))
	}
	for i, v := range vals {
		if v == nil {
			b.Cols[i].AppendNull()
			continue
		}
		if err := r.Columns[i].Codec.AppendCanonical(b.Cols[i], v); err != nil {
			return fmt.Errorf("read change of column %q: %w", r.Columns[i].Name, err)
		}
	}
	b.Rows++
	return nil
}

// fillLocks keep two sessions from filling one table at a time: the second would wait inside Postgres for the first's copies.
type fillLocks struct {
	mu   sync.Mutex // guards held, for the span of a look-up
	held map[uint32]*filling
}

// filling is one table that is being filled.
type filling struct {
	by   *session
	done chan struct{}
}

// fillPatience is how long a statement waits for a table before it looks whether the one on it waits in Postgres.
const fillPatience = 200 * time.Millisecond

// lock takes the locks of tables, which are sorted, and returns what releases them.
func (f *fillLocks) lock(ctx context.Context, s *session, tables []uint32) (func(), error) {
	var mine []uint32
	unlock := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, oid := range mine {
			close(f.held[oid].done)
			delete(f.held, oid)
		}
		mine = nil
	}
	for _, oid := range tables {
		if err := f.lockOne(ctx, s, oid); err != nil {
			unlock()
			return nil, err
		}
		mine = append(mine, oid)
	}
	return unlock, nil
}

func (f *fillLocks) lockOne(ctx context.Context, s *session, oid uint32) error {
	for {
		f.mu.Lock()
		busy := f.held[oid]
		if busy == nil {
			if f.held == nil {
				f.held = map[uint32]*filling{}
			}
			f.held[oid] = &filling{s, make(chan struct{})}
			f.mu.Unlock()
			return nil
		}
		f.mu.Unlock()
		if err := busy.wait(ctx); err != nil {
			return err
		}
	}
}

// wait returns when the table may be free.
func (b *filling) wait(ctx context.Context) error {
	look := time.NewTimer(fillPatience)
	defer look.Stop()
	select {
	case <-b.done:
		return nil
	case <-look.C:
		return b.by.makeWay(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
