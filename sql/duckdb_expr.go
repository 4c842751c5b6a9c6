package sql

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	pg "github.com/pganalyze/pg_query_go/v5"
)

// condition prints a boolean expression.
func (p *duckPrinter) condition(n *pg.Node, sc *duckScope) string {
	e := p.coerce(p.expr(n, sc), expr{oid: oidBool})
	if e.oid != oidBool {
		unfit("a condition that is not boolean")
	}
	return e.text
}

// expr prints an expression.
func (p *duckPrinter) expr(n *pg.Node, sc *duckScope) expr {
	switch n := n.GetNode().(type) {
	case *pg.Node_AConst:
		return constant(n.AConst)
	case *pg.Node_ParamRef:
		return p.param(int(n.ParamRef.Number))
	case *pg.Node_ColumnRef:
		return p.column(n.ColumnRef, sc)
	case *pg.Node_TypeCast:
		return p.cast(n.TypeCast, sc)
	case *pg.Node_AExpr:
		return p.operator(n.AExpr, sc)
	case *pg.Node_BoolExpr:
		return p.logic(n.BoolExpr, sc)
	case *pg.Node_NullTest:
		return p.nullTest(n.NullTest, sc)
	case *pg.Node_CaseExpr:
		return p.caseOf(n.CaseExpr, sc)
	case *pg.Node_CoalesceExpr:
		return p.coalesce(n.CoalesceExpr, sc)
	case *pg.Node_SubLink:
		return p.sublink(n.SubLink, sc)
	case *pg.Node_FuncCall:
		return p.call(n.FuncCall, sc)
	}
	unfit("an expression of this kind")
	return expr{}
}

func constant(c *pg.A_Const) expr {
	if c.Isnull {
		return expr{oid: oidUnknown, null: true}
	}
	switch v := c.Val.(type) {
	case *pg.A_Const_Ival:
		return literalInt(intText(v.Ival.Ival))
	case *pg.A_Const_Fval:
		if wholeNumber.MatchString(v.Fval.Fval) {
			return integerOf(v.Fval.Fval, oidInt8)
		}
		return numericOf(v.Fval.Fval)
	case *pg.A_Const_Sval:
		return expr{oid: oidUnknown, literal: &v.Sval.Sval}
	case *pg.A_Const_Boolval:
		return boolOf(strconv.FormatBool(v.Boolval.Boolval))
	}
	unfit("a constant of this kind")
	return expr{}
}

// param prints a parameter as the literal it was bound to.
func (p *duckPrinter) param(n int) expr {
	if n < 1 || n > len(p.opts.Params) {
		unfit("parameter $%d", n)
	}
	v := p.opts.Params[n-1]
	to := expr{oid: v.OID, length: -1}
	if v.OID == oidVarchar {
		to.oid = oidText
	}
	return p.coerce(expr{oid: oidUnknown, literal: &v.Text, null: v.Null}, to)
}

// typeNames is the types that a cast may name.
var typeNames = map[string]uint32{"bool": oidBool, "int2": oidInt2, "int4": oidInt4, "int8": oidInt8, "text": oidText, "varchar": oidText, "numeric": oidNumeric,
	"date": oidDate, "timestamp": oidTimestamp, "float4": oidFloat4, "float8": oidFloat8, "uuid": oidID, "interval": oidInterval}

// cast prints literals of a type and the casts that lose nothing.
func (p *duckPrinter) cast(c *pg.TypeCast, sc *duckScope) expr {
	name := funcName(c.TypeName.Names)
	oid := typeNames[name.Name]
	if oid == 0 || name.Schema != "" && name.Schema != "pg_catalog" || len(c.TypeName.ArrayBounds) > 0 {
		unfit("a cast to %s", name)
	}
	e := p.expr(c.Arg, sc)
	mods := c.TypeName.Typmods
	if oid == oidInterval && e.literal != nil && len(mods) <= 1 {
		typmod := ""
		if len(mods) == 1 {
			typmod = strconv.Itoa(int(mods[0].GetAConst().GetIval().GetIval()))
		}
		return intervalOf(*e.literal, typmod)
	}
	if len(mods) > 0 {
		unfit("a cast to a type with a modifier")
	}
	if e.oid == oidUnknown {
		return p.coerce(e, expr{oid: oid, length: -1})
	}
	return p.convert(e, oid)
}

func (p *duckPrinter) convert(e expr, oid uint32) expr {
	switch {
	case e.oid == oid && oid != oidBpchar:
		return e
	case isInt(e.oid) && isInt(oid) && intRank(oid) > intRank(e.oid):
		return widen(e, oid)
	case isInt(e.oid) && oid == oidNumeric:
		return p.numeric(e)
	case e.oid == oidBpchar && oid == oidText:
		return expr{text: trimmed(&e), oid: oidText}
	case e.oid == oidDate && oid == oidTimestamp:
		if e.day != nil {
			return momentExpr(e.day.t, oidTimestamp)
		}
		return expr{text: "CAST(" + e.text + " AS TIMESTAMP)", oid: oidTimestamp}
	}
	unfit("a cast that may lose something")
	return expr{}
}

func (p *duckPrinter) logic(b *pg.BoolExpr, sc *duckScope) expr {
	args := make([]string, len(b.Args))
	for i, a := range b.Args {
		args[i] = p.condition(a, sc)
	}
	switch b.Boolop {
	case pg.BoolExprType_AND_EXPR:
		return boolean("(" + strings.Join(args, " AND ") + ")")
	case pg.BoolExprType_OR_EXPR:
		return boolean("(" + strings.Join(args, " OR ") + ")")
	}
	return boolean("(NOT " + args[0] + ")")
}

func boolean(text string) expr { return expr{text: text, oid: oidBool} }

func (p *duckPrinter) nullTest(t *pg.NullTest, sc *duckScope) expr {
	e := p.settle(p.expr(t.Arg, sc))
	if t.Nulltesttype == pg.NullTestType_IS_NULL {
		return boolean("(" + e.text + " IS NULL)")
	}
	return boolean("(" + e.text + " IS NOT NULL)")
}

// operator prints an operator expression by its kind.
func (p *duckPrinter) operator(e *pg.A_Expr, sc *duckScope) expr {
	name := funcName(e.Name)
	if name.Schema != "" && name.Schema != "pg_catalog" {
		unfit("operator %s", name)
	}
	op := name.Name
	switch e.Kind {
	case pg.A_Expr_Kind_AEXPR_OP:
		if e.Lexpr == nil {
			return p.unary(op, p.expr(e.Rexpr, sc))
		}
		return p.binary(op, p.expr(e.Lexpr, sc), p.expr(e.Rexpr, sc))
	case pg.A_Expr_Kind_AEXPR_IN:
		return p.in(op, e, sc)
	case pg.A_Expr_Kind_AEXPR_LIKE:
		return p.like(op, p.expr(e.Lexpr, sc), p.expr(e.Rexpr, sc))
	case pg.A_Expr_Kind_AEXPR_BETWEEN, pg.A_Expr_Kind_AEXPR_NOT_BETWEEN:
		x, bounds := p.expr(e.Lexpr, sc), e.Rexpr.GetList().GetItems()
		both := "(" + p.compare(">=", x, p.expr(bounds[0], sc)).text + " AND " + p.compare("<=", x, p.expr(bounds[1], sc)).text + ")"
		if e.Kind == pg.A_Expr_Kind_AEXPR_NOT_BETWEEN {
			both = "(NOT " + both + ")"
		}
		return boolean(both)
	case pg.A_Expr_Kind_AEXPR_DISTINCT:
		return p.compare("IS DISTINCT FROM", p.expr(e.Lexpr, sc), p.expr(e.Rexpr, sc))
	case pg.A_Expr_Kind_AEXPR_NOT_DISTINCT:
		return p.compare("IS NOT DISTINCT FROM", p.expr(e.Lexpr, sc), p.expr(e.Rexpr, sc))
	}
	unfit("an operator expression of this kind")
	return expr{}
}

func (p *duckPrinter) unary(op string, e expr) expr {
	switch {
	case op != "-" || e.oid != oidNumeric && !isInt(e.oid):
		unfit("a prefix operator of this kind")
	case e.number != nil:
		return integerOf(strconv.FormatInt(-*e.number, 10), e.oid)
	}
	e.text, e.origin = "(- "+e.text+")", DuckUse{}
	return e
}

func (p *duckPrinter) binary(op string, a, b expr) expr {
	switch op {
	case "=", "<>", "!=", "<", "<=", ">", ">=":
		return p.compare(strings.Replace(op, "!=", "<>", 1), a, b)
	case "+", "-", "*", "/", "%":
		return p.arithmetic(op, a, b)
	case "||":
		return p.concat(a, b)
	}
	unfit("operator %s", op)
	return expr{}
}

// compare prints a comparison.
func (p *duckPrinter) compare(op string, a, b expr) expr {
	a, b = p.together(a, b)
	x, y := p.comparable(op, a, b)
	return boolean("(" + x + " " + op + " " + y + ")")
}

// together gives literals without a type the type of the other side.
func (p *duckPrinter) together(a, b expr) (expr, expr) {
	switch {
	case a.oid == oidUnknown && b.oid == oidUnknown:
		return p.settle(a), p.settle(b)
	case a.oid == oidUnknown:
		a = p.coerce(a, b)
	case b.oid == oidUnknown:
		b = p.coerce(b, a)
	}
	return a, b
}

// comparable is both sides as texts that DuckDB compares as Postgres would.
func (p *duckPrinter) comparable(op string, a, b expr) (x, y string) {
	switch {
	case a.oid == 0 || b.oid == 0 || a.oid == oidInterval || b.oid == oidInterval:
		unfit("comparing values of this type")
	case isInt(a.oid) && isInt(b.oid):
		return a.text, b.text
	case (isInt(a.oid) || a.oid == oidNumeric) && (isInt(b.oid) || b.oid == oidNumeric):
		return p.numeric(a).text, p.numeric(b).text
	case isFloat(a.oid) || isFloat(b.oid):
		return double(a), double(b)
	case a.oid == oidBpchar || b.oid == oidBpchar:
		return padded(op, a, b)
	case a.oid == oidDate && b.oid == oidTimestamp, a.oid == oidTimestamp && b.oid == oidDate:
		return p.dates(a, b)
	case a.oid == b.oid:
		return a.text, b.text
	}
	unfit("comparing values of types %d and %d", a.oid, b.oid)
	return "", ""
}

// double is a float or a constant that Postgres would make one. A numeric column would be rounded differently.
func double(e expr) string {
	switch {
	case isFloat(e.oid):
		return e.text
	case isInt(e.oid), e.oid == oidNumeric && strings.HasPrefix(e.text, "CAST('"):
		return "CAST(" + e.text + " AS DOUBLE)"
	}
	unfit("comparing a float with a value of this type")
	return ""
}

// padded compares where one side is a char(n): blanks at the end do not count. A constant is padded like its column, so that it can be
// looked for in the files' statistics.
func padded(op string, a, b expr) (string, string) {
	equality := op == "=" || op == "<>"
	switch {
	case a.oid == b.oid && a.length >= 0 && a.length == b.length && equality:
		return a.text, b.text
	case a.oid == b.oid && equality && a.length >= 0 && b.literal != nil && fits(*b.literal, a.length):
		return a.text, pad(*b.literal, a.length)
	case a.oid == b.oid && equality && b.length >= 0 && a.literal != nil && fits(*a.literal, b.length):
		return pad(*a.literal, b.length), b.text
	}
	out := [2]string{a.text, b.text}
	for i, e := range []expr{a, b} {
		switch {
		case e.oid == oidBpchar:
			out[i] = trimmed(&e)
		case e.oid != oidText:
			unfit("comparing text with a value of type %d", e.oid)
		}
	}
	return out[0], out[1]
}

func fits(s string, n int) bool { return utf8.RuneCountInString(strings.TrimRight(s, " ")) <= n }

func pad(s string, n int) string {
	s = strings.TrimRight(s, " ")
	return quoteText(s + strings.Repeat(" ", n-utf8.RuneCountInString(s)))
}

// dates compares a date with a timestamp; a midnight of a literal is a date.
func (p *duckPrinter) dates(a, b expr) (string, string) {
	date := func(e expr) expr {
		if e.oid == oidTimestamp && e.day.midnight() {
			return momentExpr(e.day.t, oidDate)
		}
		return e
	}
	if a, b = date(a), date(b); a.oid == b.oid {
		return a.text, b.text
	}
	return p.convert(a, oidTimestamp).text, p.convert(b, oidTimestamp).text
}

func (p *duckPrinter) in(op string, e *pg.A_Expr, sc *duckScope) expr {
	x := p.expr(e.Lexpr, sc)
	var lefts, rights, each []string
	for _, n := range e.Rexpr.GetList().GetItems() {
		a, b := p.together(x, p.expr(n, sc))
		l, r := p.comparable("=", a, b)
		lefts, rights, each = append(lefts, l), append(rights, r), append(each, l+" = "+r)
	}
	text := lefts[0] + " IN (" + strings.Join(rights, ", ") + ")"
	if len(slices.Compact(lefts)) > 1 { // compared in different ways
		text = "(" + strings.Join(each, " OR ") + ")"
	}
	switch op {
	case "=":
		return boolean("(" + text + ")")
	case "<>":
		return boolean("(NOT " + text + ")")
	}
	unfit("IN with operator %s", op)
	return expr{}
}

func (p *duckPrinter) like(op string, x, pattern expr) expr {
	word := map[string]string{"~~": " LIKE ", "!~~": " NOT LIKE "}[op]
	if word == "" || pattern.literal == nil || strings.Contains(*pattern.literal, `\`) {
		unfit("LIKE with a pattern of this kind")
	}
	if x = p.settle(x); x.oid != oidText && x.oid != oidBpchar {
		unfit("LIKE on a value of this type")
	}
	return boolean("(" + x.text + word + quoteText(*pattern.literal) + ")")
}

// arithmetic prints + - * /.
func (p *duckPrinter) arithmetic(op string, a, b expr) expr {
	if a.oid == oidUnknown || b.oid == oidUnknown {
		a, b = p.together(a, b)
	}
	switch {
	case isInt(a.oid) && isInt(b.oid):
		return integers(op, a, b)
	case (isInt(a.oid) || a.oid == oidNumeric) && (isInt(b.oid) || b.oid == oidNumeric):
		return p.decimals(op, p.numeric(a), p.numeric(b))
	}
	return p.calendar(op, a, b)
}

// integers calculates in the larger type. DuckDB makes NULL of a division by zero.
func integers(op string, a, b expr) expr {
	oid := a.oid
	if intRank(b.oid) > intRank(oid) {
		oid = b.oid
	}
	x, y := widen(a, oid).text, widen(b, oid).text
	if op != "/" && op != "%" {
		return expr{text: "(" + x + " " + op + " " + y + ")", oid: oid}
	}
	special := ""
	if op == "%" { // DuckDB's overflows for the smallest integer
		special = fmt.Sprintf("WHEN %s = -1 THEN %s - %s ", y, x, x)
	}
	op = strings.Replace(op, "/", "//", 1)
	return expr{text: fmt.Sprintf("(CASE WHEN %s = 0 AND %s IS NOT NULL THEN error('division by zero') %sELSE %s %s %s END)", y, x, special, x, op, y), oid: oid}
}

// concat joins texts; what would have to be printed first is refused.
func (p *duckPrinter) concat(a, b expr) expr {
	for _, e := range []*expr{&a, &b} {
		if *e = p.settle(*e); e.oid == oidBpchar {
			*e = p.convert(*e, oidText)
		}
		if e.oid != oidText {
			unfit("|| with a value of this type")
		}
	}
	return expr{text: "(" + a.text + " || " + b.text + ")", oid: oidText}
}

func (p *duckPrinter) decimals(op string, a, b expr) expr {
	switch op {
	case "/":
		return p.divide(a, b)
	case "%":
		unfit("the remainder of numerics")
	}
	if p.opts.Wide {
		a.text, a.prec = "CAST("+a.text+" AS "+decimalType(38, a.scale)+")", 38
		b.text, b.prec = "CAST("+b.text+" AS "+decimalType(38, b.scale)+")", 38
	}
	e := expr{text: "(" + a.text + " " + op + " " + b.text + ")", oid: oidNumeric}
	dynamic := a.digits != "" || b.digits != ""
	if op == "*" {
		e.prec, e.scale = a.prec+b.prec, a.scale+b.scale
	} else {
		e.scale = max(a.scale, b.scale)
		e.prec = max(a.prec-a.scale, b.prec-b.scale) + e.scale + 1
	}
	switch {
	case a.digits == unknownDigits || b.digits == unknownDigits:
		e.digits = unknownDigits
	case dynamic && op == "*":
		e.digits = "(" + a.knownDigits() + " + " + b.knownDigits() + ")"
	case dynamic:
		e.digits = "greatest(" + a.knownDigits() + ", " + b.knownDigits() + ")"
	}
	if e.scale > 38 {
		unfit("a product with more than 38 decimals")
	}
	if e.prec > 18 && a.prec <= 18 && b.prec <= 18 { // DuckDB stays with 64 bits and checks
		e.prec = 18
	}
	e.prec = max(min(e.prec, 38), e.scale)
	return e
}

// divide prints the division of numerics: package server/reader carries it out as Postgres does.
func (p *duckPrinter) divide(a, b expr) expr {
	return p.quotient("CAST("+a.text+" AS VARCHAR)", a.knownDigits(), "CAST("+b.text+" AS VARCHAR)", b.knownDigits())
}

func (p *duckPrinter) quotient(args ...string) expr {
	scale := p.opts.Decimals
	list := strings.Join(append(args, strconv.Itoa(scale)), ", ")
	return expr{text: "CAST(sluice_div(" + list + ") AS " + decimalType(38, scale) + ")", oid: oidNumeric, prec: 38, scale: scale,
		digits: "sluice_div_scale(" + list + ")"}
}

// calendar prints arithmetic of dates, timestamps and intervals.
func (p *duckPrinter) calendar(op string, a, b expr) expr {
	if op == "+" && (isInt(a.oid) || a.oid == oidInterval) {
		a, b = b, a
	}
	switch {
	case op != "+" && op != "-":
	case a.oid == oidDate && b.oid == oidDate && op == "-":
		return expr{text: "CAST((" + a.text + " - " + b.text + ") AS INTEGER)", oid: oidInt4}
	case a.oid == oidDate && (b.oid == oidInt4 || b.oid == oidInt2):
		return expr{text: "(" + a.text + " " + op + " " + widen(b, oidInt4).text + ")", oid: oidDate}
	case (a.oid == oidDate || a.oid == oidTimestamp) && b.oid == oidInterval:
		return shifted(op, a, b.span)
	}
	unfit("operator %s on values of types %d and %d", op, a.oid, b.oid)
	return expr{}
}

func shifted(op string, a expr, by *interval) expr {
	sign := map[string]int64{"+": 1, "-": -1}[op]
	if a.day != nil {
		return momentExpr(a.day.plus(by, sign), oidTimestamp)
	}
	text := "CAST(" + a.text + " AS TIMESTAMP)"
	for _, part := range []struct {
		n    int64
		name string
	}{{by.months, "to_months"}, {by.days, "to_days"}, {by.hours, "to_hours"}} {
		if part.n != 0 {
			text = fmt.Sprintf("(%s + %s(%d))", text, part.name, sign*part.n)
		}
	}
	return expr{text: text, oid: oidTimestamp}
}

// caseOf prints CASE.
func (p *duckPrinter) caseOf(c *pg.CaseExpr, sc *duckScope) expr {
	var whens []string
	var results []expr
	for _, n := range c.Args {
		w := n.GetCaseWhen()
		when := ""
		if c.Arg != nil {
			when = p.compare("=", p.expr(c.Arg, sc), p.expr(w.Expr, sc)).text
		} else {
			when = p.condition(w.Expr, sc)
		}
		whens, results = append(whens, when), append(results, p.expr(w.Result, sc))
	}
	last := expr{oid: oidUnknown, null: true}
	if c.Defresult != nil {
		last = p.expr(c.Defresult, sc)
	}
	results, e := p.unify(append(results, last))
	return chosen(e, whens, results)
}

// chosen is CASE over whens with results of e's type, one more than whens.
func chosen(e expr, whens []string, results []expr) expr {
	print := func(of func(*expr) string) string {
		var b strings.Builder
		b.WriteString("CASE")
		for i, w := range whens {
			b.WriteString(" WHEN " + w + " THEN " + of(&results[i]))
		}
		return b.String() + " ELSE " + of(&results[len(results)-1]) + " END"
	}
	e.text = print(func(r *expr) string { return r.text })
	if e.digits != "" && e.digits != unknownDigits {
		e.digits = print((*expr).knownDigits)
	}
	return e
}

func (p *duckPrinter) coalesce(c *pg.CoalesceExpr, sc *duckScope) expr {
	var args []expr
	for _, a := range c.Args {
		args = append(args, p.expr(a, sc))
	}
	args, e := p.unify(args)
	var whens []string
	for _, a := range args[:len(args)-1] {
		whens = append(whens, a.text+" IS NOT NULL")
	}
	return chosen(e, whens, args)
}

// unify makes expressions one type, as the branches of a CASE. The second result has that type and digits if they vary.
func (p *duckPrinter) unify(list []expr) ([]expr, expr) {
	common := expr{oid: oidUnknown}
	for _, e := range list {
		common = p.common(common, e)
	}
	if common.oid == oidUnknown {
		common = expr{oid: oidText}
	}
	out := slices.Clone(list)
	for i, e := range list {
		out[i] = p.become(e, common)
	}
	if common.oid == oidNumeric {
		return decimalsAlike(out)
	}
	return out, expr{oid: common.oid, length: common.length}
}

// common is the type of two branches.
func (p *duckPrinter) common(a, b expr) expr {
	switch {
	case b.oid == oidUnknown && a.oid == oidBpchar && !b.null:
		a.length = -1
		return a
	case b.oid == oidUnknown:
		return a
	case a.oid == oidUnknown:
		return b
	case isInt(a.oid) && isInt(b.oid):
		if intRank(b.oid) > intRank(a.oid) {
			return b
		}
		return a
	case (isInt(a.oid) || a.oid == oidNumeric) && (isInt(b.oid) || b.oid == oidNumeric):
		return expr{oid: oidNumeric}
	case a.oid != b.oid || a.oid == 0 || a.oid == oidInterval:
		unfit("branches of different types")
	}
	if a.length != b.length {
		a.length = -1
	}
	return a
}

func (p *duckPrinter) become(e, common expr) expr {
	e = p.coerce(e, common)
	switch {
	case common.oid == oidNumeric:
		return p.numeric(e)
	case isInt(common.oid):
		return widen(e, common.oid)
	}
	return e
}

// decimalsAlike casts numerics to one DECIMAL. Their digits vary unless all have the same; those of NULL do not count.
func decimalsAlike(list []expr) ([]expr, expr) {
	whole, scale, vary := 0, 0, false
	for _, e := range list {
		if !e.null {
			whole, scale = max(whole, e.prec-e.scale), max(scale, e.scale)
		}
	}
	e := expr{oid: oidNumeric, prec: max(min(whole+scale, 38), 1), scale: scale}
	for i, x := range list {
		vary = vary || !x.null && (x.digits != "" || x.scale != scale)
		if x.digits == unknownDigits {
			e.digits = unknownDigits
		}
		list[i] = decimal(x, e.prec, scale)
	}
	if vary && e.digits == "" {
		e.digits = "varies"
	}
	return list, e
}

// sublink prints EXISTS, IN (SELECT …) and a scalar subquery.
func (p *duckPrinter) sublink(l *pg.SubLink, sc *duckScope) expr {
	sel := l.Subselect.GetSelectStmt()
	if sel == nil {
		unfit("a subquery of this kind")
	}
	if p.depth > 0 {
		unfit("a subquery inside an aggregate")
	}
	switch l.SubLinkType {
	case pg.SubLinkType_EXISTS_SUBLINK:
		text, _ := p.query(sel, sc, sc.ctes, printExists)
		return boolean("EXISTS (" + text + ")")
	case pg.SubLinkType_EXPR_SUBLINK:
		text, cols := p.query(sel, sc, sc.ctes, printScalar)
		e := cols[0].e
		e.text, e.number, e.day, e.literal = "("+text+")", nil, nil, nil
		if e.digits != "" {
			e.digits = unknownDigits
		}
		return e
	case pg.SubLinkType_ANY_SUBLINK:
		return p.anyOf(l, sel, sc)
	}
	unfit("a subquery of this kind")
	return expr{}
}

func (p *duckPrinter) anyOf(l *pg.SubLink, sel *pg.SelectStmt, sc *duckScope) expr {
	if len(l.OperName) > 0 && funcName(l.OperName).Name != "=" {
		unfit("ANY with an operator that is not =")
	}
	x := p.expr(l.Testexpr, sc)
	text, cols := p.query(sel, sc, sc.ctes, printScalar)
	y := cols[0].e
	x = p.coerce(x, y)
	same := x.oid == y.oid && x.oid != 0 && (x.oid != oidBpchar || x.length >= 0 && x.length == y.length)
	if !same && !(isInt(x.oid) && isInt(y.oid)) || isFloat(x.oid) {
		unfit("IN (SELECT …) of values of types %d and %d", x.oid, y.oid)
	}
	return boolean("(" + x.text + " IN (" + text + "))")
}

// call prints a function or an aggregate.
func (p *duckPrinter) call(f *pg.FuncCall, sc *duckScope) expr {
	name := funcName(f.Funcname)
	if name.Schema != "" && name.Schema != "pg_catalog" || f.Over != nil || f.AggWithinGroup || len(f.AggOrder) > 0 || f.FuncVariadic {
		unfit("function %s in this form", name)
	}
	switch name.Name {
	case "count", "sum", "avg", "min", "max":
		return p.aggregate(name.Name, f, sc)
	case "extract", "date_part":
		if f.Funcformat == pg.CoercionForm_COERCE_SQL_SYNTAX && len(f.Args) == 2 {
			return p.extract(f.Args[0].GetAConst().GetSval().GetSval(), p.expr(f.Args[1], sc))
		}
	case "length", "char_length", "character_length":
		if len(f.Args) == 1 {
			return p.length(p.settle(p.expr(f.Args[0], sc)))
		}
	case "substring", "substr":
		return p.substring(f.Args, sc)
	}
	unfit("function %s", name.Name)
	return expr{}
}

func (p *duckPrinter) extract(field string, e expr) expr {
	if e.oid != oidDate && e.oid != oidTimestamp || !slices.Contains([]string{"year", "month", "day"}, field) {
		unfit("extract of this kind")
	}
	return expr{text: "CAST(" + field + "(" + e.text + ") AS DECIMAL(5,0))", oid: oidNumeric, prec: 5}
}

func (p *duckPrinter) length(e expr) expr {
	if e.oid == oidBpchar {
		e = p.convert(e, oidText)
	}
	if e.oid != oidText {
		unfit("length of a value of this type")
	}
	return expr{text: "CAST(length(" + e.text + ") AS INTEGER)", oid: oidInt4}
}

// substring takes constants from 1 on only: Postgres and DuckDB disagree about what lies before the text.
func (p *duckPrinter) substring(args []*pg.Node, sc *duckScope) expr {
	if len(args) < 2 || len(args) > 3 {
		unfit("substring of this kind")
	}
	e := p.settle(p.expr(args[0], sc))
	if e.oid == oidBpchar {
		e = p.convert(e, oidText)
	}
	if e.oid != oidText {
		unfit("substring of a value of this type")
	}
	text := "substring(" + e.text
	for i, a := range args[1:] {
		n := p.expr(a, sc).number
		if n == nil || *n < int64(1-i) {
			unfit("substring with bounds of this kind")
		}
		text += ", " + strconv.FormatInt(*n, 10)
	}
	return expr{text: text + ")", oid: oidText}
}

// aggregate prints an aggregate function.
func (p *duckPrinter) aggregate(name string, f *pg.FuncCall, sc *duckScope) expr {
	if p.depth > 0 {
		unfit("an aggregate in an aggregate")
	}
	p.depth++
	defer func() { p.depth-- }()
	a := aggregate{name: name}
	if f.AggFilter != nil {
		a.filter = p.condition(f.AggFilter, sc)
	}
	if f.AggStar {
		return expr{text: "count(*)" + a.where(""), oid: oidInt8}
	}
	if len(f.Args) != 1 {
		unfit("%s of %d arguments", name, len(f.Args))
	}
	a.arg = p.settle(p.expr(f.Args[0], sc))
	if f.AggDistinct {
		a.distinct = "DISTINCT "
	}
	switch name {
	case "count":
		return a.count()
	case "sum":
		return a.sum()
	case "avg":
		return p.avg(&a)
	}
	return a.extreme()
}

// aggregate is one call.
type aggregate struct {
	name, distinct, filter string
	arg                    expr
}

// where prints FILTER with a further condition.
func (a *aggregate) where(also string) string {
	conds := slices.DeleteFunc([]string{a.filter, also}, func(s string) bool { return s == "" })
	if len(conds) == 0 {
		return ""
	}
	return " FILTER (WHERE " + strings.Join(conds, " AND ") + ")"
}

func (a *aggregate) of(f, arg string) string { return f + "(" + a.distinct + arg + ")" + a.where("") }

func (a *aggregate) count() expr {
	arg := a.arg.text
	if a.distinct != "" {
		if isFloat(a.arg.oid) {
			unfit("count(DISTINCT) of floats")
		}
		arg = a.arg.sortKey()
	}
	return expr{text: a.of("count", arg), oid: oidInt8}
}

func (a *aggregate) sum() expr {
	sum := a.of("sum", a.arg.text)
	switch a.arg.oid {
	case oidInt2, oidInt4:
		return expr{text: "CAST(" + sum + " AS BIGINT)", oid: oidInt8}
	case oidInt8:
		return expr{text: "CAST(" + sum + " AS DECIMAL(38,0))", oid: oidNumeric, prec: 38}
	case oidNumeric:
		return expr{text: sum, oid: oidNumeric, prec: 38, scale: a.arg.scale, digits: a.digits()}
	}
	unfit("sum of values of this type")
	return expr{}
}

// digits is the decimals that Postgres prints of a sum: the most that any of the values has.
func (a *aggregate) digits() string {
	switch {
	case a.arg.digits == "" || a.arg.digits == unknownDigits:
		return a.arg.digits
	case a.distinct != "":
		return unknownDigits
	}
	return "max(" + a.arg.digits + ")" + a.where(a.arg.text+" IS NOT NULL")
}

func (p *duckPrinter) avg(a *aggregate) expr {
	if !isInt(a.arg.oid) && a.arg.oid != oidNumeric {
		unfit("avg of values of this type")
	}
	sum := expr{scale: a.arg.scale, digits: a.digits()}
	return p.quotient("CAST("+a.of("sum", a.arg.text)+" AS VARCHAR)", sum.knownDigits(), "CAST("+a.of("count", a.arg.text)+" AS VARCHAR)", "0")
}

// extreme is min and max. Equal numerics may print differently, so that nobody knows the digits.
func (a *aggregate) extreme() expr {
	e := a.arg
	e.origin, e.number, e.day, e.literal = DuckUse{}, nil, nil, nil
	switch e.oid {
	case oidInt2, oidInt4, oidInt8, oidText, oidDate, oidTime, oidTimestamp, oidTimestampTZ:
	case oidNumeric:
		if e.digits != "" {
			e.digits = unknownDigits
		}
	case oidBpchar:
		e.text, e.length = "arg_"+a.name+"("+e.text+", "+trimmed(&e)+")"+a.where(""), -1
		return e
	default:
		unfit("%s of values of this type", a.name)
	}
	e.text = a.of(a.name, e.text)
	return e
}
