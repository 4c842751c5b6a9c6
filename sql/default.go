package sql

import (
	"fmt"
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v5"
)

// ColumnDefault is a column's default: a literal, or an expression that Postgres has to compute.
type ColumnDefault struct {
	Literal Value  // Kind 0: it is none
	Type    string // of Literal where it is written with one, as the grammar names it: int4, text, "int4[]"
	// SQL is the expression, every name in it qualified, so that it means the same under any search_path. "": it is not known.
	SQL string
	// Free says that the value does not depend on the transaction or on the settings in which it is computed.
	Free bool
}

// pure is Postgres' own functions that defaults may call: they read no tables, and leave nothing behind but a sequence's next value.
var pure = map[string]bool{
	"nextval": true, "gen_random_uuid": true, "random": true, "now": true, "transaction_timestamp": true, "statement_timestamp": true,
	"clock_timestamp": true, "timezone": true, "date_trunc": true, "date_part": true, "extract": true, "to_char": true, "current_setting": true,
	"lower": true, "upper": true, "length": true, "md5": true, "concat": true, "replace": true, "substr": true, "substring": true, "left": true,
	"right": true, "abs": true, "floor": true, "ceil": true, "round": true, "trunc": true, "encode": true, "decode": true, "make_date": true,
	"make_interval": true, "to_timestamp": true,
}

// free is the functions among them whose values depend on nothing else.
var free = map[string]bool{"nextval": true, "gen_random_uuid": true, "random": true, "clock_timestamp": true}

// castTypes is the types that defaults may cast to.
var castTypes = map[string]bool{
	"bool": true, "int2": true, "int4": true, "int8": true, "float4": true, "float8": true, "numeric": true, "text": true, "varchar": true,
	"bpchar": true, "bytea": true, "uuid": true, "date": true, "time": true, "timetz": true, "timestamp": true, "timestamptz": true,
	"interval": true, "json": true, "jsonb": true,
}

// ParseDefault reads a default as pg_get_expr prints it where pg_catalog is all of the search_path; relations is the oids of the relations that
// it names. ok is false if there is anything in it that is not known.
func ParseDefault(text string, relations map[string]uint32) (d ColumnDefault, ok bool) {
	stmts, err := Parse("SELECT " + text)
	if err != nil || len(stmts) != 1 {
		return d, false
	}
	sel := stmts[0].Node.GetSelectStmt()
	if sel == nil || more(sel) || len(sel.TargetList) != 1 || len(sel.FromClause) > 0 || sel.WhereClause != nil {
		return d, false
	}
	n := sel.TargetList[0].GetResTarget().Val
	if d.Literal, d.Type, ok = typedLiteral(n); !ok {
		d.Literal = Value{}
	}
	p := defaultPrinter{relations: relations, free: true}
	if p.expr(n); !p.unknown {
		d.SQL, d.Free, ok = p.out.String(), p.free, true
	}
	return d, ok
}

// typedLiteral reads a constant, with its type if it has one.
func typedLiteral(n *pg.Node) (v Value, typ string, ok bool) {
	c := n.GetTypeCast()
	if c == nil {
		if n.GetAConst() == nil {
			return v, "", false
		}
		v, ok = value(n)
		return v, "", ok
	}
	v, ok = value(c.Arg)
	typ = funcName(c.TypeName.Names).Name
	if !ok || v.Kind != String && v.Kind != Null || !castTypes[typ] || !ofCatalog(c.TypeName.Names) || len(c.TypeName.Typmods) > 0 {
		return Value{}, "", false
	}
	for range c.TypeName.ArrayBounds {
		typ += "[]"
	}
	return v, typ, true
}

// ofCatalog reports whether a name is one of pg_catalog.
func ofCatalog(parts []*pg.Node) bool {
	schema := funcName(parts).Schema
	return len(parts) <= 2 && (schema == "" || schema == "pg_catalog")
}

// defaultPrinter prints a default with qualified names.
type defaultPrinter struct {
	relations     map[string]uint32
	out           strings.Builder
	free, unknown bool
}

func (p *defaultPrinter) expr(n *pg.Node) {
	switch x := n.Node.(type) {
	case *pg.Node_AConst:
		p.constant(n)
	case *pg.Node_TypeCast:
		p.cast(x.TypeCast)
	case *pg.Node_FuncCall:
		p.call(x.FuncCall)
	case *pg.Node_AExpr:
		p.operator(x.AExpr)
	case *pg.Node_SqlvalueFunction:
		p.word(x.SqlvalueFunction)
	default:
		p.unknown = true
	}
}

func (p *defaultPrinter) constant(n *pg.Node) {
	switch v, _ := value(n); v.Kind {
	case String:
		p.out.WriteString(quoteString(v.Text))
	case Integer, Numeric:
		p.out.WriteString("(" + v.Text + ")")
	case Bool:
		p.out.WriteString(map[string]string{"t": "true", "f": "false"}[v.Text])
	case Null:
		p.out.WriteString("NULL")
	default:
		p.unknown = true
	}
}

// quoteString prints a string that means the same whatever standard_conforming_strings is.
func quoteString(s string) string {
	s = strings.ReplaceAll(s, "'", "''")
	if strings.Contains(s, `\`) {
		return "E'" + strings.ReplaceAll(s, `\`, `\\`) + "'"
	}
	return "'" + s + "'"
}

func (p *defaultPrinter) cast(c *pg.TypeCast) {
	name := funcName(c.TypeName.Names).Name
	if name == "regclass" && ofCatalog(c.TypeName.Names) {
		p.relation(c)
		return
	}
	p.out.WriteString("CAST(")
	p.expr(c.Arg)
	p.out.WriteString(" AS pg_catalog." + name)
	for i, m := range c.TypeName.Typmods {
		v, _ := value(m)
		p.unknown = p.unknown || v.Kind != Integer || name == "interval"
		p.out.WriteString([]string{"(", ","}[min(i, 1)] + v.Text)
	}
	if len(c.TypeName.Typmods) > 0 {
		p.out.WriteString(")")
	}
	p.out.WriteString(strings.Repeat("[]", len(c.TypeName.ArrayBounds)) + ")")
	p.unknown = p.unknown || !castTypes[name] || !ofCatalog(c.TypeName.Names)
	p.free = false // what a text means may depend on settings, and on the date
}

// relation prints 'name'::regclass by oid: Postgres knows it so, whatever its name has become.
func (p *defaultPrinter) relation(c *pg.TypeCast) {
	v, _ := value(c.Arg)
	oid, known := p.relations[v.Text]
	p.unknown = p.unknown || v.Kind != String || !known
	p.out.WriteString(fmt.Sprintf("'%d'::pg_catalog.regclass", oid))
}

func (p *defaultPrinter) call(f *pg.FuncCall) {
	name := funcName(f.Funcname).Name
	p.unknown = p.unknown || !pure[name] || !ofCatalog(f.Funcname) || f.AggStar || f.AggDistinct || f.AggWithinGroup || f.AggFilter != nil ||
		f.AggOrder != nil || f.Over != nil || f.FuncVariadic
	p.free = p.free && free[name]
	p.out.WriteString("pg_catalog." + QuoteIdent(name) + "(")
	for i, a := range f.Args {
		if i > 0 {
			p.out.WriteString(", ")
		}
		p.expr(a)
	}
	p.out.WriteString(")")
}

func (p *defaultPrinter) operator(e *pg.A_Expr) {
	if e.Kind != pg.A_Expr_Kind_AEXPR_OP || !ofCatalog(e.Name) || e.Rexpr == nil {
		p.unknown = true
		return
	}
	p.out.WriteString("(")
	if e.Lexpr != nil {
		p.expr(e.Lexpr)
	}
	p.out.WriteString(" OPERATOR(pg_catalog." + funcName(e.Name).Name + ") ")
	p.expr(e.Rexpr)
	p.out.WriteString(")")
}

// words is what SQL writes without parentheses. Those with a precision are followed by it.
var words = map[pg.SQLValueFunctionOp]string{
	pg.SQLValueFunctionOp_SVFOP_CURRENT_DATE: "CURRENT_DATE", pg.SQLValueFunctionOp_SVFOP_CURRENT_TIME: "CURRENT_TIME",
	pg.SQLValueFunctionOp_SVFOP_CURRENT_TIMESTAMP: "CURRENT_TIMESTAMP", pg.SQLValueFunctionOp_SVFOP_LOCALTIME: "LOCALTIME",
	pg.SQLValueFunctionOp_SVFOP_LOCALTIMESTAMP: "LOCALTIMESTAMP", pg.SQLValueFunctionOp_SVFOP_CURRENT_ROLE: "CURRENT_ROLE",
	pg.SQLValueFunctionOp_SVFOP_CURRENT_USER: "CURRENT_USER", pg.SQLValueFunctionOp_SVFOP_USER: "USER",
	pg.SQLValueFunctionOp_SVFOP_SESSION_USER: "SESSION_USER", pg.SQLValueFunctionOp_SVFOP_CURRENT_CATALOG: "CURRENT_CATALOG",
	pg.SQLValueFunctionOp_SVFOP_CURRENT_SCHEMA: "CURRENT_SCHEMA",
	pg.SQLValueFunctionOp_SVFOP_CURRENT_TIME_N: "CURRENT_TIME(", pg.SQLValueFunctionOp_SVFOP_CURRENT_TIMESTAMP_N: "CURRENT_TIMESTAMP(",
	pg.SQLValueFunctionOp_SVFOP_LOCALTIME_N: "LOCALTIME(", pg.SQLValueFunctionOp_SVFOP_LOCALTIMESTAMP_N: "LOCALTIMESTAMP(",
}

func (p *defaultPrinter) word(f *pg.SQLValueFunction) {
	w := words[f.Op]
	if strings.HasSuffix(w, "(") {
		w += strconv.Itoa(int(f.Typmod)) + ")"
	}
	p.out.WriteString(w)
	p.unknown, p.free = p.unknown || w == "", false
}
