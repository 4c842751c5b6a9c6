// Package catalogtest says what every catalog.Catalog owes its users, as tests.
//
// It owns nothing. Start with Run. It never looks behind the interface: what only one implementation has is tested beside it.
package catalogtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"sluice/writer/catalog"
	"sluice/writer/table"
)

// Subject is one fresh catalog and the two things that only DDL and user transactions do to it.
type Subject struct {
	Catalog catalog.Catalog
	// Put makes a table known, or changes its name and schema version. Ids are the subject's to choose; Put returns the one it chose for
	// the n-th table of the test, and ids grow with n.
	Put func(t *testing.T, n int, name string, version int) table.ID
	// Decide commits a transaction that carries this decision.
	Decide func(t *testing.T, txid [16]byte)
}

// Run runs the suite; open makes a fresh subject for each test.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	for name, test := range map[string]func(*testing.T, Subject){
		"empty": testEmpty, "create": testCreate, "two": testTwo, "conflict": testConflict, "version": testVersion, "drop": testDrop,
		"progress": testProgress, "settled": testSettled, "resolve": testResolve, "decision": testDecision, "race": testRace,
		"shape": testShape, "staged": testStaged, "results": testResults, "prepared": testPrepared,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func at(s string) table.Pointer { return table.Pointer{Location: s} }

func load(t *testing.T, s Subject) catalog.State {
	t.Helper()
	st, err := s.Catalog.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func find(t *testing.T, s Subject, id table.ID) catalog.Table {
	t.Helper()
	for _, x := range load(t, s).Tables {
		if x.ID == id {
			return x
		}
	}
	t.Fatalf("table %d is not there", id)
	return catalog.Table{}
}

func flip(t *testing.T, s Subject, f catalog.Flip) catalog.CommitID {
	t.Helper()
	id, err := s.Catalog.Flip(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func wantConflict(t *testing.T, s Subject, f catalog.Flip) {
	t.Helper()
	before := fmt.Sprint(load(t, s))
	if _, err := s.Catalog.Flip(t.Context(), f); !errors.Is(err, catalog.ErrConflict) {
		t.Fatalf("flip %s: got %v, want a conflict", f.ID, err)
	}
	if after := fmt.Sprint(load(t, s)); after != before {
		t.Fatalf("a failed flip changed the catalog:\n%s\n%s", before, after)
	}
}

func create(id table.ID, to string) catalog.TableFlip {
	return catalog.TableFlip{Table: id, To: at(to), NextFile: 1, NextRow: 1}
}

func testEmpty(t *testing.T, s Subject) {
	if st := load(t, s); st.Last != 0 || len(st.Tables) != 0 || len(st.Progress) != 0 {
		t.Fatalf("a fresh catalog holds %+v", st)
	}
}

func testCreate(t *testing.T, s Subject) {
	id := s.Put(t, 1, "orders", 3)
	if x := find(t, s, id); x.Pointer != at("") || x.Version != 3 || x.Name != "orders" || x.NextFile != 1 || x.NextRow != 1 {
		t.Fatalf("a new table is %+v", x)
	}
	if n := flip(t, s, catalog.Flip{ID: "a", Tables: []catalog.TableFlip{create(id, "m1")}}); n != 1 {
		t.Fatalf("the first commit is %d", n)
	}
	n := flip(t, s, catalog.Flip{ID: "b", Stream: "s", Progress: 7, Tables: []catalog.TableFlip{
		{Table: id, From: at("m1"), To: at("m2"), Version: 3, NextFile: 9, NextRow: 1 << 40, RowMap: []byte{0, 255, 1}, Snapshot: -1 << 62}}})
	x := find(t, s, id)
	if n != 2 || x.Pointer != at("m2") || x.NextFile != 9 || x.NextRow != 1<<40 || string(x.RowMap) != "\x00\xff\x01" || x.Snapshot != -1<<62 {
		t.Fatalf("commit %d left %+v", n, x)
	}
	if st := load(t, s); st.Last != 2 || st.Progress["s"] != 7 {
		t.Fatalf("after two flips: %+v", st)
	}
}

func testTwo(t *testing.T, s Subject) {
	a, b := s.Put(t, 1, "a", 1), s.Put(t, 2, "b", 1)
	flip(t, s, catalog.Flip{ID: "1", Tables: []catalog.TableFlip{create(a, "a1"), create(b, "b1")}})
	wantConflict(t, s, catalog.Flip{ID: "2", Stream: "s", Progress: 5, Tables: []catalog.TableFlip{
		{Table: a, From: at("a1"), To: at("a2")}, {Table: b, From: at("stale"), To: at("b2")}}})
	flip(t, s, catalog.Flip{ID: "3", Tables: []catalog.TableFlip{
		{Table: a, From: at("a1"), To: at("a3")}, {Table: b, From: at("b1"), To: at("b3")}}})
	if find(t, s, a).Pointer != at("a3") || find(t, s, b).Pointer != at("b3") {
		t.Fatalf("after the flip: %+v", load(t, s))
	}
}

func testConflict(t *testing.T, s Subject) {
	id := s.Put(t, 1, "orders", 1)
	wantConflict(t, s, catalog.Flip{ID: "early", Tables: []catalog.TableFlip{{Table: id, From: at("m0"), To: at("m1")}}})
	flip(t, s, catalog.Flip{ID: "a", Tables: []catalog.TableFlip{create(id, "m1")}})
	wantConflict(t, s, catalog.Flip{ID: "b", Tables: []catalog.TableFlip{{Table: id, From: at("m0"), To: at("m2")}}})
	// An id whose flip conflicted is not used up.
	flip(t, s, catalog.Flip{ID: "b", Tables: []catalog.TableFlip{{Table: id, From: at("m1"), To: at("m2")}}})
}

func testVersion(t *testing.T, s Subject) {
	id := s.Put(t, 1, "orders", 1)
	flip(t, s, catalog.Flip{ID: "a", Tables: []catalog.TableFlip{create(id, "m1")}})
	s.Put(t, 1, "orders", 2)
	wantConflict(t, s, catalog.Flip{ID: "b", Tables: []catalog.TableFlip{{Table: id, From: at("m1"), To: at("m2"), Version: 1}}})
	flip(t, s, catalog.Flip{ID: "c", Tables: []catalog.TableFlip{{Table: id, From: at("m1"), To: at("m2"), Version: 2}}})
}

func testDrop(t *testing.T, s Subject) {
	id := s.Put(t, 1, "orders", 1)
	flip(t, s, catalog.Flip{ID: "a", Tables: []catalog.TableFlip{create(id, "m1")}})
	wantConflict(t, s, catalog.Flip{ID: "b", Tables: []catalog.TableFlip{{Table: id, From: at("m0")}}})
	flip(t, s, catalog.Flip{ID: "c", Tables: []catalog.TableFlip{{Table: id, From: at("m1")}}})
	wantConflict(t, s, catalog.Flip{ID: "d", Tables: []catalog.TableFlip{{Table: id, From: at("m1"), To: at("m2")}}})
}

func testProgress(t *testing.T, s Subject) {
	flip(t, s, catalog.Flip{ID: "a", Stream: "s", Progress: 7})
	flip(t, s, catalog.Flip{ID: "b", Stream: "s", Progress: 7})
	wantConflict(t, s, catalog.Flip{ID: "c", Stream: "s", Progress: 6})
	flip(t, s, catalog.Flip{ID: "d", Stream: "other", Progress: 1})
	flip(t, s, catalog.Flip{ID: "e", Stream: "s"})
	if p := load(t, s).Progress; p["s"] != 7 || p["other"] != 1 {
		t.Fatalf("progress is %v", p)
	}
}

func testSettled(t *testing.T, s Subject) {
	flip(t, s, catalog.Flip{ID: "a", Stream: "s", Progress: 1})
	if _, err := s.Catalog.Flip(t.Context(), catalog.Flip{ID: "a", Stream: "s", Progress: 2}); !errors.Is(err, catalog.ErrSettled) {
		t.Fatalf("second flip with one id: %v", err)
	}
	if p := load(t, s).Progress["s"]; p != 1 {
		t.Fatalf("the second flip moved progress to %d", p)
	}
}

func testResolve(t *testing.T, s Subject) {
	flip(t, s, catalog.Flip{ID: "a", Stream: "s", Progress: 1})
	for _, x := range []struct {
		id   string
		want bool
	}{{"a", true}, {"b", false}, {"a", true}, {"b", false}} {
		if got, err := s.Catalog.Resolve(t.Context(), x.id); err != nil || got != x.want {
			t.Fatalf("resolve %s: %v, %v", x.id, got, err)
		}
	}
	if _, err := s.Catalog.Flip(t.Context(), catalog.Flip{ID: "b", Stream: "s", Progress: 2}); !errors.Is(err, catalog.ErrSettled) {
		t.Fatalf("a flip settled as not committed came late: %v", err)
	}
	if st := load(t, s); st.Last != 1 || st.Progress["s"] != 1 {
		t.Fatalf("a tombstone counts as commit: %+v", st)
	}
	if n := flip(t, s, catalog.Flip{ID: "c", Stream: "s", Progress: 2}); n != 2 {
		t.Fatalf("commit ids have a gap: %d", n)
	}
}

func testDecision(t *testing.T, s Subject) {
	s.Decide(t, [16]byte{1})
	for _, x := range []struct {
		txid byte
		want bool
	}{{1, true}, {2, false}, {1, true}, {2, false}} {
		if got, err := s.Catalog.Decision(t.Context(), [16]byte{x.txid}); err != nil || got != x.want {
			t.Fatalf("decision of %d: %v, %v", x.txid, got, err)
		}
	}
}

// testRace has many flips on one pointer at once: exactly one may win each round.
func testRace(t *testing.T, s Subject) {
	id := s.Put(t, 1, "orders", 1)
	flip(t, s, catalog.Flip{ID: "make", Tables: []catalog.TableFlip{create(id, "m0")}})
	const rounds, racers = 5, 4
	for r := range rounds {
		from := find(t, s, id).Pointer
		won := make(chan string, racers)
		var wg sync.WaitGroup
		for k := range racers {
			wg.Go(func() {
				to := fmt.Sprintf("m%d-%d", r+1, k)
				_, err := s.Catalog.Flip(context.WithoutCancel(t.Context()), catalog.Flip{ID: to,
					Tables: []catalog.TableFlip{{Table: id, From: from, To: at(to)}}})
				if err == nil {
					won <- to
				} else if !errors.Is(err, catalog.ErrConflict) {
					t.Errorf("race: %v", err)
				}
			})
		}
		wg.Wait()
		if len(won) != 1 {
			t.Fatalf("round %d has %d winners", r, len(won))
		}
		if to := <-won; find(t, s, id).Pointer != at(to) {
			t.Fatalf("round %d: the pointer is not the winner's", r)
		}
	}
}

func testShape(t *testing.T, s Subject) {
	for name, f := range map[string]catalog.Flip{
		"no id":     {},
		"no stream": {ID: "a", Progress: 1},
		"order":     {ID: "a", Tables: []catalog.TableFlip{create(2, "x"), create(1, "y")}},
		"nothing":   {ID: "a", Tables: []catalog.TableFlip{{Table: 1}}},
	} {
		if _, err := s.Catalog.Flip(t.Context(), f); err == nil || errors.Is(err, catalog.ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// testStaged: objects are listed until their flip commits or is forgotten.
func testStaged(t *testing.T, s Subject) {
	stage := func(flip string, locations ...string) {
		t.Helper()
		if err := s.Catalog.Stage(t.Context(), flip, locations); err != nil {
			t.Fatal(err)
		}
	}
	want := func(want ...catalog.Staged) {
		t.Helper()
		got, err := s.Catalog.Staged(t.Context())
		for i := range got {
			slices.Sort(got[i].Locations)
		}
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("staged: %v, %v, want %v", got, err, want)
		}
	}
	want()
	stage("a", "x", "y")
	stage("b", "z")
	stage("a", "w")
	stage("c", "v")
	want(catalog.Staged{Flip: "a", Locations: []string{"w", "x", "y"}}, catalog.Staged{Flip: "b", Locations: []string{"z"}},
		catalog.Staged{Flip: "c", Locations: []string{"v"}})
	flip(t, s, catalog.Flip{ID: "a"})
	want(catalog.Staged{Flip: "b", Locations: []string{"z"}}, catalog.Staged{Flip: "c", Locations: []string{"v"}})
	if _, err := s.Catalog.Resolve(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	want(catalog.Staged{Flip: "b", Locations: []string{"z"}}, catalog.Staged{Flip: "c", Locations: []string{"v"}})
	if err := s.Catalog.Forget(t.Context(), []string{"a", "b"}); err != nil {
		t.Fatal(err)
	}
	want(catalog.Staged{Flip: "c", Locations: []string{"v"}})
}

// testResults: answers are stored by the flip, with what it drops and raises, and a flip that fails stores none.
func testResults(t *testing.T, s Subject) {
	results := func(stream string) string {
		t.Helper()
		r, err := s.Catalog.Results(t.Context(), stream)
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprint("low ", r.Low, " forgotten ", r.Forgotten)
		for _, x := range r.List {
			text += fmt.Sprintf("; %s %d %x at %d, %d: %q", x.Writer, x.Sequence, x.ID[:1], x.Position, x.Time, x.Answer)
		}
		return text
	}
	want := func(stream, text string) {
		t.Helper()
		if got := results(stream); got != text {
			t.Fatalf("stream %s: got\n%s\nwant\n%s", stream, got, text)
		}
	}
	of := func(writer string, sequence int64, pos table.Position, answer string) catalog.Result {
		return catalog.Result{Writer: writer, Sequence: sequence, ID: [16]byte{byte(pos)}, Position: pos, Time: 1000 * int64(pos), Answer: []byte(answer)}
	}
	want("s", "low map[] forgotten 0")
	flip(t, s, catalog.Flip{ID: "1", Stream: "s", Progress: 5, Results: catalog.Results{List: []catalog.Result{
		of("1/a", 7, 1, "x\x00y"), of("1/a", 8, 2, ""), of("2/a", 7, 3, "it's"), of("1/", 4, 4, "")}}})
	want("s", `low map[] forgotten 0; 1/ 4 04 at 4, 4000: ""; 1/a 7 01 at 1, 1000: "x\x00y"; 1/a 8 02 at 2, 2000: ""; 2/a 7 03 at 3, 3000: "it's"`)
	want("other", `low map[] forgotten 0; 1/a 7 01 at 0, 1000: "x\x00y"; 1/a 8 02 at 0, 2000: ""; 2/a 7 03 at 0, 3000: "it's"`)
	wantConflict(t, s, catalog.Flip{ID: "2", Stream: "s", Progress: 4, Results: catalog.Results{List: []catalog.Result{of("1/a", 9, 4, "")}}})
	flip(t, s, catalog.Flip{ID: "3", Stream: "s", Progress: 9, Results: catalog.Results{
		List: []catalog.Result{of("1/a", 8, 2, ""), of("1/a", 9, 9, "")}, Low: map[string]int64{"1/a": 7, "1/": 4}, Dropped: []string{"2/a"}, Forgotten: 3}})
	want("s", `low map[1/:4 1/a:7] forgotten 3; 1/a 8 02 at 2, 2000: ""; 1/a 9 09 at 9, 9000: ""`)
	flip(t, s, catalog.Flip{ID: "4", Stream: "s", Progress: 9, Results: catalog.Results{Dropped: []string{"1/a", "1/"}, Forgotten: 9,
		List: []catalog.Result{of("1/a", 1, 10, "again")}}})
	want("s", `low map[] forgotten 9; 1/a 1 0a at 10, 10000: "again"`)
}

// testPrepared: states of held transactions are kept in order until they are forgotten; one that is decided is not pending.
func testPrepared(t *testing.T, s Subject) {
	want := func(text string) {
		t.Helper()
		list, err := s.Catalog.PreparedTransactions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got string
		for _, p := range list {
			got += fmt.Sprintf("%x %s %q; ", p.ID[:1], p.Name, p.State)
		}
		if got != text {
			t.Fatalf("got %s, want %s", got, text)
		}
	}
	for i, name := range []string{"x", "it's", "x"} {
		if err := s.Catalog.Prepare(t.Context(), catalog.Prepared{ID: [16]byte{byte(9 - i)}, Name: name, State: []byte{0, byte(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	want(`09 x "\x00\x00"; 08 it's "\x00\x01"; 07 x "\x00\x02"; `)
	s.Decide(t, [16]byte{9})
	list, err := s.Catalog.PreparedTransactions(t.Context())
	if err != nil || list[0].Pending {
		t.Fatalf("decided, and pending: %v", err)
	}
	for range 2 {
		if err := s.Catalog.ForgetPrepared(t.Context(), [16]byte{9}); err != nil {
			t.Fatal(err)
		}
	}
	want(`08 it's "\x00\x01"; 07 x "\x00\x02"; `)
}
