package server

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"sluice/sql/pgvalue"
	"sluice/writer"
	"sluice/writer/format"
	"sluice/writer/table"
)

// Views over the inside (DESIGN section 9). sluice.tables and its like are empty Postgres tables; when a statement scans one, by name or
// behind a view or function, the guard fills it with what its function below tells at that moment, exactly as a shadow is filled with rows
// of the lake. They are no lake tables: no lock of the gateway, no read that SERIALIZABLE counts, and nobody has the right to write them.

// insideView is one of them.
type insideView struct {
	rel  *rel
	rows func(ctx context.Context, s *session, v *writer.View) ([]row, error)
}

// row is the values of one row: nil, bool, int, int64, uint64, string, time.Time or []byte (JSON).
type row []any

// insideRows is the functions, by name of the table in the schema sluice.
var insideRows = map[string]func(context.Context, *session, *writer.View) ([]row, error){
	"tables": tableRows, "files": fileRows, "snapshots": snapshotRows, "wal": walRows, "sessions": sessionRows, "progress": progressRows,
}

// openInside finds the tables.
func (s *Server) openInside(ctx context.Context) error {
	rels, err := s.Catalog.Inside(ctx)
	if err != nil {
		return err
	}
	s.inside = map[uint32]*insideView{}
	for _, d := range rels {
		rows, known := insideRows[d.Name]
		if !known {
			continue
		}
		r, err := newRel(d, nil)
		if err != nil {
			return fmt.Errorf("describe sluice.%s: %w", d.Name, err)
		}
		s.inside[d.OID] = &insideView{r, rows}
	}
	return nil
}

// fillable is a relation that a scan may find empty and that can be filled: a lake table, or a view over the inside.
func (s *session) fillable(oid uint32) *rel {
	if v := s.srv.inside[oid]; v != nil {
		return v.rel
	}
	if r := s.rel(oid); r != nil && !r.stored() {
		return r
	}
	return nil
}

// shadows leaves out the views over the inside: their copies collide with nobody's, and a long look at them should keep no one waiting.
func (s *Server) shadows(oids []uint32) []uint32 {
	out := oids[:0:0]
	for _, oid := range oids {
		if s.inside[oid] == nil {
			out = append(out, oid)
		}
	}
	return out
}

// batch is the rows of the view now.
func (v *insideView) batch(ctx context.Context, s *session, view *writer.View) (*table.Batch, []table.Ref, error) {
	rows, err := v.rows(ctx, s, view)
	if err != nil {
		return nil, nil, fmt.Errorf("read sluice.%s: %w", v.rel.Name, err)
	}
	b := table.NewBatch(v.rel.Schema)
	for _, r := range rows {
		for i, val := range r {
			if err := appendValue(b.Cols[i], v.rel.Columns[i].Codec, val); err != nil {
				return nil, nil, fmt.Errorf("read sluice.%s: column %s: %w", v.rel.Name, v.rel.Columns[i].Name, err)
			}
		}
		b.Rows++
	}
	return b, make([]table.Ref, b.Rows), nil // nobody can lock or change them by name
}

func appendValue(v *table.Vec, c *pgvalue.Codec, val any) error {
	var text string
	switch x := val.(type) {
	case nil:
		v.AppendNull()
		return nil
	case string:
		text = x
	case []byte:
		text = string(x)
	case time.Time:
		if x.IsZero() {
			v.AppendNull()
			return nil
		}
		text = x.UTC().Format("2006-01-02 15:04:05.999999+00")
	default:
		text = fmt.Sprint(x)
	}
	return c.AppendCanonical(v, []byte(text))
}

// orNull is nil for zero.
func orNull[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}

// seen is the lake tables that the current role has a privilege on, as this session sees them.
func (s *session) seenTables(ctx context.Context) ([]*rel, error) {
	rows, err := s.be.exec(ctx, `SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
		WHERE c.relam OPERATOR(pg_catalog.=) (SELECT oid FROM pg_catalog.pg_am WHERE amname OPERATOR(pg_catalog.=) 'lake') AND sluice.sees(c.oid)
		ORDER BY n.nspname, c.relname`)
	if err != nil {
		return nil, err
	}
	var out []*rel
	for _, r := range rows {
		if t := s.rel(oidOf(r[0])); t != nil {
			out = append(out, t)
		}
	}
	return out, nil
}

func tableRows(ctx context.Context, s *session, v *writer.View) ([]row, error) {
	tables, err := s.seenTables(ctx)
	if err != nil {
		return nil, err
	}
	places, err := s.srv.Catalog.Places(ctx)
	if err != nil {
		return nil, err
	}
	var out []row
	for _, t := range tables {
		st, committed := v.Stats(table.ID(t.OID))
		var bytes int64
		for _, f := range st.Files {
			bytes += f.Bytes
		}
		var flushed any
		if committed {
			flushed = uint64(s.srv.Writer.Progress())
		}
		p := places[t.OID]
		out = append(out, row{t.Namespace, t.Name, t.OID, st.Rows, len(st.Files), bytes, st.TailRows, st.TailBytes, orNull(p.Snapshot), orNull(p.Location),
			flushed})
	}
	return out, nil
}

func fileRows(ctx context.Context, s *session, v *writer.View) ([]row, error) {
	tables, err := s.seenTables(ctx)
	if err != nil {
		return nil, err
	}
	var out []row
	for _, t := range tables {
		st, _ := v.Stats(table.ID(t.OID))
		for _, f := range st.Files {
			out = append(out, row{t.Namespace, t.Name, t.OID, uint32(f.ID), f.Location, f.Rows, f.Deleted, f.Bytes})
		}
	}
	return out, nil
}

func snapshotRows(ctx context.Context, s *session, _ *writer.View) ([]row, error) {
	tables, err := s.seenTables(ctx)
	if err != nil || s.srv.History == nil {
		return nil, err
	}
	places, err := s.srv.Catalog.Places(ctx)
	if err != nil {
		return nil, err
	}
	var out []row
	for _, t := range tables {
		p := places[t.OID]
		if p.Location == "" {
			continue
		}
		past, err := s.srv.History(ctx, table.Pointer{Location: p.Location})
		if err != nil {
			return nil, err
		}
		for _, h := range past {
			r, err := t.snapshotRow(h)
			if err != nil {
				return nil, err
			}
			out = append(out, r)
		}
	}
	return out, nil
}

func (t *rel) snapshotRow(h format.Past) (row, error) {
	summary, err := json.Marshal(h.Summary)
	if err != nil {
		return nil, err
	}
	return row{t.Namespace, t.Name, t.OID, h.ID, orNull(h.Parent), h.Sequence, h.Time, orNull(h.Operation), h.Current, summary}, nil
}

// walRows tells why the log cannot be trimmed: the reason behind a growing log.
func walRows(ctx context.Context, s *session, _ *writer.View) ([]row, error) {
	w := s.srv.Writer
	st, flushed, visible := w.LogStats(), w.Progress(), w.Visible()
	reason, err := s.heldReason(ctx, flushed, visible, st.Last)
	if err != nil {
		return nil, err
	}
	first := any(uint64(st.First))
	if st.First > st.Last || st.First == 0 {
		first = nil
	}
	return []row{{w.Stream(), first, uint64(st.Last), uint64(visible), uint64(flushed), st.Segments, st.Bytes, st.Held, reason}}, nil
}

// heldReason is for all; what the error of a flush says is only for those who may see everything, since it may name tables.
func (s *session) heldReason(ctx context.Context, flushed, visible, last table.Position) (any, error) {
	switch err := s.srv.Writer.FlushError(); {
	case flushed >= last:
		return nil, nil
	case visible < last:
		return "a prepared transaction is not decided", nil
	case err == nil:
		return "the next flush has not come", nil
	default:
		rows, qerr := s.be.exec(ctx, `SELECT pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE')
			OR EXISTS (SELECT FROM pg_catalog.pg_database WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database() AND pg_catalog.pg_has_role(datdba, 'USAGE'))`)
		if qerr != nil || string(rows[0][0]) != "t" {
			return "the last flush failed", qerr
		}
		return "the last flush failed: " + err.Error(), nil
	}
}

// roles is the roles whose sessions the current role may look into, as in pg_stat_activity.
func (s *session) ownRoles(ctx context.Context) (map[string]bool, error) {
	rows, err := s.be.exec(ctx, `SELECT rolname FROM pg_catalog.pg_roles
		WHERE pg_catalog.pg_has_role(oid, 'USAGE') OR pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE')`)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, r := range rows {
		out[string(r[0])] = true
	}
	return out, nil
}

// all is the live sessions.
func (s *Server) all() []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*session, 0, len(s.sessions))
	for _, ss := range s.sessions {
		out = append(out, ss)
	}
	return out
}

func sessionRows(ctx context.Context, s *session, _ *writer.View) ([]row, error) {
	own, err := s.ownRoles(ctx)
	if err != nil {
		return nil, err
	}
	sessions := s.srv.all()
	waits := s.srv.waits(sessions)
	var out []row
	for _, o := range sessions {
		v := o.vitals.read()
		r := make(row, 16)
		r[0], r[2], r[3], r[4] = o.pid, o.user, o.db, v.app
		if own[o.user] {
			o.reveal(r, v, waits[o.vitals.owner.Load()])
		}
		out = append(out, r)
	}
	return out, nil
}

// reveal puts in what only its own role may see of a session.
func (s *session) reveal(r row, v vital, w *waiting) {
	if pg := s.pg.Load(); pg != nil {
		r[1] = pg.PID
	}
	r[5], r[6] = addressOf(s.c.RemoteAddr())
	r[7], r[8], r[9], r[10], r[11] = v.started, v.xact, v.state, v.changed, orNull(v.lane)
	if w != nil {
		r[12], r[13], r[14], r[15] = uint32(w.key.Table), w.kind(), w.mode, w.blockers()
	}
}

func progressRows(ctx context.Context, s *session, _ *writer.View) ([]row, error) {
	own, err := s.ownRoles(ctx)
	if err != nil {
		return nil, err
	}
	var out []row
	if f := s.srv.Writer.Flushing(); f != nil {
		out = append(out, row{nil, nil, "FLUSH", nil, f.Rows, f.Bytes, f.Started})
	}
	for _, o := range s.srv.all() {
		if c := o.vitals.copied.Load(); c != nil && own[o.user] {
			out = append(out, row{o.pid, o.user, "COPY", orNull(c.relid), c.rows.Load(), c.bytes.Load(), c.started})
		}
	}
	return out, nil
}

func int4Array(list []uint32) string {
	text := []byte{'{'}
	for i, n := range list {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendUint(text, uint64(n), 10)
	}
	return string(append(text, '}'))
}
