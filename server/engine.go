package server

import (
	"context"
	"crypto/md5"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sluice/catalogpg"
	"sluice/server/wire"
	"sluice/sql/pgvalue"
)

// Merge engines: what an INSERT or COPY makes of a row whose primary key exists, as the table's options say. The exact lane has it done by a
// trigger on the shadow, so that Postgres itself computes merged rows; the fast lane by fold.go, for what it does the same.

// engine is a table's merge engine.
type engine struct {
	kind    string   // deduplicate, first-row, versioned, partial-update, aggregation
	version int      // versioned: the place of the column
	funcs   []string // aggregation: the function of each column; "" for the key's and generated ones
	key     *unique
	fast    bool // fold.go knows it
}

const (
	deduplicate   = "deduplicate"
	firstRow      = "first-row"
	versioned     = "versioned"
	partialUpdate = "partial-update"
	aggregation   = "aggregation"
)

var engineText = regexp.MustCompile(`^(?:(deduplicate|first-row|partial-update|aggregation)|(versioned)\s*\(\s*(\S+)\s*\))$`)

// setRules derives from the options what INSERT and DELETE are to obey.
func (r *rel) setRules() error {
	if err := r.scopeKeys(); err != nil {
		return err
	}
	text, ok := r.Options["merge_engine"]
	if !ok {
		if _, stray := r.Options["fields"]; stray {
			return wire.Errorf(wire.CodeInvalidParameterValue, "option \"fields\" needs merge_engine = 'aggregation'")
		}
		return nil
	}
	m := engineText.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return badOption("merge_engine", text).(*wire.Error).
			WithHint("Available values: deduplicate, first-row, versioned(column), partial-update, aggregation.")
	}
	e := &engine{kind: m[1] + m[2], version: -1}
	if e.key = r.primary(); e.key == nil {
		return wire.Errorf(wire.CodeInvalidParameterValue, "option \"merge_engine\" needs a primary key")
	}
	r.engine = e
	if e.kind == versioned {
		if err := r.setVersion(m[3]); err != nil {
			return err
		}
	}
	if err := r.setFunctions(); err != nil {
		return err
	}
	e.fast = r.folds()
	return nil
}

func (r *rel) primary() *unique {
	for i := range r.desc.Indexes {
		for k := range r.Uniques {
			if r.desc.Indexes[i].Primary && r.Uniques[k].OID == r.desc.Indexes[i].OID {
				return &r.Uniques[k]
			}
		}
	}
	return nil
}

// versions is the types that a version may have: those with one order, the same everywhere.
var versions = map[uint32]bool{pgvalue.OIDInt2: true, pgvalue.OIDInt4: true, pgvalue.OIDInt8: true, pgvalue.OIDNumeric: true,
	pgvalue.OIDDate: true, pgvalue.OIDTimestamp: true, pgvalue.OIDTimestampTZ: true}

func (r *rel) setVersion(name string) error {
	at, err := r.named("merge_engine", name)
	if err != nil {
		return err
	}
	if r.engine.key.has(at) || r.Columns[at].Generated || !versions[r.Columns[at].Codec.OID()] {
		return wire.Errorf(wire.CodeInvalidParameterValue, "column \"%s\" cannot be the version of rows", r.Columns[at].Name).
			WithHint("It is an integer, a numeric, a date or a timestamp, not generated and outside the primary key.")
	}
	r.engine.version = at
	return nil
}

// named is the place of a column that an option names, in double quotes or not.
func (r *rel) named(option, name string) (int, error) {
	at := r.Schema.Index(strings.Trim(name, `"`))
	if at < 0 {
		return 0, wire.Errorf(wire.CodeUndefinedColumn, "column \"%s\" named in %s does not exist", name, option)
	}
	return at, nil
}

// aggregates is the functions of aggregation: an SQL expression of o, the row that is there, and n, the row that comes, and the types it is for
// (nil: all). NULLs count only for the two functions whose names do not say otherwise.
var aggregates = map[string]struct {
	expr  string
	types []uint32
}{
	"sum":                  {"COALESCE(o + n, o, n)", numbers},
	"product":              {"COALESCE(o * n, o, n)", numbers},
	"max":                  {"GREATEST(o, n)", ordered},
	"min":                  {"LEAST(o, n)", ordered},
	"last_value":           {"n", nil},
	"first_value":          {"o", nil},
	"last_non_null_value":  {"COALESCE(n, o)", nil},
	"first_non_null_value": {"COALESCE(o, n)", nil},
	"listagg":              {"COALESCE(o || ',' || n, o, n)", []uint32{pgvalue.OIDText, pgvalue.OIDVarchar}},
	"bool_and":             {"COALESCE(o AND n, o, n)", []uint32{pgvalue.OIDBool}},
	"bool_or":              {"COALESCE(o OR n, o, n)", []uint32{pgvalue.OIDBool}},
}

var (
	numbers = []uint32{pgvalue.OIDInt2, pgvalue.OIDInt4, pgvalue.OIDInt8, pgvalue.OIDNumeric, pgvalue.OIDFloat4, pgvalue.OIDFloat8}
	ordered = append([]uint32{pgvalue.OIDText, pgvalue.OIDVarchar, pgvalue.OIDDate, pgvalue.OIDTime, pgvalue.OIDTimestamp, pgvalue.OIDTimestampTZ},
		numbers...)
)

// setFunctions reads the option fields: 'column:function, …'. Columns that it leaves out have the function last_non_null_value.
func (r *rel) setFunctions() error {
	e, text := r.engine, r.Options["fields"]
	if e.kind != aggregation {
		if text != "" {
			return wire.Errorf(wire.CodeInvalidParameterValue, "option \"fields\" needs merge_engine = 'aggregation'")
		}
		return nil
	}
	e.funcs = make([]string, len(r.Columns))
	for _, term := range splitTerms(text) {
		if err := r.setFunction(term); err != nil {
			return err
		}
	}
	for i := range r.Columns {
		if e.funcs[i] == "" && !e.key.has(i) && !r.Columns[i].Generated {
			e.funcs[i] = "last_non_null_value"
		}
	}
	return nil
}

func (r *rel) setFunction(term string) error {
	i := strings.LastIndexByte(term, ':')
	if i < 0 {
		return badOption("fields", term)
	}
	at, err := r.named("fields", strings.TrimSpace(term[:i]))
	if err != nil {
		return err
	}
	name := strings.TrimSpace(term[i+1:])
	f, known := aggregates[name]
	c := &r.Columns[at]
	switch {
	case name == "rbm32" || name == "rbm64":
		return unsupported("aggregate function %s is not supported", name).WithHint("Functions that are: sum, product, max, min, first_value, last_value, first_non_null_value, last_non_null_value, listagg, bool_and, bool_or.")
	case !known || r.engine.funcs[at] != "" || r.engine.key.has(at) || c.Generated:
		return badOption("fields", term)
	case f.types != nil && !slices.Contains(f.types, c.Codec.OID()), name == "listagg" && c.attr.BaseTypmod >= 0:
		return wire.Errorf(wire.CodeInvalidParameterValue, "aggregate function %s is not for type %s", name, c.attr.TypeName)
	}
	r.engine.funcs[at] = name
	return nil
}

// scopeKeys checks unique_scope = 'partition': keys that hold the partition's columns are unique in their partition and, what is the same, in
// the table. It is the rule that Postgres has for its own partitions, in its own words.
func (r *rel) scopeKeys() error {
	if r.Options["unique_scope"] != "partition" {
		return nil
	}
	if len(r.Schema.Spec) == 0 {
		return wire.Errorf(wire.CodeInvalidParameterValue, "unique_scope = 'partition' needs partition_by or buckets")
	}
	for _, u := range r.Uniques {
		for i := range r.Schema.Columns {
			if c := &r.Schema.Columns[i]; r.partitions(c.FieldID) && !u.has(i) {
				return unsupported("unique constraint on partitioned table must include all partitioning columns").
					WithDetail("Constraint \"%s\" on table \"%s\" lacks column \"%s\" which is part of the partition key.", u.Name, r.Name, c.Name).
					WithHint("Put the column into the key.")
			}
		}
	}
	return nil
}

func (r *rel) partitions(field int) bool {
	for _, p := range r.Schema.Spec {
		if p.Source == field {
			return true
		}
	}
	return false
}

// keepsRows reports whether DELETE is not what it is in Postgres.
func (r *rel) keepsRows() bool {
	return r.Options["delete_behavior"] != "" && r.Options["delete_behavior"] != "allow"
}

// lakeTrigger is a trigger that carries out a rule on the shadow.
type lakeTrigger struct {
	name, when, function string
	kind                 int // pg_trigger.tgtype
	args                 []string
}

// lakeTriggers is the triggers that the table's rules need, in the order of their names: after all of the user's with a letter in front.
func (r *rel) lakeTriggers() (out []lakeTrigger) {
	switch r.Options["delete_behavior"] {
	case "ignore":
		out = append(out, lakeTrigger{name: "~sluice_delete", when: "BEFORE DELETE", function: "keep_row", kind: 1 | 2 | 8})
	case "disable":
		out = append(out, lakeTrigger{name: "~sluice_delete", when: "BEFORE DELETE", function: "refuse_delete", kind: 2 | 8})
	}
	if r.engine != nil {
		out = append(out, lakeTrigger{"~sluice_merge", "BEFORE INSERT", "merge", 1 | 2 | 4, []string{r.mergeSQL(), r.existsSQL()}})
	}
	return out
}

// String is the trigger as sluice.rel_rules tells it.
func (t *lakeTrigger) String() string {
	var args []byte
	for _, a := range t.args {
		args = append(append(args, a...), 0)
	}
	return fmt.Sprintf("%s %d %s %x", t.name, t.kind, t.function, md5.Sum(args))
}

func (t *lakeTrigger) create(r *rel) string {
	quoted := make([]string, len(t.args))
	for i, a := range t.args {
		quoted[i] = catalogpg.QuoteLiteral(a)
	}
	each := "STATEMENT"
	if t.kind&1 != 0 {
		each = "ROW"
	}
	return fmt.Sprintf("CREATE OR REPLACE TRIGGER %s %s ON %s FOR EACH %s EXECUTE FUNCTION sluice.%s(%s)", catalogpg.QuoteIdent(t.name), t.when,
		r.quoted(), each, t.function, strings.Join(quoted, ", "))
}

func (r *rel) quoted() string {
	return catalogpg.QuoteIdent(r.Namespace) + "." + catalogpg.QuoteIdent(r.Name)
}

// mergeSQL takes the row with the key of the proposed one, $1, out of the shadow and returns what both become. $2 names columns by number. A
// proposed row with a NULL that is not allowed finds none: Postgres then says so.
func (r *rel) mergeSQL() string {
	list, where := make([]string, len(r.Columns)), r.sameKeySQL()
	for i := range r.Columns {
		c := &r.Columns[i]
		if list[i] = r.mergedSQL(i); c.attr.NotNull && !c.Generated && !r.engine.key.has(i) {
			where += " AND ($1)." + catalogpg.QuoteIdent(c.Name) + " IS DISTINCT FROM NULL" // IS NOT NULL looks into rows
		}
	}
	return "DELETE FROM " + r.quoted() + " AS o WHERE " + where + " RETURNING " + strings.Join(list, ", ")
}

func (r *rel) existsSQL() string {
	return "SELECT count(*) FROM " + r.quoted() + " AS o WHERE " + r.sameKeySQL()
}

func (r *rel) sameKeySQL() string {
	var terms []string
	for _, c := range r.engine.key.Cols {
		name := catalogpg.QuoteIdent(r.Columns[c].Name)
		terms = append(terms, "o."+name+" OPERATOR(pg_catalog.=) ($1)."+name)
	}
	return strings.Join(terms, " AND ")
}

// mergedSQL is column i of the merged row. It has the type of the column, so that the trigger returns a row of the table.
func (r *rel) mergedSQL(i int) string {
	e, c := r.engine, &r.Columns[i]
	old, proposed := "o."+catalogpg.QuoteIdent(c.Name), "($1)."+catalogpg.QuoteIdent(c.Name)
	switch {
	case e.kind == firstRow || c.Generated:
		return old
	case e.kind == deduplicate:
		return proposed
	case e.kind == versioned:
		v := catalogpg.QuoteIdent(r.Columns[e.version].Name)
		return fmt.Sprintf("CASE WHEN ($1).%s IS NULL OR ($1).%s OPERATOR(pg_catalog.<) o.%s THEN %s ELSE %s END", v, v, v, old, proposed)
	case e.key.has(i):
		return old
	case e.kind == partialUpdate:
		return fmt.Sprintf("CASE WHEN strpos($2, ' %d ') > 0 THEN %s ELSE %s END", c.Attnum, proposed, old)
	}
	operands := map[string]string{"o": old, "n": proposed}
	expr := operandName.ReplaceAllStringFunc(aggregates[e.funcs[i]].expr, func(name string) string { return operands[name] })
	return "(" + expr + ")::" + c.attr.TypeName
}

var operandName = regexp.MustCompile(`\b[on]\b`)

// mode is what a statement that brings rows for the table tells its trigger: the kind of the statement and the columns that it names.
func (r *rel) mode(kind string, named []int) string {
	out := kind + " " + strconv.FormatUint(uint64(r.OID), 10) + " "
	for _, at := range named {
		out += strconv.Itoa(int(r.Columns[at].Attnum)) + " "
	}
	return out
}

// setTriggers gives the shadow the triggers of the table's rules, and refuses the table where they are not what they were, or where something
// of the user's does not go together with them. It is called when the schema has changed, as the user who changed it.
func (s *session) setTriggers(ctx context.Context, r, old *rel) error {
	if err := s.refuseRules(r); err != nil {
		return err
	}
	var want []string
	for _, t := range r.lakeTriggers() {
		want = append(want, t.String())
	}
	text, before := strings.Join(want, "\n"), ""
	if old != nil {
		before = old.desc.LakeTriggers
	}
	switch r.desc.LakeTriggers {
	case text:
		return nil
	case before:
	default:
		return unsupported("triggers of table \"%s\" that run functions of the schema sluice cannot be changed", r.Name).WithHint("They carry out merge_engine and delete_behavior. Make the table anew without these options.")
	}
	for _, t := range r.lakeTriggers() {
		if err := s.be.do(ctx, t.create(r)); err != nil {
			return err
		}
	}
	r.desc.LakeTriggers = text
	return nil
}

// refuseRules says no to what the triggers of the rules would break: a merge takes the old row away and puts the new one in its place, which
// the user's triggers and foreign keys must not see as a DELETE.
func (s *session) refuseRules(r *rel) error {
	if r.engine != nil && r.desc.DeleteTriggers {
		return unsupported("triggers for DELETE are not supported on tables with a merge engine").WithHint("A merge would fire them for rows that nobody deletes. Use a table without a merge engine, and ON CONFLICT.")
	}
	for _, k := range r.desc.Constraints {
		if k.Type != "f" {
			continue
		}
		if to := s.rel(k.Ref); k.Ref == r.OID && r.engine != nil || to != nil && to.engine != nil {
			return unsupported("foreign keys to tables with a merge engine are not supported").WithHint("Refer to a table without a merge engine.")
		}
		if k.OnDelete == "c" && r.Options["delete_behavior"] == "ignore" {
			return unsupported("ON DELETE CASCADE and delete_behavior = 'ignore' do not go together").WithHint("Use ON DELETE NO ACTION, or delete_behavior = 'allow'.")
		}
	}
	return nil
}
