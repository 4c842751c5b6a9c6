package harness

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// Side is one of the two servers of a pair and the sessions a test opened on it.
type Side struct {
	Name    string
	DSN     string
	Sluice  bool // it has Sluice's own schema: statements only Sluice understands may run
	t       testing.TB
	control *Session
	open    map[string]*Session
}

// Pair is an empty reference database and an empty lake. Both are named lake and owned by the role lake.
type Pair struct {
	Ref, Got *Side
}

// NewPair gives the test both sides, empty. It skips the test while there is no gateway.
func NewPair(t testing.TB) *Pair {
	t.Helper()
	dsn := gotDSN(t)
	p := &Pair{
		Ref: &Side{Name: "postgres", DSN: reference(t).DSN("lake", "lake"), t: t, open: map[string]*Session{}},
		Got: &Side{Name: "sluice", DSN: dsn, t: t, open: map[string]*Session{}},
	}
	t.Cleanup(p.Close)
	if err := p.Ref.Empty(); err != nil {
		t.Fatalf("empty the reference: %v", err)
	}
	if err := p.Got.Empty(); err != nil {
		renewGateway(t, p.Got, err)
	}
	r := mustExec(t, p.Got.Control(), "select count(*) from pg_namespace where nspname = 'sluice'")
	p.Got.Sluice = *r.Rows()[0][0] == "1"
	return p
}

// Close ends all sessions of the pair, so that nothing holds a lock any more.
func (p *Pair) Close() {
	p.Ref.closeAll()
	p.Got.closeAll()
}

// gotDSN is the address of the side under test.
func gotDSN(t testing.TB) string {
	t.Helper()
	switch v := os.Getenv("SLUICE_DSN"); v {
	case "":
		return sharedGateway(t).DSN()
	case "postgres":
		shared.Lock()
		defer shared.Unlock()
		if shared.second == nil {
			shared.second = mustStart(t)
		}
		return shared.second.DSN("lake", "lake")
	default:
		return v
	}
}

// sharedGateway is the one gateway of all pairs. It is replaced if it died.
func sharedGateway(t testing.TB) *Gateway {
	t.Helper()
	bin := RequireGateway(t)
	shared.Lock()
	defer shared.Unlock()
	if g := shared.gateway; g != nil && !g.Alive() {
		t.Errorf("the gateway died in an earlier test; end of its log:\n%s", g.LogTail(40))
		g.End()
		shared.gateway = nil
	}
	if shared.gateway == nil {
		g, err := newGateway(bin, Options{})
		if err != nil {
			t.Fatal(err)
		}
		shared.gateway = g
	}
	return shared.gateway
}

// renewGateway replaces a shared gateway that could not be emptied, so that one broken DROP fails one test.
func renewGateway(t testing.TB, side *Side, why error) {
	t.Helper()
	if os.Getenv("SLUICE_DSN") != "" {
		t.Fatalf("empty the lake: %v", why)
	}
	t.Logf("the lake could not be emptied (%v); a new gateway is started", why)
	side.closeAll()
	shared.Lock()
	shared.gateway.End()
	shared.gateway = nil
	shared.Unlock()
	side.DSN = sharedGateway(t).DSN()
}

// Session is the side's session of that name, opened at first use.
func (s *Side) Session(name string) *Session {
	s.t.Helper()
	if c := s.open[name]; c != nil {
		return c
	}
	c, err := Dial(s.DSN)
	if err != nil {
		s.t.Fatalf("%s: session %s: %v", s.Name, name, err)
	}
	s.open[name] = c
	return c
}

// Disconnect closes a session.
func (s *Side) Disconnect(name string) {
	if c := s.open[name]; c != nil {
		c.Close()
		delete(s.open, name)
	}
}

// Control is a session of the harness itself, never in a transaction.
func (s *Side) Control() *Session {
	s.t.Helper()
	if s.control == nil {
		c, err := Dial(s.DSN)
		if err != nil {
			s.t.Fatalf("%s: control session: %v", s.Name, err)
		}
		s.control = c
	}
	return s.control
}

func (s *Side) closeAll() {
	for name := range s.open {
		s.Disconnect(name)
	}
	if s.control != nil {
		s.control.Close()
		s.control = nil
	}
}

// leftovers lists the DROP statements that would empty the database.
const leftovers = `
select stmt from (
  select 1 as ord, format('drop schema if exists %I cascade', nspname) as stmt from pg_namespace
   where nspname not like 'pg\_%' and nspname not in ('information_schema', 'public', 'sluice', 'sluice_iceberg')
     and nspowner = current_user::regrole
  union all
  select 2, format('drop %s if exists public.%I cascade',
      case relkind when 'v' then 'view' when 'm' then 'materialized view' when 'S' then 'sequence' when 'c' then 'type' else 'table' end, relname)
    from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p', 'v', 'm', 'S', 'c')
     and not exists (select from pg_depend d where d.objid = pg_class.oid and relkind = 'S' and d.deptype in ('a', 'i'))
  union all
  select 3, format('drop routine if exists %s cascade', oid::regprocedure) from pg_proc where pronamespace = 'public'::regnamespace
     and not exists (select from pg_depend d where d.objid = pg_proc.oid and d.deptype = 'e')
  union all
  select 4, format('drop type if exists public.%I cascade', typname) from pg_type
   where typnamespace = 'public'::regnamespace and typtype in ('e', 'd', 'r')
) l order by ord, stmt`

// Empty drops everything the user has made.
func (s *Side) Empty() error {
	last := errors.New("no DROP failed")
	for range 3 {
		r, err := s.Control().Query(leftovers)
		if err == nil {
			err = r.Err()
		}
		if err != nil {
			return err
		}
		if len(r.Rows()) == 0 {
			return nil
		}
		for _, row := range r.Rows() {
			r, err := s.Control().Query(*row[0])
			if err != nil {
				return fmt.Errorf("%s: %w", *row[0], err)
			}
			if r.Err() != nil {
				last = fmt.Errorf("%s: %w", *row[0], r.Err())
			}
		}
	}
	return fmt.Errorf("objects are left after three rounds of DROP: %w", last)
}

// Flush moves the tail into table files, if the side is Sluice.
func (s *Side) Flush() error {
	if !s.Sluice {
		return nil
	}
	r, err := s.Control().Query("select sluice.flush()")
	if err != nil {
		return err
	}
	return r.Err()
}

// State is the content of every table of the public schema as text, rows sorted, one line per row.
// It reads through session, so it sees what that session sees.
func State(session *Session) (string, error) {
	r, err := session.Query(`select relname from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p', 'm') order by relname`)
	if err == nil {
		err = r.Err()
	}
	if err != nil {
		return "", fmt.Errorf("list tables: %w", err)
	}
	var out strings.Builder
	for _, row := range r.Rows() {
		name := `public."` + strings.ReplaceAll(*row[0], `"`, `""`) + `"`
		rows, err := session.Query("select * from " + name)
		if err == nil {
			err = rows.Err()
		}
		if err != nil {
			return "", fmt.Errorf("read %s: %w", name, err)
		}
		rows.Status = '-' // the session's own affair
		fmt.Fprintf(&out, "table %s\n  %s\n", name, strings.Join(rows.Lines(false), "\n  "))
	}
	return out.String(), nil
}

// SameState compares the committed state of both sides and returns the difference, empty if there is none.
func (p *Pair) SameState() (string, error) { return SameStateOf(p.Ref.Control(), p.Got.Control()) }

// SameStateOf compares what two sessions see.
func SameStateOf(ref, got *Session) (string, error) {
	want, err := State(ref)
	if err != nil {
		return "", fmt.Errorf("postgres: %w", err)
	}
	have, err := State(got)
	if err != nil {
		return "", fmt.Errorf("sluice: %w", err)
	}
	return Diff(strings.Split(want, "\n"), strings.Split(have, "\n")), nil
}

// HTTP is the base URI of the gateway's REST catalog, or "" if the side under test is not a gateway that the tests started.
func (s *Side) HTTP() string {
	if os.Getenv("SLUICE_DSN") != "" || s.Name != "sluice" {
		return ""
	}
	return sharedGateway(s.t).HTTP()
}
