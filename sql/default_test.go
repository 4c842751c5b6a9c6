package sql

import "testing"

// TestParseDefault: every name is qualified, relations are their oids, quotes cannot be left, and what is not known is refused.
func TestParseDefault(t *testing.T) {
	relations := map[string]uint32{"public.s_id_seq": 16390, `public."q';drop"`: 7}
	for _, c := range []struct{ text, literal, typ, sql string }{
		{"7", "7", "", "(7)"},
		{"'-5'::integer", "-5", "int4", "CAST('-5' AS pg_catalog.int4)"},
		{"'it''s'::text", "it's", "text", "CAST('it''s' AS pg_catalog.text)"},
		{`'a\b'::text`, `a\b`, "text", `CAST(E'a\\b' AS pg_catalog.text)`},
		{"'{1,2}'::integer[]", "{1,2}", "int4[]", "CAST('{1,2}' AS pg_catalog.int4[])"},
		{"NULL::character varying", "", "varchar", "CAST(NULL AS pg_catalog.varchar)"},
		{"'a'::character(5)", "", "", "CAST('a' AS pg_catalog.bpchar(5))"},
		{"true", "t", "", "true"},
		{"nextval('public.s_id_seq'::regclass)", "", "", `pg_catalog."nextval"('16390'::pg_catalog.regclass)`},
		{`nextval('public."q'';drop"'::regclass)`, "", "", `pg_catalog."nextval"('7'::pg_catalog.regclass)`},
		{"(now() + '1 day'::interval)", "", "", `(pg_catalog."now"() OPERATOR(pg_catalog.+) CAST('1 day' AS pg_catalog.interval))`},
		{"CURRENT_TIMESTAMP(3)", "", "", "CURRENT_TIMESTAMP(3)"},
		{"('x'::text || (1)::text)", "", "", "(CAST('x' AS pg_catalog.text) OPERATOR(pg_catalog.||) CAST((1) AS pg_catalog.text))"},
		{"nextval('other'::regclass)", "", "", ""},
		{"nextval(('public.s_id_seq'::text)::regclass)", "", "", ""},
		{"public.f()", "", "", ""},
		{"lo_creat(1)", "", "", ""},
		{"query_to_xml('select 1'::text, true, true, ''::text)", "", "", ""},
		{"'x'::public.mood", "", "", ""},
		{"(1 OPERATOR(public.+) 2)", "", "", ""},
		{"(SELECT 1)", "", "", ""},
		{"1; DROP TABLE t", "", "", ""},
		{"1, 2", "", "", ""},
		{"count(*)", "", "", ""},
		{"a", "", "", ""},
	} {
		d, ok := ParseDefault(c.text, relations)
		if ok != (c.sql != "") || d.SQL != c.sql || d.Literal.Text != c.literal || d.Type != c.typ {
			t.Errorf("%s: literal %q of type %q, SQL %q, %v", c.text, d.Literal.Text, d.Type, d.SQL, ok)
		}
	}
}
