package catalogpg

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// DatabaseError says that there is no such database (3D000). Postgres' own databases count as none: they have no guard.
type DatabaseError struct{ Name string }

func (e *DatabaseError) Error() string { return fmt.Sprintf("database %q does not exist", e.Name) }

// RoleError says that a role may not have a backend (28000): superusers and our own roles.
type RoleError struct{ Name string }

func (e *RoleError) Error() string { return fmt.Sprintf("role %q cannot be used by clients", e.Name) }

// Backend is one Postgres session, logged in as the user, for its owner to talk to message by message.
type Backend struct {
	Conn     net.Conn
	Frontend *pgproto3.Frontend
	PID      uint32
	Secret   []byte
	Params   map[string]string // ParameterStatus at login
	Key      []byte            // first parameter of the privileged calls on this backend

	catalog *Catalog
	config  *pgconn.Config
}

// ErrReplication refuses replication connections.
var ErrReplication = errors.New("replication connections are not supported")

// Attach logs in as user and stores the backend's session key. params are the client's start-up parameters; user, database and options of
// the connection itself are not among them. Errors of Postgres come as they are (*pgconn.PgError).
func (c *Catalog) Attach(ctx context.Context, user, database string, params map[string]string) (*Backend, error) {
	if database != c.cfg.Database {
		return nil, &DatabaseError{database}
	}
	if _, ok := params["replication"]; ok {
		return nil, fmt.Errorf("attach: %w", ErrReplication)
	}
	cfg := c.conn.Copy()
	cfg.User, cfg.Password, cfg.RuntimeParams = user, "", maps.Clone(params)
	if c.cfg.Login != nil {
		if err := c.cfg.Login(ctx, user, cfg); err != nil {
			return nil, fmt.Errorf("attach as %s: %w", user, err)
		}
	}
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("attach as %s: %w", user, err)
	}
	key, err := c.storeKey(ctx, conn.PID(), user)
	if err != nil {
		conn.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	return c.hijack(conn, key)
}

func (c *Catalog) hijack(conn *pgconn.PgConn, key []byte) (*Backend, error) {
	h, err := conn.Hijack()
	if err != nil {
		return nil, fmt.Errorf("attach: %w", err)
	}
	// A deadline of the login must not hit the session.
	if err := h.Conn.SetDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("attach: %w", err)
	}
	return &Backend{Conn: h.Conn, Frontend: pgproto3.NewFrontend(h.Conn, h.Conn), PID: h.PID, Secret: h.SecretKey,
		Params: h.ParameterStatuses, Key: key, catalog: c, config: h.Config}, nil
}

// storeKey gives the backend a key. It needs no durability: the key dies with the backend.
func (c *Catalog) storeKey(ctx context.Context, pid uint32, user string) ([]byte, error) {
	key := make([]byte, 32)
	rand.Read(key)
	var stored bool
	err := pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		b.Queue(`set local synchronous_commit = off`)
		b.Queue(`insert into sluice.session_key
			select a.pid, a.backend_start, sha256($2) from pg_stat_get_activity($1) a join pg_roles r on r.oid = a.usesysid
			 where not r.rolsuper and r.rolname !~ '^(sluice|pg_)'
			on conflict (pid) do update set started = excluded.started, digest = excluded.digest
			returning true`, int32(pid), key).QueryRow(func(row pgx.Row) error {
			err := row.Scan(&stored)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			return err
		})
		return tx.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return nil, fmt.Errorf("store session key: %w", err)
	}
	if !stored {
		return nil, &RoleError{user}
	}
	return key, nil
}

// forgetKeysSQL removes the keys of backends that are gone, at start.
const forgetKeysSQL = `delete from sluice.session_key k
	where not exists (select from pg_stat_get_activity(k.pid) a where a.backend_start = k.started)`

// Cancel asks Postgres to cancel what the backend is running. It returns when the request was taken, not when it had effect.
func (b *Backend) Cancel(ctx context.Context) error {
	network, address := pgconn.NetworkAddress(b.config.Host, b.config.Port)
	conn, err := b.config.DialFunc(ctx, network, address)
	if err != nil {
		return fmt.Errorf("cancel backend: %w", err)
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		conn.SetDeadline(deadline)
	}
	buf, err := (&pgproto3.CancelRequest{ProcessID: b.PID, SecretKey: b.Secret}).Encode(nil)
	if err != nil {
		return fmt.Errorf("cancel backend: %w", err)
	}
	if _, err := conn.Write(buf); err != nil {
		return fmt.Errorf("cancel backend: %w", err)
	}
	// Postgres closes the connection when it has sent the signal.
	if _, err := io.Copy(io.Discard, conn); err != nil {
		return fmt.Errorf("cancel backend: %w", err)
	}
	return nil
}

// Close ends the session.
func (b *Backend) Close() error {

	b.Conn.SetWriteDeadline(time.Time{})
	if buf, err := (&pgproto3.Terminate{}).Encode(nil); err == nil {
		b.Conn.Write(buf)
	}
	return b.Conn.Close()
}
