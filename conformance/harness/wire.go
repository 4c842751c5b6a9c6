package harness

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"sort"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// Wire is one file of testdata/wire: prose, then lines that are played to a server.
//
//	conn NAME                  open a connection and use it from here on
//	on NAME                    use an open connection
//	startup {"k":"v"}          StartupMessage 3.0 with user, database and these parameters
//	login                      startup, then until ReadyForQuery, which is not part of the transcript
//	send TYPE {json}           a frontend message in pgproto3's JSON: {"Parameters": [{"text": "1"}, {"binary": "00ff"}, null]}
//	rows "1\tone\n"            CopyData with this text (a JSON string)
//	raw HEX                    bytes as they are
//	flush                      nothing more is to be sent before the next line (sends are buffered)
//	read N                     N bytes that are not a message
//	until TYPE                 read messages up to and including that type
//	cancel NAME                CancelRequest for that connection on a new one
//	blocked NAME               wait until that connection's backend sleeps or waits for a lock
//	closed                     the server has closed the connection (messages before that are read)
//	ends                       the same, whatever it says before
//	fatal                      the same, and only the errors it says before are compared
//
// What comes back is the transcript; two servers agree if their transcripts are equal.
type Wire struct {
	Name  string
	Lines []string
}

// ReadWire reads a file of wire lines.
func ReadWire(path string) (*Wire, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(text, []byte("# ")) {
		return nil, fmt.Errorf("%s: begins without a line of prose", path)
	}
	return &Wire{Name: path, Lines: strings.Split(string(text), "\n")}, nil
}

// Play runs the lines against a server and returns what it said.
func (w *Wire) Play(dsn string) ([]string, error) {
	config, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	p := &player{config: config, conns: map[string]*wireConn{}}
	defer p.close()
	for i, line := range w.Lines {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		p.transcript = append(p.transcript, fmt.Sprintf("%d: %s", i+1, line))
		if err := p.play(word, strings.TrimSpace(rest)); err != nil {
			return p.transcript, fmt.Errorf("line %d: %s: %w", i+1, line, err)
		}
	}
	return p.transcript, nil
}

type player struct {
	config     *pgconn.Config
	conns      map[string]*wireConn
	cur        *wireConn
	transcript []string
}

type wireConn struct {
	net.Conn
	front  *pgproto3.Frontend
	out    bytes.Buffer // sent at the next read
	pid    uint32
	secret []byte
}

func (p *player) close() {
	for _, c := range p.conns {
		_ = c.Close()
	}
}

func (p *player) say(format string, args ...any) {
	p.transcript = append(p.transcript, "   "+fmt.Sprintf(format, args...))
}

func (p *player) open(name string) error {
	c, err := net.DialTimeout("tcp", address(p.config), 5*time.Second)
	if err != nil {
		return err
	}
	p.cur = &wireConn{Conn: c, front: pgproto3.NewFrontend(c, c)}
	p.conns[name] = p.cur
	return nil
}

func (p *player) play(word, rest string) error {
	if word != "conn" && p.cur == nil {
		if err := p.open("first"); err != nil {
			return err
		}
	}
	switch word {
	case "conn":
		return p.open(rest)
	case "on":
		if p.cur = p.conns[rest]; p.cur == nil {
			return fmt.Errorf("no such connection")
		}
		return nil
	case "startup":
		return p.startup(rest)
	case "login":
		mark := len(p.transcript)
		if err := p.startup("{}"); err != nil {
			return err
		}
		if err := p.until("ReadyForQuery"); err != nil {
			return err
		}
		p.transcript = p.transcript[:mark]
		return nil
	case "send":
		return p.send(rest)
	case "rows":
		var text string
		if err := json.Unmarshal([]byte(rest), &text); err != nil {
			return err
		}
		b, err := (&pgproto3.CopyData{Data: []byte(text)}).Encode(nil)
		p.cur.out.Write(b)
		return err
	case "raw":
		b, err := hex.DecodeString(strings.Join(strings.Fields(rest), ""))
		p.cur.out.Write(b)
		return err
	case "flush":
		return p.cur.flush()
	case "read":
		return p.read(rest)
	case "until":
		return p.until(rest)
	case "cancel":
		return p.cancel(rest)
	case "blocked":
		return p.blocked(rest)
	case "closed":
		return p.closed()
	case "ends", "fatal":
		mark := len(p.transcript)
		err := p.closed()
		last := p.transcript[mark:]
		p.transcript = p.transcript[:mark]
		for i, line := range last {
			if i == len(last)-1 || word == "fatal" && strings.Contains(line, "ErrorResponse") {
				p.transcript = append(p.transcript, line)
			}
		}
		return err
	}
	return fmt.Errorf("unknown word")
}

func (c *wireConn) flush() error {
	_, err := c.Write(c.out.Bytes())
	c.out.Reset()
	return err
}

func (p *player) startup(rest string) error {
	params := map[string]string{"user": p.config.User, "database": p.config.Database}
	if err := json.Unmarshal([]byte(rest), &params); err != nil {
		return err
	}
	b, err := (&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: params}).Encode(nil)
	p.cur.out.Write(b)
	return err
}

var sendable = map[string]func() pgproto3.FrontendMessage{
	"Query":        func() pgproto3.FrontendMessage { return &pgproto3.Query{} },
	"Parse":        func() pgproto3.FrontendMessage { return &pgproto3.Parse{} },
	"Bind":         func() pgproto3.FrontendMessage { return &pgproto3.Bind{} },
	"Describe":     func() pgproto3.FrontendMessage { return &pgproto3.Describe{} },
	"Execute":      func() pgproto3.FrontendMessage { return &pgproto3.Execute{} },
	"Close":        func() pgproto3.FrontendMessage { return &pgproto3.Close{} },
	"Sync":         func() pgproto3.FrontendMessage { return &pgproto3.Sync{} },
	"Flush":        func() pgproto3.FrontendMessage { return &pgproto3.Flush{} },
	"CopyData":     func() pgproto3.FrontendMessage { return &pgproto3.CopyData{} },
	"CopyDone":     func() pgproto3.FrontendMessage { return &pgproto3.CopyDone{} },
	"CopyFail":     func() pgproto3.FrontendMessage { return &pgproto3.CopyFail{} },
	"Terminate":    func() pgproto3.FrontendMessage { return &pgproto3.Terminate{} },
	"FunctionCall": func() pgproto3.FrontendMessage { return &pgproto3.FunctionCall{} },
}

func (p *player) send(rest string) error {
	name, fields, _ := strings.Cut(rest, " ")
	build := sendable[name]
	if build == nil {
		return fmt.Errorf("unknown message %s", name)
	}
	msg := build()
	if fields != "" {
		if err := json.Unmarshal([]byte(fields), msg); err != nil {
			return err
		}
	}
	b, err := msg.Encode(nil)
	p.cur.out.Write(b)
	return err
}

func (p *player) read(rest string) error {
	var n int
	if _, err := fmt.Sscan(rest, &n); err != nil {
		return err
	}
	if err := p.cur.flush(); err != nil {
		return err
	}
	_ = p.cur.SetReadDeadline(time.Now().Add(Patience))
	b := make([]byte, n)
	if _, err := io.ReadFull(p.cur, b); err != nil {
		return err
	}
	p.say("bytes %q", b)
	return nil
}

func (p *player) until(kind string) error {
	if err := p.cur.flush(); err != nil {
		return err
	}
	for {
		got, err := p.receive()
		if err != nil {
			return err
		}
		if got == kind {
			return nil
		}
	}
}

// receive reads one message into the transcript and says its type.
func (p *player) receive() (string, error) {
	_ = p.cur.SetReadDeadline(time.Now().Add(Patience))
	msg, err := p.cur.front.Receive()
	if err != nil {
		return "", err
	}
	kind := reflect.TypeOf(msg).Elem().Name()
	if k, ok := msg.(*pgproto3.BackendKeyData); ok {
		p.cur.pid, p.cur.secret = k.ProcessID, bytes.Clone(k.SecretKey)
	}
	p.say("%s", strings.TrimSpace(kind+" "+wireLine(msg)))
	if kind == "ParameterStatus" { // their order means nothing
		end := len(p.transcript)
		begin := end
		for begin > 0 && strings.HasPrefix(p.transcript[begin-1], "   ParameterStatus") {
			begin--
		}
		sort.Strings(p.transcript[begin:end])
	}
	return kind, nil
}

// told are the parameters whose values two servers share.
var told = map[string]bool{
	"client_encoding": true, "server_encoding": true, "DateStyle": true, "TimeZone": true, "IntervalStyle": true, "integer_datetimes": true,
	"standard_conforming_strings": true, "is_superuser": true, "session_authorization": true, "application_name": true,
}

func wireLine(msg pgproto3.BackendMessage) string {
	switch m := msg.(type) {
	case *pgproto3.RowDescription:
		var cols []string
		for _, f := range fields(m) {
			cols = append(cols, f.line())
		}
		return strings.Join(cols, ", ")
	case *pgproto3.DataRow:
		return Result{Rows: [][]*string{cells(m)}}.rowLines()[0]
	case *pgproto3.ErrorResponse:
		f := failure(m)
		return f.line()
	case *pgproto3.NoticeResponse:
		f := failure((*pgproto3.ErrorResponse)(m))
		return f.line()
	case *pgproto3.ParameterStatus:
		if told[m.Name] {
			return m.Name + " " + m.Value
		}
		return m.Name
	case *pgproto3.BackendKeyData:
		return fmt.Sprintf("pid %t secret %t", m.ProcessID != 0, len(m.SecretKey) > 0)
	case *pgproto3.CopyData:
		return fmt.Sprintf("%q", m.Data)
	case *pgproto3.NegotiateProtocolVersion:
		return fmt.Sprintf("3.x %t %q", m.NewestMinorProtocol>>16 == 3, m.UnrecognizedOptions) // a server may know a newer minor
	case *pgproto3.CopyInResponse:
		return copyMode("in", m.OverallFormat, m.ColumnFormatCodes)
	case *pgproto3.CopyOutResponse:
		return copyMode("out", m.OverallFormat, m.ColumnFormatCodes)
	}
	b, err := json.Marshal(msg)
	if err != nil {
		return err.Error()
	}
	var all map[string]any
	if json.Unmarshal(b, &all) == nil {
		delete(all, "Type")
		if len(all) == 0 {
			return ""
		}
		b, _ = json.Marshal(all)
	}
	return string(b)
}

func (p *player) cancel(name string) error {
	target := p.conns[name]
	if target == nil {
		return fmt.Errorf("no such connection")
	}
	c, err := net.DialTimeout("tcp", address(p.config), 5*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	b, err := (&pgproto3.CancelRequest{ProcessID: target.pid, SecretKey: target.secret}).Encode(nil)
	if err != nil {
		return err
	}
	if _, err := c.Write(b); err != nil {
		return err
	}
	_ = c.SetReadDeadline(time.Now().Add(Patience))
	rest, err := io.ReadAll(c) // no answer, only a close
	p.say("answer %q", rest)
	return err
}

// blocked waits until a statement that was flushed is really running. Activity shows it on both servers: the
// gateway answers pg_stat_activity with the pid it gave the client or with that of the backend, so any
// sleeping or lock-waiting backend of the same user will do.
func (p *player) blocked(string) error {
	if err := p.cur.flush(); err != nil {
		return err
	}
	s, err := Dial(fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", p.config.User, address(p.config), p.config.Database))
	if err != nil {
		return err
	}
	defer s.Close()
	if !Poll(5*time.Second, func() bool {
		r, err := s.Query("select count(*) from pg_stat_activity where pid <> pg_backend_pid() and (wait_event = 'PgSleep' or wait_event_type = 'Lock')")
		return err == nil && r.Err() == nil && *r.Rows()[0][0] != "0"
	}) {
		return fmt.Errorf("nothing waits")
	}
	return nil
}

func (p *player) closed() error {
	if err := p.cur.flush(); err != nil {
		p.say("closed") // the server was faster
		return nil
	}
	for {
		_, err := p.receive()
		if err == nil {
			continue
		}
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			return err
		}
		p.say("closed")
		return nil
	}
}
