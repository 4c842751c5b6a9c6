// Package planner decides which lane a statement takes and what must be in place before it runs.
//
// Decide is the only place that decides: EXPLAIN shows its answer and SET sluice.lane forces it. The package executes nothing.
package planner

import (
	"context"
	"slices"
	"strings"

	"sluice/sql"
)

// Lane is the way a statement takes through the gateway (DESIGN section 2).
type Lane uint8

// The lanes. Relay is the part of the exact lane that is known not to reach lake rows: the text goes to Postgres as it is.
const (
	Relay Lane = iota
	Exact
	Fast
	Scan
)

func (l Lane) String() string { return [...]string{"relay", "exact", "fast", "scan"}[l] }

// Relation is what a name in a statement stands for.
type Relation struct {
	Name    sql.Name // as the statement writes it
	OID     uint32
	Kind    byte // pg_class.relkind
	Lake    bool // a shadow: its rows are in the lake
	Stored  bool // a lake table whose rows Postgres has as well: a materialized view
	Made    bool // the gateway makes its rows when it is read: the views over the inside
	Temp    bool
	System  bool // pg_catalog, information_schema, sluice
	Hooks   bool // triggers, rules, policies, or a view over functions: user code runs, or a foreign key's action reaches such, or a heap table
	Linked  bool // by foreign keys, from or to it
	Reads   bool // the role may read all of it
	Plain   bool // a lake table whose rows need no more than types, NOT NULL and keys, and the role may insert into it
	Writes  bool // the role may update and delete all of it
	Deletes bool // the role may delete all of it
	Merges  bool // it has a merge engine: an INSERT may change rows
	Keeps   bool // it has rules about DELETE
}

// Resolver looks names up in the session's own view of the catalog (search_path, temporary and uncommitted relations).
type Resolver interface {
	// Database is the name of the session's.
	Database() string
	// Relations answers the relation of each name that exists; the others are left out.
	Relations(ctx context.Context, names []sql.Name) ([]Relation, error)
	// UserCode reports whether the statement names a function, operator or domain that Postgres did not bring along.
	UserCode(ctx context.Context, s *sql.Statement) (bool, error)
	// Choice answers what the session's settings say about lanes.
	Choice(ctx context.Context) (Choice, error)
	// Size estimates the live rows of a lake table and their bytes.
	Size(ctx context.Context, oid uint32) (rows, bytes int64, err error)
}

// Choice is what the settings of a session say about lanes.
type Choice struct {
	Lane        string // sluice.lane: auto, exact, fast, scan
	Rows, Bytes int64  // of one table: what is larger goes to the scan lane
	Snapshot    bool   // the transaction reads as of its first statement; what REFRESH made of a materialized view Postgres shows it all the same
	Overwrite   bool   // INSERT and COPY replace partitions
}

// Plan is how a statement is to be run.
type Plan struct {
	Lane Lane
	// Fill is the lake tables that the statement names: the exact lane fills them before it runs the statement. The guard adds
	// those that are only reached through views, functions and foreign keys.
	Fill []uint32
	// Lookup narrows the fill of the statement's one table to the rows with known values; nil fills it whole.
	Lookup *sql.Lookup
	// Readable says that the role may read all columns of every lake table named.
	Readable bool
	// Lake is all lake tables that the statement names.
	Lake []uint32
	// Target is the table of an INSERT or COPY FROM in the fast lane.
	Target uint32
	// Keep says that running the statement may leave effects in Postgres that must stay, so that the exact lane removes the
	// copied rows instead of rolling back.
	Keep bool
	// User says that user code may run: functions, operators, domains, triggers, or what is behind views.
	User bool
	// DDL says that the statement may change the schema: reconcile afterwards.
	DDL bool
	// Forced says that sluice.lane asks for Lane, so that no other may be taken instead.
	Forced bool
	// Reason tells why this lane, for EXPLAIN and logs.
	Reason string
}

// sqlText is Postgres' own functions that run SQL text or read relations by name: they can reach a shadow unseen.
var sqlText = map[string]bool{
	"query_to_xml": true, "query_to_xmlschema": true, "query_to_xml_and_xmlschema": true, "cursor_to_xml": true,
	"cursor_to_xmlschema": true, "table_to_xml": true, "table_to_xmlschema": true, "table_to_xml_and_xmlschema": true,
	"schema_to_xml": true, "schema_to_xmlschema": true, "schema_to_xml_and_xmlschema": true, "database_to_xml": true,
	"database_to_xmlschema": true, "database_to_xml_and_xmlschema": true, "ts_stat": true, "ts_rewrite": true,
}

// effects is Postgres' own functions whose effect a rollback would undo.
var effects = map[string]bool{
	"pg_notify": true, "set_config": true, "lo_create": true, "lo_creat": true, "lo_from_bytea": true, "lo_put": true, "lo_unlink": true,
	"lo_import": true, "lo_open": true, "lowrite": true, "setseed": true,
	"pg_advisory_xact_lock": true, "pg_advisory_xact_lock_shared": true, "pg_try_advisory_xact_lock": true, "pg_try_advisory_xact_lock_shared": true,
}

// Decide is the lane of s and what it needs. An unknown statement is never relayed unguarded: the list is of what is known clean.
func Decide(ctx context.Context, s *sql.Statement, r Resolver) (Plan, error) {
	switch s.Kind {
	case sql.Set, sql.Show, sql.Deallocate, sql.Session, sql.Alone, sql.Prepare, sql.TwoPhase:
		return Plan{Lane: Relay, Reason: "session state"}, nil
	}
	if slices.ContainsFunc(s.Catalogs, func(name string) bool { return name != r.Database() }) {
		return Plan{Lane: Relay, Reason: "names another database, which Postgres refuses"}, nil
	}
	rels, err := r.Relations(ctx, s.Relations)
	if err != nil {
		return Plan{}, err
	}
	user, err := r.UserCode(ctx, s)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Lane: Exact, Reason: "no other lane is proven for it"}
	p.Fill, p.Keep = facts(s, rels, user)
	p.User = user || slices.ContainsFunc(rels, func(rel Relation) bool { return rel.Hooks })
	p.Readable = true
	for _, rel := range rels {
		if rel.Lake {
			p.Lake = append(p.Lake, rel.OID)
			p.Readable = p.Readable && rel.Reads
		}
	}
	if len(rels) == 1 && len(p.Fill) == 1 && rels[0].Lake && !user && !rels[0].Hooks && (!rels[0].Linked || s.Kind == sql.Select) {
		p.Lookup = s.Lookup()
	}
	switch s.Kind {
	case sql.DDL:
		p.Fill, p.Keep, p.DDL = nil, true, true // CREATE … AS fills what it scans, when the guard says so
		return p, nil
	case sql.LockTable:
		if p.Fill = nil; len(p.Lake) == 0 {
			return Plan{Lane: Relay, Reason: "locks no lake table"}, nil
		}
		return p, nil
	case sql.Truncate:
		if len(p.Fill) == 0 {
			return Plan{Lane: Exact, Keep: true, DDL: true, Reason: "truncates no lake table"}, nil
		}
		p.Keep = p.Keep || s.RestartsIdentity() || s.Cascades() // to tables of any kind
		return p, nil
	case sql.Call, sql.Execute, sql.Other, sql.Cursor, sql.Declare:
		p.Keep, p.DDL = true, s.Kind != sql.Declare && s.Kind != sql.Cursor
		return p, nil
	}
	if why := fast(s, rels, user, &p); why != "" {
		c, err := r.Choice(ctx)
		brings := s.Kind == sql.Insert || s.Kind == sql.CopyFrom
		if err != nil || (c.Lane == "auto" || c.Lane == "fast") && !(c.Overwrite && brings) {
			p.Lane, p.Target, p.Reason = Fast, rels[0].OID, why
			return p, err
		}
	}
	if ok, err := p.readsAll(ctx, s, rels, user, r); ok || err != nil {
		return p, err
	}
	if s.Kind != sql.Explain && clean(s, rels, user) { // EXPLAIN is answered by the gateway: it adds the lane
		return Plan{Lane: Relay, Reason: "touches no lake rows"}, nil
	}
	return p, p.preferScan(ctx, s, rels, user, r)
}

// readsAll takes SELECT columns FROM table to the fast lane if the table is small: larger ones are the scan lane's.
func (p *Plan) readsAll(ctx context.Context, s *sql.Statement, rels []Relation, user bool, r Resolver) (bool, error) {
	if s.Kind != sql.Select || len(rels) != 1 || user || rels[0].Hooks || !rels[0].Lake || !rels[0].Reads || len(s.Functions) > 0 {
		return false, nil
	}
	pt := s.Point()
	if pt == nil || pt.Where != nil {
		return false, nil
	}
	c, err := r.Choice(ctx)
	if err != nil || c.Lane != "auto" && c.Lane != "fast" || c.Snapshot && rels[0].Stored {
		return false, err
	}
	rows, bytes, err := r.Size(ctx, rels[0].OID)
	if err != nil || rows > c.Rows || bytes > c.Bytes {
		return false, err
	}
	p.Lane, p.Target, p.Reason = Fast, rels[0].OID, "all rows of a small table"
	return true, nil
}

// preferScan takes a plain SELECT over nothing but lake tables to the scan lane if one of them is large, or if it must. Whether it is made
// of verified constructs only, sql.DuckDB tells; the exact lane is what is left otherwise.
func (p *Plan) preferScan(ctx context.Context, s *sql.Statement, rels []Relation, user bool, r Resolver) error {
	if s.Kind != sql.Select || s.Write || s.Locking || user || len(p.Lake) == 0 || slices.ContainsFunc(rels, func(rel Relation) bool { return !rel.Lake || rel.Stored && !rel.Reads }) {
		return nil
	}
	c, err := r.Choice(ctx)
	stored := slices.ContainsFunc(rels, func(rel Relation) bool { return rel.Stored })
	if err != nil || c.Lane != "auto" && c.Lane != "scan" || c.Snapshot && stored {
		return err
	}
	if c.Lane == "auto" && p.Lookup != nil {
		return nil // few rows, whatever the table's size
	}
	if c.Lane == "scan" {
		p.Lane, p.Forced, p.Reason = Scan, true, "sluice.lane is scan"
		return nil
	}
	for _, oid := range p.Lake {
		rows, bytes, err := r.Size(ctx, oid)
		if err != nil {
			return err
		}
		if rows > c.Rows || bytes > c.Bytes {
			p.Lane, p.Reason = Scan, "reads a large table"
		}
	}
	return nil
}

// facts is the lake tables among rels and whether the statement may have effects in Postgres that must stay.
func facts(s *sql.Statement, rels []Relation, user bool) (fill []uint32, keep bool) {
	keep = user
	for _, f := range s.Functions {
		keep = keep || effects[strings.ToLower(f.Name)]
	}
	for _, rel := range rels {
		if (rel.Lake && !rel.Stored || rel.Made) && slices.Contains(s.Reads, rel.Name) {
			fill = append(fill, rel.OID)
		}
		keep = keep || rel.Hooks || (s.Write && !rel.Lake && !rel.System)
	}
	return fill, keep || (s.Kind == sql.CopyFrom && !slices.ContainsFunc(rels, func(r Relation) bool { return r.Lake }))
}

// fast says why the fast lane may take s: it only brings rows for one plain table, or reads one row of it by its key. "" if it may not.
// Whether the values are plain too, their conversion shows.
func fast(s *sql.Statement, rels []Relation, user bool, p *Plan) string {
	switch {
	case len(rels) != 1 || user || rels[0].Hooks || len(s.Functions) > 0 && !s.Unnests():
		return ""
	case (s.Kind == sql.Insert || s.Kind == sql.CopyFrom) && rels[0].Plain && len(s.Reads) == 0 && (rels[0].Reads || !s.Returns()) && (!rels[0].Merges || rels[0].changes()):
		return "rows for a plain table"
	case s.Kind == sql.Insert && rels[0].changes() && s.Insert() != nil && s.Insert().Conflict != nil:
		return "rows for a plain table, or for the rows with their keys"
	case s.Kind == sql.Delete && rels[0].Keeps:
		return ""
	case (s.Kind == sql.Update || s.Kind == sql.Delete) && rels[0].changes() && p.Lookup != nil && s.KeyWrite() != nil:
		return "changes rows by their keys"
	case s.Kind == sql.Select && rels[0].Lake && rels[0].Reads && p.Lookup != nil && s.Point() != nil:
		return "one row by its key"
	}
	return ""
}

// changes reports whether rows of a table may be changed in the fast lane.
func (r Relation) changes() bool { return r.Plain && r.Reads && r.Writes && !r.Linked }

// clean reports whether s is known not to reach a shadow: only system, temporary and plain heap relations without user code, and only
// Postgres' own functions that run no SQL text.
func clean(s *sql.Statement, rels []Relation, user bool) bool {
	if user {
		return false
	}
	for _, f := range s.Functions {
		if sqlText[strings.ToLower(f.Name)] {
			return false
		}
	}
	for _, rel := range rels {
		switch {
		case rel.Lake || rel.Made:
			return false
		case rel.System || rel.Kind == 'S':
		case rel.Hooks || rel.Kind == 'v' || rel.Kind == 'm' || rel.Kind == 'f' || rel.Kind == 'p':
			return false
		case s.Write && !rel.Temp:
			return false // defaults, checks and foreign keys of a heap table may reach a shadow
		}
	}
	return true
}
