package conformance_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/conformance/harness"
)

// onceCases are transactions that are run twice under one identity. A line that begins with < is the data of the COPY before it, with | as
// tabs and line ends; one that begins with ? is a statement that may answer differently the second time, since it only reads.
var onceCases = []struct{ name, text string }{
	{"insert", "insert into t values (1, 'a')"},
	{"literal rows", "insert into k values (1), (2), (3)"},
	{"keyless", "insert into k values (7)"},
	{"returning", "insert into t values (2, 'b') returning id, v, n"},
	{"serial", "insert into s (v) values ('x'), ('y') returning id"},
	{"update by key", "update t set v = v || '!' where id = 100 returning v"},
	{"update of all", "update t set v = v || '?'"},
	{"update of nothing", "update t set v = 'z' where id = 999"},
	{"delete", "delete from t where id = 101"},
	{"upsert", "insert into t values (102, 'new') on conflict (id) do update set v = t.v || excluded.v returning v"},
	{"copy", "copy t (id, v) from stdin\n<10|ten||11|eleven|"},
	{"copy exact", "copy c (id, v) from stdin\n<10|ten||11|eleven|"},
	{"insert select", "insert into t select id + 1000, v from t where id < 105"},
	{"merge", "merge into t using (values (103, 'm'), (203, 'n')) s(id, v) on t.id = s.id when matched then update set v = s.v when not matched then insert values (s.id, s.v)"},
	{"truncate", "begin\ntruncate k\ninsert into k values (1)\ncommit"},
	{"trigger", "insert into audited values (5)"},
	{"function", "select put(31)"},
	{"do", "do $$ begin insert into k values (44); insert into h values (44); end $$"},
	{"heap", "begin\ninsert into h values (1)\ncommit"},
	{"heap and lake", "begin\ninsert into h values (2)\ninsert into t values (20, 'h')\ncommit"},
	{"block", "begin\ninsert into t values (21, 'x')\nupdate t set v = 'y' where id = 21\n? select count(*) from t\ninsert into k values (21) returning a\ncommit"},
	{"savepoint", "begin\ninsert into t values (22, 'x')\nsavepoint a\ninsert into t values (22, 'again')\nrollback to a\ninsert into t values (23, 'y')\nrelease a\ncommit"},
	{"first write undone", "begin\nsavepoint a\ninsert into t values (24, 'x')\nrollback to a\ninsert into t values (25, 'y')\ncommit"},
	{"copy fails", "begin\nsavepoint a\ncopy t (id, v) from stdin\n<26|x||100|taken|\nrollback to a\ncopy t (id, v) from stdin\n<26|x|\ncommit"},
	{"create table", "create table made (id int primary key)"},
	{"create and fill", "begin\ncreate table filled as select id from t\ninsert into filled values (-1)\ncommit"},
	{"drop", "begin\ninsert into k values (3)\ndrop table gone\ncommit"},
	{"alter", "alter table t add column extra int default 5"},
	{"temporary tables", "begin\ncreate temp table stage (id int, v text) on commit drop\ncopy stage from stdin\n<50|p||51|q|\ninsert into t select id, v from stage\n? select count(*) from stage\ncommit"},
	{"explain analyze", "begin\nexplain (analyze, costs off, timing off, summary off) insert into k values (9)\ncommit"},
	{"prepared", "begin\n? deallocate all\nprepare p(int) as insert into k values ($1)\nexecute p(77)\nexecute p(78)\ncommit"},
	{"read only at the end", "begin\n? select v from t where id = 100\ninsert into t values (27, 'x')\n? select v from t where id = 27\ncommit"},
	{"nothing but reads", "begin\n? select v from t where id = 100 for update\ncommit"},
	{"many buckets", "begin\ninsert into spread select g, g % 3, 'row ' || g from generate_series(1, 40) g returning id\nupdate spread set p = p + 1 where id < 9\ncommit"},
	{"token", "begin\ninsert into t values (28, 'x')\n? select length(sluice.txn_token()) > 20\ncommit"},
}

var onceSetUp = []string{
	"create table t (id int primary key, v text, n int default 7)",
	"insert into t select i, 'v' || i from generate_series(100, 110) i",
	"create table k (a int)", "create table s (id serial primary key, v text)", "create table gone (a int)",
	"create table c (id int primary key check (id > 0), v text)",
	"create table spread (id int primary key, p int, v text) with (partition_by = 'p', buckets = 4)",
	"create table h (a int) using heap", "create table audited (a int)",
	"create function audit() returns trigger language plpgsql as $$ begin insert into h values (new.a); insert into k values (new.a); return new; end $$",
	"create trigger audit after insert on audited for each row execute function audit()",
	"create function put(i int) returns int language sql as 'insert into k values (i) returning a + 1'",
}

// onceDump is everything that a transaction could have changed.
const onceDump = `select (select string_agg(t::text, ' ' order by t::text) from t), (select string_agg(a::text, ' ' order by a) from k),
	(select string_agg(s::text, ' ' order by id) from s), (select string_agg(a::text, ' ' order by a) from h), (select string_agg(a::text, ' ' order by a) from audited),
	(select string_agg(c::text, ' ' order by id) from c), (select string_agg(b::text, ' ' order by id) from spread b),
	(select string_agg(relname || ':' || relnatts, ' ' order by relname) from pg_class where relnamespace = 'public'::regnamespace)`

// onceWorld is a gateway with the tables above.
type onceWorld struct {
	t        *testing.T
	g        *harness.Gateway
	extended bool
	lane     string
}

func (x *onceWorld) session(identity string) *harness.Session {
	s := dial(x.t, x.g.DSN())
	if x.lane != "" {
		exec(x.t, s, "set sluice.lane = '"+x.lane+"'")
	}
	if name, sequence, ok := strings.Cut(identity, " "); ok {
		exec(x.t, s, "set sluice.writer = '"+name+"'")
		exec(x.t, s, "set sluice.sequence = "+sequence)
	}
	return s
}

// run sends a transaction and returns what it answered, one text a statement.
func (x *onceWorld) run(s *harness.Session, text string) (answers []string) {
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		q, reads := strings.CutPrefix(lines[i], "? ")
		in := &harness.CopyInput{Fail: "no data"}
		if i+1 < len(lines) && lines[i+1][0] == '<' {
			data := strings.ReplaceAll(lines[i+1][1:], "||", "\n")
			in = &harness.CopyInput{Data: []byte(strings.ReplaceAll(strings.TrimSuffix(data, "|")+"\n", "|", "\t"))}
			i++
		}
		var r harness.Reply
		var err error
		if x.extended {
			r, err = s.Extended(q, harness.Bound{}, in)
		} else {
			r, err = s.QueryCopy(q, in)
		}
		if err != nil {
			x.t.Fatalf("%s: %v", q, err)
		}
		if reads && r.Err() == nil {
			continue
		}
		answers = append(answers, q+"\n  "+strings.Join(r.Lines(true), "\n  "))
	}
	return answers
}

func (x *onceWorld) dump() string {
	s := x.session("")
	defer s.Close()
	return strings.Join(exec(x.t, s, onceDump).Lines(true), "\n")
}

// TestOnce runs transactions, and then again under the same identity: in the same session, in another one, after a flush, after a kill. Each
// time they answer as the first time, and the tables are as they were.
//
// claims: M13 M18 M23 M26 M39
func TestOnce(t *testing.T) {
	g := harness.StartGateway(t, harness.Options{Args: []string{"--flush-age", "1h"}})
	for _, mode := range []string{"simple", "extended", "exact"} {
		x := &onceWorld{t: t, g: g, extended: mode == "extended"}
		if mode == "exact" {
			x.lane = mode
		}
		x.setUp()
		first := map[string][]string{}
		for i, c := range onceCases {
			first[c.name] = x.twice(c.name, c.text, onceIdentity(mode, i))
			if i%4 == 0 {
				x.flush()
			}
		}
		dump := x.dump()
		g.Kill()
		fsck(t, g)
		if err := g.Start(); err != nil {
			t.Fatal(err)
		}
		for i, c := range onceCases {
			if strings.Contains(c.text, "? ") {
				continue // these look at tables that have changed since
			}
			s := x.session(onceIdentity(mode, i))
			x.compare(c.name+" after a kill", first[c.name], x.run(s, c.text), dump)
			s.Close()
		}
	}
}

// onceIdentity is the identity of a case: three writers a mode.
func onceIdentity(mode string, i int) string { return fmt.Sprintf("%s%d %d", mode, i%3, i) }

func (x *onceWorld) setUp() {
	s := x.session("")
	defer s.Close()
	exec(x.t, s, "drop schema public cascade; create schema public")
	for _, q := range onceSetUp {
		exec(x.t, s, q)
	}
}

func (x *onceWorld) flush() {
	s := x.session("")
	defer s.Close()
	exec(x.t, s, "select sluice.flush()")
}

// twice runs a transaction three times and returns the first answers.
func (x *onceWorld) twice(name, text, identity string) []string {
	before := x.dump()
	one := x.session(identity)
	defer one.Close()
	first := x.run(one, text)
	dump := x.dump()
	if failed := strings.Contains(first[len(first)-1], "error"); failed || dump == before != strings.Contains(name, "nothing") {
		x.t.Errorf("%s: %s\n%s", name, strings.Join(first, "\n"), dump)
	}
	x.compare(name+" in the same session", first, x.run(one, text), dump)
	two := x.session(identity)
	defer two.Close()
	x.compare(name+" in another session", first, x.run(two, text), dump)
	return first
}

func (x *onceWorld) compare(name string, first, again []string, dump string) {
	x.t.Helper()
	if !slices.Equal(first, again) {
		x.t.Errorf("%s: first\n%s\nagain\n%s", name, strings.Join(first, "\n"), strings.Join(again, "\n"))
	}
	if now := x.dump(); now != dump {
		x.t.Errorf("%s: it changed\n%s\nto\n%s", name, dump, now)
	}
}

// step is one statement of a session, and the code, or the last tag or value, that it has to answer.
type step struct{ session, query, want string }

// steps runs statements of named sessions; a session that does not exist is opened. Its login role is its name up to a dash.
func steps(t *testing.T, g *harness.Gateway, list []step) {
	t.Helper()
	sessions := map[string]*harness.Session{}
	defer func() {
		for _, s := range sessions {
			s.Abort()
		}
	}()
	for _, x := range list {
		s := sessions[x.session]
		if s == nil {
			role, _, _ := strings.Cut(x.session, "-")
			s = dial(t, strings.Replace(g.DSN(), "lake@", role+"@", 1))
			sessions[x.session] = s
		}
		r, err := s.Query(x.query)
		if err != nil {
			t.Fatalf("%s: %v", x.query, err)
		}
		if got := gist(r); got != x.want {
			t.Errorf("%s: %s: got %s, want %s: %v", x.session, x.query, got, x.want, r.Err())
		}
	}
}

// gist is the error's code and whether it has a hint, or the last row's values, or the last tag.
func gist(r harness.Reply) string {
	for _, x := range r.Results {
		if f := x.Fail; f != nil {
			if f.Hint == "" {
				return f.Code
			}
			return f.Code + " hint"
		}
	}
	last := r.Results[len(r.Results)-1]
	if len(last.Rows) == 0 {
		return last.Tag
	}
	var values []string
	for _, v := range last.Rows[len(last.Rows)-1] {
		if v == nil {
			values = append(values, "NULL")
		} else {
			values = append(values, *v)
		}
	}
	return strings.Join(values, " ")
}

// TestOnceRules: what is and what is not a repeat, and what is said about it.
//
// claims: M18 M26 P68
func TestOnceRules(t *testing.T) {
	g := harness.StartGateway(t, harness.Options{})
	set := func(name, sequence string) string {
		return "set sluice.writer = '" + name + "'; set sluice.sequence = '" + sequence + "'"
	}
	steps(t, g, []step{
		{"lake", "create table t (a int primary key, v text); create table h (a int) using heap; create role other login; grant all on t to other", "GRANT"},
		{"lake", "create function f() returns int language sql as 'select 1'", "CREATE FUNCTION"},
		{"lake", "create function g() returns void language sql as 'insert into t values (-1)'", "CREATE FUNCTION"},
		// Both or none.
		{"lake-a", "set sluice.writer = 'w'", "SET"},
		{"lake-a", "insert into t values (1)", "55000 hint"},
		{"lake-a", "insert into h values (1)", "55000 hint"},
		{"lake-a", "select g()", "55000 hint"},
		{"lake-a", "select f()", "1"},
		{"lake-a", "select count(*) from t", "0"},
		{"lake-a", "create temp table own (a int); insert into own values (1)", "INSERT 0 1"},
		{"lake-a", "reset sluice.writer; set sluice.sequence = 5", "SET"},
		{"lake-a", "delete from t", "55000 hint"},
		{"lake-a", "reset sluice.sequence", "RESET"},
		{"lake-a", "insert into t values (0)", "INSERT 0 1"},
		{"lake-a", set("w", "x"), "SET"},
		{"lake-a", "insert into t values (1)", "22023 hint"},
		{"lake-a", set("w", "-1"), "SET"},
		{"lake-a", "insert into t values (1)", "22023 hint"},
		{"lake-a", set(strings.Repeat("w", 201), "1"), "SET"},
		{"lake-a", "insert into t values (1)", "22023"},
		// A repeat, and what is none.
		{"lake-a", set("w", "1"), "SET"},
		{"lake-a", "insert into t values (1) returning a", "1"},
		{"lake-a", "insert into t values (1) returning a", "1"},
		{"lake-b", set("w", "1"), "SET"},
		{"lake-b", "insert into t values (1) returning a", "1"},
		{"lake-b", "insert into t values (2) returning a", "22023 hint"},
		{"lake-b", "insert into t  values (1) returning a", "22023 hint"},
		{"lake-b", "begin; insert into t values (1) returning a; insert into t values (2)", "22023 hint"},
		{"lake-b", "rollback", "ROLLBACK"},
		{"lake-b", "begin; insert into t values (1) returning a", "1"},
		{"lake-b", "rollback", "ROLLBACK"},
		{"lake-b", "select count(*) from t", "2"},
		{"lake-b", set("w", "2"), "SET"},
		{"lake-b", "begin; insert into t values (2); insert into t values (3); commit", "COMMIT"},
		{"lake-b", "begin; insert into t values (2); commit", "22023 hint"},
		{"lake-b", "begin; insert into t values (2)", "INSERT 0 1"},
		{"lake-b", "commit", "22023 hint"},
		{"lake-b", "select count(*) from t", "4"},
		// Another role's writer of the same name; SET ROLE does not matter.
		{"other", set("w", "1"), "SET"},
		{"other", "insert into t values (10) returning a", "10"},
		{"other", "insert into t values (10) returning a", "10"},
		{"lake-c", "grant other to lake", "GRANT ROLE"},
		{"lake-c", "set role other; " + set("w", "1"), "SET"},
		{"lake-c", "insert into t values (1) returning a", "1"},
		{"lake-c", "reset role", "RESET"},
		// SET LOCAL and set_config, in a lazy block and not.
		{"lake-c", set("", ""), "SET"},
		{"lake-c", "begin", "BEGIN"},
		{"lake-c", "set local sluice.writer = 'w'", "SET"},
		{"lake-c", "select set_config('sluice.sequence', '7', true)", "7"},
		{"lake-c", "insert into t values (20)", "INSERT 0 1"},
		{"lake-c", "set local sluice.sequence = 8", "SET"},
		{"lake-c", "insert into t values (21)", "25001 hint"},
		{"lake-c", "rollback", "ROLLBACK"},
		{"lake-c", "insert into t values (20)", "INSERT 0 1"},
		{"lake-c", "begin; insert into t values (21)", "INSERT 0 1"},
		{"lake-c", "set local sluice.writer = 'w'; set local sluice.sequence = 9", "SET"},
		{"lake-c", "insert into t values (22)", "25001 hint"},
		{"lake-c", "rollback", "ROLLBACK"},
		{"lake-c", "begin; set local sluice.writer = 'w'; set local sluice.sequence = 9; insert into t values (23) returning a; commit", "COMMIT"},
		{"lake-c", "begin; set local sluice.writer = 'w'; set local sluice.sequence = 9; insert into t values (23) returning a; commit", "COMMIT"},
		{"lake-c", "insert into t values (24) returning a", "24"},
		// A transaction that failed or was rolled back left nothing: its sequence is free.
		{"lake-c", set("w", "30"), "SET"},
		{"lake-c", "insert into t values (24)", "23505"},
		{"lake-c", "begin; insert into t values (30); rollback", "ROLLBACK"},
		{"lake-c", "insert into t values (31) returning a", "31"},
		// Answers that are too long.
		{"lake-c", set("w", "31"), "SET"},
		{"lake-c", "insert into t select i, repeat('x', 1000) from generate_series(1000, 1099) i returning a, v is null", "1099 f"},
		{"lake-c", "insert into t select i, repeat('x', 1000) from generate_series(1000, 1099) i returning a, v is null", "1099 f"},
		{"lake-c", set("w", "32"), "SET"},
		{"lake-c", "update t set v = v where a >= 1000 returning v, length(v)", strings.Repeat("x", 1000) + " 1000"},
		{"lake-c", "update t set v = v where a >= 1000 returning v, length(v)", "0A000 hint"},
		// NOTIFY in a repeat.
		{"lake-c", set("w", "33") + "; listen ch", "LISTEN"},
		{"lake-c", "begin; insert into t values (33); notify ch; commit", "COMMIT"},
		{"lake-c", "begin; insert into t values (33); notify ch; commit", "COMMIT"},
		// The window.
		{"lake-c", "do $$ begin null; end $$", "22023 hint"},
	})
}

// TestOnceWindow: below the last 1,024 of a writer a repeat is refused, before and after a restart.
//
// claims: M26
func TestOnceWindow(t *testing.T) {
	g := harness.StartGateway(t, harness.Options{})
	s := dial(t, g.DSN())
	exec(t, s, "create table t (a int primary key)")
	exec(t, s, "set sluice.writer = 'w'")
	for i := range 1030 {
		exec(t, s, fmt.Sprintf("set sluice.sequence = %d", i))
		exec(t, s, fmt.Sprintf("insert into t values (%d)", i))
		if i == 500 {
			exec(t, s, "select sluice.flush()")
		}
	}
	s.Close()
	check := func() {
		t.Helper()
		for sequence, want := range map[int]string{0: "55000 hint", 5: "55000 hint", 6: "INSERT 0 1", 1029: "INSERT 0 1"} {
			steps(t, g, []step{
				{"lake", fmt.Sprintf("set sluice.writer = 'w'; set sluice.sequence = %d", sequence), "SET"},
				{"lake", fmt.Sprintf("insert into t values (%d)", sequence), want},
				{"lake", "select count(*) from t", "1030"},
			})
		}
	}
	check()
	g.Kill()
	fsck(t, g)
	if err := g.Start(); err != nil {
		t.Fatal(err)
	}
	check()
}

// TestTwins: of two sessions with one identity the second waits for the first; it is a repeat if that commits, and runs if not.
//
// claims: M18
func TestTwins(t *testing.T) {
	g := harness.StartGateway(t, harness.Options{})
	main := dial(t, g.DSN())
	defer main.Close()
	exec(t, main, "create table t (a int)")
	for sequence, end := range []string{"commit", "rollback", "close"} {
		one, two := dial(t, g.DSN()), dial(t, g.DSN())
		defer two.Close()
		insert := fmt.Sprintf("insert into t values (%d)", sequence)
		for _, s := range []*harness.Session{one, two} {
			exec(t, s, fmt.Sprintf("set sluice.writer = 'w'; set sluice.sequence = %d", sequence))
			exec(t, s, "begin")
		}
		exec(t, one, "savepoint a")
		exec(t, one, insert)
		exec(t, one, "rollback to a") // keeps the identity
		exec(t, one, insert)
		answered := make(chan string, 1)
		go func() {
			r, err := two.Query(insert)
			answered <- fmt.Sprint(gist(r), err)
		}()
		waitFor(t, main, "select count(*) from sluice.sessions where wait_lock = 'key'", "1")
		if end == "close" {
			one.Abort()
		} else {
			exec(t, one, end)
			one.Close()
		}
		if got := <-answered; got != "INSERT 0 1<nil>" {
			t.Errorf("%s: the second was answered %s", end, got)
		}
		r, err := two.Query("commit")
		if err != nil {
			t.Fatal(err)
		}
		want := "COMMIT"
		if end == "commit" { // it asked for one insert, the first one for two
			want = "22023 hint"
		}
		if got := gist(r); got != want {
			t.Errorf("%s: the second's COMMIT was answered %s, want %s", end, got, want)
		}
		if got := gist(exec(t, main, fmt.Sprintf("select count(*) from t where a = %d", sequence))); got != "1" {
			t.Errorf("%s: %s rows", end, got)
		}
	}
}

// waitFor asks until the answer is what is wanted.
func waitFor(t *testing.T, s *harness.Session, query, want string) {
	t.Helper()
	deadline := time.Now().Add(harness.Patience)
	for got := ""; got != want; got = gist(exec(t, s, query)) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: %s, want %s", query, got, want)
		}
	}
}

// TestTokens: sluice.txn_outcome tells the truth about a transaction at every moment, over a kill of its client and of the gateway.
func TestTokens(t *testing.T) {
	g := harness.StartGateway(t, harness.Options{})
	main := dial(t, g.DSN())
	exec(t, main, "create table t (a int primary key); create table h (a int) using heap; create role other login")
	outcome := func(token string) string {
		t.Helper()
		one := gist(exec(t, main, "select sluice.txn_outcome('"+token+"')"))
		r, err := main.Extended("select sluice.txn_outcome($1)", harness.Bound{Text: []*string{&token}}, nil)
		if err != nil || gist(r) != one {
			t.Errorf("as a parameter: %s, %v, as a constant: %s", gist(r), err, one)
		}
		return one
	}
	want := map[string]string{}
	check := func(when string) {
		t.Helper()
		for token, w := range want {
			if got := outcome(token); got != w {
				t.Errorf("%s: got %s, want %s", when, got, w)
			}
		}
	}
	n := 0
	begin := func(before, write string) (*harness.Session, string) {
		t.Helper()
		s := dial(t, g.DSN())
		n++
		exec(t, s, "begin")
		if before != "" {
			exec(t, s, before)
		}
		token := gist(exec(t, s, "select sluice.txn_token()"))
		if write != "" {
			exec(t, s, fmt.Sprintf(write, n))
		}
		if again := gist(exec(t, s, "select sluice.txn_token()")); again != token {
			t.Errorf("%s: token %s, then %s", write, token, again)
		}
		return s, token
	}
	writes := []string{"insert into t values (%d)", "insert into h values (%d)", "create table t%d (a int)", ""}
	identity := "set local sluice.writer = 'w'; set local sluice.sequence = %d"
	for _, write := range writes {
		for _, before := range []string{"", fmt.Sprintf(identity, n)} {
			for end, w := range map[string]string{"commit": "committed", "rollback": "aborted", "select 1/0": "aborted", "close": "aborted"} {
				s, token := begin(before, write)
				if got := outcome(token); got != "in progress" {
					t.Errorf("%s: %s", write, got)
				}
				if want[token] = w; end == "close" {
					s.Abort()
					waitFor(t, main, "select sluice.txn_outcome('"+token+"')", "aborted")
					continue
				}
				if _, err := s.Query(end); err != nil {
					t.Fatal(err)
				}
				if end == "commit" && before != "" {
					before = fmt.Sprintf(identity, n)
				}
				if got := outcome(token); got != w {
					t.Errorf("%s, %s: %s, want %s", write, end, got, w)
				}
				s.Close()
			}
		}
	}
	s, token := begin("", writes[0])
	defer s.Abort()
	want[token] = "aborted"
	alone := gist(exec(t, main, "select sluice.txn_token()"))
	want[alone] = "committed"
	for _, flushed := range []bool{false, true} {
		main.Close()
		g.Kill()
		fsck(t, g)
		if err := g.Start(); err != nil {
			t.Fatal(err)
		}
		main = dial(t, g.DSN())
		check(fmt.Sprint("after a kill, flushed ", flushed))
		exec(t, main, "insert into t values (1000) on conflict do nothing; select sluice.flush()")
	}
	main.Close()
	steps(t, g, []step{
		{"lake", "select sluice.txn_outcome('" + alone + "')", "committed"},
		{"other", "select sluice.txn_outcome('" + alone + "')", "42501"},
		{"lake", "select sluice.txn_outcome('nonsense')", "22023"},
		{"lake", "select sluice.txn_outcome(null)", "0A000 hint"},
		{"lake", "select sluice.txn_outcome(v) from (values ('" + alone + "')) x(v)", "0A000 hint"},
		{"lake", "create function f() returns text language sql as 'select sluice.txn_token()'", "CREATE FUNCTION"},
		{"lake", "select f()", "0A000 hint"},
		{"lake", "begin; select sluice.txn_token(); commit; select f()", "0A000 hint"},
	})
}

// TestOnceOverKills: clients that repeat every transaction whose outcome they do not know, while the gateway is killed under them. Each
// transaction happens once.
//
// claims: M18 M26 M39
func TestOnceOverKills(t *testing.T) {
	seed := *randomSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed %d -kills %d", seed, *crashKills)
	g := harness.StartGateway(t, harness.Options{Args: []string{"--flush-age", "200ms"}})
	setup := dial(t, g.DSN())
	exec(t, setup, "create table sums (w int primary key, n int); insert into sums select i, 0 from generate_series(0, 5) i")
	exec(t, setup, "create table rows (w int, n int); create table mixed (w int, n int) using heap")
	setup.Close()
	rng := rand.New(rand.NewPCG(seed, 3))
	var stop atomic.Bool
	var gate sync.RWMutex // held while the gateway is down
	acks := make(chan struct{})
	done := make([]int, 6)
	var clients sync.WaitGroup
	for w := range done {
		clients.Go(func() {
			c := &onceClient{dsn: g.DSN(), w: w, gate: &gate}
			defer c.close()
			for ; !stop.Load(); done[w]++ {
				for !c.try(done[w]) {
				}
				acks <- struct{}{}
			}
		})
	}
	for range *crashKills {
		for range 20 + rng.IntN(*crashAcks) {
			<-acks
		}
		gate.Lock()
		g.Kill()
		fsck(t, g)
		if err := g.Start(); err != nil {
			t.Fatal(err)
		}
		gate.Unlock()
	}
	stop.Store(true)
	go func() {
		clients.Wait()
		close(acks)
	}()
	for range acks {
	}
	s := dial(t, g.DSN())
	defer s.Close()
	total := 0
	for w, n := range done {
		total += n
		want := fmt.Sprint(n, " ", n, " ", n, " ", (n+9)/10)
		got := gist(exec(t, s, fmt.Sprintf(`select (select n from sums where w = %[1]d), (select count(*) from rows where w = %[1]d),
			(select count(distinct n) from rows where w = %[1]d), (select count(*) from mixed where w = %[1]d)`, w)))
		if got != want {
			t.Errorf("client %d: %s, want %s", w, got, want)
		}
	}
	t.Logf("%d transactions", total)
}

// onceClient is a client that repeats what it does not know the outcome of.
type onceClient struct {
	dsn  string
	w    int
	gate *sync.RWMutex
	s    *harness.Session
	lost int // the last transaction whose answer was lost on the way
}

func (c *onceClient) close() {
	if c.s != nil {
		c.s.Abort()
	}
	c.s = nil
}

// try sends transaction n; false: it does not know whether it is committed.
func (c *onceClient) try(n int) bool {
	list := []string{fmt.Sprintf("set sluice.writer = 'c%d'; set sluice.sequence = %d", c.w, n), "begin", fmt.Sprintf("update sums set n = n + 1 where w = %d", c.w),
		fmt.Sprintf("insert into rows values (%d, %d)", c.w, n)}
	if n%10 == 0 {
		list = append(list, fmt.Sprintf("insert into mixed values (%d, %d)", c.w, n))
	}
	for _, q := range append(list, "commit") {
		if !c.ask(q) {
			c.close()
			return false
		}
	}
	if n%5 == 4 && c.lost != n {
		c.lost = n
		c.close()
		return false
	}
	return true
}

func (c *onceClient) ask(q string) bool {
	if c.s == nil {
		c.gate.RLock() // while the gateway is down there is nothing to try
		defer c.gate.RUnlock()
		var err error
		if c.s, err = harness.Dial(c.dsn); err != nil {
			return false
		}
	}
	r, err := c.s.Query(q)
	return err == nil && r.Err() == nil
}
