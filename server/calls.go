package server

import (
	"context"
	"encoding/json"
	"math"
	"strconv"
	"time"

	"sluice/server/wire"
	"sluice/sql"
	"sluice/writer/table"
)

// gatewayCalls does what functions of the schema sluice in a statement ask the gateway to do, before the statement runs; the functions
// themselves only show the outcome, which is left in a setting.
func (s *session) gatewayCalls(ctx context.Context, st *sql.Statement, bound func() params) error {
	if s.be.status == 'E' {
		return nil // Postgres says that the transaction is aborted
	}
	for _, c := range st.Calls {
		var err error
		switch c.Name {
		case "flush":
			err = s.callFlush(ctx)
		case "compact":
			err = s.callCompact(ctx, c)
		case "expire":
			err = s.callExpire(ctx, c)
		case "txn_token":
			err = s.callToken(ctx)
		case "txn_outcome":
			err = s.callOutcome(ctx, c, bound())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *session) callFlush(ctx context.Context) error {
	pos, err := s.srv.Writer.Flush(ctx)
	if err != nil {
		return err
	}
	return s.leave(ctx, "sluice.flushed", strconv.FormatUint(uint64(pos), 10))
}

func (s *session) callCompact(ctx context.Context, c sql.GatewayCall) error {
	id, err := s.ownTable(ctx, c, 1)
	if err != nil {
		return err
	}
	done, err := s.srv.Writer.Compact(ctx, id)
	if err != nil {
		return err
	}
	return s.leaveNumbers(ctx, "sluice.compacted", int64(done.Rewritten), int64(done.Added), done.Bytes)
}

func (s *session) callExpire(ctx context.Context, c sql.GatewayCall) error {
	id, err := s.ownTable(ctx, c, 2)
	if err != nil {
		return err
	}
	rows, err := s.be.exec(ctx, "SELECT (pg_catalog.date_part('epoch', $1::pg_catalog.interval) OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8", c.Args[1])
	if err != nil {
		return err
	}
	micros, err := strconv.ParseInt(string(rows[0][0]), 10, 64)
	if err != nil || micros < 0 || micros > int64(time.Duration(math.MaxInt64)/time.Microsecond) {
		return wire.Errorf(wire.CodeInvalidParameterValue, "snapshots cannot be older than %s", c.Args[1])
	}
	done, err := s.srv.Writer.Expire(ctx, id, time.Duration(micros)*time.Microsecond)
	if err != nil {
		return err
	}
	return s.leave(ctx, "sluice.expired", strconv.Itoa(done.Objects))
}

// ownTable is the lake table that the first of n constant arguments names. Only its owner may have it changed, as with VACUUM.
func (s *session) ownTable(ctx context.Context, c sql.GatewayCall, n int) (table.ID, error) {
	if len(c.Args) != n {
		return 0, wire.Errorf(wire.CodeFeatureNotSupported, "arguments of sluice.%s that are not constants are not supported", c.Name).WithHint("Write the table's name as a constant, as in sluice.%s('t').", c.Name)
	}
	rows, err := s.be.exec(ctx, `SELECT c.oid, pg_catalog.pg_has_role(c.relowner, 'USAGE'), c.relname FROM pg_catalog.pg_class c
		WHERE c.oid OPERATOR(pg_catalog.=) $1::pg_catalog.regclass`, c.Args[0])
	if err != nil {
		return 0, err
	}
	oid := oidOf(rows[0][0])
	switch name := string(rows[0][2]); {
	case s.rel(oid) == nil:
		return 0, wire.Errorf(wire.CodeWrongObjectType, "\"%s\" is not a lake table", name)
	case string(rows[0][1]) != "t":
		return 0, wire.Errorf(wire.CodeInsufficientPrivilege, "must be owner of table %s", name)
	}
	return table.ID(oid), nil
}

func (s *session) leave(ctx context.Context, setting, value string) error {
	return s.be.do(ctx, "SELECT pg_catalog.set_config($1, $2, false)", setting, value)
}

// leaveLocal leaves a value for this transaction only.
func (s *session) leaveLocal(ctx context.Context, setting, value string) error {
	return s.be.do(ctx, "SELECT pg_catalog.set_config($1, $2, true)", setting, value)
}

func (s *session) leaveNumbers(ctx context.Context, setting string, list ...int64) error {
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return s.leave(ctx, setting, string(text))
}
