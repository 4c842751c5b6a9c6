package harness

import (
	"bytes"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// Patience bounds how long a session waits for any one message: nothing a test does takes longer.
const Patience = 30 * time.Second

// Session is one connection that keeps everything the server says. It is not for concurrent use.
type Session struct {
	PID    uint32
	Status byte
	Params map[string]string // ParameterStatus, newest value

	conn   net.Conn
	front  *pgproto3.Frontend
	secret []byte
	config *pgconn.Config
}

// Dial connects without a password (the loopback rule of both sides) with UTC and ISO dates.
func Dial(dsn string) (*Session, error) {
	config, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	conn, err := net.DialTimeout("tcp", address(config), 5*time.Second)
	if err != nil {
		return nil, err
	}
	s := &Session{conn: conn, front: pgproto3.NewFrontend(conn, conn), config: config, Params: map[string]string{}}
	if err := s.startup(); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return s, nil
}

func address(c *pgconn.Config) string {
	return net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
}

func (s *Session) startup() error {
	s.front.Send(&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: map[string]string{
		"user": s.config.User, "database": s.config.Database, "TimeZone": "UTC", "DateStyle": "ISO, MDY",
		"client_encoding": "UTF8", "application_name": "conformance",
	}})
	if err := s.front.Flush(); err != nil {
		return err
	}
	r, err := s.collect(nil)
	if err != nil {
		return err
	}
	return r.Err()
}

// Close ends the session politely; the server rolls back what is open.
func (s *Session) Close() {
	s.front.Send(&pgproto3.Terminate{})
	_ = s.conn.SetDeadline(time.Now().Add(time.Second))
	_ = s.front.Flush()
	_ = s.conn.Close()
}

// Abort drops the connection without a word.
func (s *Session) Abort() { _ = s.conn.Close() }

// CopyInput is what the client sends when the server asks for COPY data.
type CopyInput struct {
	Data  []byte
	Fail  string // CopyFail with this text instead of CopyDone
	Chunk int    // size of the CopyData messages; 0 is all in one

	sync bool // the COPY runs in the extended protocol: its data is followed by one more Sync
}

// Query sends sql as one simple Query.
func (s *Session) Query(sql string) (Reply, error) { return s.QueryCopy(sql, nil) }

// Await takes what the server says without being asked: the end of the connection, as a reply with its FATAL error.
func (s *Session) Await() (Reply, error) { return s.collect(nil) }

// QueryCopy is Query for a string that holds a COPY FROM STDIN.
func (s *Session) QueryCopy(sql string, in *CopyInput) (Reply, error) {
	s.front.Send(&pgproto3.Query{String: sql})
	if err := s.front.Flush(); err != nil {
		return Reply{}, err
	}
	return s.collect(in)
}

// Bound are the parameters of an extended query. A nil parameter is NULL.
type Bound struct {
	Text    []*string
	Formats []int16 // of the parameters, 1 is binary: then Text holds the bytes; nil is all text
	Binary  bool    // ask for binary results
}

// Extended sends sql through Parse, Bind, Describe, Execute and Sync on the unnamed statement.
func (s *Session) Extended(sql string, b Bound, in *CopyInput) (Reply, error) {
	bind := &pgproto3.Bind{ParameterFormatCodes: b.Formats}
	for _, p := range b.Text {
		var v []byte
		if p != nil {
			v = []byte(*p)
		}
		bind.Parameters = append(bind.Parameters, v)
	}
	if b.Binary {
		bind.ResultFormatCodes = []int16{1}
	}
	s.front.Send(&pgproto3.Parse{Query: sql})
	s.front.Send(bind)
	s.front.Send(&pgproto3.Describe{ObjectType: 'P'})
	s.front.Send(&pgproto3.Execute{})
	s.front.Send(&pgproto3.Sync{})
	if err := s.front.Flush(); err != nil {
		return Reply{}, err
	}
	if in == nil {
		in = noRows
	}
	fed := *in
	fed.sync = true
	return s.collect(&fed)
}

// noRows answers a COPY FROM STDIN the test did not expect.
var noRows = &CopyInput{Fail: "the test has no rows for this COPY"}

// Cancel asks the server, on a connection of its own, to stop what the session runs.
func (s *Session) Cancel() error {
	conn, err := net.DialTimeout("tcp", address(s.config), 5*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	f := pgproto3.NewFrontend(conn, conn)
	f.Send(&pgproto3.CancelRequest{ProcessID: s.PID, SecretKey: s.secret})
	return f.Flush()
}

// collect reads until ReadyForQuery.
func (s *Session) collect(in *CopyInput) (Reply, error) {
	var r Reply
	var cur Result
	for {
		if err := s.conn.SetReadDeadline(time.Now().Add(Patience)); err != nil {
			return r, err
		}
		msg, err := s.front.Receive()
		if err != nil {
			return r, fmt.Errorf("after %d results: %w", len(r.Results), err)
		}
		switch m := msg.(type) {
		case *pgproto3.RowDescription:
			cur.Fields = fields(m)
		case *pgproto3.DataRow:
			cur.Rows = append(cur.Rows, cells(m))
		case *pgproto3.CommandComplete:
			cur.Tag = string(m.CommandTag)
			r.Results, cur = append(r.Results, cur), Result{}
		case *pgproto3.EmptyQueryResponse:
			cur.Tag = "(empty)"
			r.Results, cur = append(r.Results, cur), Result{}
		case *pgproto3.PortalSuspended:
			cur.Suspends = true
			r.Results, cur = append(r.Results, cur), Result{}
		case *pgproto3.ErrorResponse:
			f := failure(m)
			cur.Fail = &f
			r.Results, cur = append(r.Results, cur), Result{}
			if f.Severity == "FATAL" {
				return r, &f
			}
		case *pgproto3.CopyInResponse:
			cur.CopyMode = copyMode("in", m.OverallFormat, m.ColumnFormatCodes)
			if err := s.feed(in); err != nil {
				return r, err
			}
		case *pgproto3.CopyOutResponse:
			cur.CopyMode = copyMode("out", m.OverallFormat, m.ColumnFormatCodes)
		case *pgproto3.CopyData:
			cur.Copied = append(cur.Copied, m.Data...)
		case *pgproto3.ReadyForQuery:
			s.Status, r.Status = m.TxStatus, m.TxStatus
			return r, nil
		default:
			s.aside(&r, m)
		}
	}
}

// aside takes the messages that belong to no result.
func (s *Session) aside(r *Reply, msg pgproto3.BackendMessage) {
	switch m := msg.(type) {
	case *pgproto3.NoticeResponse:
		r.Notices = append(r.Notices, failure((*pgproto3.ErrorResponse)(m)))
	case *pgproto3.NotificationResponse:
		r.Notified = append(r.Notified, m.Channel+" "+m.Payload)
	case *pgproto3.ParameterStatus:
		s.Params[m.Name] = m.Value
	case *pgproto3.BackendKeyData:
		s.PID, s.secret = m.ProcessID, bytes.Clone(m.SecretKey)
	}
}

// feed answers CopyInResponse.
func (s *Session) feed(in *CopyInput) error {
	if in == nil {
		in = noRows
	}
	for data := in.Data; len(data) > 0; {
		n := len(data)
		if in.Chunk > 0 && in.Chunk < n {
			n = in.Chunk
		}
		s.front.Send(&pgproto3.CopyData{Data: data[:n]})
		data = data[n:]
	}
	if in.Fail != "" {
		s.front.Send(&pgproto3.CopyFail{Message: in.Fail})
	} else {
		s.front.Send(&pgproto3.CopyDone{})
	}
	if in.sync {
		s.front.Send(&pgproto3.Sync{})
	}
	return s.front.Flush()
}

func fields(m *pgproto3.RowDescription) []Field {
	out := make([]Field, 0, len(m.Fields))
	for _, f := range m.Fields {
		out = append(out, Field{Name: string(f.Name), OID: f.DataTypeOID, Typmod: f.TypeModifier, Format: f.Format})
	}
	return out
}

func cells(m *pgproto3.DataRow) []*string {
	out := make([]*string, len(m.Values))
	for i, v := range m.Values {
		if v != nil {
			s := string(v)
			out[i] = &s
		}
	}
	return out
}

func copyMode(way string, format byte, columns []uint16) string {
	name := "text"
	if format == 1 {
		name = "binary"
	}
	return fmt.Sprintf("%s %s %d", way, name, len(columns))
}

func mustExec(t testing.TB, s *Session, sql string) Reply {
	t.Helper()
	r, err := s.Query(sql)
	if err == nil {
		err = r.Err()
	}
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return r
}

// Environment is how libpq's programs and their like are told where dsn is.
func Environment(dsn string) ([]string, error) {
	c, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	return []string{"PGHOST=" + c.Host, "PGPORT=" + strconv.Itoa(int(c.Port)), "PGUSER=" + c.User, "PGDATABASE=" + c.Database, "PGSSLMODE=disable"}, nil
}
