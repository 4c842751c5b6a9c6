package wire

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

// Protocol versions. 3.1 was never defined; it is taken as 3.0 with another number.
const (
	Protocol30 uint32 = 3 << 16
	Protocol32 uint32 = 3<<16 | 2
)

// Request codes in the place of a protocol version.
const (
	cancelRequest = 1234<<16 | 5678
	sslRequest    = 1234<<16 | 5679
	gssRequest    = 1234<<16 | 5680
)

const (
	startupMax    = 10_000 // bytes of a start-up packet
	secretMax     = 256    // bytes of a cancel secret
	nameMax       = 63     // bytes of a name; Postgres cuts longer user and database names
	tlsHandshake  = 0x16   // first byte of a TLS record that opens a connection
	protocolALPN  = "postgresql"
	startupBudget = time.Minute // Postgres' authentication_timeout
)

// Options are the limits of a connection. The zero value is usable.
type Options struct {
	TLS            *tls.Config   // nil: TLS is declined. GetConfigForClient is not called
	RequireTLS     bool          // refuse sessions in clear text
	StartupTimeout time.Duration // until Authenticated; 0: 60 s
	MaxMessage     int           // bytes, length word included; 0: 1 GiB
	Budget         Budget        // memory of messages over 64 KiB; nil: not limited
}

func (o Options) withDefaults() Options {
	if o.StartupTimeout == 0 {
		o.StartupTimeout = startupBudget
	}
	if o.MaxMessage == 0 {
		o.MaxMessage = 1 << 30
	}
	return o
}

// Startup is what the client asked for. If Cancel is set, all else is empty.
type Startup struct {
	Protocol    uint32    // what both sides speak now
	User        string    // at most 63 bytes
	Database    string    // likewise; the user's name if none was given
	Replication string    // the value of the parameter "replication", empty if there was none
	Settings    []Setting // from options, then the other parameters, in the client's order
	TLS         bool
	Certificate []byte // our certificate (DER) in this TLS connection
	Cancel      *Cancel
}

// Setting is a parameter of the start-up packet. The name is as the client wrote it.
type Setting struct{ Name, Value string }

// Cancel is a CancelRequest.
type Cancel struct {
	PID    uint32
	Secret []byte
}

// NewSecret is a fresh cancel secret of the length that the protocol version has room for. It is never zero.
func NewSecret(protocol uint32) []byte {
	secret := make([]byte, 4)
	if protocol >= Protocol32 {
		secret = make([]byte, 32)
	}
	for {
		rand.Read(secret) // never fails
		if slices.ContainsFunc(secret, func(b byte) bool { return b != 0 }) {
			return secret
		}
	}
}

// Accept takes a fresh connection through TLS and the start-up packet. On an error the client got its answer, if one is due,
// and nc is closed. The deadline stays on the connection until Authenticated.
func Accept(ctx context.Context, nc net.Conn, o Options) (*Conn, *Startup, error) {
	o = o.withDefaults()
	ctx, cancel := context.WithTimeout(ctx, o.StartupTimeout)
	defer cancel()
	if deadline, ok := ctx.Deadline(); ok {
		_ = nc.SetDeadline(deadline) // an error shows in the first read
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	a := acceptance{ctx: ctx, nc: nc, o: o}
	st, err := a.run()
	if err != nil {
		a.refuse(err)
		return nil, nil, fmt.Errorf("accept connection: %w", err)
	}
	c := newConn(a.nc, o)
	if len(a.negotiation) > 0 {
		c.Raw(a.negotiation)
	}
	return c, st, nil
}

// acceptance is one connection before its start-up packet. It reads exactly the bytes it understands and keeps none, so that
// nothing sent in clear text can be taken for something sent over TLS.
type acceptance struct {
	ctx         context.Context // of Accept, whose extent this is
	nc          net.Conn
	o           Options
	begun       bool // something was read
	sslAsked    bool
	gssAsked    bool
	tls         bool
	certificate []byte
	version     uint32 // what the client asked for
	negotiation []byte // answer to a client that is newer than we are
}

// run answers encryption requests until something else comes. There are at most three rounds: one request of each kind.
func (a *acceptance) run() (*Startup, error) {
	for {
		size, code, err := a.head()
		if err != nil {
			return nil, err
		}
		switch {
		case code == sslRequest && size == 8 && !a.sslAsked:
			err = a.answerSSL()
		case code == gssRequest && size == 8 && !a.gssAsked:
			a.gssAsked = true
			_, err = a.nc.Write([]byte{'N'})
		case code == cancelRequest:
			return a.cancel(size)
		default:
			return a.startup(size, code)
		}
		if err != nil {
			return nil, err
		}
	}
}

// head reads the length and the code of a packet; a TLS handshake in their place is gone through first.
func (a *acceptance) head() (size int, code uint32, err error) {
	var b [8]byte
	if _, err := io.ReadFull(a.nc, b[:4]); err != nil {
		return 0, 0, fmt.Errorf("read start-up packet: %w", err)
	}
	if b[0] == tlsHandshake && !a.begun && a.o.TLS != nil {
		a.sslAsked = true
		if err := a.direct(b[:4]); err != nil {
			return 0, 0, err
		}
		return a.head()
	}
	a.begun = true
	size = int(binary.BigEndian.Uint32(b[:4]))
	if size < 8 || size > startupMax {
		return 0, 0, fmt.Errorf("read start-up packet: length %d", size) // Postgres closes without a word
	}
	if _, err := io.ReadFull(a.nc, b[4:]); err != nil {
		return 0, 0, fmt.Errorf("read start-up packet: %w", err)
	}
	return size, binary.BigEndian.Uint32(b[4:]), nil
}

func (a *acceptance) answerSSL() error {
	a.sslAsked = true
	if a.o.TLS == nil {
		_, err := a.nc.Write([]byte{'N'})
		return err
	}
	if _, err := a.nc.Write([]byte{'S'}); err != nil {
		return err
	}
	return a.handshake(a.nc)
}

// direct starts TLS without a request; such a client must name the protocol (RFC 7301), or any TLS client of another protocol
// could be led here.
func (a *acceptance) direct(begun []byte) error {
	if err := a.handshake(&replay{Conn: a.nc, first: begun}); err != nil {
		return err
	}
	if a.nc.(*tls.Conn).ConnectionState().NegotiatedProtocol != protocolALPN {
		return errors.New("start TLS: direct connection without ALPN postgresql")
	}
	return nil
}

func (a *acceptance) handshake(nc net.Conn) error {
	t := tls.Server(nc, a.tlsConfig())
	if err := t.HandshakeContext(a.ctx); err != nil {
		return fmt.Errorf("start TLS: %w", err)
	}
	a.nc, a.tls, a.begun, a.gssAsked = t, true, true, true
	return nil
}

// tlsConfig makes the certificate known that this connection uses, which channel binding needs.
func (a *acceptance) tlsConfig() *tls.Config {
	cfg := a.o.TLS.Clone()
	cfg.MinVersion = max(cfg.MinVersion, tls.VersionTLS12)
	cfg.NextProtos = []string{protocolALPN}
	cfg.SessionTicketsDisabled = true
	certificates, get := cfg.Certificates, cfg.GetCertificate
	cfg.Certificates = nil
	cfg.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		cert, err := pickCertificate(hello, certificates, get)
		if err == nil && len(cert.Certificate) > 0 {
			a.certificate = cert.Certificate[0]
		}
		return cert, err
	}
	return cfg
}

func pickCertificate(hello *tls.ClientHelloInfo, certificates []tls.Certificate,
	get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) (*tls.Certificate, error) {
	if get != nil {
		if cert, err := get(hello); cert != nil || err != nil {
			return cert, err
		}
	}
	for i := range certificates {
		if hello.SupportsCertificate(&certificates[i]) == nil {
			return &certificates[i], nil
		}
	}
	if len(certificates) == 0 {
		return nil, errors.New("no certificate")
	}
	return &certificates[0], nil
}

func (a *acceptance) cancel(size int) (*Startup, error) {
	if size < 12+1 || size > 12+secretMax {
		return nil, fmt.Errorf("read cancel request: length %d", size)
	}
	body, err := a.body(size)
	if err != nil {
		return nil, err
	}
	return &Startup{Cancel: &Cancel{PID: binary.BigEndian.Uint32(body), Secret: body[4:]}}, nil
}

func (a *acceptance) body(size int) ([]byte, error) {
	body := make([]byte, size-8)
	if _, err := io.ReadFull(a.nc, body); err != nil {
		return nil, fmt.Errorf("read start-up packet: %w", err)
	}
	return body, nil
}

func (a *acceptance) startup(size int, version uint32) (*Startup, error) {
	body, err := a.body(size)
	if err != nil {
		return nil, err
	}
	a.version = version
	if version>>16 != 3 {
		return nil, Fatalf(CodeFeatureNotSupported, "unsupported frontend protocol %d.%d: server supports 3.0 to 3.2", version>>16, version&0xffff)
	}
	params, err := splitParameters(body)
	if err != nil {
		return nil, err
	}
	st := &Startup{Protocol: min(version, Protocol32), TLS: a.tls, Certificate: a.certificate}
	unknown, err := st.take(params)
	if version > Protocol32 || len(unknown) > 0 {
		a.negotiation = appendNegotiation(nil, st.Protocol, unknown)
	}
	if err != nil {
		return nil, err
	}
	if a.o.RequireTLS && !a.tls {
		return nil, Fatalf(CodeInvalidAuthorizationSpecification, "connection requires TLS").WithHint("Connect with sslmode=require.")
	}
	return st, nil
}

// splitParameters splits the start-up packet into names and values. The last byte is a terminator of its own.
func splitParameters(body []byte) ([]Setting, error) {
	var params []Setting
	for len(body) > 1 {
		name, rest, ok := bytes.Cut(body, []byte{0})
		if !ok || len(name) == 0 {
			break
		}
		value, rest, ok := bytes.Cut(rest, []byte{0})
		if !ok {
			break
		}
		params = append(params, Setting{string(name), string(value)})
		body = rest
	}
	if len(body) != 1 || body[0] != 0 {
		return nil, Fatalf(CodeProtocolViolation, "invalid startup packet layout: expected terminator as last byte")
	}
	return params, nil
}

// take sorts the parameters. The last of several of one name counts, as in Postgres; unknown are the protocol options.
func (st *Startup) take(params []Setting) (unknown []string, err error) {
	var options string
	for _, p := range params {
		switch {
		case p.Name == "user":
			st.User = cut(p.Value)
		case p.Name == "database":
			st.Database = cut(p.Value)
		case p.Name == "options":
			options = p.Value
		case p.Name == "replication":
			st.Replication = p.Value
		case len(p.Name) >= 5 && p.Name[:5] == "_pq_.":
			unknown = append(unknown, p.Name)
		default:
			st.Settings = append(st.Settings, p)
		}
	}
	if st.User == "" {
		return unknown, Fatalf(CodeInvalidAuthorizationSpecification, "no PostgreSQL user name specified in startup packet")
	}
	if st.Database == "" {
		st.Database = st.User
	}
	fromOptions, err := ParseOptions(options)
	st.Settings = append(fromOptions, st.Settings...)
	return unknown, err
}

func cut(name string) string { return name[:min(len(name), nameMax)] }

// refuse answers with what is an *Error, and closes.
func (a *acceptance) refuse(err error) {
	var e *Error
	if errors.As(err, &e) {
		// The client may be gone already; there is nobody else to tell.
		_, _ = a.nc.Write(a.farewell(e))
	}
	_ = a.nc.Close()
}

// farewell is the refusal in the client's own protocol: before 3.0 an error was a line of text.
func (a *acceptance) farewell(e *Error) []byte {
	if a.version != 0 && a.version>>16 < 3 {
		return append([]byte("E"+e.Severity+":  "+e.Message+"\n"), 0)
	}
	return AppendErrorResponse(a.negotiation, e)
}

// replay is a connection whose first bytes were read already.
type replay struct {
	net.Conn
	first []byte
}

func (r *replay) Read(b []byte) (int, error) {
	if len(r.first) > 0 {
		n := copy(b, r.first)
		r.first = r.first[n:]
		return n, nil
	}
	return r.Conn.Read(b)
}
