package server

import (
	"context"
	"slices"
	"strconv"

	"sluice/sql"
)

// gatewayCalls does what functions of the schema sluice in a statement ask the gateway to do, before the statement runs; the functions
// themselves only show the outcome.
func (s *session) gatewayCalls(ctx context.Context, st *sql.Statement) error {
	if !slices.Contains(st.Functions, sql.Name{Schema: "sluice", Name: "flush"}) {
		return nil
	}
	pos, err := s.srv.Writer.Flush(ctx)
	if err != nil {
		return err
	}
	return s.be.do(ctx, "SELECT set_config('sluice.flushed', $1, false)", strconv.FormatUint(uint64(pos), 10))
}
