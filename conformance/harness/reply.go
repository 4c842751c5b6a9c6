package harness

import (
	"fmt"
	"regexp"
	"sort"
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"
)

// Field is one column of a RowDescription.
type Field struct {
	Name   string
	OID    uint32
	Typmod int32
	Format int16
}

// Failure is an ErrorResponse or NoticeResponse without what may differ between two servers
// (source file and line, context other than COPY's).
type Failure struct {
	Context                                     string // of COPY: which line
	Severity, Code, Message, Detail, Hint       string
	Schema, Table, Column, DataType, Constraint string
	Position                                    int32
}

func (f *Failure) Error() string { return f.Severity + " " + f.Code + ": " + f.Message }

// Result is the answer to one statement.
type Result struct {
	Fields   []Field
	Rows     [][]*string // nil is NULL
	Tag      string
	Fail     *Failure
	Copied   []byte // what COPY TO STDOUT sent
	CopyMode string // "in text 2", "out binary 3": direction, format, columns
	Suspends bool   // the portal has more rows
}

// Reply is everything between a message and ReadyForQuery.
type Reply struct {
	Results  []Result
	Notices  []Failure
	Notified []string // "channel payload"
	Status   byte     // I, T or E
}

// Err is the error of the reply, or nil.
func (r Reply) Err() error {
	for i := range r.Results {
		if r.Results[i].Fail != nil {
			return r.Results[i].Fail
		}
	}
	return nil
}

// Code is the SQLSTATE of the reply's error, or empty.
func (r Reply) Code() string {
	for i := range r.Results {
		if f := r.Results[i].Fail; f != nil {
			return f.Code
		}
	}
	return ""
}

// Rows are the rows of the last result.
func (r Reply) Rows() [][]*string {
	if len(r.Results) == 0 {
		return nil
	}
	return r.Results[len(r.Results)-1].Rows
}

func failure(e *pgproto3.ErrorResponse) Failure {
	context := ""
	if strings.HasPrefix(e.Where, "COPY ") {
		context = e.Where
	}
	return Failure{
		Context: context, Severity: e.Severity, Code: e.Code, Message: e.Message, Detail: e.Detail, Hint: e.Hint,
		Schema: e.SchemaName, Table: e.TableName, Column: e.ColumnName, DataType: e.DataTypeName,
		Constraint: e.ConstraintName, Position: e.Position,
	}
}

// Lines is the canonical text of a reply: two replies are the same if their lines are.
// Rows are sorted unless the statement ordered them.
func (r Reply) Lines(ordered bool) []string {
	var out []string
	for _, n := range r.Notices {
		out = append(out, "notice "+n.line())
	}
	for _, n := range r.Notified {
		out = append(out, "notification "+n)
	}
	for i := range r.Results {
		out = append(out, r.Results[i].lines(ordered)...)
	}
	return append(out, "status "+string(r.Status))
}

func (r Result) lines(ordered bool) []string {
	if r.Fail != nil { // how many rows came before the error is a matter of buffering
		return []string{"error " + r.Fail.line()}
	}
	var out []string
	if r.Fields != nil {
		var cols []string
		for _, f := range r.Fields {
			cols = append(cols, f.line())
		}
		out = append(out, "fields "+strings.Join(cols, ", "))
	}
	if r.CopyMode != "" {
		out = append(out, "copy "+r.CopyMode)
	}
	rows := r.rowLines()
	if !ordered {
		sort.Strings(rows)
	}
	out = append(out, rows...)
	if r.Suspends {
		return append(out, "suspended")
	}
	return append(out, "tag "+r.Tag)
}

func (r Result) rowLines() []string {
	var out []string
	for _, row := range r.Rows {
		cells := make([]string, len(row))
		for i, c := range row {
			cells[i] = "NULL"
			if c != nil {
				cells[i] = fmt.Sprintf("%q", *c)
			}
		}
		out = append(out, "row "+strings.Join(cells, " "))
	}
	if len(r.Copied) == 0 {
		return out
	}
	if strings.Contains(r.CopyMode, "binary") {
		return append(out, fmt.Sprintf("data %x", r.Copied))
	}
	for _, l := range strings.SplitAfter(string(r.Copied), "\n") {
		if l != "" {
			out = append(out, fmt.Sprintf("data %q", l))
		}
	}
	return out
}

// firstUserOID is where oids of user-made types begin; those differ between two databases.
const firstUserOID = 16384

func (f Field) line() string {
	oid := fmt.Sprint(f.OID)
	if f.OID >= firstUserOID {
		oid = "user"
	}
	s := fmt.Sprintf("%q:%s", f.Name, oid)
	if f.Typmod != -1 {
		s += fmt.Sprintf("/%d", f.Typmod)
	}
	if f.Format != 0 {
		s += "/binary"
	}
	return s
}

// local matches numbers that belong to one server run: process ids, transaction ids, oids of the catalog.
var local = regexp.MustCompile(`\b(Process|process|PID|transaction|relation|database|virtual transaction|tuple|OID|pg_temp_|pg_toast_|server supports 3\.0 to 3\.) ?(\([0-9,]+\)|[0-9/]+)`)

func (f Failure) line() string {
	if strings.HasPrefix(f.Code, "40") { // why a transaction could not go on is told in each server's own words
		f.Detail, f.Hint = "", ""
		f.Message, _, _ = strings.Cut(f.Message, " due to ")
	}
	parts := []string{f.Severity, f.Code, fmt.Sprintf("%q", local.ReplaceAllString(f.Message, "$1 N"))}
	for _, p := range []struct{ name, value string }{
		{"detail", local.ReplaceAllString(f.Detail, "$1 N")}, {"hint", f.Hint}, {"context", f.Context}, {"schema", f.Schema}, {"table", f.Table},
		{"column", f.Column}, {"datatype", f.DataType}, {"constraint", f.Constraint},
	} {
		if p.value != "" {
			parts = append(parts, fmt.Sprintf("%s=%q", p.name, p.value))
		}
	}
	if f.Position != 0 {
		parts = append(parts, fmt.Sprintf("position=%d", f.Position))
	}
	return strings.Join(parts, " ")
}
