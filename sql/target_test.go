package sql_test

import (
	"fmt"
	"testing"

	"sluice/sql"
)

// TestTarget: the table that rows come for, the columns they bring, and who decides about keys that exist.
func TestTarget(t *testing.T) {
	for text, want := range map[string]string{
		"insert into s.t values (1, 2), (3, 4)":                                     "s.t [] 2",
		"insert into t (b, a) select 1, 2":                                          "t [b a] 2",
		"insert into t default values":                                              "t [] 0",
		"insert into t select * from u":                                             "t [] -1",
		"insert into t select u.*, 1 from u":                                        "t [] -1",
		"insert into t select (c).* from u":                                         "t [] -1",
		"insert into t select a, b, c from u union all select * from v":             "t [] 3",
		"insert into t (a) values (1) on conflict do nothing":                       "t [a] 1 decides",
		"with x as (select 1) insert into t select 1":                               "t [] 1",
		"with x as (delete from u returning *) insert into t select 1":              "t [] 1 compound",
		"with x as (insert into u values (1) returning *) insert into t values (1)": "t [] 1 compound inserts",
		"with x as (insert into u values (1) returning *) select 1":                 "none inserts",
		"merge into t using u on true when matched then delete":                     "t [] 0 decides merge",
		"copy s.t (a, b) from stdin":                                                "s.t [a b] 65536 copy",
		"copy t to stdout":                                                          "none",
		"explain analyze insert into t values (1)":                                  "t [] 1",
		"prepare p as insert into t values ($1)":                                    "t [] 1",
		"update t set a = 1":                                                        "none",
	} {
		list, err := sql.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := targetText(list[0].Run()); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func targetText(st *sql.Statement) string {
	out := "none"
	if x := st.Target(); x != nil {
		out = fmt.Sprintf("%s %v %d", dotted(x.Table), x.Columns, x.Values)
		for _, f := range []struct {
			set  bool
			name string
		}{{x.Decides, " decides"}, {x.Merge, " merge"}, {x.Copy, " copy"}, {x.Compound, " compound"}} {
			if f.set {
				out += f.name
			}
		}
	}
	if st.InsertsWithin() {
		out += " inserts"
	}
	return out
}

func dotted(n sql.Name) string {
	if n.Schema != "" {
		return n.Schema + "." + n.Name
	}
	return n.Name
}
