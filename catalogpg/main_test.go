package catalogpg_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"sluice/catalogpg"
)

// One cluster for the whole package; every test has a schema or a database role of its own.
var (
	cluster *catalogpg.Embedded
	cat     *catalogpg.Catalog
	schemas atomic.Int32
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if dir := os.Getenv("CATALOGPG_GATEWAY"); dir != "" {
		return gateway(dir)
	}
	dir, err := os.MkdirTemp("", "catalogpg")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if cluster, err = catalogpg.StartEmbedded(ctx, dir, log); err != nil {
		fmt.Println(err)
		return 1
	}
	defer cluster.Remove(ctx)
	if cat, err = catalogpg.Open(ctx, catalogpg.Config{Embedded: cluster, Log: log}); err != nil {
		fmt.Println(err)
		return 1
	}
	defer cat.Close()
	return m.Run()
}

// session is a backend of user lake with its calls as methods that fail the test.
type session struct {
	*catalogpg.Backend
	t      testing.TB
	schema string
}

// attach logs in as lake, in a schema of the test's own which is dropped at its end.
func attach(t *testing.T) *session {
	t.Helper()
	schema := fmt.Sprintf("t%d", schemas.Add(1))
	// Before the login: clean-ups run last first, and an open transaction would block the drop.
	t.Cleanup(func() {
		x := login(t, schema)
		x.exec("set client_min_messages = warning; set lock_timeout = '10s'; drop schema if exists " + schema + " cascade")
		x.Close()
	})
	s := login(t, schema)
	s.exec("create schema " + schema)
	return s
}

// login logs in as lake with schema in front of the search_path.
func login(t *testing.T, schema string) *session {
	t.Helper()
	b, err := cat.Attach(context.Background(), "lake", "lake", map[string]string{"search_path": schema + ",public"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return &session{b, t, schema}
}

// in is the session for a subtest.
func (s *session) in(t *testing.T) *session { return &session{s.Backend, t, s.schema} }

// try runs statements and returns the rows as text, fields joined by |, rows by newlines.
func (s *session) try(sql string) (string, error) {
	rows, err := s.Exec(context.Background(), sql)
	lines := make([]string, len(rows))
	for i, r := range rows {
		fields := make([]string, len(r))
		for j, v := range r {
			fields[j] = "NULL"
			if v != nil {
				fields[j] = string(v)
			}
		}
		lines[i] = strings.Join(fields, "|")
	}
	return strings.Join(lines, "\n"), err
}

func (s *session) exec(sql string) string {
	s.t.Helper()
	out, err := s.try(sql)
	if err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	return out
}

func (s *session) call(c catalogpg.Call) [][][]byte {
	s.t.Helper()
	rows, err := s.Do(context.Background(), c)
	if err != nil {
		s.t.Fatalf("%s: %v", c.SQL, err)
	}
	return rows
}

func (s *session) oid(rel string) uint32 {
	s.t.Helper()
	var oid uint32
	fmt.Sscan(s.exec("select "+catalogpg.QuoteLiteral(rel)+"::regclass::oid"), &oid)
	return oid
}

// watch records a relation as lake table, as the gateway does after CREATE TABLE.
func (s *session) watch(rel string) uint32 {
	s.t.Helper()
	oid := s.oid(rel)
	s.call(s.RelPutCall(oid, catalogpg.RelPut{Kind: "lake", Version: 1}))
	return oid
}

func (s *session) fill(rel uint32, attnums []int16, n int, cols ...string) catalogpg.Fill {
	s.t.Helper()
	f, err := catalogpg.DecodeFill(s.call(s.FillCall(rel, attnums, cols, n))[0])
	if err != nil {
		s.t.Fatal(err)
	}
	return f
}

// change is the change of a shadow as lines: n(values), g#row, l#row.
func (s *session) change(rel uint32, f catalogpg.Fill) string {
	s.t.Helper()
	row := map[catalogpg.TID]int{}
	for i, t := range f.TIDs {
		row[t] = i
	}
	var lines []string
	for _, r := range s.call(s.ChangeCall(rel, f)) {
		c, err := catalogpg.DecodeChange(r)
		if err != nil {
			s.t.Fatal(err)
		}
		if c.Kind != catalogpg.New {
			lines = append(lines, fmt.Sprintf("%c#%d", c.Kind, row[c.TID]))
			continue
		}
		vals := make([]string, len(c.Vals))
		for i, v := range c.Vals {
			vals[i] = "NULL"
			if v != nil {
				vals[i] = string(v)
			}
		}
		lines = append(lines, "n("+strings.Join(vals, "|")+")")
	}
	return strings.Join(lines, "\n")
}

func (s *session) counts() catalogpg.Counts {
	s.t.Helper()
	c, err := catalogpg.DecodeCounts(s.call(catalogpg.CountsCall())[0])
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}
