package catalogpg_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"sluice/catalogpg"
)

// TestChecks sets each setting of R21 on the running server, and looks at Open.
func TestChecks(t *testing.T) {
	for setting, value := range map[string]string{"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "track_counts": "off"} {
		control(t, "alter system set "+setting+" = "+value)
		reload(t, setting, "off")
		_, err := catalogpg.Open(t.Context(), catalogpg.Config{Embedded: cluster})
		var bad *catalogpg.SettingError
		if !errors.As(err, &bad) || bad.Setting != setting {
			t.Errorf("%s off: %v", setting, err)
		}
		control(t, "alter system reset "+setting)
		reload(t, setting, "on")
	}
	control(t, "alter database lake set synchronous_commit = off")
	defer control(t, "alter database lake reset synchronous_commit")
	var bad *catalogpg.SettingError
	if _, err := catalogpg.Open(t.Context(), catalogpg.Config{Embedded: cluster}); !errors.As(err, &bad) || bad.Setting != "synchronous_commit" {
		t.Errorf("synchronous_commit off for the database: %v", err)
	}
}

// reload has the server read its settings and returns when new sessions see them.
func reload(t *testing.T, setting, want string) {
	t.Helper()
	control(t, "select pg_reload_conf()::text")
	for {
		b, err := cat.Attach(t.Context(), "lake", "lake", nil)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := b.Exec(t.Context(), "show "+setting)
		b.Close()
		if err != nil {
			t.Fatal(err)
		}
		if string(rows[0][0]) == want {
			return
		}
	}
}

func TestJudge(t *testing.T) {
	good := map[string]string{"fsync": "on", "server_version_num": "150018", "standby": "false", "encoding": "UTF8"}
	if err := catalogpg.Judge(good); err != nil {
		t.Error(err)
	}
	for name, value := range map[string]string{"standby": "true", "server_version_num": "140009", "encoding": "LATIN1"} {
		bad := map[string]string{name: value}
		for k, v := range good {
			if _, ok := bad[k]; !ok {
				bad[k] = v
			}
		}
		var e *catalogpg.SettingError
		if err := catalogpg.Judge(bad); !errors.As(err, &e) {
			t.Errorf("%s %s: %v", name, value, err)
		}
	}
	if err := catalogpg.Judge(map[string]string{"server_version_num": "150003"}); err == nil || !strings.Contains(err.Error(), "15.4") {
		t.Errorf("unpatched: %v", err)
	}
}

// TestOpenAgain: migrations run once, also when several gateways open at a time.
func TestOpenAgain(t *testing.T) {
	before := control(t, "select string_agg(number || digest || applied, ',' order by number) from sluice.migration")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			c, err := catalogpg.Open(t.Context(), catalogpg.Config{Embedded: cluster})
			if err != nil {
				t.Error(err)
				return
			}
			c.Close()
		})
	}
	wg.Wait()
	if after := control(t, "select string_agg(number || digest || applied, ',' order by number) from sluice.migration"); after != before {
		t.Errorf("migrations ran again:\n%s\n%s", before, after)
	}
	control(t, "update sluice.migration set digest = 'x' || digest where number = 2")
	defer control(t, "update sluice.migration set digest = substr(digest, 2) where number = 2")
	if _, err := catalogpg.Open(t.Context(), catalogpg.Config{Embedded: cluster}); err == nil || !strings.Contains(err.Error(), "migration 2 (tables)") {
		t.Errorf("changed migration: %v", err)
	}
}

// TestOtherDatabase: a cluster has one lake, under the name that it was made with.
func TestOtherDatabase(t *testing.T) {
	_, err := catalogpg.Open(t.Context(), catalogpg.Config{Embedded: cluster, Database: "postgres"})
	if err == nil || !strings.Contains(err.Error(), "the lake's database is lake, not postgres") {
		t.Errorf("another name: %v", err)
	}
}

func TestUser(t *testing.T) {
	s := attach(t)
	for sql, want := range map[string]string{
		"select current_user || ' ' || session_user || ' ' || current_database()":                                                      "lake lake lake",
		"select rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls from pg_roles where rolname = 'lake'":               "f|f|f|f|f",
		"select datdba::regrole from pg_database where datname = 'lake'":                                                               "lake",
		"select nspowner::regrole from pg_namespace where nspname = 'public'":                                                          "lake",
		"show default_table_access_method":                                                                                             "lake",
		"select 'b' > 'A' collate \"C\", 'b' > 'B', pg_encoding_to_char(encoding), datcollate from pg_database where datname = 'lake'": "t|t|UTF8|C",
	} {
		if got := s.exec(sql); got != want {
			t.Errorf("%s: %s", sql, got)
		}
	}
}

func TestAttachErrors(t *testing.T) {
	ctx := t.Context()
	control(t, "create role nologin_role")
	defer control(t, "drop role nologin_role")
	var db *catalogpg.DatabaseError
	for _, name := range []string{"nope", "postgres", "template1"} {
		if _, err := cat.Attach(ctx, "lake", name, nil); !errors.As(err, &db) || db.Name != name {
			t.Errorf("database %s: %v", name, err)
		}
	}
	var role *catalogpg.RoleError
	if _, err := cat.Attach(ctx, catalogpg.SuperUser, "lake", nil); !errors.As(err, &role) {
		t.Errorf("superuser: %v", err)
	}
	if _, err := cat.Attach(ctx, "lake", "lake", map[string]string{"replication": "database"}); !errors.Is(err, catalogpg.ErrReplication) {
		t.Errorf("replication: %v", err)
	}
	for user, code := range map[string]string{"nobody_here": "28000", "nologin_role": "28000", "sluice": "28000"} {
		var pgErr *pgconn.PgError
		if _, err := cat.Attach(ctx, user, "lake", nil); !errors.As(err, &pgErr) || pgErr.Code != code {
			t.Errorf("user %s: %v", user, err)
		}
	}
	var pgErr *pgconn.PgError
	if _, err := cat.Attach(ctx, "lake", "lake", map[string]string{"datestyle": "nonsense"}); !errors.As(err, &pgErr) || pgErr.Code != "22023" {
		t.Errorf("bad parameter: %v", err)
	}
}

func TestBackend(t *testing.T) {
	b, err := cat.Attach(t.Context(), "lake", "lake", map[string]string{"application_name": "x", "TimeZone": "Asia/Tokyo"})
	if err != nil {
		t.Fatal(err)
	}
	if b.Params["TimeZone"] != "Asia/Tokyo" || b.Params["application_name"] != "x" || len(b.Key) != 32 || len(b.Secret) != 4 {
		t.Errorf("backend: %+v", b)
	}
	rows, err := b.Exec(t.Context(), "select pg_backend_pid()")
	if err != nil || string(rows[0][0]) != itoa(b.PID) {
		t.Errorf("pid %d, %s, %v", b.PID, rows, err)
	}
	done := make(chan error)
	go func() {
		_, err := b.Exec(context.Background(), "select pg_sleep(1000)")
		done <- err
	}()
	for control(t, "select (wait_event = 'PgSleep')::text from pg_stat_activity where pid = $1", int32(b.PID)) != "true" {
		// each round asks the server again
	}
	if err := b.Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "cancel", <-done, "57014")
	// DISCARD ALL takes neither the key nor the guard.
	if _, err := b.Exec(t.Context(), "discard all"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Do(t.Context(), b.EffectsCall()); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func TestVerifier(t *testing.T) {
	ctx := t.Context()
	control(t, "create role alice login password 'secret' valid until '2030-01-02 03:04:05+00'")
	control(t, "create role bob nologin valid until 'infinity'")
	defer control(t, "drop role alice, bob")
	v, exists, login, until, err := cat.Verifier(ctx, "alice")
	if err != nil || !exists || !login || !strings.HasPrefix(v, "SCRAM-SHA-256$4096:") || !until.Equal(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)) {
		t.Errorf("alice: %q %v %v %v %v", v, exists, login, until, err)
	}
	if v, exists, login, until, err := cat.Verifier(ctx, "bob"); err != nil || !exists || login || v != "" || !until.IsZero() {
		t.Errorf("bob: %q %v %v %v %v", v, exists, login, until, err)
	}
	for _, name := range []string{"nobody_here", catalogpg.SuperUser, "sluice_ptr", "pg_monitor"} {
		if _, exists, _, _, err := cat.Verifier(ctx, name); err != nil || exists {
			t.Errorf("%s: %v %v", name, exists, err)
		}
	}
}

// TestOwners: a role that owns its first lake table needs its fill functions; they go before the role can.
func TestOwners(t *testing.T) {
	ctx := t.Context()
	control(t, "create role carol login")
	defer control(t, "drop role carol")
	s := attach(t)
	s.exec("grant all on schema " + s.schema + " to public")
	b, err := cat.Attach(ctx, "carol", "lake", map[string]string{"search_path": s.schema})
	if err != nil {
		t.Fatal(err)
	}
	c := &session{b, t, s.schema}
	c.exec("create table ct (a int check (a > 0))")
	rel := c.watch("ct")
	c.exec("begin; savepoint a")
	_, err = c.Do(ctx, c.FillCall(rel, []int16{1}, []string{"{1}"}, 1))
	var missing *pgconn.PgError
	if !errors.As(err, &missing) {
		t.Fatalf("fill: %v", err)
	}
	role, ok := catalogpg.MissingOwner(missing.Code, missing.Detail)
	if !ok {
		t.Fatalf("fill: %v", err)
	}
	if err := cat.EnsureOwner(ctx, role); err != nil {
		t.Fatal(err)
	}
	c.exec("rollback to a")
	if f := c.fill(rel, []int16{1}, 1, "{1}"); len(f.TIDs) != 1 {
		t.Errorf("fill: %v", f)
	}
	c.exec("rollback; drop table ct")
	c.Close()
	if err := cat.ForgetOwner(ctx, role); err != nil {
		t.Error(err)
	}
	if err := cat.EnsureOwner(ctx, 10); err == nil {
		t.Error("a superuser's tables can be filled")
	}
}

// TestNotify: DDL and commits of others arrive, and a broken connection is told.
//
// claims: S27
func TestNotify(t *testing.T) {
	type notice struct{ channel, payload string }
	heard := make(chan notice, 100)
	c, err := catalogpg.Open(t.Context(), catalogpg.Config{Embedded: cluster, Notify: func(channel, payload string) { heard <- notice{channel, payload} }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	expect := func(want notice) {
		t.Helper()
		for got := range heard {
			if got == want {
				return
			}
		}
	}
	expect(notice{})
	s := attach(t)
	s.exec("create table t (a int)")
	rel := s.watch("t")
	expect(notice{"sluice_ddl", itoa(rel) + ":1"})
	f := flipOf(s.schema+"1", move(rel, "", "m1"))
	f.Stream, f.Progress = s.schema, 5
	id, err := cat.Flip(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	expect(notice{"sluice_commits", itoa(uint32(id)) + ":5"})
	control(t, "select pg_terminate_backend(pid)::text from pg_stat_activity where query like '%listen sluice_commits%' and pid <> pg_backend_pid()")
	expect(notice{})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestQuote(t *testing.T) {
	s := attach(t)
	for _, x := range []string{"", "a", `a"b`, `a'b\c`, `\`, `''`, "ü\n", "$$"} {
		for _, conforming := range []string{"on", "off"} {
			s.exec("set standard_conforming_strings = " + conforming + "; set escape_string_warning = off")
			if got := s.exec("select " + catalogpg.QuoteLiteral(x)); got != x {
				t.Errorf("literal %q: %q", x, got)
			}
			if x != "" {
				s.exec("create temp table " + catalogpg.QuoteIdent(x) + " (a int); drop table " + catalogpg.QuoteIdent(x))
			}
		}
	}
}
