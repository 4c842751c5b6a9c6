package wire_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"sluice/server/wire"
)

// connect is an accepted and authenticated connection and the client's end of it.
func connect(t testing.TB, o wire.Options) (*wire.Conn, io.ReadWriteCloser) {
	server, client := pair(t)
	hello := assemble(t, `[ i32:196608 z"user" z"a" i8:0 ]`)
	if _, err := client.Write(hello); err != nil {
		t.Fatal(err)
	}
	c, _, err := wire.Accept(context.Background(), server, o)
	if err != nil {
		t.Fatal(err)
	}
	c.Authenticated()
	return c, client
}

// TestRead runs testdata/read. Verbs:
//
//	read [max=N] [budget=N]   input: what the client sends before it closes; prints every message, decoded
//	authenticate              the same before Authenticated
func TestRead(t *testing.T) {
	datadriven.Walk(t, "testdata/read", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var o wire.Options
			var limit int
			d.MaybeScanArgs(t, "max", &o.MaxMessage)
			if d.MaybeScanArgs(t, "budget", &limit) {
				o.Budget = &budget{left: limit}
			}
			server, client := pair(t)
			go func() {
				client.Write(append(assemble(t, `[ i32:196608 z"user" z"a" i8:0 ]`), assemble(t, d.Input)...))
				client.CloseWrite()
			}()
			c, _, err := wire.Accept(context.Background(), server, o)
			if err != nil {
				return err.Error()
			}
			defer c.Close()
			if d.Cmd == "read" {
				c.Authenticated()
			}
			return readAll(c)
		})
	})
}

type budget struct{ left int }

func (b *budget) Reserve(bytes int) error {
	if bytes > b.left {
		return fmt.Errorf("%d bytes left", b.left)
	}
	b.left -= bytes
	return nil
}

func (b *budget) Release(bytes int) { b.left += bytes }

func readAll(c *wire.Conn) string {
	var out strings.Builder
	for {
		typ, body, err := c.Read()
		var e *wire.Error
		switch {
		case err == nil:
			fmt.Fprintf(&out, "%c %s\n", typ, decoded(typ, body))
		case errors.As(err, &e) && !e.Fatal():
			fmt.Fprintf(&out, "%c %v DETAIL: %s\n", typ, err, e.Detail)
		default:
			if _, _, again := c.Read(); again != err {
				fmt.Fprintf(&out, "changed its mind: %v\n", again)
			}
			fmt.Fprintf(&out, "%v\n", err)
			return out.String()
		}
	}
}

func decoded(typ byte, body []byte) string {
	text, err := decode(typ, body)
	if err != nil {
		return err.Error()
	}
	if len(text) > 300 {
		return fmt.Sprintf("%s… %d bytes", text[:100], len(text))
	}
	return text
}

func decode(typ byte, body []byte) (string, error) {
	switch typ {
	case 'P':
		var m wire.Parse
		err := wire.DecodeParse(body, &m)
		var types []uint32
		for i := 0; err == nil && i < m.NumTypes(); i++ {
			types = append(types, m.Type(i))
		}
		return fmt.Sprintf("name %q query %q types %v", m.Name, m.Query, types), err
	case 'B':
		var m wire.Bind
		err := wire.DecodeBind(body, &m)
		return describeBind(&m, err), err
	case 'D':
		var m wire.Describe
		err := wire.DecodeDescribe(body, &m)
		return fmt.Sprintf("%c %q", m.Kind, m.Name), err
	case 'C':
		var m wire.Close
		err := wire.DecodeClose(body, &m)
		return fmt.Sprintf("%c %q", m.Kind, m.Name), err
	case 'E':
		var m wire.Execute
		err := wire.DecodeExecute(body, &m)
		return fmt.Sprintf("portal %q rows %d", m.Portal, m.MaxRows), err
	case 'Q', 'f':
		text, err := wire.DecodeQuery(body)
		return fmt.Sprintf("%q", text), err
	case 'S', 'H', 'X', 'c':
		return "", wire.CheckEmpty(body)
	}
	return fmt.Sprintf("%q", body), nil
}

func describeBind(m *wire.Bind, err error) string {
	if err != nil {
		return ""
	}
	var out strings.Builder
	fmt.Fprintf(&out, "portal %q statement %q values", m.Portal, m.Statement)
	for i, v := range m.Values {
		if v == nil {
			out.WriteString(" NULL")
			continue
		}
		fmt.Fprintf(&out, " %q/%d", v, m.ParamFormat(i))
	}
	out.WriteString(" results")
	for i := range m.NumResultFormats() {
		fmt.Fprintf(&out, " %d", m.ResultFormat(i))
	}
	return out.String()
}

func TestReadResumesAfterDeadline(t *testing.T) {
	c, client := connect(t, wire.Options{})
	message := assemble(t, `'Q' [ z"select 1" ]`)
	for _, cut := range []int{0, 3, 9} {
		client.Write(message[:cut])
		c.SetReadDeadline(time.Unix(1, 0))
		for i := 0; i < 2; i++ {
			if _, _, err := c.Read(); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("cut %d: %v", cut, err)
			}
		}
		c.SetReadDeadline(time.Time{})
		client.Write(message[cut:])
		if typ, body, err := c.Read(); typ != 'Q' || string(body) != "select 1\x00" || err != nil {
			t.Fatalf("cut %d: %c %q %v", cut, typ, body, err)
		}
	}
}

func TestReadLongMessages(t *testing.T) {
	b := &budget{left: 1 << 30}
	c, client := connect(t, wire.Options{Budget: b})
	for _, n := range []int{0, 1, 8186, 8187, 8188, 65530, 65531, 65532, 200_000, 5 << 20} {
		want := bytes.Repeat([]byte{byte(n)}, n)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			client.Write(wire.AppendCopyData(wire.AppendCopyData(nil, want), want[:n/2]))
		}()
		for _, want := range [][]byte{want, want[:n/2]} {
			if typ, body, err := c.Read(); typ != 'd' || !bytes.Equal(body, want) || err != nil {
				t.Fatalf("%d bytes: %c %d %v", n, typ, len(body), err)
			}
		}
		<-sent
	}
	c.SetReadDeadline(time.Unix(1, 0))
	c.Read() // nothing there: the long buffer goes
	if b.left != 1<<30 {
		t.Errorf("%d bytes of the budget are gone", 1<<30-b.left)
	}
}

func TestBuffered(t *testing.T) {
	c, client := connect(t, wire.Options{})
	client.Write(assemble(t, `'H' [ ] 'S' [ ] 'Q' [ "sel`+`" ]`)[:13])
	for i, want := range []bool{true, false} {
		if _, _, err := c.Read(); err != nil {
			t.Fatal(err)
		}
		if got := c.Buffered(); got != want {
			t.Errorf("after message %d: %v", i, got)
		}
	}
}

// TestIdleConnections holds a thousand waiting connections and measures what each costs in user space.
func TestIdleConnections(t *testing.T) {
	const n, limit = 1000, 6 << 10
	conns := make([]*wire.Conn, n)
	before := memory() // the clients' ends and all goroutines count too
	for i := range conns {
		c, client := connect(t, wire.Options{})
		client.Write(assemble(t, `'S' [ ]`))
		if typ, _, err := c.Read(); typ != 'S' || err != nil {
			t.Fatal(err)
		}
		c.ReadyForQuery('I')
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		conns[i] = c
	}
	done := make(chan error, n)
	for _, c := range conns {
		go func() {
			_, _, err := c.Read()
			done <- err
		}()
	}
	for runtime.NumGoroutine() < n {
		runtime.Gosched()
	}
	for range 100 { // let them reach the poller
		runtime.Gosched()
	}
	each := (int64(memory()) - int64(before)) / n
	t.Logf("%d bytes for each waiting connection", each)
	if each > limit && !raceEnabled {
		t.Errorf("%d bytes for each waiting connection, want at most %d", each, limit)
	}
	for _, c := range conns {
		c.Close()
		<-done
	}
}

func memory() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

func TestBindAllocatesNothing(t *testing.T) {
	body := assemble(t, `z"" z"s1" i16:1 i16:1 i16:3 i32:4 i32:7 i32:-1 i32:0 i16:0`)
	var m wire.Bind
	if n := testing.AllocsPerRun(100, func() {
		if err := wire.DecodeBind(body, &m); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkInsertExchange(b *testing.B) {
	c, client := connect(b, wire.Options{})
	request := assemble(b, `'B' [ z"" z"s1" i16:1 i16:1 i16:2 i32:4 i32:7 i32:3 "abc" i16:0 ] 'D' [ z"P" ] 'E' [ z"" i32:0 ] 'S' [ ]`)
	const batch = 100
	requests := bytes.Repeat(request, batch)
	go io.Copy(io.Discard, client)
	go func() {
		for {
			if _, err := client.Write(requests); err != nil {
				return
			}
		}
	}()
	b.ReportAllocs()
	var m wire.Bind
	for b.Loop() {
		for range 4 {
			typ, body, err := c.Read()
			if err != nil {
				b.Fatal(err)
			}
			if typ == 'B' {
				if err := wire.DecodeBind(body, &m); err != nil {
					b.Fatal(err)
				}
			}
		}
		c.BindComplete()
		c.NoData()
		c.CommandComplete("INSERT 0 1")
		c.ReadyForQuery('I')
		if !c.Buffered() {
			c.Flush()
		}
	}
	c.Close()
}

func FuzzDecode(f *testing.F) {
	f.Add(byte('B'), assemble(f, `z"" z"s1" i16:1 i16:1 i16:3 i32:4 i32:7 i32:-1 i32:0 i16:0`))
	f.Add(byte('P'), assemble(f, `z"s1" z"select $1" i16:1 i32:23`))
	f.Add(byte('E'), assemble(f, `z"" i32:-1`))
	f.Add(byte('D'), assemble(f, `z"Sx"`))
	f.Add(byte('Q'), assemble(f, `z"select 1"`))
	f.Fuzz(func(t *testing.T, typ byte, body []byte) {
		if _, err := decode(typ, body); err != nil {
			var e *wire.Error
			if !errors.As(err, &e) || e.Code != wire.CodeProtocolViolation {
				t.Errorf("error %v", err)
			}
		}
		wire.DecodeError(body)
		wire.DecodeRowDescription(body)
		wire.DecodeDataRow(body, nil)
		wire.DecodeParameterDescription(body)
		wire.DecodeParameterStatus(body)
	})
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("Q\x00\x00\x00\x05\x00S\x00\x00\x00\x04"), 3)
	f.Add([]byte("d\x00\x00\x00\x09hello"), 1)
	f.Fuzz(func(t *testing.T, sent []byte, step int) {
		c, client := connect(t, wire.Options{MaxMessage: 1 << 20})
		go func() {
			for len(sent) > 0 {
				n := min(max(step, 1), len(sent))
				client.Write(sent[:n])
				sent = sent[n:]
			}
			client.Close()
		}()
		for {
			if _, _, err := c.Read(); err != nil {
				c.Close()
				return
			}
		}
	})
}

func FuzzParseOptions(f *testing.F) {
	f.Add(`-c a=b --c-d=e\ f`)
	f.Fuzz(func(t *testing.T, options string) {
		settings, err := wire.ParseOptions(options)
		if err != nil && settings != nil {
			t.Errorf("settings %v with error %v", settings, err)
		}
	})
}
