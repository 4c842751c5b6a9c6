package backend

import (
	"slices"

	"sluice/server/wire"
)

// reserved names the statement and the portal of the gateway's own statements. Not the unnamed ones: clients use those again
// without a new Parse. The names are closed before each use, since an error may have left them, and after it, so that no client
// finds them and no finished portal keeps a table in use.
const reserved = "_sluice"

// Statement is a statement of the gateway's own.
type Statement struct {
	SQL           string
	Types         []uint32 // of the parameters; nil: Postgres infers
	Formats       []int16  // of the values, as in Bind; nil: text
	Values        [][]byte // nil is NULL
	ResultFormats []int16  // nil: text
}

// Text is a statement with parameters in text form.
func Text(sql string, params ...string) Statement {
	values := make([][]byte, len(params))
	for i, p := range params {
		values[i] = []byte(p)
	}
	return Statement{SQL: sql, Values: values}
}

// Result is the decoded answer of a Statement.
type Result struct {
	Fields []wire.Field // nil if the statement returns no rows
	Rows   [][][]byte   // nil is NULL
	Tag    string
	calls  []*Call
}

// Err is the first error of the statement. Skipped statements (an earlier error of the pipeline) have none.
func (r *Result) Err() *wire.Error {
	for _, call := range r.calls {
		if call.Err != nil {
			return call.Err
		}
	}
	return nil
}

// Skipped tells whether the statement did not run because of an error before it.
func (r *Result) Skipped() bool { return r.Err() == nil && r.calls[len(r.calls)-3].Skipped }

// Hidden queues st; the result is filled in by Drain. Its notices are dropped. There is no Sync: it belongs to the transaction
// that is open, and its failure makes the backend skip to the next Sync as the failure of any other.
func (c *Conn) Hidden(st Statement) *Result {
	r := &Result{}
	call := func(call *Call) { r.calls = append(r.calls, call) }
	call(c.CloseNamed(nil, 'P', reserved))
	call(c.CloseNamed(nil, 'S', reserved))
	call(c.Parse(nil, reserved, st.SQL, st.Types))
	call(c.Bind(nil, reserved, reserved, st.Formats, st.Values, st.ResultFormats))
	call(c.Describe(r.take, 'P', reserved))
	call(c.Execute(r.take, reserved, 0))
	call(c.CloseNamed(nil, 'P', reserved))
	call(c.CloseNamed(nil, 'S', reserved))
	return r
}

// take decodes one message of the answer.
func (r *Result) take(typ byte, frame []byte) (err error) {
	switch typ {
	case 'T':
		r.Fields, err = wire.DecodeRowDescription(frame[5:])
	case 'D':
		var row [][]byte
		if row, err = wire.DecodeDataRow(slices.Clone(frame[5:]), nil); err == nil {
			r.Rows = append(r.Rows, row)
		}
	case 'C':
		r.Tag = string(frame[5 : len(frame)-1])
	}
	return err
}

// Exec runs a statement of the gateway's own in the open transaction and decodes its answer. The error is the statement's
// *wire.Error or why the connection broke.
func (c *Conn) Exec(st Statement) (*Result, error) {
	return c.finishExec(c.Hidden(st))
}

// ExecSync is Exec followed by a Sync: outside a transaction block it commits, and an error leaves nothing skipped.
func (c *Conn) ExecSync(st Statement) (*Result, error) {
	r := c.Hidden(st)
	c.Sync(nil)
	return c.finishExec(r)
}

func (c *Conn) finishExec(r *Result) (*Result, error) {
	if err := c.Drain(); err != nil {
		return r, err
	}
	if e := r.Err(); e != nil {
		return r, e
	}
	if r.Skipped() {
		return r, wire.Errorf(wire.CodeInFailedSQLTransaction, "current transaction is aborted, commands ignored until end of transaction block")
	}
	return r, nil
}
