package wire_test

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"sluice/server/wire"
)

// TestWrite compares one message of each kind with its bytes.
func TestWrite(t *testing.T) {
	fields := []wire.Field{{Name: "id", Table: 16400, Attr: 1, Type: 20, Size: 8, Modifier: -1}, {Name: "?column?", Type: 25, Size: -1, Modifier: -1, Format: 1}}
	for _, test := range []struct {
		write func(c *wire.Conn)
		want  string
	}{
		{func(c *wire.Conn) { c.AuthenticationOK() }, `'R' [ i32:0 ]`},
		{func(c *wire.Conn) { c.AuthenticationSASL("A", "B") }, `'R' [ i32:10 z"A" z"B" i8:0 ]`},
		{func(c *wire.Conn) { c.AuthenticationSASLContinue([]byte("r=x")) }, `'R' [ i32:11 "r=x" ]`},
		{func(c *wire.Conn) { c.AuthenticationSASLFinal([]byte("v=y")) }, `'R' [ i32:12 "v=y" ]`},
		{func(c *wire.Conn) { c.ParameterStatus("TimeZone", "UTC") }, `'S' [ z"TimeZone" z"UTC" ]`},
		{func(c *wire.Conn) { c.BackendKeyData(7, []byte{1, 2, 3, 4}) }, `'K' [ i32:7 x:01020304 ]`},
		{func(c *wire.Conn) { c.ReadyForQuery('T') }, `'Z' [ 'T' ]`},
		{func(c *wire.Conn) { c.RowDescription(fields) },
			`'T' [ i16:2 z"id" i32:16400 i16:1 i32:20 i16:8 i32:-1 i16:0 z"?column?" i32:0 i16:0 i32:25 i16:-1 i32:-1 i16:1 ]`},
		{func(c *wire.Conn) { c.DataRow([][]byte{[]byte("a"), nil, {}}) }, `'D' [ i16:3 i32:1 "a" i32:-1 i32:0 ]`},
		{func(c *wire.Conn) { c.CommandComplete("INSERT 0 1") }, `'C' [ z"INSERT" ]`},
		{func(c *wire.Conn) { c.EmptyQueryResponse() }, `'I' [ ]`},
		{func(c *wire.Conn) { c.ParseComplete(); c.BindComplete(); c.CloseComplete() }, `'1' [ ] '2' [ ] '3' [ ]`},
		{func(c *wire.Conn) { c.NoData(); c.PortalSuspended() }, `'n' [ ] 's' [ ]`},
		{func(c *wire.Conn) { c.ParameterDescription([]uint32{23, 25}) }, `'t' [ i16:2 i32:23 i32:25 ]`},
		{func(c *wire.Conn) { c.Raw(wire.AppendCopyInResponse(nil, 0, 2)) }, `'G' [ i8:0 i16:2 i16:0 i16:0 ]`},
		{func(c *wire.Conn) { c.CopyOutResponse(1, 1) }, `'H' [ i8:1 i16:1 i16:1 ]`},
		{func(c *wire.Conn) { c.CopyData([]byte("x")); c.CopyDone() }, `'d' [ "x" ] 'c' [ ]`},
		{func(c *wire.Conn) { c.NotificationResponse(wire.Notification{PID: 9, Channel: "c", Payload: "p"}) }, `'A' [ i32:9 z"c" z"p" ]`},
		{func(c *wire.Conn) {
			c.NoticeResponse(&wire.Error{Severity: wire.SeverityNotice, Code: wire.CodeDuplicateTable, Message: `relation "t" already exists, skipping`})
		}, `'N' [ z"SNOTICE" z"VNOTICE" z"C42P07" z"Mrelation" i8:0 ]`},
		{func(c *wire.Conn) { c.Raw([]byte("2\x00\x00\x00\x04")) }, `'2' [ ]`},
	} {
		want := assemble(t, strings.NewReplacer(`z"INSERT"`, `"INSERT" i8:32 "0" i8:32 z"1"`,
			`z"Mrelation"`, `"Mrelation" i8:32 "\"t\"" i8:32 "already" i8:32 "exists," i8:32 z"skipping"`).Replace(test.want))
		if got := written(t, test.write); !bytes.Equal(got, want) {
			t.Errorf("%s\n got %q\nwant %q", test.want, got, want)
		}
	}
}

func written(t *testing.T, write func(c *wire.Conn)) []byte {
	c, client := connect(t, wire.Options{})
	got := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(client)
		got <- b
	}()
	write(c)
	if err := c.Flush(); err != nil {
		t.Error(err)
	}
	c.Close()
	return <-got
}

func TestErrorRoundTrip(t *testing.T) {
	want := &wire.Error{Severity: "FATAL", Code: "23505", Message: "m", Detail: "d", Hint: "h", Position: 3, InternalPosition: 4, InternalQuery: "q",
		Where: "w", Schema: "s", Table: "t", Column: "c", DataType: "dt", Constraint: "n", File: "f.c", Line: 12, Routine: "r"}
	got, err := wire.DecodeError(wire.AppendErrorResponse(nil, want)[5:])
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v %v", got, err)
	}
	// A NUL in a text must not start another field.
	got, err = wire.DecodeError(wire.AppendErrorResponse(nil, wire.Errorf("42601", "a\x00Cfake"))[5:])
	if err != nil || got.Message != "aCfake" || got.Code != "42601" {
		t.Errorf("got %+v %v", got, err)
	}
}

func TestBackendMessages(t *testing.T) {
	fields := []wire.Field{{Name: "id", Table: 16400, Attr: 1, Type: 20, Size: -1, Modifier: -1, Format: 1}}
	if got, err := wire.DecodeRowDescription(wire.AppendRowDescription(nil, fields)[5:]); err != nil || !slices.Equal(got, fields) {
		t.Errorf("fields %v %v", got, err)
	}
	values := [][]byte{[]byte("a"), nil, {}}
	if got, err := wire.DecodeDataRow(wire.AppendDataRow(nil, values)[5:], nil); err != nil || !reflect.DeepEqual(got, values) {
		t.Errorf("values %v %v", got, err)
	}
	if got, err := wire.DecodeParameterDescription(wire.AppendParameterDescription(nil, []uint32{1, 2})[5:]); err != nil || !slices.Equal(got, []uint32{1, 2}) {
		t.Errorf("types %v %v", got, err)
	}
}

// TestFrontendMessages sends what the gateway sends to a backend through the decoders of the server's side.
func TestFrontendMessages(t *testing.T) {
	c, client := connect(t, wire.Options{})
	var b []byte
	b = wire.AppendQuery(b, "select 1")
	b = wire.AppendParse(b, "s", "select $1", []uint32{23})
	b = wire.AppendBind(b, "p", "s", []int16{1}, [][]byte{nil}, []int16{0, 1})
	b = wire.AppendDescribe(b, 'S', "s")
	b = wire.AppendExecute(b, "p", 5)
	b = wire.AppendClose(b, 'P', "p")
	b = wire.AppendFlush(wire.AppendSync(b))
	b = wire.AppendCopyFail(wire.AppendFrame(b, 'c', nil), "why")
	b = wire.AppendTerminate(wire.AppendFrame(b, 'H', nil))
	client.Write(b)
	client.Close()
	want := `Q "select 1"
P name "s" query "select $1" types [23]
B portal "p" statement "s" values NULL results 0 1
D S "s"
E portal "p" rows 5
C P "p"
S 
H 
c 
f "why"
H 
X 
EOF
`
	if got := readAll(c); got != want {
		t.Errorf("got %s", got)
	}
}

// TestWriteConcurrently: messages of several goroutines are never mixed up, and long output needs no Flush to leave.
func TestWriteConcurrently(t *testing.T) {
	const rounds = 2000
	got := written(t, func(c *wire.Conn) {
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for range rounds {
					c.NotificationResponse(wire.Notification{PID: 1, Channel: "channel", Payload: "payload"})
				}
				c.Flush()
			})
		}
		wg.Go(func() {
			long := wire.AppendCopyData(nil, make([]byte, 100_000))
			for range 100 {
				c.DataRow([][]byte{make([]byte, 300)})
				c.Raw(long)
			}
		})
		wg.Wait()
		if c.Pending() > 64<<10 {
			t.Errorf("%d bytes pending", c.Pending())
		}
	})
	counts := map[byte]int{}
	for len(got) > 0 {
		n := 1 + int(got[1])<<24 + int(got[2])<<16 + int(got[3])<<8 + int(got[4])
		counts[got[0]]++
		got = got[n:]
	}
	if fmt.Sprint(counts) != fmt.Sprint(map[byte]int{'A': 2 * rounds, 'D': 100, 'd': 100}) {
		t.Errorf("messages %v", counts)
	}
}

func TestFlushReportsFirstError(t *testing.T) {
	c, _ := connect(t, wire.Options{})
	c.Close()
	c.ReadyForQuery('I')
	first := c.Flush()
	if first == nil {
		t.Fatal("wrote to a closed connection")
	}
	c.ReadyForQuery('I')
	if err := c.Flush(); err != first {
		t.Errorf("got %v, then %v", first, err)
	}
}

// TestErrorsPage keeps docs/errors.md equal to the table. With -rewrite it writes the page.
func TestErrorsPage(t *testing.T) {
	const path = "../../docs/errors.md"
	var page strings.Builder
	page.WriteString("# Errors\n\nThe SQLSTATE codes that the gateway itself gives. All others come from Postgres and pass through unchanged.\n" +
		"Printed from `server/wire/sqlstate.go` by its test.\n\n| Code | Name | Meaning |\n|---|---|---|\n")
	seen := map[string]bool{}
	for _, c := range wire.Codes {
		fmt.Fprintf(&page, "| %s | %s | %s |\n", c.Code, c.Name, c.Meaning)
		if len(c.Code) != 5 || seen[c.Code] {
			t.Errorf("code %s twice or malformed", c.Code)
		}
		seen[c.Code] = true
	}
	if flag.Lookup("rewrite").Value.String() == "true" {
		if err := os.WriteFile(path, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != page.String() {
		t.Errorf("docs/errors.md is not what the table says (run with -rewrite): %v", err)
	}
}
