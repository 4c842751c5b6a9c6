package sql

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// expr is a printed expression and what is known of its value.
type expr struct {
	text   string
	oid    uint32 // of its type or one of the same family (varchar is text); 0: passed through; 705: a literal without a type
	length int    // char(n); -1 unknown
	prec   int    // numeric: of the DECIMAL
	scale  int    // numeric: of the DECIMAL
	digits string // numeric: how many decimals Postgres prints, if that is not scale; unknownDigits if nobody knows
	origin DuckUse

	null    bool      // the literal NULL
	literal *string   // text of a literal without a type
	number  *int64    // value of an integer literal
	day     *moment   // value of a date or timestamp literal
	span    *interval // an interval literal: there are no other intervals
}

const (
	oidUnknown    = 705
	oidInterval   = 1186
	unknownDigits = "?"
)

// moment is a date or timestamp of a literal.
type moment struct{ t time.Time }

// interval is an interval literal.
type interval struct{ months, days, hours int64 }

// expr is a column's expression.
func (c *DuckColumn) expr(text string) expr {
	e := expr{text: text, oid: c.OID, length: c.Length, prec: c.Precision, scale: c.Scale}
	switch c.OID {
	case oidVarchar:
		e.oid = oidText
	case oidInt2:
		e.text = "CAST(" + text + " AS SMALLINT)" // the lake has no such type, and sums must not go beyond it
	}
	if c.OID == oidNumeric && !c.Declared { // stored without the zeros at the end
		printed := "CAST(" + text + " AS VARCHAR)"
		e.digits = fmt.Sprintf("CAST(%d - length(%s) + length(rtrim(%s, '0')) AS INTEGER)", c.Scale, printed, printed)
		if c.Scale == 0 {
			e.digits = ""
		}
	}
	return e
}

// duckType is DuckDB's name of the type.
func (e *expr) duckType() string {
	switch e.oid {
	case oidBool:
		return "BOOLEAN"
	case oidInt2:
		return "SMALLINT"
	case oidInt4:
		return "INTEGER"
	case oidInt8:
		return "BIGINT"
	case oidFloat4:
		return "FLOAT"
	case oidFloat8:
		return "DOUBLE"
	case oidText, oidBpchar:
		return "VARCHAR"
	case oidDate:
		return "DATE"
	case oidTime:
		return "TIME"
	case oidTimestamp:
		return "TIMESTAMP"
	case oidTimestampTZ:
		return "TIMESTAMPTZ"
	case oidID:
		return "UUID"
	case oidNumeric:
		return decimalType(e.prec, e.scale)
	}
	unfit("a value of type %d", e.oid)
	return ""
}

func decimalType(prec, scale int) string { return fmt.Sprintf("DECIMAL(%d,%d)", prec, scale) }

// result is the text for the statement's result: a type that has one Arrow form.
func (e *expr) result() string {
	switch e.oid {
	case oidInt2, oidInt4:
		return "CAST(" + e.text + " AS INTEGER)"
	case oidNumeric:
		return "CAST(" + e.text + " AS " + decimalType(38, e.scale) + ")"
	case oidID:
		return "CAST(" + e.text + " AS VARCHAR)"
	}
	return e.text
}

// knownDigits is the SQL for the number of decimals that Postgres prints.
func (e *expr) knownDigits() string {
	switch e.digits {
	case "":
		return strconv.Itoa(e.scale)
	case unknownDigits:
		unfit("a numeric whose decimals are not known")
	}
	return e.digits
}

// groupable refuses keys whose equal values may print differently, or that Postgres compares in a way of its own.
func (e *expr) groupable() {
	switch {
	case e.digits != "":
		unfit("grouping by a numeric with varying decimals")
	case e.oid == oidBpchar && e.length < 0, e.oid == oidFloat4, e.oid == oidFloat8, e.oid == 0:
		unfit("grouping by a value of this type")
	}
}

// sortKey is the text to order by as Postgres does.
func (e *expr) sortKey() string {
	switch e.oid {
	case 0:
		unfit("ordering by a value of this type")
	case oidBpchar:
		return trimmed(e)
	}
	return e.text
}

func trimmed(e *expr) string { return "rtrim(" + e.text + ", ' ')" }

func quoteText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// settle gives a literal without a type the type text, as at the end of a select list.
func (p *duckPrinter) settle(e expr) expr {
	switch {
	case e.oid == oidInterval:
		unfit("an interval")
	case e.oid == oidUnknown:
		return p.coerce(e, expr{oid: oidText})
	}
	return e
}

var (
	wholeNumber = regexp.MustCompile(`^\s*[-+]?[0-9]{1,18}\s*$`)
	plainNumber = regexp.MustCompile(`^\s*[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)\s*$`)
	uuidText    = regexp.MustCompile(`^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$`)
)

// coerce reads a literal without a type as one of type to. Only spellings whose meaning no setting changes are read.
func (p *duckPrinter) coerce(e, to expr) expr {
	if e.oid != oidUnknown {
		return e
	}
	if e.null {
		to.digits, to.number, to.day, to.literal = "", nil, nil, nil
		if to.oid == oidNumeric {
			to.prec, to.scale = 1, 0
		}
		to.text, to.null = "CAST(NULL AS "+to.duckType()+")", true
		return to
	}
	text := *e.literal
	switch to.oid {
	case oidInt2, oidInt4, oidInt8:
		return integerOf(text, to.oid)
	case oidNumeric:
		return numericOf(text)
	case oidText, oidBpchar:
		return expr{text: quoteText(text), oid: to.oid, length: -1, literal: &text}
	case oidDate, oidTimestamp:
		return momentOf(text, to.oid)
	case oidBool:
		return boolOf(text)
	case oidFloat4, oidFloat8:
		if plainNumber.MatchString(text) {
			return expr{text: "CAST(" + quoteText(strings.TrimSpace(text)) + " AS " + to.duckType() + ")", oid: to.oid}
		}
	case oidID:
		if uuidText.MatchString(text) {
			return expr{text: "CAST(" + quoteText(text) + " AS UUID)", oid: oidID}
		}
	}
	unfit("a literal of this kind")
	return expr{}
}

func literalInt(text string) expr { return integerOf(text, oidInt4) }

func integerOf(text string, oid uint32) expr {
	bits := map[uint32]int{oidInt2: 16, oidInt4: 32, oidInt8: 64}[oid]
	if !wholeNumber.MatchString(text) {
		unfit("an integer spelled in this way")
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, bits)
	if err != nil {
		unfit("an integer out of range")
	}
	e := expr{oid: oid, number: &n}
	e.text = fmt.Sprintf("CAST(%d AS %s)", n, e.duckType())
	return e
}

func numericOf(text string) expr {
	if !plainNumber.MatchString(text) {
		unfit("a numeric spelled in this way")
	}
	text = strings.TrimSpace(text)
	whole, frac, _ := strings.Cut(strings.TrimLeft(text, "+-"), ".")
	prec := max(len(strings.TrimLeft(whole, "0"))+len(frac), len(frac), 1)
	if prec > 38 {
		unfit("a numeric of more than 38 digits")
	}
	return expr{text: "CAST(" + quoteText(text) + " AS " + decimalType(prec, len(frac)) + ")", oid: oidNumeric, prec: prec, scale: len(frac)}
}

func boolOf(text string) expr {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "t", "true":
		return expr{text: "true", oid: oidBool}
	case "f", "false":
		return expr{text: "false", oid: oidBool}
	}
	unfit("a boolean spelled in this way")
	return expr{}
}

func momentOf(text string, oid uint32) expr {
	layouts := []string{time.DateOnly}
	if oid == oidTimestamp {
		layouts = append(layouts, "2006-01-02 15:04", "2006-01-02 15:04:05.999999", "2006-01-02T15:04:05.999999")
	}
	for _, l := range layouts {
		if t, err := time.Parse(l, strings.TrimSpace(text)); err == nil && t.Nanosecond()%1000 == 0 {
			return momentExpr(t, oid)
		}
	}
	unfit("a date or timestamp spelled in this way")
	return expr{}
}

func momentExpr(t time.Time, oid uint32) expr {
	if t.Year() < 1 || t.Year() > 9999 {
		unfit("a date outside the years 1 to 9999")
	}
	e := expr{oid: oid, day: &moment{t}}
	layout := time.DateOnly
	if oid == oidTimestamp {
		layout = "2006-01-02 15:04:05.000000"
	}
	e.text = "CAST('" + t.Format(layout) + "' AS " + e.duckType() + ")"
	return e
}

// plus adds an interval as Postgres does: months first, cut to the month's last day.
func (m moment) plus(i *interval, sign int64) time.Time {
	t := m.t
	month := int64(t.Year())*12 + int64(t.Month()) - 1 + sign*i.months
	year, rest := int(month/12), int(month%12)
	last := time.Date(year, time.Month(rest+2), 0, 0, 0, 0, 0, time.UTC).Day()
	t = time.Date(year, time.Month(rest+1), min(t.Day(), last), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
	return t.AddDate(0, 0, int(sign*i.days)).Add(time.Duration(sign*i.hours) * time.Hour)
}

// midnight reports whether a timestamp literal could as well be a date.
func (m *moment) midnight() bool {
	return m != nil && m.t.Equal(m.t.Truncate(24*time.Hour))
}

var intervalText = regexp.MustCompile(`^\s*([-+]?[0-9]{1,6})\s*([a-z]*)\s*$`)

// intervalUnits is how many months, days or hours a unit has. The numbers are the bits of interval's typmod.
var intervalUnits = map[string]interval{
	"year": {months: 12}, "years": {months: 12}, "y": {months: 12}, "month": {months: 1}, "months": {months: 1}, "mon": {months: 1}, "mons": {months: 1},
	"week": {days: 7}, "weeks": {days: 7}, "day": {days: 1}, "days": {days: 1}, "d": {days: 1}, "hour": {hours: 1}, "hours": {hours: 1},
	"4": {months: 12}, "2": {months: 1}, "8": {days: 1}, "1024": {hours: 1},
}

// intervalOf reads one number and one unit, from the text or from the typmod.
func intervalOf(text, typmod string) expr {
	m := intervalText.FindStringSubmatch(strings.ToLower(text))
	if m == nil || m[2] != "" && typmod != "" {
		unfit("an interval spelled in this way")
	}
	unit, ok := intervalUnits[m[2]+typmod]
	if !ok {
		unfit("an interval of this unit")
	}
	n, _ := strconv.ParseInt(m[1], 10, 64)
	return expr{oid: oidInterval, span: &interval{n * unit.months, n * unit.days, n * unit.hours}}
}

func isInt(oid uint32) bool { return oid == oidInt2 || oid == oidInt4 || oid == oidInt8 }

func isFloat(oid uint32) bool { return oid == oidFloat4 || oid == oidFloat8 }

// intRank orders the integer types by size.
func intRank(oid uint32) int { return map[uint32]int{oidInt2: 1, oidInt4: 2, oidInt8: 3}[oid] }

// widen makes an integer expression one of a larger type.
func widen(e expr, oid uint32) expr {
	if e.oid == oid {
		return e
	}
	w := expr{oid: oid, number: e.number}
	w.text = "CAST(" + e.text + " AS " + w.duckType() + ")"
	return w
}

// numeric makes an integer expression a numeric.
func (p *duckPrinter) numeric(e expr) expr {
	if isInt(e.oid) {
		n := expr{oid: oidNumeric, prec: []int{0, 5, 10, 19}[intRank(e.oid)], null: e.null}
		if e.number != nil {
			n.prec = len(strconv.FormatInt(int64(math.Abs(float64(*e.number))), 10))
		}
		n.text = "CAST(" + e.text + " AS " + n.duckType() + ")"
		e = n
	}
	if e.oid != oidNumeric {
		unfit("a numeric operator on a value of this type")
	}
	return e
}

// decimal is e as a DECIMAL of another size.
func decimal(e expr, prec, scale int) expr {
	if e.prec != prec || e.scale != scale {
		if e.digits == "" && e.scale != scale {
			e.digits = strconv.Itoa(e.scale)
		}
		e.text = "CAST(" + e.text + " AS " + decimalType(prec, scale) + ")"
		e.prec, e.scale = prec, scale
	}
	return e
}
