package backend_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"sluice/server/backend"
	"sluice/server/wire"
)

// transcript collects frames as text.
type transcript struct{ lines []string }

func (tr *transcript) sink(typ byte, frame []byte) error {
	body := frame[5:]
	switch typ {
	case 'E', 'N':
		e, err := wire.DecodeError(body)
		if err != nil {
			return err
		}
		tr.lines = append(tr.lines, fmt.Sprintf("%c %s %s", typ, e.Code, e.Message))
	case 'T', 't', 'G', 'H':
		tr.lines = append(tr.lines, string(typ))
	default:
		tr.lines = append(tr.lines, strings.TrimSpace(fmt.Sprintf("%c %s", typ, strings.Trim(printable(body), "."))))
	}
	return nil
}

func printable(b []byte) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '.'
		}
		return r
	}, string(b))
}

// take returns the lines since the last take.
func (tr *transcript) take() string {
	text := strings.Join(tr.lines, "|")
	tr.lines = nil
	return text
}

func drain(t testing.TB, be *backend.Conn) {
	t.Helper()
	if err := be.Drain(); err != nil {
		t.Fatal(err)
	}
}

func TestExtended(t *testing.T) {
	be, tr := connect(t, backend.Hooks{}), &transcript{}
	be.Parse(tr.sink, "s", "select $1::int + 1 as n", nil)
	be.Describe(tr.sink, 'S', "s")
	be.Bind(tr.sink, "", "s", nil, [][]byte{[]byte("41")}, nil)
	be.Describe(tr.sink, 'P', "")
	call := be.Execute(tr.sink, "", 0)
	drain(t, be)
	if got, want := tr.take(), "1|t|T|2|T|D ......42|C SELECT 1"; strings.ReplaceAll(got, "D 42", "D ......42") != want {
		t.Errorf("got %s", got)
	}
	if call.Tag != "SELECT 1" || !call.Done() || be.Status() != 'I' {
		t.Errorf("call %+v", call)
	}
	be.CloseNamed(tr.sink, 'S', "s")
	be.Sync(tr.sink)
	drain(t, be)
	if got := tr.take(); got != "3|Z I" {
		t.Errorf("got %s", got)
	}
}

func TestForwardWaitsForOneCall(t *testing.T) {
	be, tr := connect(t, backend.Hooks{}), &transcript{}
	parse := be.Forward(tr.sink, 'P', []byte("\x00select 1\x00\x00\x00"))
	if err := be.Wait(parse); err != nil || tr.take() != "1" {
		t.Fatal(err, tr.lines)
	}
	be.Forward(tr.sink, 'B', []byte("\x00\x00\x00\x00\x00\x00\x00\x00"))
	execute := be.Forward(tr.sink, 'E', []byte("\x00\x00\x00\x00\x01"))
	if err := be.Wait(execute); err != nil || !strings.HasSuffix(tr.take(), "|s") {
		t.Fatal(err, tr.lines)
	}
	be.Forward(nil, 'S', nil)
	drain(t, be)
}

func TestErrorSkipsToSync(t *testing.T) {
	be, tr := connect(t, backend.Hooks{}), &transcript{}
	good := be.Parse(tr.sink, "a", "select 1", nil)
	bad := be.Parse(tr.sink, "b", "select nothing", nil)
	skipped := be.Parse(tr.sink, "c", "select 1", nil)
	drain(t, be)
	if good.Err != nil || bad.Err == nil || bad.Err.Code != "42703" || !skipped.Skipped || !be.Skipping() {
		t.Errorf("calls %+v %+v %+v", good, bad, skipped)
	}
	late := be.Query(tr.sink, "select 1") // a Query is skipped, too
	if !late.Skipped || !late.Done() {
		t.Errorf("call %+v", late)
	}
	be.Sync(tr.sink)
	be.Parse(tr.sink, "b", "select 2", nil)
	be.Sync(tr.sink)
	drain(t, be)
	if got, want := tr.take(), `1|E 42703 column "nothing" does not exist|Z I|1|Z I`; got != want {
		t.Errorf("got %s", got)
	}
	// With the Sync already behind it, the pipeline after it goes on.
	be.Parse(tr.sink, "b", "select 1", nil)
	be.Execute(tr.sink, "nowhere", 0)
	be.Sync(tr.sink)
	after := be.Parse(tr.sink, "d", "select 1", nil)
	be.Sync(tr.sink)
	drain(t, be)
	if got, want := tr.take(), `E 42P05 prepared statement "b" already exists|Z I|1|Z I`; got != want || after.Err != nil {
		t.Errorf("got %s", got)
	}
}

func TestSimpleQuery(t *testing.T) {
	be, tr := connect(t, backend.Hooks{}), &transcript{}
	for sql, want := range map[string]string{
		"select 1 as a; select 2 as b": "T|D 1|C SELECT 1|T|D 2|C SELECT 1|Z I",
		"":                             "I|Z I",
		"select 1/0; select 1":         "E 22012 division by zero|Z I",
		"do $$ begin raise notice 'hello'; end $$":     "N 00000 hello|C DO|Z I",
		"begin; rollback; create temp table x ()":      "C BEGIN|C ROLLBACK|C CREATE TABLE|Z I",
		"copy (select 1 union all select 2) to stdout": "H|d 1|d 2|c|C COPY 2|Z I",
	} {
		be.Query(tr.sink, sql)
		drain(t, be)
		got := tr.take()
		got = strings.NewReplacer("D ......1", "D 1", "D ......2", "D 2").Replace(got)
		if got != want {
			t.Errorf("%s: %s, want %s", sql, got, want)
		}
	}
	be.Query(nil, "begin")
	drain(t, be)
	if be.Status() != 'T' {
		t.Errorf("status %c", be.Status())
	}
	if call := be.Query(nil, "selec"); be.Drain() != nil || call.Err == nil || be.Status() != 'E' {
		t.Errorf("call %+v status %c", call, be.Status())
	}
}

func TestParameterStatusInOrder(t *testing.T) {
	tr := &transcript{}
	be := connect(t, backend.Hooks{ParameterStatus: func(name, value string, frame []byte) {
		tr.lines = append(tr.lines, name+"="+value)
	}})
	be.Query(tr.sink, "set timezone = 'UTC'")
	drain(t, be)
	if got := tr.take(); got != "C SET|TimeZone=UTC|Z I" && got != "C SET|Z I" {
		t.Errorf("got %s", got)
	}
	if _, err := be.ExecSync(backend.Text("set application_name = 'hidden'")); err != nil {
		t.Fatal(err)
	}
	if got := tr.take(); got != "application_name=hidden" {
		t.Errorf("got %s", got)
	}
}

func TestExec(t *testing.T) {
	be := connect(t, backend.Hooks{})
	r, err := be.ExecSync(backend.Text("select n, nullif(n, 2), $1::text from generate_series(1, 2) n", "x"))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%s %s", r.Rows, r.Tag); got != "[[1 1 x] [2  x]] SELECT 2" || r.Rows[1][1] != nil || len(r.Fields) != 3 {
		t.Errorf("got %s", got)
	}
	typed := backend.Statement{SQL: "select array_length($1, 1)", Types: []uint32{1007}, Formats: []int16{1}, ResultFormats: []int16{1},
		Values: [][]byte{[]byte("\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x17\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x04\x00\x00\x00\x07")}}
	if r, err = be.ExecSync(typed); err != nil || !bytes.Equal(r.Rows[0][0], []byte{0, 0, 0, 1}) {
		t.Errorf("got %v %v", r.Rows, err)
	}
	if r, err = be.ExecSync(backend.Text("create temp table kept (a int)")); err != nil || r.Fields != nil || r.Tag != "CREATE TABLE" {
		t.Errorf("got %+v %v", r, err)
	}
}

// TestExecLeavesNoTrace: statements of ours must not disturb the client's unnamed statement and portal, nor keep tables in use.
func TestExecLeavesNoTrace(t *testing.T) {
	be, tr := connect(t, backend.Hooks{}), &transcript{}
	be.Query(nil, "create temp table t as select generate_series(1, 3) a; begin")
	be.Parse(nil, "", "select a from t order by a", nil)
	be.Bind(nil, "", "", nil, nil, nil)
	be.Execute(tr.sink, "", 1)
	drain(t, be)
	if _, err := be.Exec(backend.Text("select * from t")); err != nil {
		t.Fatal(err)
	}
	r, err := be.Exec(backend.Text("select string_agg(name, ',') from pg_cursors"))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(r.Rows[0][0]); got != "_sluice," && got != ",_sluice" {
		t.Errorf("portals %q", got)
	}
	be.Execute(tr.sink, "", 0)
	be.Sync(tr.sink)
	drain(t, be)
	if got := tr.take(); !strings.Contains(got, "SELECT 2") {
		t.Errorf("got %s", got)
	}
	be.Query(tr.sink, "alter table t add b int; select count(*) from pg_prepared_statements where name <> ''; commit")
	drain(t, be)
	if got := tr.take(); strings.Contains(got, "E ") || !strings.Contains(got, "D ......0") && !strings.Contains(got, "D 0") {
		t.Errorf("got %s", got)
	}
}

func TestExecErrors(t *testing.T) {
	be := connect(t, backend.Hooks{})
	var e *wire.Error
	if _, err := be.ExecSync(backend.Text("select 1/$1::int", "0")); !errors.As(err, &e) || e.Code != "22012" || be.Skipping() {
		t.Fatalf("got %v", err)
	}
	// A statement that is left behind by an error is closed by the next use.
	if r, err := be.ExecSync(backend.Text("select 1")); err != nil || len(r.Rows) != 1 {
		t.Fatalf("got %v", err)
	}
	if _, err := be.Exec(backend.Text("select nothing")); !errors.As(err, &e) || e.Code != "42703" || !be.Skipping() {
		t.Fatalf("got %v", err)
	}
	if r, err := be.Exec(backend.Text("select 1")); !errors.As(err, &e) || e.Code != "25P02" || !r.Skipped() {
		t.Fatalf("got %v", err)
	}
	be.Sync(nil)
	drain(t, be)
	if be.Skipping() || be.Status() != 'I' {
		t.Errorf("status %c", be.Status())
	}
	// In a failed block only the end of it works.
	be.Query(nil, "begin; selec")
	drain(t, be)
	if _, err := be.ExecSync(backend.Text("rollback")); err != nil || be.Status() != 'I' {
		t.Errorf("got %v status %c", err, be.Status())
	}
}

func TestHiddenNoticesAreDropped(t *testing.T) {
	be, tr := connect(t, backend.Hooks{}), &transcript{}
	be.Hidden(backend.Text("drop table if exists nowhere"))
	be.Parse(tr.sink, "", "drop table if exists elsewhere", nil)
	be.Bind(tr.sink, "", "", nil, nil, nil)
	be.Execute(tr.sink, "", 0)
	be.Sync(nil)
	drain(t, be)
	if got := tr.take(); got != `1|2|N 00000 table "elsewhere" does not exist, skipping|C DROP TABLE` {
		t.Errorf("got %s", got)
	}
}

func TestLongPipelineBothWays(t *testing.T) {
	be := connect(t, backend.Hooks{})
	// Each answer is larger than any socket buffer, and so are the requests together.
	pad := strings.Repeat("x", 100_000)
	var got int
	sink := func(typ byte, frame []byte) error {
		if typ == 'D' {
			got += len(frame)
		}
		return nil
	}
	be.Parse(nil, "s", "select repeat('y', 1000000), $1::text", nil)
	for range 50 {
		be.Bind(nil, "", "s", nil, [][]byte{[]byte(pad)}, nil)
		be.Execute(sink, "", 0)
	}
	be.Sync(nil)
	drain(t, be)
	if got < 50*1_100_000 {
		t.Errorf("%d bytes", got)
	}
	if _, err := be.ExecSync(backend.Text("select 1")); err != nil {
		t.Error(err)
	}
}

func TestSinkErrorKeepsCount(t *testing.T) {
	be := connect(t, backend.Hooks{})
	full := errors.New("client is gone")
	be.Query(func(byte, []byte) error { return full }, "select 1; select 2")
	for i := 0; !be.Idle(); i++ {
		if err := be.Drain(); err != nil && err != full || i > 20 {
			t.Fatal(err)
		}
	}
	if _, err := be.ExecSync(backend.Text("select 1")); err != nil {
		t.Error(err)
	}
}

// feed gives messages one by one.
func feed(messages ...string) func() (byte, []byte, error) {
	return func() (byte, []byte, error) {
		if len(messages) == 0 {
			return 0, nil, io.ErrUnexpectedEOF
		}
		m := messages[0]
		messages = messages[1:]
		return m[0], []byte(m[1:]), nil
	}
}

func TestCopyIn(t *testing.T) {
	be, tr := connect(t, backend.Hooks{}), &transcript{}
	be.Query(nil, "create temp table c (a int, b text)")
	for _, test := range []struct {
		messages []string
		want     string
	}{
		{[]string{"d1\ta\n2", "d\tb\n", "c"}, "G|C COPY 2|Z I"},
		{[]string{"dx\ta\n", "c"}, `G|E 22P02 invalid input syntax for type integer: "x"|Z I`},
		{[]string{"d1\ta\n", "f" + "gave up\x00"}, "G|E 57014 COPY from stdin failed: gave up|Z I"},
		{[]string{"d" + strings.Repeat("3\tccccccccccccccccccccc\n", 20_000), "H", "S", "c"}, "G|C COPY 20000|Z I"},
	} {
		be.Query(tr.sink, "copy c from stdin")
		if err := be.Drain(); err != backend.ErrCopyIn {
			t.Fatal(err)
		}
		if err := be.CopyIn(feed(test.messages...), func() {}); err != nil {
			t.Fatal(err)
		}
		drain(t, be)
		if got := tr.take(); got != test.want {
			t.Errorf("got %s, want %s", got, test.want)
		}
	}
}

func TestCopyInExtended(t *testing.T) {
	be, tr := connect(t, backend.Hooks{}), &transcript{}
	be.Query(nil, "create temp table c (a int)")
	be.Parse(nil, "", "copy c from stdin", nil)
	be.Bind(nil, "", "", nil, nil, nil)
	be.Execute(tr.sink, "", 0)
	be.Sync(tr.sink) // ignored by the backend, since it reads COPY data by then
	if err := be.Drain(); err != backend.ErrCopyIn {
		t.Fatal(err)
	}
	if err := be.CopyIn(feed("d1\n", "c"), func() {}); err != nil {
		t.Fatal(err)
	}
	be.Sync(tr.sink)
	drain(t, be)
	if got := tr.take(); got != "G|C COPY 1|Z I" {
		t.Errorf("got %s", got)
	}
}

// TestCopyInEarlyError: the backend refuses the first row while the client is still sending and would never stop.
func TestCopyInEarlyError(t *testing.T) {
	be, tr := connect(t, backend.Hooks{}), &transcript{}
	be.Query(nil, "create temp table c (a int)")
	be.Query(tr.sink, "copy c from stdin")
	if err := be.Drain(); err != backend.ErrCopyIn {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	row := []byte(strings.Repeat("x\n", 5000))
	next := func() (byte, []byte, error) {
		select {
		case <-stopped:
			return 0, nil, io.EOF
		default:
			return 'd', row, nil
		}
	}
	if err := be.CopyIn(next, func() { close(stopped) }); err != nil {
		t.Fatal(err)
	}
	drain(t, be)
	if got := tr.take(); !strings.HasPrefix(got, "G|E 22P02") || !strings.HasSuffix(got, "|Z I") {
		t.Errorf("got %s", got)
	}
	if _, err := be.ExecSync(backend.Text("select 1")); err != nil {
		t.Error(err)
	}
}

// TestCopyInWithNotices: a trigger that says more than a socket buffer holds does not stop the copy.
func TestCopyInWithNotices(t *testing.T) {
	be := connect(t, backend.Hooks{})
	be.Query(nil, `create temp table c (a int);
		create function pg_temp.say() returns trigger language plpgsql as $$ begin raise notice '%', repeat('n', 8000); return new; end $$;
		create trigger say before insert on c for each row execute function pg_temp.say()`)
	notices := 0
	be.Query(func(typ byte, _ []byte) error {
		if typ == 'N' {
			notices++
		}
		return nil
	}, "copy c from stdin")
	if err := be.Drain(); err != backend.ErrCopyIn {
		t.Fatal(err)
	}
	if err := be.CopyIn(feed("d"+strings.Repeat("1\n", 5000), "c"), func() {}); err != nil {
		t.Fatal(err)
	}
	drain(t, be)
	if notices != 5000 {
		t.Errorf("%d notices", notices)
	}
}

func TestCopyInClientLost(t *testing.T) {
	be, tr := connect(t, backend.Hooks{}), &transcript{}
	be.Query(nil, "create temp table c (a int)")
	be.Query(tr.sink, "copy c from stdin")
	if err := be.Drain(); err != backend.ErrCopyIn {
		t.Fatal(err)
	}
	if err := be.CopyIn(feed("d1\n"), func() {}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
	drain(t, be)
	if got := tr.take(); got != "G|E 57014 COPY from stdin failed: lost connection to the client|Z I" {
		t.Errorf("got %s", got)
	}
}

func TestWatch(t *testing.T) {
	notified, told := make(chan string, 10), make(chan string, 10)
	be := connect(t, backend.Hooks{Notification: func(frame []byte) {
		said := bytes.Split(frame[9:], []byte{0}) // behind the backend's pid
		notified <- fmt.Sprintf("%s %s", said[0], said[1])
	}})
	other := connect(t, backend.Hooks{})
	be.Query(nil, "listen news")
	drain(t, be)
	deliver := func(typ byte, frame []byte) error {
		e, _ := wire.DecodeError(frame[5:])
		told <- e.Code
		return nil
	}
	for round := range 3 {
		be.Watch(deliver)
		if _, err := other.ExecSync(backend.Text(fmt.Sprintf("notify news, '%d'", round))); err != nil {
			t.Fatal(err)
		}
		if got, want := <-notified, fmt.Sprintf("news %d", round); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		be.Unwatch()
		if _, err := be.ExecSync(backend.Text("select 1")); err != nil {
			t.Fatal(err)
		}
	}
	// Using the backend ends the watch by itself; an own notification comes with the answer.
	be.Watch(deliver)
	if _, err := be.ExecSync(backend.Text("notify news, 'own'")); err != nil || <-notified != "news own" {
		t.Error(err)
	}
	terminated(t, be, other, deliver, told)
}

// terminated: the last word of a backend that is killed reaches the session, which can then no longer use it.
func terminated(t *testing.T, be, other *backend.Conn, deliver backend.Sink, told chan string) {
	r, err := be.ExecSync(backend.Text("select pg_backend_pid()"))
	if err != nil {
		t.Fatal(err)
	}
	be.Watch(deliver)
	if _, err := other.ExecSync(backend.Text("select pg_terminate_backend($1::int)", string(r.Rows[0][0]))); err != nil {
		t.Fatal(err)
	}
	if got := <-told; got != "57P01" {
		t.Errorf("told %s", got)
	}
	be.Unwatch()
	var e *wire.Error
	if _, err := be.ExecSync(backend.Text("select 1")); !errors.As(err, &e) || e.Code != "57P01" || !errors.As(be.Err(), &e) {
		t.Errorf("got %v", err)
	}
}

func TestTerminatedDuringStatement(t *testing.T) {
	be, tr := connect(t, backend.Hooks{}), &transcript{}
	be.Query(tr.sink, "select pg_terminate_backend(pg_backend_pid())")
	var e *wire.Error
	if err := be.Drain(); !errors.As(err, &e) || e.Code != "57P01" {
		t.Errorf("got %v", err)
	}
	if got := tr.take(); !strings.HasSuffix(got, "E 57P01 terminating connection due to administrator command") {
		t.Errorf("got %s", got)
	}
}

func TestCancel(t *testing.T) {
	be, tr := connect(t, backend.Hooks{}), &transcript{}
	be.Query(func(typ byte, frame []byte) error {
		if typ == 'N' { // it is running
			return be.Cancel(context.Background())
		}
		return tr.sink(typ, frame)
	}, "do $$ begin raise notice 'running'; perform pg_sleep(60); end $$")
	drain(t, be)
	if got := tr.take(); !strings.Contains(got, "E 57014 canceling statement due to user request|Z I") {
		t.Errorf("got %s", got)
	}
}

func TestTerminate(t *testing.T) {
	be := connect(t, backend.Hooks{})
	be.Watch(func(byte, []byte) error { return nil })
	if err := be.Terminate(); err != nil {
		t.Error(err)
	}
	be.Query(nil, "select 1")
	if err := be.Drain(); err == nil {
		t.Error("a closed backend answered")
	}
}

func BenchmarkRelaySelect1(b *testing.B) {
	be := connect(b, backend.Hooks{})
	var relayed int
	sink := func(_ byte, frame []byte) error { relayed += len(frame); return nil }
	b.ReportAllocs()
	for b.Loop() {
		be.Query(sink, "select 1")
		drain(b, be)
	}
}

func BenchmarkRelay1000Rows(b *testing.B) {
	be := connect(b, backend.Hooks{})
	var relayed int
	sink := func(_ byte, frame []byte) error { relayed += len(frame); return nil }
	b.ReportAllocs()
	for b.Loop() {
		be.Query(sink, "select n, 'some text' from generate_series(1, 1000) n")
		drain(b, be)
	}
}

func BenchmarkExec(b *testing.B) {
	be := connect(b, backend.Hooks{})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := be.ExecSync(backend.Text("select $1::int", "1")); err != nil {
			b.Fatal(err)
		}
	}
}
