package catalogpg_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"sluice/catalogpg"
	"sluice/writer/catalog"
	"sluice/writer/catalog/catalogtest"
	"sluice/writer/table"
)

func flipOf(id string, tables ...catalog.TableFlip) catalog.Flip {
	return catalog.Flip{ID: id, Tables: tables}
}

func at(s string) table.Pointer { return table.Pointer{Location: s} }

func move(rel uint32, from, to string) catalog.TableFlip {
	return catalog.TableFlip{Table: table.ID(rel), From: at(from), To: at(to), NextFile: 1, NextRow: 1}
}

// control runs SQL as the superuser, outside the catalog's own pool.
func control(t testing.TB, sql string, args ...any) string {
	t.Helper()
	out, err := catalogpg.ControlText(cat, sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return out
}

// TestCatalog runs the suite that every catalog owes. Its subjects share the database, so each starts from empty tables. The Postgres
// transaction is what orders flips: of those that race for a pointer one wins, and their numbers have no gap.
//
// claims: S26 P43 M49
func TestCatalog(t *testing.T) {
	catalogtest.Run(t, func(t *testing.T) catalogtest.Subject {
		s := attach(t)
		control(t, `truncate sluice.commit, sluice.stream, sluice.pointer, sluice.rel, sluice.watch, sluice.decision, sluice.staged,
			sluice.result, sluice.result_window, sluice.prepared, sluice_iceberg.iceberg_tables`)
		control(t, "update sluice.commit_counter set id = 0")
		oids := map[int]uint32{}
		return catalogtest.Subject{
			Catalog: cat,
			Put: func(t *testing.T, n int, name string, version int) table.ID {
				if oids[n] == 0 {
					s.exec("create table " + name + " (a int)")
					oids[n] = s.oid(name)
				}
				s.call(s.RelPutCall(oids[n], catalogpg.RelPut{Kind: "lake", Version: version}))
				return table.ID(oids[n])
			},
			Decide: func(t *testing.T, txid [16]byte) { s.call(s.DecideCall(txid)) },
		}
	})
}

// pointers are the rows of iceberg_tables of the test's schema.
func (s *session) pointers() string {
	return control(s.t, `select coalesce(string_agg(concat_ws(' ', table_name, metadata_location, previous_metadata_location, iceberg_type), '; '
		order by table_name), '') from sluice_iceberg.iceberg_tables where catalog_name = 'lake' and table_namespace = $1`, s.schema)
}

// TestFlipInUserTransaction: DDL, its record and its pointers commit together on the user's own backend.
func TestFlipInUserTransaction(t *testing.T) {
	s := attach(t)
	flip := func(f catalog.Flip) error {
		t.Helper()
		call, err := s.FlipCall(f)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Do(context.Background(), call)
		return catalogpg.FlipError(f.ID, err)
	}
	id := func(n string) string { return s.schema + n }
	s.exec("begin; create table a (x int); create table b (x int)")
	a, b := s.watch("a"), s.watch("b")
	if err := flip(flipOf(id("1"), move(a, "", "a1"), move(b, "", "b1"))); err != nil {
		t.Fatal(err)
	}
	if got := s.pointers(); got != "" {
		t.Errorf("before commit: %s", got)
	}
	s.exec("commit")
	if got := s.pointers(); got != "a a1 TABLE; b b1 TABLE" {
		t.Errorf("created: %s", got)
	}

	s.exec("begin; alter table a rename to tmp; alter table b rename to a; alter table tmp rename to b")
	s.watch("a")
	s.watch("b")
	if err := flip(flipOf(id("2"), move(a, "a1", "a2"), move(b, "b1", "b2"))); err != nil {
		t.Fatal(err)
	}
	s.exec("rollback")
	if got := s.pointers(); got != "a a1 TABLE; b b1 TABLE" {
		t.Errorf("rolled back: %s", got)
	}

	s.exec("begin; alter table a rename to tmp; alter table b rename to a; alter table tmp rename to b")
	s.watch("a")
	s.watch("b")
	if err := flip(flipOf(id("3"), move(a, "a1", "a2"), move(b, "b1", "b1"))); err != nil {
		t.Fatal(err)
	}
	s.exec("commit")
	if got := s.pointers(); got != "a b1 b1 TABLE; b a2 a1 TABLE" {
		t.Errorf("swapped: %s", got)
	}

	s.exec("begin; drop table a")
	s.call(s.RelDropCall(b))
	if err := flip(flipOf(id("4"), move(b, "b1", ""))); err != nil {
		t.Fatal(err)
	}
	s.exec("commit")
	if got := s.pointers(); got != "b a2 a1 TABLE" {
		t.Errorf("dropped: %s", got)
	}

	// A JDBC client has the name already.
	control(t, `insert into sluice_iceberg.iceberg_tables values ('lake', $1, 'taken', 'x', null, 'TABLE')`, s.schema)
	s.exec("begin; create table taken (x int)")
	err := flip(flipOf(id("5"), move(s.watch("taken"), "", "t1")))
	wantCode(t, "taken name", errors.Unwrap(err), "42P07")
	s.exec("rollback")
}

// TestFlipBesideOpenDDL: a DDL transaction that stays open does not make flushes wait, nor other DDL.
func TestFlipBesideOpenDDL(t *testing.T) {
	s := attach(t)
	s.exec("create table a (x int); create table b (x int)")
	a, b := s.watch("a"), s.watch("b")
	if _, err := cat.Flip(t.Context(), flipOf(s.schema+"1", move(a, "", "a1"), move(b, "", "b1"))); err != nil {
		t.Fatal(err)
	}
	s.exec("begin; alter table a add y int; drop table b")
	s.call(s.RelPutCall(a, catalogpg.RelPut{Version: 2}))
	s.call(s.RelDropCall(b))
	other := login(t, s.schema)
	other.exec("set lock_timeout = '5s'; create table c (x int)")
	other.watch("c")
	if _, err := cat.Flip(t.Context(), flipOf(s.schema+"2", move(a, "a1", "a2"), move(b, "b1", "b2"))); err != nil {
		t.Fatal(err)
	}
	call, _ := s.FlipCall(flipOf(s.schema+"3", move(a, "a1", "a3")))
	_, err := s.Do(context.Background(), call)
	if err := catalogpg.FlipError("", err); !errors.Is(err, catalog.ErrConflict) {
		t.Errorf("a flip on a stale pointer: %v", err)
	}
	s.exec("rollback")
}

// TestFlipForeign: a commit by a JDBC client is a conflict, of the right table, and nothing moves.
//
// claims: S14
func TestFlipForeign(t *testing.T) {
	s := attach(t)
	s.exec("create table a (x int); create table b (x int)")
	a, b := s.watch("a"), s.watch("b")
	if _, err := cat.Flip(t.Context(), flipOf(s.schema+"1", move(a, "", "a1"), move(b, "", "b1"))); err != nil {
		t.Fatal(err)
	}
	control(t, `update sluice_iceberg.iceberg_tables set metadata_location = 'foreign' where table_namespace = $1 and table_name = 'b'`, s.schema)
	_, err := cat.Flip(t.Context(), flipOf(s.schema+"2", move(a, "a1", "a2"), move(b, "b1", "b2")))
	var conflict *catalog.ConflictError
	if !errors.As(err, &conflict) || conflict.Table != table.ID(b) {
		t.Errorf("got %v", err)
	}
	if got := s.pointers(); got != "a a1 TABLE; b foreign TABLE" {
		t.Errorf("pointers: %s", got)
	}
	// The counter went back with the failed flip: ids stay gapless.
	if got := control(t, `select (select id from sluice.commit_counter) - count(id) from sluice.commit`); got != "0" {
		t.Errorf("gap of %s", got)
	}
}

// TestCommitLog: what a flip did can be read from its row.
func TestCommitLog(t *testing.T) {
	s := attach(t)
	s.exec("create table a (x int)")
	a := s.watch("a")
	f := flipOf(s.schema+"1", move(a, "", "a1"))
	f.Stream, f.Progress = s.schema, 42
	id, err := cat.Flip(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	got := control(t, `select format('%s %s %s %s', id, stream, position, tables) from sluice.commit where flush_id = $1`, f.ID)
	want := fmt.Sprintf(`%d %s 42 [{"id": %d, "to": "a1", "from": "", "snapshot": 0}]`, id, s.schema, a)
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestFlipLostReply cuts the connection at every point around COMMIT. The answer must be what happened.
func TestFlipLostReply(t *testing.T) {
	for _, c := range []struct {
		name    string
		cut     cut
		commits bool
	}{
		{"reply lost", cut{after: "COMMIT"}, true},
		{"request lost", cut{before: "commit"}, false},
		{"flip lost", cut{before: "sluice.flip_all"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := attach(t)
			s.exec("create table a (x int)")
			a := s.watch("a")
			p := startProxy(t, cluster)
			through, err := catalogpg.Open(t.Context(), catalogpg.Config{ConnString: p.connString()})
			if err != nil {
				t.Fatal(err)
			}
			defer through.Close()
			p.arm(c.cut)
			_, err = through.Flip(t.Context(), flipOf(s.schema+"1", move(a, "", "a1")))
			if (err == nil) != c.commits {
				t.Errorf("flip: %v", err)
			}
			if got := s.pointers(); (got == "a a1 TABLE") != c.commits {
				t.Errorf("pointers: %q", got)
			}
			if !p.fired() {
				t.Error("the cut did not happen")
			}
			if c.name == "flip lost" {
				return
			}
			if got, err := cat.Resolve(t.Context(), s.schema+"1"); err != nil || got != c.commits {
				t.Errorf("resolve: %v, %v", got, err)
			}
		})
	}
}

// TestFlipUnknown: as long as nobody can be asked, the outcome is unknown; afterwards Resolve knows.
func TestFlipUnknown(t *testing.T) {
	s := attach(t)
	s.exec("create table a (x int)")
	a := s.watch("a")
	p := startProxy(t, cluster)
	through, err := catalogpg.Open(t.Context(), catalogpg.Config{ConnString: p.connString()})
	if err != nil {
		t.Fatal(err)
	}
	defer through.Close()
	p.arm(cut{after: "COMMIT", refuse: true})
	_, err = through.Flip(t.Context(), flipOf(s.schema+"1", move(a, "", "a1")))
	var unknown *catalog.OutcomeUnknownError
	if !errors.As(err, &unknown) || unknown.ID != s.schema+"1" {
		t.Fatalf("flip: %v", err)
	}
	if got, err := cat.Resolve(t.Context(), unknown.ID); err != nil || !got {
		t.Errorf("resolve: %v, %v", got, err)
	}
}

// TestResolveWaits: a backend that still runs the flip decides; the tombstone waits for it (G3).
func TestResolveWaits(t *testing.T) {
	for _, commits := range []bool{true, false} {
		s := attach(t)
		s.exec("begin; create table a (x int)")
		call, _ := s.FlipCall(flipOf(s.schema+"1", move(s.watch("a"), "", "a1")))
		s.call(call)
		answer := make(chan bool)
		go func() {
			got, err := cat.Resolve(context.Background(), s.schema+"1")
			if err != nil {
				t.Error(err)
			}
			answer <- got
		}()
		for control(t, `select exists (select from pg_stat_activity where wait_event_type = 'Lock' and query like 'insert into sluice.commit%')::text`) != "true" {
			// each round asks the server again
		}
		s.exec(map[bool]string{true: "commit", false: "rollback"}[commits])
		if got := <-answer; got != commits {
			t.Errorf("resolve: %v, want %v", got, commits)
		}
	}
}

// TestDecisionPending: a prepared transaction holds its decision row; asking for it does not hang.
func TestDecisionPending(t *testing.T) {
	s := attach(t)
	defer catalogpg.SetPendingLimit("100ms")()
	txid := [16]byte{0xaa, 1}
	s.exec("begin; create table h (a int) using heap")
	s.call(s.DecideCall(txid))
	s.exec("prepare transaction 'p1'")
	if _, err := cat.Decision(t.Context(), txid); !errors.Is(err, catalog.ErrPending) {
		t.Errorf("while prepared: %v", err)
	}
	s.exec("commit prepared 'p1'")
	if got, err := cat.Decision(t.Context(), txid); err != nil || !got {
		t.Errorf("after commit: %v, %v", got, err)
	}
	if err := cat.ForgetDecisions(t.Context(), [][16]byte{txid}); err != nil {
		t.Error(err)
	}
	if got, err := cat.Decision(t.Context(), txid); err != nil || got {
		t.Errorf("after forgetting: %v, %v", got, err)
	}
}

func TestIcebergLengths(t *testing.T) {
	got := control(t, `select string_agg(table_name || '.' || column_name || ' ' || character_maximum_length || ' ' || is_nullable, '; '
		order by table_name, ordinal_position) from information_schema.columns where table_schema = 'sluice_iceberg'`)
	want := strings.Join([]string{
		"iceberg_namespace_properties.catalog_name 255 NO", "iceberg_namespace_properties.namespace 255 NO",
		"iceberg_namespace_properties.property_key 255 NO", "iceberg_namespace_properties.property_value 1000 YES",
		"iceberg_tables.catalog_name 255 NO", "iceberg_tables.table_namespace 255 NO", "iceberg_tables.table_name 255 NO",
		"iceberg_tables.metadata_location 1000 YES", "iceberg_tables.previous_metadata_location 1000 YES", "iceberg_tables.iceberg_type 5 YES",
	}, "; ")
	if got != want {
		t.Errorf("got %s", got)
	}
	if got := control(t, `select property_value from sluice_iceberg.iceberg_namespace_properties where namespace = 'public'`); got != "true" {
		t.Errorf("marker of public: %s", got)
	}
}
