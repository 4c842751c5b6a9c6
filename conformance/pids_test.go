package conformance_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"sluice/conformance/harness"
)

// TestProcessIDs: the process id that a client got at login names its session wherever Postgres takes one, whether or not it has sent a
// statement yet, and a session that is terminated is told so at once.
func TestProcessIDs(t *testing.T) {
	pair := harness.NewPair(t)
	for _, side := range []*harness.Side{pair.Ref, pair.Got} {
		for _, how := range []struct{ name, sql string }{
			{"parameter", "select pg_terminate_backend($1)"},
			{"eight bytes", "select pg_terminate_backend($1::bigint::int)"},
			{"array", "select pg_terminate_backend(p) from unnest(array[$1::int]) p"},
			{"activity", "select pg_terminate_backend(pid) from pg_stat_activity where pid = $1"},
		} {
			for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
				t.Run(side.Name+"/"+how.name+"/"+mode.String(), func(t *testing.T) {
					terminated(t, side.DSN, func(*testing.T, *pgconn.PgConn) {}, how.sql, mode)
					terminated(t, side.DSN, ask, how.sql, mode)
				})
			}
		}
		t.Run(side.Name+"/cancel", func(t *testing.T) { canceled(t, side.DSN) })
		t.Run(side.Name+"/notify", func(t *testing.T) { notified(t, side.DSN) })
	}
}

func ask(t *testing.T, c *pgconn.PgConn) {
	if _, err := c.Exec(t.Context(), "select 1").ReadAll(); err != nil {
		t.Fatal(err)
	}
}

func login(t *testing.T, dsn string) *pgconn.PgConn {
	t.Helper()
	c, err := pgconn.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

// terminated ends an idle session from another one: its socket says 57P01 and closes.
func terminated(t *testing.T, dsn string, first func(*testing.T, *pgconn.PgConn), sql string, mode pgx.QueryExecMode) {
	victim := login(t, dsn)
	first(t, victim)
	killer, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer killer.Close(context.Background())
	var ok bool
	if err := killer.QueryRow(t.Context(), sql, mode, int32(victim.PID())).Scan(&ok); err != nil || !ok {
		t.Fatalf("%s: %v, %v", sql, ok, err)
	}
	ctx, stop := context.WithTimeout(t.Context(), harness.Patience)
	defer stop()
	_, err = victim.ReceiveMessage(ctx)
	var e *pgconn.PgError
	if !errors.As(err, &e) || e.Code != "57P01" || e.Severity != "FATAL" {
		t.Errorf("the session was told %v, want FATAL 57P01", err)
	}
}

func canceled(t *testing.T, dsn string) {
	victim, killer := login(t, dsn), login(t, dsn)
	done := make(chan error, 1)
	go func() {
		_, err := victim.Exec(context.Background(), "select pg_sleep(60)").ReadAll()
		done <- err
	}()
	// A cancel request that comes before the statement is forgotten, so it is repeated until it hits.
	for deadline := time.Now().Add(harness.Patience); time.Now().Before(deadline); {
		if r := killer.ExecParams(t.Context(), "select pg_cancel_backend($1)", [][]byte{[]byte(strconv.Itoa(int(victim.PID())))}, nil, nil, nil).Read(); r.Err != nil {
			t.Fatal(r.Err)
		}
		select {
		case err := <-done:
			if e, ok := err.(*pgconn.PgError); !ok || e.Code != "57014" {
				t.Errorf("the statement ended with %v, want 57014", err)
			}
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
	t.Error("the statement was not canceled")
}

// notified: a notification names its sender by the process id that the sender knows.
func notified(t *testing.T, dsn string) {
	sender := login(t, dsn)
	config, err := pgconn.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	var from uint32
	config.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { from = n.PID }
	listener, err := pgconn.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close(context.Background())
	for c, sql := range map[*pgconn.PgConn]string{listener: "listen pids", sender: "select 1"} {
		if _, err := c.Exec(t.Context(), sql).ReadAll(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := sender.Exec(t.Context(), "notify pids").ReadAll(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), harness.Patience)
	defer stop()
	if err := listener.WaitForNotification(ctx); err != nil || from != sender.PID() {
		t.Errorf("the notification is from %d, want %d (%v)", from, sender.PID(), err)
	}
}
