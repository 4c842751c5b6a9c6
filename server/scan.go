package server

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"sluice/planner"
	"sluice/server/scan"
	"sluice/server/wire"
	"sluice/sql"
	"sluice/sql/pgvalue"
	"sluice/writer"
	"sluice/writer/datafile"
	"sluice/writer/table"
)

// The scan lane. A SELECT is printed for DuckDB from its tree (sql.DuckDB), run by a reader over the files and the rows in memory of the
// session's view, and answered in the types that Postgres gives the user's own statement on the empty shadows. Whatever is not proven
// to come out the same is left to the exact lane.

// Queryer runs what the gateway has printed; package server/reader is the one that does, in processes of their own.
type Queryer interface {
	// Query calls fn with the result, batch by batch. An error of the query is a *scan.Error; when ctx ends, its cause.
	Query(ctx context.Context, r *scan.Request, fn func(arrow.RecordBatch) error) error
}

// scanning is one statement in the scan lane.
type scanning struct {
	s      *session
	st     *sql.Statement
	oids   []uint32     // of its parameters
	fields []wire.Field // of its result
	head   []byte       // its RowDescription
}

// scanQuery answers a SELECT of the scan lane. done is false if the exact lane has to do it. b is the values that the client bound, bind its
// message, nil for a simple Query, whose answer begins with a RowDescription.
func (s *session) scanQuery(ctx context.Context, st *sql.Statement, p planner.Plan, b params, bind *wire.Bind) (out *spool, done bool, err error) {
	if s.srv.Reader == nil {
		return nil, false, nil
	}
	out, err = s.scan(ctx, st, p, b, bind)
	var no *sql.UnfitError
	var e *scan.Error
	switch {
	case errors.As(err, &no):
	case errors.As(err, &e) && e.Code == scan.Unfit:
		no = &sql.UnfitError{Reason: e.Message}
	case errors.As(err, &e):
		return nil, false, wire.Errorf(e.Code, "%s", e.Message)
	default:
		return out, err == nil, err
	}
	s.srv.Log.Debug("not for the scan lane", "pid", s.pid, "reason", no.Reason)
	if p.Forced {
		return nil, false, wire.Errorf(wire.CodeFeatureNotSupported, "%s", no.Error()).WithHint("sluice.lane is scan; with auto another lane is tried.")
	}
	return nil, false, nil
}

func (s *session) scan(ctx context.Context, st *sql.Statement, p planner.Plan, b params, bind *wire.Bind) (*spool, error) {
	if p.Lookup != nil && !p.Forced && s.keyed(p, b) {
		return nil, &sql.UnfitError{Reason: "rows are found by key"}
	}
	if err := s.begun(ctx); err != nil {
		return nil, err
	}
	p, err := s.settled(ctx, st, p)
	if err != nil {
		return nil, err
	}
	if p.Lane != planner.Scan {
		return nil, &sql.UnfitError{Reason: "its tables are others than when it was planned"}
	}
	sc := &scanning{s: s, st: st}
	if sc.oids, sc.fields, sc.head, err = s.be.describe(st.Text, b.types); err != nil {
		return nil, err
	}
	literals, err := b.literals(sc.oids)
	if err != nil {
		return nil, err
	}
	o := sql.DuckOptions{Tables: s.duckTable, Params: literals}
	for {
		out, err := sc.run(ctx, o, bind)
		var e *scan.Error
		if !errors.As(err, &e) || !o.Refine(e.Wide, e.Decimals) {
			return out, err
		}
	}
}

// keyed reports whether the exact lane finds the rows by key.
func (s *session) keyed(p planner.Plan, b params) bool {
	r := s.rel(p.Fill[0])
	if r == nil {
		return false
	}
	_, ok := r.lookup(p.Lookup, false, b.value)
	return ok
}

// scanPortal answers the Execute of a portal in the scan lane.
func (s *session) scanPortal(ctx context.Context, p *portal) (out *spool, done bool, err error) {
	var m wire.Bind
	if err := wire.DecodeBind(p.bind, &m); err != nil {
		return nil, false, err
	}
	return s.scanQuery(ctx, p.st.stmt, p.plan, p.params(), &m)
}

// laneSettings is what the session's settings say about lanes. They are read once, until a statement may have changed them.
type laneSettings struct {
	known, touched bool
	lane           string
	limit          int64 // rows that the exact lane copies at most, per table
	overwrite      bool  // INSERT and COPY replace the partitions that they bring rows for
}

// noteSettings looks for statements after which settings of the gateway's own may have other values, now or when a transaction rolls back.
func (s *session) noteSettings(st *sql.Statement) {
	s.lanes.note(st)
	switch st.Kind {
	case sql.Set:
		switch st.Setting() {
		case "sluice.writer", "sluice.sequence", "all":
			s.retries, s.retriesSet = true, true
		}
	case sql.Call, sql.Execute, sql.Session, sql.Explain, sql.Declare:
		s.userCode = true
	case sql.Select, sql.Insert, sql.Update, sql.Delete, sql.Merge:
		if st.Sets() {
			s.retries, s.retriesSet = true, true
		}
	}
}

// note looks for statements after which a setting of ours may have another value, now or when a transaction rolls back.
func (l *laneSettings) note(st *sql.Statement) {
	switch st.Kind {
	case sql.Call, sql.Execute, sql.Session:
		l.touched = true
	case sql.Set:
		switch st.Setting() {
		case "sluice.lane", "sluice.exact_limit", "sluice.overwrite", "all":
			l.touched = true
		}
	case sql.Select:
		for _, f := range st.Functions {
			l.touched = l.touched || f.Name == "set_config"
		}
	}
}

// laneSettings is what the settings say now.
func (s *session) laneSettings(ctx context.Context) (*laneSettings, error) {
	l := &s.lanes
	if l.known && !l.touched {
		return l, nil
	}
	rows, err := s.be.exec(ctx, "SELECT pg_catalog.current_setting('sluice.lane', true), pg_catalog.current_setting('sluice.exact_limit', true), "+
		"pg_catalog.concat(pg_catalog.current_setting('sluice.writer', true), pg_catalog.current_setting('sluice.sequence', true)), pg_catalog.current_setting('sluice.overwrite', true)")
	if err != nil {
		return nil, err
	}
	s.retries = s.retries || len(rows[0][2]) > 0
	l.known, l.lane, l.limit = true, string(rows[0][0]), s.srv.ExactLimit
	if text := string(rows[0][1]); text != "" {
		if l.limit, err = strconv.ParseInt(text, 10, 64); err != nil || l.limit < 0 {
			l.known = false
			return nil, wire.Errorf(wire.CodeInvalidParameterValue, "invalid value for parameter \"sluice.exact_limit\": \"%s\"", text).
				WithHint("It is a number of rows.")
		}
	}
	switch text := string(rows[0][3]); text {
	case "", "off", "dynamic":
		l.overwrite = text == "dynamic"
	default:
		l.known = false
		return nil, wire.Errorf(wire.CodeInvalidParameterValue, "invalid value for parameter \"sluice.overwrite\": \"%s\"", text).
			WithHint("Available values: off, dynamic.")
	}
	return l, nil
}

// fitsExact reports whether a table of this size may be copied whole.
func (s *session) fitsExact(ctx context.Context, rows, bytes int64) (bool, error) {
	l, err := s.laneSettings(ctx)
	return err == nil && rows <= l.limit && bytes <= exactBytes, err
}

// Database implements planner.Resolver.
func (s *session) Database() string { return s.db }

// Choice implements planner.Resolver.
func (s *session) Choice(ctx context.Context) (planner.Choice, error) {
	l, err := s.laneSettings(ctx)
	if err != nil {
		return planner.Choice{}, err
	}
	c := planner.Choice{Lane: l.lane, Rows: min(s.srv.ScanRows, l.limit), Bytes: exactBytes, Overwrite: l.overwrite}
	c.Snapshot = s.tx != nil && s.tx.lake != nil && s.tx.lake.Isolation() != writer.ReadCommitted
	switch c.Lane {
	case "":
		c.Lane = "auto"
	case "auto", "exact", "fast", "scan":
	default:
		return c, wire.Errorf(wire.CodeInvalidParameterValue, "invalid value for parameter \"sluice.lane\": \"%s\"", c.Lane).
			WithHint("Available values: auto, exact, fast, scan.")
	}
	return c, nil
}

// Size implements planner.Resolver.
func (s *session) Size(ctx context.Context, oid uint32) (rows, bytes int64, err error) {
	if err := s.begun(ctx); err != nil {
		return 0, 0, err
	}
	rows, bytes = s.tx.lake.Statement().Size(table.ID(oid))
	return rows, bytes, nil
}

// run prints the statement and has it answered.
func (sc *scanning) run(ctx context.Context, o sql.DuckOptions, bind *wire.Bind) (*spool, error) {
	s := sc.s
	q, err := sc.st.DuckDB(o)
	if err != nil {
		return nil, err
	}
	if err := sc.allowed(ctx, q.Uses); err != nil {
		return nil, err
	}
	enc, err := newRowEncoder(s, q, sc.fields, bind)
	if err != nil {
		return nil, err
	}
	req, err := s.request(ctx, q)
	if err != nil {
		return nil, err
	}
	ctx, stop := s.timed(ctx)
	defer stop()
	if err := s.srv.Reader.Query(ctx, req, enc.batch); err != nil {
		return nil, err
	}
	return enc.spool(sc.head, bind == nil), nil
}

const scanAllowed = `SELECT c.relrowsecurity, c.relname,
   pg_catalog.has_table_privilege(c.oid, 'SELECT') OR CASE WHEN u.cols = '{}' THEN pg_catalog.has_any_column_privilege(c.oid, 'SELECT')
      ELSE (SELECT pg_catalog.bool_and(pg_catalog.has_column_privilege(c.oid, a, 'SELECT')) FROM pg_catalog.unnest(u.cols::pg_catalog.int2[]) a) END,
   (SELECT datcollate IN ('C', 'POSIX') AND datlocprovider = 'c' FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()),
   pg_catalog.current_setting('statement_timeout')
  FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.oid[]), pg_catalog.unnest($2::pg_catalog.text[])) u(oid, cols) JOIN pg_catalog.pg_class c ON c.oid = u.oid`

// allowed checks that the role may read the columns, that no policy hides rows, and that text has the order of its bytes.
func (sc *scanning) allowed(ctx context.Context, uses []sql.DuckUse) error {
	oids, cols := []byte{'{'}, []byte{'{'}
	for i, u := range uses {
		if i > 0 {
			oids, cols = append(oids, ','), append(cols, ',')
		}
		oids = append(oids, oidText(u.ID)...)
		cols = appendQuoted(cols, sc.s.rel(u.ID).attnums(u.Columns))
	}
	rows, err := sc.s.be.exec(ctx, scanAllowed, append(oids, '}'), append(cols, '}'))
	if err != nil {
		return err
	}
	for _, r := range rows {
		switch {
		case string(r[2]) != "t":
			return wire.Errorf(wire.CodeInsufficientPrivilege, "permission denied for table %s", r[1])
		case string(r[0]) == "t":
			return &sql.UnfitError{Reason: "row security"}
		case string(r[3]) != "t":
			return &sql.UnfitError{Reason: "text is not in the order of its bytes in this database"}
		}
		sc.s.timeout = duration(string(r[4]))
	}
	if len(rows) != len(uses) {
		return &sql.UnfitError{Reason: "a table is gone"}
	}
	return nil
}

// attnums is columns as an array of Postgres' numbers.
func (r *rel) attnums(places []int) []byte {
	out := []byte{'{'}
	for i, at := range places {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, oidText(uint32(r.Columns[at].Attnum))...)
	}
	return append(out, '}')
}

// duckTable is a lake table by its name, or nil.
func (s *session) duckTable(n sql.Name) *sql.DuckTable {
	known, ok := s.names.relations[n]
	r := s.rel(known.OID)
	if !ok || r == nil || known.Temp {
		return nil
	}
	t := &sql.DuckTable{ID: r.OID}
	for i := range r.Columns {
		t.Columns = append(t.Columns, r.Columns[i].duck())
	}
	return t
}

// scannable is the types that the printer calculates with; values of all others are only passed through.
var scannable = map[uint32]bool{
	pgvalue.OIDBool: true, pgvalue.OIDInt2: true, pgvalue.OIDInt4: true, pgvalue.OIDInt8: true, pgvalue.OIDFloat4: true, pgvalue.OIDFloat8: true,
	pgvalue.OIDText: true, pgvalue.OIDVarchar: true, pgvalue.OIDBpchar: true, pgvalue.OIDDate: true, pgvalue.OIDTime: true,
	pgvalue.OIDTimestamp: true, pgvalue.OIDTimestampTZ: true, pgvalue.OIDUUID: true, pgvalue.OIDNumeric: true,
}

// collations is default, C and POSIX: the order of the bytes, where the database's own is.
var collations = map[uint32]bool{0: true, 100: true, 950: true, 951: true}

func (c *column) duck() sql.DuckColumn {
	d := sql.DuckColumn{Name: c.Name, OID: c.Codec.OID(), Length: -1}
	t := c.Codec.Type()
	if !scannable[d.OID] || !collations[c.attr.Collation] {
		d.OID = 0
	}
	switch d.OID {
	case pgvalue.OIDNumeric:
		d.Precision, d.Scale, d.Declared = t.Precision, t.Scale, c.Codec.Typmod() >= 4
		if t.Kind == table.String {
			d.OID = 0
		}
	case pgvalue.OIDBpchar:
		if c.Codec.Typmod() >= 4 {
			d.Length = int(c.Codec.Typmod()) - 4
		}
	}
	return d
}

// literals is the bound values as text, of the types that Postgres gave the parameters.
func (b params) literals(oids []uint32) ([]sql.DuckParam, error) {
	var out []sql.DuckParam
	for i, oid := range oids {
		if i >= b.len() {
			return nil, &sql.UnfitError{Reason: "a parameter without a value"}
		}
		val, binary := b.at(i + 1)
		p := sql.DuckParam{OID: oid, Text: string(val), Null: val == nil}
		if !scannable[oid] {
			return nil, &sql.UnfitError{Reason: "a parameter of this type"}
		}
		if binary && !p.Null {
			text, err := binaryText(oid, val)
			if err != nil {
				return nil, &sql.UnfitError{Reason: "a parameter that cannot be read"}
			}
			p.Text = text
		}
		out = append(out, p)
	}
	return out, nil
}

func binaryText(oid uint32, value []byte) (string, error) {
	t, _, _ := pgvalue.Lake(oid, -1)
	c, err := pgvalue.NewCodec(oid, -1, t)
	if err != nil {
		return "", err
	}
	v := table.NewVec(t)
	if err := c.AppendBinary(v, value); err != nil {
		return "", err
	}
	text, err := c.Text(nil, v, 0, nil)
	return string(text), err
}

// request binds the names in q to rows of the session's view.
func (s *session) request(ctx context.Context, q *sql.DuckQuery) (*scan.Request, error) {
	view := s.tx.lake.Statement()
	req := &scan.Request{SQL: q.Text}
	for _, u := range q.Uses {
		t, err := s.scanTable(ctx, view, u)
		if err != nil {
			return nil, err
		}
		req.Tables = append(req.Tables, t)
	}
	return req, nil
}

func (s *session) scanTable(ctx context.Context, view *writer.View, u sql.DuckUse) (t scan.Table, err error) {
	r := s.rel(u.ID)
	def, ok := view.Table(table.ID(u.ID))
	if !ok || def.Schema.ID != r.Schema.ID {
		return t, &sql.UnfitError{Reason: "the view is older than the table's definition"}
	}
	cols := u.Columns
	if len(cols) == 0 {
		cols = []int{0} // rows must have something to be counted by
	}
	t.Name = u.Name
	for _, at := range cols {
		c := &r.Schema.Columns[at]
		t.Columns = append(t.Columns, scan.Column{Name: duckName(at), FieldID: c.FieldID, ExactID: c.ExactID, Type: scan.TypeName(c.Type), Initial: c.Initial})
	}
	files, err := view.Files(table.ID(u.ID))
	if err != nil {
		return t, err
	}
	for _, f := range files {
		path, local := strings.CutPrefix(f.Location, "file://")
		if !local {
			return t, &sql.UnfitError{Reason: "the table's files are not on this machine"}
		}
		t.Files = append(t.Files, scan.File{Path: path, Rows: f.Rows, Dead: f.Dead})
	}
	t.Rows, err = memoryRows(ctx, view, table.ID(u.ID), cols, nil, "")
	return t, err
}

func duckName(at int) string { return "c" + string(oidText(uint32(at+1))) }

// memoryRows is the tail and the transaction's own rows. If refs is not nil their names are added to it, and one more column of the rows is
// their places there, called number.
func memoryRows(ctx context.Context, view *writer.View, id table.ID, cols []int, refs *[]table.Ref, number string) ([]arrow.RecordBatch, error) {
	var out []arrow.RecordBatch
	err := view.Tail(ctx, id, cols, func(rows writer.Rows) error {
		b, names := rows.Batch, []table.Ref(nil)
		if rows.Sel != nil || refs != nil {
			b, names = appendedRows(rows)
		}
		for _, v := range b.Cols {
			if len(v.Exact) > 0 {
				return scan.ErrExact
			}
		}
		if b.Rows == 0 {
			return nil
		}
		rec := named(datafile.ToArrow(b, nil), cols)
		if refs != nil {
			rec = numbered(rec, len(*refs), number)
			*refs = append(*refs, names...)
		}
		out = append(out, rec)
		return nil
	})
	return out, err
}

func appendedRows(rows writer.Rows) (*table.Batch, []table.Ref) {
	b := table.NewBatch(rows.Batch.Schema)
	refs := appendRows(b, nil, rows)
	return b, refs
}

// named gives a record the names that the query knows.
func named(rec arrow.RecordBatch, cols []int) arrow.RecordBatch {
	fields := make([]arrow.Field, len(cols))
	for i, at := range cols {
		fields[i] = arrow.Field{Name: duckName(at), Type: rec.Column(i).DataType(), Nullable: true}
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), rec.Columns(), rec.NumRows())
}

// describe asks what parameters and columns Postgres gives a statement. An error is the statement's own.
func (l *link) describe(text string, types []uint32) (oids []uint32, fields []wire.Field, head []byte, err error) {
	const name = "_sluice_scan"
	var decode error
	take := func(typ byte, frame []byte) error {
		switch typ {
		case 't':
			oids, decode = wire.DecodeParameterDescription(frame[5:])
		case 'T':
			head = append([]byte(nil), frame...)
			fields, decode = wire.DecodeRowDescription(head[5:])
		}
		return decode
	}
	l.be.CloseNamed(nil, 'S', name)
	call := l.be.Parse(nil, name, text, types)
	l.be.Describe(take, 'S', name)
	last := l.be.CloseNamed(nil, 'S', name)
	if !l.unsynced || l.status != 'I' {
		last = l.be.Sync(nil)
		l.unsynced = false
	}
	if err = l.finish(last, nil); err == nil && call.Err != nil {
		err = call.Err
	}
	return oids, fields, head, err
}
