package sql

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v5"
)

// The scan lane's printer: a SELECT in Postgres' words becomes one in DuckDB's that gives the same rows, or is refused. This is the
// verified list: what is not printed here is not for that lane, and what is printed here has a differential test. Types are resolved
// here, so that nothing is left to DuckDB's own rules, and every name is a generated one, so that nothing of the user's but literals
// gets into the text.
//
// A numeric is a DECIMAL that may have more decimals than Postgres would print. How many those are is either known from the types, or
// an expression of its own that is selected beside the value (expr.digits).

// Column types that the printer knows. They are the OIDs of Postgres.
const (
	oidBool, oidInt8, oidInt2, oidInt4, oidText, oidFloat4, oidFloat8            = 16, 20, 21, 23, 25, 700, 701
	oidBpchar, oidVarchar, oidDate, oidTime, oidTimestamp, oidTimestampTZ, oidID = 1042, 1043, 1082, 1083, 1114, 1184, 2950
	oidNumeric                                                                   = 1700
)

// DuckColumn is a column of a lake table.
type DuckColumn struct {
	Name             string
	OID              uint32 // its type; 0: one that may only be passed through
	Length           int    // of a char(n); -1 without one
	Precision, Scale int    // of a numeric in the lake
	Declared         bool   // … which are those of its Postgres type, so that all values print Scale decimals
}

// DuckTable is a lake table.
type DuckTable struct {
	ID      uint32
	Columns []DuckColumn
}

// DuckParam is a bound parameter.
type DuckParam struct {
	OID  uint32
	Text string
	Null bool
}

// DuckOptions are what a statement is printed with.
type DuckOptions struct {
	Tables func(Name) *DuckTable // nil: not a lake table that may be read
	Params []DuckParam
	// Decimals is how many decimals quotients have while the query goes on calculating with them; 0 is 20, more than Postgres gives to all
	// but the smallest.
	Decimals int
	Wide     bool // calculate with 38 digits from the start: slower, for values that overflow otherwise
}

// DuckQuery is a printed statement.
type DuckQuery struct {
	Text    string
	Uses    []DuckUse
	Outputs []DuckOutput
}

// DuckUse is a table that the text names: as Name, its columns as c1, c2, … by place from 1.
type DuckUse struct {
	ID      uint32
	Name    string
	Columns []int // places from 0, sorted
}

// DuckOutput is a column of the result.
type DuckOutput struct {
	OID    uint32 // of its type, or of a type of the same family; 0: passed through from Origin
	Scale  int    // of a numeric: decimals to print
	Digits int    // place of the result column with the decimals to print in that row; -1: Scale
	Origin DuckUse
}

// UnfitError says why a statement is not for the scan lane.
type UnfitError struct{ Reason string }

func (e *UnfitError) Error() string { return "not for the scan lane: " + e.Reason }

func unfit(format string, args ...any) { panic(&UnfitError{fmt.Sprintf(format, args...)}) }

// DuckDB prints a SELECT for DuckDB. The error is an *UnfitError.
func (s *Statement) DuckDB(o DuckOptions) (q *DuckQuery, err error) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(*UnfitError)
			if !ok {
				panic(r)
			}
			q, err = nil, e
		}
	}()
	sel := s.Node.GetSelectStmt()
	if sel == nil || s.Kind != Select || s.Locking || s.Write || s.System || s.Sampling {
		unfit("not a plain SELECT")
	}
	if o.Decimals == 0 {
		o.Decimals = 20
	}
	p := &duckPrinter{opts: o, uses: map[uint32]*DuckUse{}}
	text, cols := p.query(sel, nil, nil, printTop)
	q = &DuckQuery{Text: text, Outputs: outputs(cols)}
	for _, id := range p.order {
		u := p.uses[id]
		slices.Sort(u.Columns)
		q.Uses = append(q.Uses, *u)
	}
	return q, nil
}

func outputs(cols []duckCol) []DuckOutput {
	out := make([]DuckOutput, len(cols))
	hidden := len(cols)
	for i, c := range cols {
		out[i] = DuckOutput{OID: c.e.oid, Scale: c.e.scale, Digits: -1, Origin: c.e.origin}
		if c.e.digits != "" {
			out[i].Digits = hidden
			hidden++
		}
	}
	return out
}

// duckPrinter prints one statement.
type duckPrinter struct {
	opts  DuckOptions
	names int // counts generated names
	uses  map[uint32]*DuckUse
	order []uint32 // of uses
	depth int      // inside an aggregate: the scope level its arguments must come from
}

func (p *duckPrinter) name(prefix string) string {
	p.names++
	return fmt.Sprintf(`"%s%d"`, prefix, p.names)
}

// duckCol is a named column: of a relation in scope, or of a select list.
type duckCol struct {
	name string
	e    expr
	use  *DuckUse // of a table's own column
	at   int      // its place there
	// merged says that USING made one column of it and another: without an alias the name means the other.
	merged bool
}

// duckItem is a relation in FROM.
type duckItem struct {
	alias string
	cols  []duckCol
}

// duckScope is what names mean inside one SELECT.
type duckScope struct {
	items []duckItem
	outer *duckScope
	ctes  *duckCTE
}

// duckCTE is a list of the WITH queries that are visible.
type duckCTE struct {
	name, table string
	cols        []duckCol
	next        *duckCTE
}

// printMode is what a SELECT is printed for.
type printMode uint8

const (
	printTop    printMode = iota // the statement's result: o1, o2, …, then digits
	printFrom                    // a relation: c1, c2, …, and digits as d1, …
	printScalar                  // a value
	printExists                  // rows matter, columns do not
)

// query prints a SELECT.
func (p *duckPrinter) query(s *pg.SelectStmt, outer *duckScope, ctes *duckCTE, mode printMode) (string, []duckCol) {
	plainSelect(s)
	depth := p.depth
	p.depth = 0
	defer func() { p.depth = depth }()
	var b strings.Builder
	ctes = p.with(&b, s.WithClause, ctes)
	sc := &duckScope{outer: outer, ctes: ctes}
	from := p.from(s.FromClause, sc)
	cols := p.targets(s.TargetList, sc, mode)
	distinct := len(s.DistinctClause) > 0
	b.WriteString("SELECT ")
	if distinct {
		b.WriteString("DISTINCT ")
		p.distinct(s.DistinctClause, cols)
	}
	b.WriteString(selectList(cols, mode))
	if from != "" {
		b.WriteString(" FROM " + from)
	}
	if s.WhereClause != nil {
		b.WriteString(" WHERE " + p.condition(s.WhereClause, sc))
	}
	p.groupBy(&b, s.GroupClause, sc, cols)
	if s.HavingClause != nil {
		b.WriteString(" HAVING " + p.condition(s.HavingClause, sc))
	}
	p.orderBy(&b, s.SortClause, sc, cols, distinct)
	p.limit(&b, " LIMIT ", s.LimitCount)
	p.limit(&b, " OFFSET ", s.LimitOffset)
	return b.String(), cols
}

func plainSelect(s *pg.SelectStmt) {
	switch {
	case s.Op != pg.SetOperation_SETOP_NONE:
		unfit("UNION, INTERSECT, EXCEPT")
	case len(s.ValuesLists) > 0:
		unfit("VALUES")
	case len(s.WindowClause) > 0:
		unfit("WINDOW")
	case len(s.LockingClause) > 0 || s.IntoClause != nil:
		unfit("FOR UPDATE or INTO")
	case s.LimitOption == pg.LimitOption_LIMIT_OPTION_WITH_TIES:
		unfit("WITH TIES")
	case s.GroupDistinct:
		unfit("GROUP BY DISTINCT")
	}
}

// with prints a WITH clause and makes its queries visible, each to those after it.
func (p *duckPrinter) with(b *strings.Builder, w *pg.WithClause, ctes *duckCTE) *duckCTE {
	if w == nil {
		return ctes
	}
	if w.Recursive {
		unfit("WITH RECURSIVE")
	}
	for i, n := range w.Ctes {
		c := n.GetCommonTableExpr()
		sel := c.GetCtequery().GetSelectStmt()
		if sel == nil || c.SearchClause != nil || c.CycleClause != nil {
			unfit("a WITH query that is not a SELECT")
		}
		text, cols := p.query(sel, nil, ctes, printFrom)
		table := p.name("w")
		b.WriteString([]string{"WITH ", ", "}[min(i, 1)] + table + " AS (" + text + ")")
		ctes = &duckCTE{name: c.Ctename, table: table, cols: rename(cols, c.Aliascolnames), next: ctes}
	}
	b.WriteByte(' ')
	return ctes
}

// rename gives columns the names of an alias list.
func rename(cols []duckCol, names []*pg.Node) []duckCol {
	out := slices.Clone(cols)
	if len(names) > len(out) {
		unfit("more column aliases than columns")
	}
	for i, n := range names {
		out[i].name = n.GetString_().GetSval()
	}
	return out
}

// from prints FROM and fills the scope.
func (p *duckPrinter) from(list []*pg.Node, sc *duckScope) string {
	var out []string
	for _, n := range list {
		out = append(out, p.relation(n, sc))
	}
	return strings.Join(out, ", ")
}

func (p *duckPrinter) relation(n *pg.Node, sc *duckScope) string {
	switch n := n.Node.(type) {
	case *pg.Node_RangeVar:
		return p.table(n.RangeVar, sc)
	case *pg.Node_RangeSubselect:
		return p.subselect(n.RangeSubselect, sc)
	case *pg.Node_JoinExpr:
		return p.join(n.JoinExpr, sc)
	}
	unfit("a relation of this kind in FROM")
	return ""
}

func (p *duckPrinter) table(rv *pg.RangeVar, sc *duckScope) string {
	alias := p.name("t")
	item := duckItem{alias: rv.Relname}
	table := ""
	if rv.Schemaname == "" {
		for c := sc.ctes; c != nil && table == ""; c = c.next {
			if c.name == rv.Relname {
				table, item.cols = c.table, exported(c.cols, alias)
			}
		}
	}
	if table == "" {
		t := p.opts.Tables(Name{rv.Schemaname, rv.Relname})
		if t == nil {
			unfit("%s is not a lake table that may be read", Name{rv.Schemaname, rv.Relname})
		}
		u := p.use(t)
		table, item.cols = QuoteIdent(u.Name), tableColumns(t, u, alias)
	}
	p.alias(&item, rv.Alias)
	sc.items = append(sc.items, item)
	return table + " AS " + alias
}

func (p *duckPrinter) alias(item *duckItem, a *pg.Alias) {
	if a == nil {
		return
	}
	item.alias = a.Aliasname
	item.cols = rename(item.cols, a.Colnames)
}

func (p *duckPrinter) use(t *DuckTable) *DuckUse {
	u := p.uses[t.ID]
	if u == nil {
		u = &DuckUse{ID: t.ID, Name: fmt.Sprint("b", t.ID)}
		p.uses[t.ID] = u
		p.order = append(p.order, t.ID)
	}
	return u
}

// exported is the columns of a printFrom query as seen through alias.
func exported(cols []duckCol, alias string) []duckCol {
	out := make([]duckCol, len(cols))
	for i, c := range cols {
		e := c.e
		e.text, e.day, e.literal = fmt.Sprintf(`%s."c%d"`, alias, i+1), nil, nil
		if e.digits != "" {
			e.digits = fmt.Sprintf(`%s."d%d"`, alias, i+1)
		}
		out[i] = duckCol{name: c.name, e: e}
	}
	return out
}

func tableColumns(t *DuckTable, u *DuckUse, alias string) []duckCol {
	out := make([]duckCol, len(t.Columns))
	for i, c := range t.Columns {
		out[i] = duckCol{name: c.Name, e: c.expr(fmt.Sprintf(`%s."c%d"`, alias, i+1)), use: u, at: i}
		out[i].e.origin = DuckUse{ID: t.ID, Columns: []int{i}}
	}
	return out
}

func (p *duckPrinter) subselect(r *pg.RangeSubselect, sc *duckScope) string {
	sel := r.Subquery.GetSelectStmt()
	if r.Lateral || sel == nil {
		unfit("LATERAL")
	}
	text, cols := p.query(sel, sc.outer, sc.ctes, printFrom)
	alias := p.name("t")
	item := duckItem{cols: exported(cols, alias)}
	p.alias(&item, r.Alias)
	sc.items = append(sc.items, item)
	return "(" + text + ") AS " + alias
}

func (p *duckPrinter) join(j *pg.JoinExpr, sc *duckScope) string {
	words := map[pg.JoinType]string{pg.JoinType_JOIN_INNER: " JOIN ", pg.JoinType_JOIN_LEFT: " LEFT JOIN "}
	word := words[j.Jointype]
	if word == "" || j.IsNatural || j.Alias != nil {
		unfit("a join that is not INNER or LEFT JOIN … ON or USING")
	}
	begin := len(sc.items)
	left := p.relation(j.Larg, sc)
	middle := len(sc.items)
	right := p.relation(j.Rarg, sc)
	if len(j.UsingClause) > 0 {
		return "(" + left + word + right + " ON " + p.using(j.UsingClause, sc.items[begin:middle], sc.items[middle:]) + ")"
	}
	if j.Quals == nil {
		if j.Jointype != pg.JoinType_JOIN_INNER {
			unfit("a join without a condition")
		}
		return "(" + left + " CROSS JOIN " + right + ")"
	}
	return "(" + left + word + right + " ON " + p.condition(j.Quals, sc) + ")"
}

// using prints the condition of JOIN … USING.
func (p *duckPrinter) using(names []*pg.Node, left, right []duckItem) string {
	var conds []string
	for _, n := range names {
		name := n.GetString_().GetSval()
		l, r := (&duckScope{items: left}).find("", name), (&duckScope{items: right}).find("", name)
		if len(l) != 1 || len(r) != 1 || l[0].e.oid != r[0].e.oid {
			unfit("USING of columns of different types")
		}
		conds = append(conds, p.compare("=", l[0].take(), r[0].take()).text)
		r[0].merged = true
	}
	return strings.Join(conds, " AND ")
}

// targets prints the select list's expressions.
func (p *duckPrinter) targets(list []*pg.Node, sc *duckScope, mode printMode) []duckCol {
	if mode == printExists && (len(list) == 0 || countsNothing(list)) {
		return []duckCol{{e: literalInt("1")}}
	}
	var out []duckCol
	for _, n := range list {
		t := n.GetResTarget()
		if len(t.Indirection) > 0 {
			unfit("a target of this kind")
		}
		if c := t.Val.GetColumnRef(); c != nil && c.Fields[len(c.Fields)-1].GetAStar() != nil {
			out = append(out, p.star(c, sc)...)
			continue
		}
		name := t.Name
		if name == "" {
			name = columnName(t.Val)
		}
		out = append(out, duckCol{name: name, e: p.settle(p.expr(t.Val, sc))})
	}
	if len(out) == 0 || mode == printScalar && len(out) != 1 {
		unfit("a select list of %d columns", len(out))
	}
	return out
}

// countsNothing reports whether the list has neither an aggregate nor anything else that decides how many rows there are.
func countsNothing(list []*pg.Node) bool {
	return len(list) == 1 && (list[0].GetResTarget().GetVal().GetAConst() != nil || list[0].GetResTarget().GetVal().GetColumnRef() != nil)
}

func (p *duckPrinter) star(c *pg.ColumnRef, sc *duckScope) []duckCol {
	if len(c.Fields) > 2 {
		unfit("schema.table.*")
	}
	var out []duckCol
	for _, it := range sc.items {
		if len(c.Fields) == 2 && it.alias != c.Fields[0].GetString_().GetSval() {
			continue
		}
		for _, col := range it.cols {
			if col.merged {
				unfit("* over JOIN … USING")
			}
			out = append(out, duckCol{name: col.name, e: col.take()})
		}
	}
	return out
}

// take is the column's expression; the table's column will be read.
func (c *duckCol) take() expr {
	if c.use != nil && !slices.Contains(c.use.Columns, c.at) {
		c.use.Columns = append(c.use.Columns, c.at)
	}
	return c.e
}

// columnName is FigureColname of parse_target.c, as far as a name can be referred to.
func columnName(n *pg.Node) string {
	switch n := n.Node.(type) {
	case *pg.Node_ColumnRef:
		return n.ColumnRef.Fields[len(n.ColumnRef.Fields)-1].GetString_().GetSval()
	case *pg.Node_FuncCall:
		return funcName(n.FuncCall.Funcname).Name
	case *pg.Node_TypeCast:
		if name := columnName(n.TypeCast.Arg); name != "?column?" {
			return name
		}
		return funcName(n.TypeCast.TypeName.Names).Name
	case *pg.Node_CaseExpr:
		if n.CaseExpr.Defresult != nil {
			if name := columnName(n.CaseExpr.Defresult); name != "?column?" {
				return name
			}
		}
		return "case"
	case *pg.Node_CoalesceExpr:
		return "coalesce"
	case *pg.Node_SubLink:
		if n.SubLink.SubLinkType == pg.SubLinkType_EXISTS_SUBLINK {
			return "exists"
		}
		if t := n.SubLink.Subselect.GetSelectStmt().GetTargetList(); n.SubLink.SubLinkType == pg.SubLinkType_EXPR_SUBLINK && len(t) > 0 {
			if t[0].GetResTarget().GetName() != "" {
				return t[0].GetResTarget().GetName()
			}
			return columnName(t[0].GetResTarget().GetVal())
		}
	}
	return "?column?"
}

// selectList prints the columns under the names that their reader knows.
func selectList(cols []duckCol, mode printMode) string {
	var list, digits []string
	for i, c := range cols {
		switch mode {
		case printTop:
			list = append(list, fmt.Sprintf(`%s AS "o%d"`, c.e.result(), i+1))
		case printFrom:
			list = append(list, fmt.Sprintf(`%s AS "c%d"`, c.e.text, i+1))
		default:
			list = append(list, c.e.text)
		}
		if c.e.digits != "" && mode <= printFrom {
			digits = append(digits, fmt.Sprintf(`%s AS "d%d"`, c.e.knownDigits(), i+1))
		}
	}
	return strings.Join(append(list, digits...), ", ")
}

func (p *duckPrinter) distinct(clause []*pg.Node, cols []duckCol) {
	if len(clause) != 1 || clause[0].Node != nil {
		unfit("DISTINCT ON")
	}
	for _, c := range cols {
		c.e.groupable()
	}
}

func (p *duckPrinter) groupBy(b *strings.Builder, list []*pg.Node, sc *duckScope, cols []duckCol) {
	for i, n := range list {
		e := p.grouping(n, sc, cols)
		e.groupable()
		b.WriteString([]string{" GROUP BY ", ", "}[min(i, 1)] + e.text)
	}
}

// grouping is an item of GROUP BY: a place, a column of FROM, then a name of the select list, or an expression.
func (p *duckPrinter) grouping(n *pg.Node, sc *duckScope, cols []duckCol) expr {
	if e, ok := place(n, cols); ok {
		return e
	}
	if n.GetGroupingSet() != nil {
		unfit("GROUPING SETS")
	}
	if name, ok := bareName(n); ok && len(sc.find("", name)) == 0 {
		if e, ok := named(cols, name); ok {
			return e
		}
	}
	return p.settle(p.expr(n, sc))
}

// place is the column that an integer constant in GROUP BY or ORDER BY stands for.
func place(n *pg.Node, cols []duckCol) (expr, bool) {
	c := n.GetAConst()
	if c == nil {
		return expr{}, false
	}
	i := int(c.GetIval().GetIval())
	if i < 1 || i > len(cols) {
		unfit("position %d", i)
	}
	return cols[i-1].e, true
}

func bareName(n *pg.Node) (string, bool) {
	c := n.GetColumnRef()
	if c == nil || len(c.Fields) != 1 || c.Fields[0].GetString_() == nil {
		return "", false
	}
	return c.Fields[0].GetString_().GetSval(), true
}

func named(cols []duckCol, name string) (expr, bool) {
	i := slices.IndexFunc(cols, func(c duckCol) bool { return c.name == name })
	if i < 0 {
		return expr{}, false
	}
	return cols[i].e, true
}

// orderBy prints ORDER BY; where NULLs go is said always.
func (p *duckPrinter) orderBy(b *strings.Builder, list []*pg.Node, sc *duckScope, cols []duckCol, distinct bool) {
	for i, n := range list {
		s := n.GetSortBy()
		if s.SortbyDir == pg.SortByDir_SORTBY_USING {
			unfit("ORDER BY … USING")
		}
		e := p.ordering(s.Node, sc, cols)
		key := e.sortKey()
		if at := slices.IndexFunc(cols, func(c duckCol) bool { return c.e.text == e.text }); distinct {
			if at < 0 {
				unfit("ORDER BY of a DISTINCT by something else than its columns")
			}
			if key == e.text {
				key = strconv.Itoa(at + 1)
			}
		}
		desc := s.SortbyDir == pg.SortByDir_SORTBY_DESC
		first := desc
		switch s.SortbyNulls {
		case pg.SortByNulls_SORTBY_NULLS_FIRST:
			first = true
		case pg.SortByNulls_SORTBY_NULLS_LAST:
			first = false
		}
		b.WriteString([]string{" ORDER BY ", ", "}[min(i, 1)] + key + map[bool]string{false: " ASC", true: " DESC"}[desc] +
			map[bool]string{false: " NULLS LAST", true: " NULLS FIRST"}[first])
	}
}

// ordering is an item of ORDER BY: a place, a name of the select list, or an expression.
func (p *duckPrinter) ordering(n *pg.Node, sc *duckScope, cols []duckCol) expr {
	if e, ok := place(n, cols); ok {
		return e
	}
	if name, ok := bareName(n); ok {
		if e, ok := named(cols, name); ok {
			return e
		}
	}
	return p.settle(p.expr(n, sc))
}

// limit prints LIMIT or OFFSET with a constant.
func (p *duckPrinter) limit(b *strings.Builder, word string, n *pg.Node) {
	if n == nil {
		return
	}
	e := p.expr(n, &duckScope{})
	if e.null {
		return
	}
	if e.number == nil || *e.number < 0 {
		unfit("LIMIT or OFFSET that is not a number")
	}
	b.WriteString(word + strconv.FormatInt(*e.number, 10))
}

// find is the columns of the scope itself with a name.
func (sc *duckScope) find(alias, name string) []*duckCol {
	var out []*duckCol
	for i := range sc.items {
		it := &sc.items[i]
		if alias != "" && it.alias != alias {
			continue
		}
		for c := range it.cols {
			if it.cols[c].name == name && (alias != "" || !it.cols[c].merged) {
				out = append(out, &it.cols[c])
			}
		}
	}
	return out
}

// column resolves a column reference, outwards.
func (p *duckPrinter) column(c *pg.ColumnRef, sc *duckScope) expr {
	if len(c.Fields) > 2 || c.Fields[len(c.Fields)-1].GetString_() == nil {
		unfit("a column reference of this kind")
	}
	alias, name := "", c.Fields[len(c.Fields)-1].GetString_().GetSval()
	if len(c.Fields) == 2 {
		alias = c.Fields[0].GetString_().GetSval()
	}
	for level, s := 0, sc; s != nil; level, s = level+1, s.outer {
		found := s.find(alias, name)
		switch {
		case len(found) > 1:
			unfit("column name %s is in several relations", name)
		case len(found) == 1:
			if p.depth > 0 && level > 0 {
				unfit("an aggregate over columns of an outer query")
			}
			return found[0].take()
		}
	}
	unfit("column %s is not one of a lake table", name)
	return expr{}
}
