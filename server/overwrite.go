package server

import (
	"sluice/planner"
	"sluice/server/wire"
	"sluice/sql"
)

// SET sluice.overwrite = 'dynamic': an INSERT or COPY replaces the partitions that it brings rows for, in one commit.

// overwritten is the table of which the statement replaces partitions, nil if it is none of the lake's; it refuses what that cannot be right for.
func (s *session) overwritten(t *sql.Target, target planner.Relation) (*rel, error) {
	r := s.rel(target.OID)
	switch {
	case target.Kind == 'v':
		return nil, notOverwritten("views")
	case r == nil || t.Merge:
		return nil, nil
	case t.Decides:
		return nil, notOverwritten("INSERT with ON CONFLICT")
	case r.engine != nil:
		return nil, notOverwritten("tables with a merge engine")
	case r.keepsRows():
		return nil, notOverwritten("tables with delete_behavior")
	case r.desc.RLS:
		return nil, notOverwritten("tables with row level security")
	case s.referenced(r.OID):
		return nil, notOverwritten("tables that foreign keys reference")
	case !target.Deletes:
		return nil, wire.Errorf(wire.CodeInsufficientPrivilege, "permission denied for table %s", r.Name).
			WithHint("sluice.overwrite needs the privilege DELETE.")
	}
	return r, nil
}

// overwrites reports whether a statement may replace partitions of a table, as its text and the settings say.
func (s *session) overwrites(st *sql.Statement, oid uint32) bool {
	if !s.lanes.known || !s.lanes.overwrite {
		return false
	}
	t := st.Target()
	return t != nil && s.names.relations[t.Table].OID == oid
}

func notOverwritten(what string) error {
	return unsupported("sluice.overwrite is not supported for %s", what).WithHint("SET sluice.overwrite = off.")
}

// refuseOverwrite says no to a statement that reads the keyed table of which it replaces partitions: old and new rows would meet in the shadow.
func (a *attempt) refuseOverwrite() error {
	if r := a.overwrite; r != nil && a.fill[r.OID] && len(r.Uniques) > 0 {
		return unsupported("sluice.overwrite is not supported for statements that read the table with a key which they overwrite").
			WithHint("Put the rows into a temporary table first.")
	}
	return nil
}

// referenced reports whether a foreign key leads to the table, as this session sees it.
func (s *session) referenced(oid uint32) bool {
	if s.tx != nil {
		for _, other := range s.tx.ddl {
			if other != nil && other.references(oid) {
				return true
			}
		}
	}
	return s.srv.rels.referenced(oid)
}
