package catalogpg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"sluice/writer/catalog"
)

// Database is the database of the lake unless it is given another name, and User the ordinary role that owns it. User is not called like the schema sluice, which
// "$user" in search_path would then pick for the user's tables.
const (
	Database = "lake"
	User     = "lake"
)

// controlConns bounds the control connections: flips, attaches and look-ups, all of them short.
const controlConns = 8

// Config says where the catalog is. Exactly one of ConnString and Embedded is set.
type Config struct {
	ConnString string    // of the control connection, to the server's maintenance or lake database; its role must be a superuser
	Embedded   *Embedded // started by StartEmbedded
	Database   string    // of the lake; default: Database
	Log        *slog.Logger
	// Notify is called by Run for every notification on sluice_ddl and sluice_commits. After a broken connection it is called once with
	// an empty channel: anything may have been missed.
	Notify func(channel, payload string)
	// Login completes the login of a user's backend on a server given by ConnString, for example with the recovered SCRAM key. Embedded
	// clusters need none: only we can enter the socket's folder.
	Login func(ctx context.Context, user string, cfg *pgconn.Config) error
}

// Catalog is the catalog Postgres. It implements catalog.Catalog.
type Catalog struct {
	cfg  Config
	conn *pgconn.Config // of the control connection, to the lake's database
	pool *pgxpool.Pool
	log  *slog.Logger
}

var _ catalog.Catalog = (*Catalog)(nil)

// Open connects, makes the lake's database and roles if they are not there, checks the server and migrates the schema.
func Open(ctx context.Context, cfg Config) (*Catalog, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if (cfg.Embedded == nil) == (cfg.ConnString == "") {
		return nil, errors.New("open catalog: give a connection string or an embedded cluster")
	}
	if cfg.Embedded != nil {
		cfg.ConnString = cfg.Embedded.connString("postgres")
	}
	cfg.Database = cmp.Or(cfg.Database, Database)
	c := &Catalog{cfg: cfg, log: cfg.Log}
	if err := c.open(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("open catalog: %w", err)
	}
	return c, nil
}

func (c *Catalog) open(ctx context.Context) error {
	if err := c.makeDatabase(ctx); err != nil {
		return err
	}
	if err := c.connect(ctx); err != nil {
		return err
	}
	if err := check(ctx, c.pool, c.cfg.Database); err != nil {
		return err
	}
	return c.setUp(ctx)
}

// connect opens the pool of control connections to the lake's database.
func (c *Catalog) connect(ctx context.Context) error {
	pc, err := pgxpool.ParseConfig(c.cfg.ConnString)
	if err != nil {
		return err
	}
	pc.ConnConfig.Database = c.cfg.Database
	pc.MaxConns = controlConns
	pc.ConnConfig.RuntimeParams = controlParams()
	c.conn = &pc.ConnConfig.Config
	c.pool, err = pgxpool.NewWithConfig(ctx, pc)
	return err
}

// controlParams pins what our own statements depend on. idle_in_transaction_session_timeout ends a transaction whose COMMIT got lost, so
// that a tombstone does not wait for it for ever.
func controlParams() map[string]string {
	return map[string]string{
		"application_name": "sluice", "search_path": "pg_catalog", "timezone": "UTC", "datestyle": "ISO, MDY", "intervalstyle": "postgres",
		"extra_float_digits": "1", "bytea_output": "hex", "client_encoding": "UTF8", "default_transaction_isolation": "read committed",
		"idle_in_transaction_session_timeout": "60s", "synchronous_commit": "on", "lc_monetary": "C",
	}
}

// makeDatabase makes the lake's database and user. CREATE DATABASE copies template0: nothing local is inherited.
func (c *Catalog) makeDatabase(ctx context.Context) error {
	cc, err := pgx.ParseConfig(c.cfg.ConnString)
	if err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, cc)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if conn.PgConn().ParameterStatus("is_superuser") != "on" {
		return fmt.Errorf("role %s of the control connection is not a superuser", cc.User)
	}
	if err := check(ctx, conn, c.cfg.Database); err != nil {
		return err
	}
	var role, database bool
	var other string
	err = conn.QueryRow(ctx, `select exists (select from pg_roles where rolname = $1), exists (select from pg_database where datname = $2),
		coalesce((select min(datname) from pg_database where pg_get_userbyid(datdba) = $1 and datname <> $2), '')`,
		User, c.cfg.Database).Scan(&role, &database, &other)
	if err != nil {
		return err
	}
	if c.cfg.Embedded != nil && other != "" {
		return fmt.Errorf("the lake's database is %s, not %s", other, c.cfg.Database)
	}
	if !role {
		if _, err := conn.Exec(ctx, "create role "+QuoteIdent(User)+" login"); err != nil && !isCode(err, "42710", "23505") {
			return err
		}
	}
	if !database {
		_, err = conn.Exec(ctx, fmt.Sprintf("create database %s owner %s template template0 encoding 'UTF8' locale 'C'",
			QuoteIdent(c.cfg.Database), QuoteIdent(User)))
		if err != nil && !isCode(err, "42P04", "23505") {
			return err
		}
	}
	if c.cfg.Embedded == nil || !database {
		return nil
	}
	// One that the cluster brought along, such as postgres.
	_, err = conn.Exec(ctx, fmt.Sprintf("alter database %s owner to %s", QuoteIdent(c.cfg.Database), QuoteIdent(User)))
	return err
}

// Database is the name of the lake's database.
func (c *Catalog) Database() string { return c.cfg.Database }

// Ping asks the server for the shortest answer there is.
func (c *Catalog) Ping(ctx context.Context) error {
	if err := c.pool.Ping(ctx); err != nil {
		return fmt.Errorf("ping catalog: %w", err)
	}
	return nil
}

// Close ends the control connections. Backends belong to their sessions.
func (c *Catalog) Close() {
	if c.pool != nil {
		c.pool.Close()
	}
}

// isCode reports whether err is a Postgres error with one of these SQLSTATEs.
func isCode(err error, codes ...string) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && strings.Contains(strings.Join(codes, " "), pgErr.Code)
}
