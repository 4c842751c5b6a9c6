package wire_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"go.uber.org/goleak"

	"sluice/server/wire"
)

// TestMain fails the package if a test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair is a TCP connection: the server's end and the client's end.
func pair(t testing.TB) (server, client *net.TCPConn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(); c.Close() })
	return s.(*net.TCPConn), c.(*net.TCPConn)
}

// TestAccept runs testdata/accept. Verb: accept [require-tls]; input: what the client sends before it closes its half.
func TestAccept(t *testing.T) {
	datadriven.Walk(t, "testdata/accept", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return acceptOnce(t, assemble(t, d.Input), wire.Options{RequireTLS: d.HasArg("require-tls")})
		})
	})
}

func acceptOnce(t *testing.T, packets []byte, o wire.Options) string {
	server, client := pair(t)
	if _, err := client.Write(packets); err != nil {
		t.Fatal(err)
	}
	client.CloseWrite()
	c, st, err := wire.Accept(context.Background(), server, o)
	if err == nil {
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	// A refused client that sent more than was read may see a reset in place of the end.
	answer, _ := io.ReadAll(client)
	var out strings.Builder
	out.WriteString(render(answer))
	describe(&out, st, err)
	return out.String()
}

func describe(out *strings.Builder, st *wire.Startup, err error) {
	switch {
	case err != nil:
		fmt.Fprintf(out, "closed: %v\n", err)
	case st.Cancel != nil:
		fmt.Fprintf(out, "cancel %d, secret of %d bytes\n", st.Cancel.PID, len(st.Cancel.Secret))
	default:
		fmt.Fprintf(out, "protocol %d.%d user %q database %q", st.Protocol>>16, st.Protocol&0xffff, st.User, st.Database)
		if st.Replication != "" {
			fmt.Fprintf(out, " replication %q", st.Replication)
		}
		out.WriteString("\n")
		for _, s := range st.Settings {
			fmt.Fprintf(out, "%s = %q\n", s.Name, s.Value)
		}
	}
}

func certificate(t testing.TB) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "sluice"},
		DNSNames: []string{"sluice"}, NotAfter: time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// startTLS runs one connection: before is sent in clear text, then the client starts TLS with cfg and sends start.
func startTLS(t *testing.T, before, start []byte, reply int, cfg *tls.Config) (*wire.Conn, *wire.Startup, error) {
	server, client := pair(t)
	sent := make(chan error, 1)
	go func() {
		sent <- func() error {
			if _, err := client.Write(before); err != nil {
				return err
			}
			if _, err := io.ReadFull(client, make([]byte, reply)); err != nil {
				return err
			}
			tc := tls.Client(client, cfg)
			if _, err := tc.Write(start); err != nil {
				client.Close()
				return err
			}
			return nil
		}()
	}()
	c, st, err := wire.Accept(context.Background(), server, wire.Options{TLS: &tls.Config{Certificates: []tls.Certificate{certificate(t)}}, RequireTLS: true})
	if e := <-sent; e != nil && err == nil {
		t.Fatal(e)
	}
	return c, st, err
}

func TestAcceptTLS(t *testing.T) {
	request := assemble(t, `[ i32:80877103 ]`)
	gss := assemble(t, `[ i32:80877104 ]`)
	start := assemble(t, `[ i32:196608 z"user" z"alice" i8:0 ] 'p' [ z"secret" ]`)
	plain := &tls.Config{InsecureSkipVerify: true}
	named := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"postgresql"}}
	other := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}
	old := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	for _, test := range []struct {
		name   string
		before []byte
		reply  int
		cfg    *tls.Config
		ok     bool
	}{
		{"request", request, 1, plain, true},
		{"request with ALPN", request, 1, named, true},
		{"request with another ALPN", request, 1, other, false},
		{"GSS, then request", append(gss, request...), 2, plain, true},
		{"direct", nil, 0, named, true},
		{"direct without ALPN", nil, 0, plain, false},
		{"direct with another ALPN", nil, 0, other, false},
		{"TLS 1.1", request, 1, old, false},
		{"clear text behind the request", append(request, start...), 1, plain, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, st, err := startTLS(t, test.before, start, test.reply, test.cfg)
			if (err == nil) != test.ok {
				t.Fatalf("error %v, want success %v", err, test.ok)
			}
			if err != nil {
				return
			}
			if !st.TLS || len(st.Certificate) == 0 || st.User != "alice" || c.TLSConnection() == nil {
				t.Errorf("start-up %+v", st)
			}
			if typ, body, err := c.Read(); typ != 'p' || string(body) != "secret\x00" || err != nil {
				t.Errorf("read %c %q %v", typ, body, err)
			}
		})
	}
}

// TestAcceptRejectsSecondRequest: after TLS neither kind of request is known any more.
func TestAcceptRejectsSecondRequest(t *testing.T) {
	request := assemble(t, `[ i32:80877103 ]`)
	for _, second := range []string{`[ i32:80877103 ]`, `[ i32:80877104 ]`} {
		_, _, err := startTLS(t, request, assemble(t, second), 1, &tls.Config{InsecureSkipVerify: true})
		var e *wire.Error
		if !errors.As(err, &e) || e.Code != wire.CodeFeatureNotSupported {
			t.Errorf("%s: %v", second, err)
		}
	}
}

func TestAcceptDeadline(t *testing.T) {
	for name, sent := range map[string]string{"nothing": "", "half a packet": `i32:100 i32:196608 z"user"`} {
		server, client := pair(t)
		if _, err := client.Write(assemble(t, sent)); err != nil {
			t.Fatal(err)
		}
		_, _, err := wire.Accept(context.Background(), server, wire.Options{StartupTimeout: 20 * time.Millisecond})
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAcceptEndsWithContext(t *testing.T) {
	server, _ := pair(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, _, err := wire.Accept(ctx, server, wire.Options{})
		done <- err
	}()
	cancel()
	if err := <-done; err == nil {
		t.Error("accepted nothing")
	}
}

func TestAcceptManyRequests(t *testing.T) {
	script := strings.Repeat(`[ i32:80877104 ] [ i32:80877103 ] `, 500)
	got := acceptOnce(t, assemble(t, script), wire.Options{})
	if want := "unsupported frontend protocol 1234.5680"; !strings.Contains(got, want) {
		t.Errorf("got %s", got)
	}
}

func TestNewSecret(t *testing.T) {
	for protocol, want := range map[uint32]int{wire.Protocol30: 4, wire.Protocol30 + 1: 4, wire.Protocol32: 32} {
		if got := len(wire.NewSecret(protocol)); got != want {
			t.Errorf("protocol %x: %d bytes, want %d", protocol, got, want)
		}
	}
}

func FuzzAccept(f *testing.F) {
	f.Add(assemble(f, `[ i32:196608 z"user" z"a" z"options" z"-c a=b" i8:0 ]`))
	f.Add(assemble(f, `[ i32:80877103 ] [ i32:80877104 ] [ i32:196610 z"user" z"a" z"_pq_.x" z"1" i8:0 ]`))
	f.Add(assemble(f, `[ i32:80877102 i32:7 i32:8 ]`))
	f.Fuzz(func(t *testing.T, packets []byte) {
		server, client := net.Pipe()
		defer client.Close()
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			io.Copy(io.Discard, client)
		}()
		go func() {
			client.Write(packets)
			client.Close()
		}()
		c, st, err := wire.Accept(context.Background(), server, wire.Options{})
		if (err == nil) != (st != nil) {
			t.Errorf("start-up %v, error %v", st, err)
		}
		if err == nil {
			if st.Cancel == nil && (st.User == "" || st.Database == "" || st.Protocol>>16 != 3) {
				t.Errorf("start-up %+v", st)
			}
			c.Close()
		}
		<-answered
	})
}
