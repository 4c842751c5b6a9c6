package server

import (
	"context"
	"errors"
	"slices"

	"sluice/planner"
	"sluice/server/wire"
	"sluice/sql"
)

// explainRun puts the lane that the explained statement would take before Postgres' plan: one more row, in text format only, since programs
// read the others.
func (s *session) explainRun(ctx context.Context, st *sql.Statement, run runner) runner {
	inner := st.Explained()
	if inner == nil {
		return run
	}
	lane, err := s.laneOf(ctx, inner)
	if err != nil {
		return run // Postgres says what is wrong with it
	}
	return func(text string) (*spool, error) {
		out, err := run(text)
		if err == nil && out.err == nil {
			at := slices.IndexFunc(out.frames, func(f []byte) bool { return f[0] == 'D' })
			if at >= 0 {
				out.frames = slices.Insert(out.frames, at, wire.AppendDataRow(nil, [][]byte{[]byte("Lane: " + lane)}))
			}
		}
		return out, err
	}
}

// laneOf is the lane of a statement and why.
func (s *session) laneOf(ctx context.Context, st *sql.Statement) (string, error) {
	p, err := planner.Decide(ctx, st, s)
	if err != nil {
		return "", err
	}
	if p.Lane == planner.Scan {
		if why := s.unfit(st, p); why != "" {
			p.Lane, p.Reason = planner.Exact, why
		}
	}
	if p.Lane == planner.Fast && st.Kind != sql.Select && st.Kind != sql.CopyFrom {
		if plan := s.compileWrite(st, p); plan == nil {
			p.Lane, p.Reason = planner.Exact, "its values need Postgres"
		} else if kp, ok := plan.(*keyPlan); ok && !kp.byKey() {
			p.Lane, p.Reason = planner.Exact, "its condition is not that of one key"
		}
	}
	return p.Lane.String() + " (" + p.Reason + ")", nil
}

// unfit is why the scan lane leaves a statement to the exact lane, or "".
func (s *session) unfit(st *sql.Statement, p planner.Plan) string {
	if s.srv.Reader == nil {
		return "there is no reader for large tables"
	}
	if p.Lookup != nil && !p.Forced && s.keyed(p, params{}) {
		return "rows are found by key"
	}
	_, err := st.DuckDB(sql.DuckOptions{Tables: s.duckTable})
	var no *sql.UnfitError
	if errors.As(err, &no) {
		return no.Reason
	}
	return ""
}
