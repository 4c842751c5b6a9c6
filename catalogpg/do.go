package catalogpg

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// callName is the name of statements and portals of Do. Sessions that relay use their own.
const callName = "sluice do"

// Do runs one call and a Sync on a backend with nothing in flight, and returns the rows. Sessions put calls into their own pipelines with
// Call.Append instead; Do is for the quiet moments and for tests. After an error of the context the backend is of no use any more.
func (b *Backend) Do(ctx context.Context, c Call) ([][][]byte, error) {
	buf, err := c.Append(nil, callName)
	if err != nil {
		return nil, err
	}
	if buf, err = (&pgproto3.Sync{}).Encode(buf); err != nil {
		return nil, err
	}
	return b.roundTrip(ctx, buf)
}

// Exec runs statements by the simple protocol and returns the rows of all, as text.
func (b *Backend) Exec(ctx context.Context, sql string) ([][][]byte, error) {
	buf, err := (&pgproto3.Query{String: sql}).Encode(nil)
	if err != nil {
		return nil, err
	}
	return b.roundTrip(ctx, buf)
}

func (b *Backend) roundTrip(ctx context.Context, buf []byte) ([][][]byte, error) {
	stop := context.AfterFunc(ctx, func() { b.Conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := b.Conn.Write(buf); err != nil {
		return nil, fmt.Errorf("write to backend: %w", err)
	}
	var rows [][][]byte
	var failed error
	for {
		m, err := b.Frontend.Receive()
		if err != nil {
			return nil, fmt.Errorf("read from backend: %w", err)
		}
		switch m := m.(type) {
		case *pgproto3.DataRow:
			rows = append(rows, cloneRow(m.Values))
		case *pgproto3.ErrorResponse:
			failed = pgconn.ErrorResponseToPgError(m)
		case *pgproto3.ReadyForQuery:
			return rows, failed
		}
	}
}

func cloneRow(values [][]byte) [][]byte {
	row := make([][]byte, len(values))
	for i, v := range values {
		row[i] = bytes.Clone(v)
		if v != nil && row[i] == nil {
			row[i] = []byte{}
		}
	}
	return row
}
