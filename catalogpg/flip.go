package catalogpg

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"sluice/writer/catalog"
	"sluice/writer/table"
)

// Load implements catalog.Catalog. One statement, hence one snapshot.
func (c *Catalog) Load(ctx context.Context) (catalog.State, error) {
	var last int64
	var progress, tables []byte
	err := c.pool.QueryRow(ctx, `select (select id from sluice.commit_counter),
		(select coalesce(jsonb_object_agg(stream, position), '{}') from sluice.stream),
		(select coalesce(jsonb_agg(jsonb_build_object('ID', r.oid::bigint, 'Namespace', r.namespace, 'Name', r.name, 'Version', r.version,
				'Pointer', jsonb_build_object('Location', coalesce(i.metadata_location, '')), 'NextFile', coalesce(p.next_file, 1),
				'NextRow', coalesce(p.next_row, 1), 'RowMap', translate(encode(p.row_map, 'base64'), E'\n', ''),
				'Snapshot', coalesce(p.snapshot, 0)) order by r.oid), '[]')
		   from sluice.rel r left join sluice.pointer p on p.oid = r.oid
		   left join sluice_iceberg.iceberg_tables i
		     on i.catalog_name = current_database() and i.table_namespace = p.namespace and i.table_name = p.name
		  where r.kind in ('lake', 'matview'))`).Scan(&last, &progress, &tables)
	if err != nil {
		return catalog.State{}, fmt.Errorf("load catalog: %w", err)
	}
	s := catalog.State{Last: catalog.CommitID(last)}
	if err := errors.Join(json.Unmarshal(progress, &s.Progress), json.Unmarshal(tables, &s.Tables)); err != nil {
		return catalog.State{}, fmt.Errorf("load catalog: %w", err)
	}
	return s, nil
}

// EncodeFlip is the argument of sluice.flip, for flips in the user's own transaction.
func EncodeFlip(f catalog.Flip) ([]byte, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	type move struct {
		ID       table.ID     `json:"id"`
		From     string       `json:"from"`
		To       string       `json:"to"`
		Version  int          `json:"version"`
		NextFile table.FileID `json:"next_file"`
		NextRow  uint64       `json:"next_row"`
		RowMap   string       `json:"row_map"`
		Snapshot int64        `json:"snapshot"`
	}
	moves := make([]move, len(f.Tables))
	for i, t := range f.Tables {
		moves[i] = move{t.Table, t.From.Location, t.To.Location, t.Version, t.NextFile, t.NextRow,
			base64.StdEncoding.EncodeToString(t.RowMap), t.Snapshot}
	}
	flip := map[string]any{"id": f.ID, "stream": f.Stream, "position": f.Progress, "tables": moves}
	if r := results(&f.Results); r != nil {
		flip["results"] = r
	}
	return json.Marshal(flip)
}

// results is the argument's part about repeats; nil if nothing changes.
func results(r *catalog.Results) map[string]any {
	if len(r.List)+len(r.Low)+len(r.Dropped) == 0 {
		return nil
	}
	type result struct {
		Writer   string         `json:"writer"`
		Sequence int64          `json:"sequence"`
		Position table.Position `json:"position"`
		ID       string         `json:"txid"`
		Time     int64          `json:"time"`
		Answer   []byte         `json:"answer"`
	}
	list := make([]result, len(r.List))
	for i, x := range r.List {
		list[i] = result{x.Writer, x.Sequence, x.Position, hex.EncodeToString(x.ID[:]), x.Time, append([]byte{}, x.Answer...)}
	}
	low := r.Low
	if low == nil {
		low = map[string]int64{}
	}
	return map[string]any{"list": list, "low": low, "dropped": append([]string{}, r.Dropped...), "forgotten": r.Forgotten}
}

// Results implements catalog.Catalog.
func (c *Catalog) Results(ctx context.Context, stream string) (out catalog.Results, err error) {
	out.Low = map[string]int64{}
	err = pgx.BeginTxFunc(ctx, c.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, `select writer, sequence, txid, case when stream = $1 then position else 0 end, time, answer from sluice.result
			where stream = $1 or not sluice.only_tokens(writer) order by writer, sequence`, stream)
		if out.List, err = pgx.CollectRows(rows, pgx.RowToStructByPos[catalog.Result]); err != nil {
			return err
		}
		rows, _ = tx.Query(ctx, `select writer, low from sluice.result_window where stream = $1 or not sluice.only_tokens(writer)`, stream)
		var writer string
		var low int64
		_, err = pgx.ForEachRow(rows, []any{&writer, &low}, func() error {
			if out.Low[writer] = low; writer == "" {
				delete(out.Low, writer)
				out.Forgotten = table.Position(low)
			}
			return nil
		})
		return err
	})
	if err != nil {
		return out, fmt.Errorf("load answers of transactions: %w", err)
	}
	return out, nil
}

// Flip implements catalog.Catalog.
func (c *Catalog) Flip(ctx context.Context, f catalog.Flip) (catalog.CommitID, error) {
	arg, err := EncodeFlip(f)
	if err != nil {
		return 0, err
	}
	id, err := c.flip(ctx, arg)
	var lost *lostReplyError
	if !errors.As(err, &lost) {
		return id, FlipError(f.ID, err)
	}
	committed, rerr := c.Resolve(context.WithoutCancel(ctx), f.ID)
	switch {
	case rerr != nil:
		return 0, &catalog.OutcomeUnknownError{ID: f.ID, Err: errors.Join(lost, rerr)}
	case !committed:
		return 0, fmt.Errorf("flip %s: it did not commit: %w", f.ID, lost)
	}
	return id, nil
}

// lostReplyError says that COMMIT was sent and that its answer is not known.
type lostReplyError struct{ err error }

func (e *lostReplyError) Error() string { return "commit: " + e.err.Error() }
func (e *lostReplyError) Unwrap() error { return e.err }

// flip runs one catalog transaction on a control connection. COMMIT has no deadline and is never cancelled (rule R20).
func (c *Catalog) flip(ctx context.Context, arg []byte) (id catalog.CommitID, err error) {
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, "begin isolation level read committed"); err != nil {
		return 0, err
	}
	var n int64
	if err := conn.QueryRow(ctx, `select sluice.flip_all($1)`, arg).Scan(&n); err != nil {
		// The pool drops a connection that is left in a transaction.
		conn.Exec(context.WithoutCancel(ctx), "rollback")
		return 0, err
	}
	return catalog.CommitID(n), commit(ctx, conn)
}

// commit sends COMMIT and tells apart: done, refused by Postgres, and not known. A FATAL error may come after the commit.
func commit(ctx context.Context, conn *pgxpool.Conn) error {
	tag, err := conn.Exec(context.WithoutCancel(ctx), "commit")
	var pgErr *pgconn.PgError
	switch {
	case err == nil && tag.String() == "COMMIT":
		return nil
	case err == nil:
		return fmt.Errorf("commit: answered %s", tag)
	case errors.As(err, &pgErr) && pgErr.SeverityUnlocalized == "ERROR":
		return err
	}
	return &lostReplyError{err}
}

// FlipError turns an error of sluice.flip, wherever it ran, into the errors of catalog.Catalog.
func FlipError(flip string, err error) error {
	var pgErr *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &pgErr):
	case pgErr.Code == "40001" || pgErr.Code == "40P01":
		n, _ := strconv.ParseUint(pgErr.Detail, 10, 32)
		return &catalog.ConflictError{Table: table.ID(n), Reason: pgErr.Message}
	case pgErr.Code == "23505" && pgErr.ConstraintName == "commit_pkey":
		return fmt.Errorf("flip %s: %w", flip, catalog.ErrSettled)
	}
	return fmt.Errorf("flip %s: %w", flip, err)
}

// resolveTries bounds how often Resolve asks. A restart of the server leaves dead connections in the pool, each good for one failure.
const resolveTries = controlConns + 4

// Resolve implements catalog.Catalog. It is safe to repeat, and repeats itself when it does not reach the server.
func (c *Catalog) Resolve(ctx context.Context, flip string) (committed bool, err error) {
	for i := range resolveTries {
		committed, err = c.resolve(ctx, flip)
		if err == nil || !unreachable(err) || !pause(ctx, time.Duration(i)*pollEvery) {
			break
		}
	}
	if err != nil {
		return false, fmt.Errorf("resolve flip %s: %w", flip, err)
	}
	return committed, nil
}

// unreachable tells a broken connection, and a server that starts or stops, from an answer.
func unreachable(err error) bool {
	var pgErr *pgconn.PgError
	return !errors.As(err, &pgErr) || strings.HasPrefix(pgErr.Code, "57P")
}

// resolve asks once. Its tombstone has the flip's own unique id: Postgres makes it wait for a backend that still runs the flip, so that the
// answer is final.
func (c *Catalog) resolve(ctx context.Context, flip string) (committed bool, err error) {
	tag, err := c.pool.Exec(ctx, `insert into sluice.commit (flush_id) values ($1) on conflict (flush_id) do nothing`, flip)
	if err != nil || tag.RowsAffected() == 1 {
		return false, err
	}
	// A second statement: the first one's snapshot may be older than the row it met.
	err = c.pool.QueryRow(ctx, `select id is not null from sluice.commit where flush_id = $1`, flip).Scan(&committed)
	return committed, err
}

// pendingLimit is how long Decision waits for a transaction that is still there. A prepared one may stay for ever.
var pendingLimit = "5s"

// Decision implements catalog.Catalog.
func (c *Catalog) Decision(ctx context.Context, txid [16]byte) (committed bool, err error) {
	err = pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `set local lock_timeout = '`+pendingLimit+`'`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `insert into sluice.decision values ($1, false) on conflict do nothing`, txid); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `select committed from sluice.decision where txid = $1`, txid).Scan(&committed)
	})
	if isCode(err, "55P03") {
		err = catalog.ErrPending
	}
	if err != nil {
		return false, fmt.Errorf("settle transaction %x: %w", txid, err)
	}
	return committed, nil
}

// ForgetDecisions removes the fates of transactions whose resolve frames are durable: nobody asks for them again.
func (c *Catalog) ForgetDecisions(ctx context.Context, txids [][16]byte) error {
	if _, err := c.pool.Exec(ctx, `delete from sluice.decision where txid = any ($1)`, txids); err != nil {
		return fmt.Errorf("forget decisions: %w", err)
	}
	return nil
}
