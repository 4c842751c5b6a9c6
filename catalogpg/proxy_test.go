package catalogpg_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"sluice/catalogpg"
)

// cut says when a connection through the proxy breaks: in front of the client message that holds before, or when the server has sent a
// CommandComplete with tag after, which the client then never sees. refuse keeps new connections out from then on.
type cut struct {
	before, after string
	refuse        bool
}

// proxy stands between the catalog and Postgres.
type proxy struct {
	listener net.Listener
	server   string

	mu       sync.Mutex // guards below
	next     *cut
	happened bool
	closed   bool
}

func startProxy(t *testing.T, e *catalogpg.Embedded) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p := &proxy{listener: l, server: filepath.Join(e.Socket(), ".s.PGSQL.5432")}
	go p.accept()
	return p
}

func (p *proxy) connString() string {
	a := p.listener.Addr().(*net.TCPAddr)
	return fmt.Sprintf("host=127.0.0.1 port=%d user=%s database=lake sslmode=disable connect_timeout=5", a.Port, catalogpg.SuperUser)
}

func (p *proxy) arm(c cut) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = &c
}

func (p *proxy) fired() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.happened
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("unix", p.server)
		p.mu.Lock()
		refuse := p.closed
		p.mu.Unlock()
		if err != nil || refuse {
			client.Close()
			continue
		}
		go p.pump(server, client, func(c *cut, b []byte) bool { return c.before != "" && bytes.Contains(b, []byte(c.before)) })
		go p.pump(client, server, func(c *cut, b []byte) bool {
			return c.after != "" && bytes.Contains(b, []byte("C\x00\x00\x00\x0b"+c.after+"\x00"))
		})
	}
}

// pump copies until the cut. Messages of the tests are far smaller than the buffer, so that each arrives in one read.
func (p *proxy) pump(to, from net.Conn, hit func(*cut, []byte) bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		if err != nil || p.cuts(buf[:n], hit) {
			return
		}
		if _, err := io.Copy(to, bytes.NewReader(buf[:n])); err != nil {
			return
		}
	}
}

func (p *proxy) cuts(b []byte, hit func(*cut, []byte) bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == nil || !hit(p.next, b) {
		return false
	}
	p.closed, p.next, p.happened = p.next.refuse, nil, true
	return true
}
