package auth_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/xdg-go/scram"
	"go.uber.org/goleak"

	"sluice/server/auth"
	"sluice/server/wire"
)

// TestMain fails the package if a test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// roles are the roles of the tests; verifiers are of the password "right".
type roles map[string]entry

type entry struct {
	verifier string
	canLogin bool
	until    time.Time
}

func (r roles) Verifier(_ context.Context, name string) (string, bool, bool, time.Time, error) {
	if name == "broken" {
		return "", false, false, time.Time{}, errors.New("catalog is away")
	}
	e, ok := r[name]
	return e.verifier, ok, e.canLogin, e.until, nil
}

func credentials(iterations int) scram.StoredCredentials {
	client, err := scram.SHA256.NewClient("", "right", "")
	if err != nil {
		panic(err)
	}
	c, err := client.GetStoredCredentialsWithError(scram.KeyFactors{Salt: "0123456789abcdef", Iters: iterations})
	if err != nil {
		panic(err)
	}
	return c
}

func stored(iterations int) string {
	c := credentials(iterations)
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", iterations, b64([]byte(c.Salt)), b64(c.StoredKey), b64(c.ServerKey))
}

func testRoles() roles {
	v := stored(4096)
	return roles{
		"alice":   {v, true, time.Time{}},
		"open":    {"", true, time.Time{}},
		"group":   {v, false, time.Time{}},
		"nologin": {"", false, time.Time{}},
		"expired": {v, true, now.Add(-time.Second)},
		"future":  {v, true, now.Add(time.Second)},
		"md5":     {"md55e8ff9bf55ba3508199d22e984129be6", true, time.Time{}},
		"weak":    {stored(4095), true, time.Time{}},
		"slow":    {strings.Replace(v, "$4096:", "$1000000000:", 1), true, time.Time{}},
		"torn":    {v[:40], true, time.Time{}},
	}
}

// server accepts one connection at a time, authenticates it and says ReadyForQuery.
type server struct {
	l       net.Listener
	options auth.Options
	wire    wire.Options
	outcome chan error
}

func serve(t *testing.T, o auth.Options, w wire.Options) *server {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.Now = func() time.Time { return now }
	if o.Verifiers == nil {
		o.Verifiers = testRoles()
	}
	s := &server{l: l, options: o, wire: w, outcome: make(chan error, 100)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			s.outcome <- s.login(nc)
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return s
}

func (s *server) login(nc net.Conn) error {
	c, st, err := wire.Accept(context.Background(), nc, s.wire)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := auth.Authenticate(context.Background(), c, st, s.options); err != nil {
		var e *wire.Error
		if errors.As(err, &e) {
			c.ErrorResponse(e)
			c.Flush()
		}
		return err
	}
	c.Authenticated()
	c.BackendKeyData(1, wire.NewSecret(st.Protocol))
	c.ReadyForQuery('I')
	if err := c.Flush(); err != nil {
		return err
	}
	c.Read() // until the client leaves
	return nil
}

// connect logs in with pgx and returns what the server said.
func (s *server) connect(t *testing.T, settings string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	host, port, _ := net.SplitHostPort(s.l.Addr().String())
	conn, err := pgconn.Connect(ctx, fmt.Sprintf("host=%s port=%s database=lake sslmode=disable %s", host, port, settings))
	if err == nil {
		conn.Close(ctx)
		return "ok"
	}
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return fmt.Sprintf("%s %s: %s", e.Severity, e.Code, e.Message)
	}
	return err.Error()
}

func TestPassword(t *testing.T) {
	failed := `FATAL 28P01: password authentication failed for user "%s"`
	s := serve(t, auth.Options{}, wire.Options{})
	for _, test := range []struct{ user, password, want string }{
		{"alice", "right", "ok"},
		{"alice", "wrong", failed},
		{"nobody", "right", failed},
		{"open", "right", failed},
		{"group", "right", `FATAL 28000: role "%s" is not permitted to log in`},
		{"group", "wrong", failed},
		{"expired", "right", failed},
		{"future", "right", "ok"},
		{"md5", "right", failed},
		{"weak", "right", failed},
		{"torn", "right", failed},
		{"slow", "right", failed},
	} {
		want := test.want
		if strings.Contains(want, "%s") {
			want = fmt.Sprintf(want, test.user)
		}
		if got := s.connect(t, "user="+test.user+" password="+test.password); got != want {
			t.Errorf("%s with %s: %s, want %s", test.user, test.password, got, want)
		}
	}
}

func TestTrust(t *testing.T) {
	s := serve(t, auth.Options{Trust: true}, wire.Options{})
	for settings, want := range map[string]string{
		"user=open":                      "ok",
		"user=open password=any":         "ok",
		"user=nologin":                   `FATAL 28000: role "nologin" is not permitted to log in`,
		"user=nobody":                    `FATAL 28000: role "nobody" does not exist`,
		"user=alice password=right":      "ok",
		"user=alice password=wrong":      `FATAL 28P01: password authentication failed for user "alice"`,
		"user=expired password=wrong":    `FATAL 28P01: password authentication failed for user "expired"`,
		`user='o"dd' password='is free'`: `FATAL 28000: role "o"dd" does not exist`,
	} {
		if got := s.connect(t, settings); got != want {
			t.Errorf("%s: %s, want %s", settings, got, want)
		}
	}
}

func TestLookupFails(t *testing.T) {
	s := serve(t, auth.Options{}, wire.Options{})
	s.connect(t, "user=broken password=right")
	var e *wire.Error
	if err := <-s.outcome; err == nil || errors.As(err, &e) {
		t.Errorf("got %v", err)
	}
}

func TestClientKey(t *testing.T) {
	var kept []string
	var key *auth.ClientKey
	s := serve(t, auth.Options{Keep: func(role string, k *auth.ClientKey) { kept, key = append(kept, role), k }}, wire.Options{})
	for _, settings := range []string{"user=alice password=wrong", "user=nobody password=right", "user=alice password=right"} {
		s.connect(t, settings)
		<-s.outcome
	}
	if len(kept) != 1 || kept[0] != "alice" {
		t.Fatalf("kept %v", kept)
	}
	digest := sha256.Sum256(key.Reveal())
	if !bytes.Equal(digest[:], credentials(4096).StoredKey) {
		t.Error("the key is not the verifier's")
	}
	checkHidden(t, key)
}

// checkHidden prints the key in the ways that logs and errors do.
func checkHidden(t *testing.T, key *auth.ClientKey) {
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "key", key, "value", *key)
	j, _ := json.Marshal(map[string]any{"key": key, "value": *key})
	for _, text := range []string{log.String(), string(j), fmt.Sprint(key, *key), fmt.Sprintf("%v %+v %#v %x %q %s", key, key, key, *key, key, *key)} {
		for _, secret := range []string{fmt.Sprintf("%x", key.Reveal()), fmt.Sprint(key.Reveal()), base64.StdEncoding.EncodeToString(key.Reveal())} {
			if strings.Contains(text, secret) || !strings.Contains(text, "redacted") {
				t.Errorf("printed %s", text)
			}
		}
	}
}

func tlsConfig(t *testing.T, algorithm x509.SignatureAlgorithm, curve elliptic.Curve) *tls.Config {
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "sluice"}, SignatureAlgorithm: algorithm,
		NotAfter: time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

func TestChannelBinding(t *testing.T) {
	for name, cfg := range map[string]*tls.Config{
		"SHA-256": tlsConfig(t, x509.ECDSAWithSHA256, elliptic.P256()),
		"SHA-384": tlsConfig(t, x509.ECDSAWithSHA384, elliptic.P384()),
		"SHA-512": tlsConfig(t, x509.ECDSAWithSHA512, elliptic.P521()),
	} {
		s := serve(t, auth.Options{}, wire.Options{TLS: cfg})
		for settings, want := range map[string]string{
			"channel_binding=require password=right": "ok",
			"channel_binding=prefer password=right":  "ok",
			"channel_binding=disable password=right": "ok",
			"channel_binding=require password=wrong": `FATAL 28P01: password authentication failed for user "alice"`,
		} {
			if got := s.connect(t, "user=alice sslmode=require "+settings); got != want {
				t.Errorf("%s: %s: %s, want %s", name, settings, got, want)
			}
		}
	}
}

// TestUnknownRoleLooksLikeWrongPassword compares the challenges: their layout, and that each name keeps its salt.
func TestUnknownRoleLooksLikeWrongPassword(t *testing.T) {
	s := serve(t, auth.Options{MockKey: []byte("key")}, wire.Options{})
	salts := map[string]string{}
	for _, user := range []string{"alice", "nobody", "alice", "nobody", "nobody2"} {
		d := dial(t, s, user)
		d.send(initial("SCRAM-SHA-256", "n,,n=,r=abc"))
		challenge := d.read()
		parts := strings.Split(challenge, ",")
		if len(parts) != 3 || len(challenge) != len("R11 r=abc,s=,i=4096")+32+24 || parts[2] != "i=4096" {
			t.Fatalf("%s: challenge %s", user, challenge)
		}
		if old, ok := salts[user]; ok && old != parts[1] {
			t.Errorf("%s: salt %s, then %s", user, old, parts[1])
		}
		salts[user] = parts[1]
		d.Close()
	}
	if salts["nobody"] == salts["nobody2"] {
		t.Error("two names share a salt")
	}
}

// raw is a client that speaks byte by byte.
type raw struct {
	net.Conn
	t *testing.T
}

func dial(t *testing.T, s *server, user string) raw {
	nc, err := net.Dial("tcp", s.l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	d := raw{nc, t}
	d.Write(append([]byte{0, 0, 0, byte(15 + len(user)), 0, 3, 0, 0}, "user\x00"+user+"\x00\x00"...))
	if got := d.read(); got != "R10 SCRAM-SHA-256\x00\x00" {
		t.Fatalf("got %q", got)
	}
	return d
}

func (d raw) send(body string) { d.Write(wire.AppendFrame(nil, 'p', []byte(body))) }

func (d raw) read() string {
	head := make([]byte, 5)
	if _, err := io.ReadFull(d, head); err != nil {
		return err.Error()
	}
	body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
	io.ReadFull(d, body)
	if head[0] == 'E' {
		e, _ := wire.DecodeError(body)
		return e.Error()
	}
	return fmt.Sprintf("%c%d %s", head[0], binary.BigEndian.Uint32(body), body[4:])
}

func initial(mechanism, response string) string {
	return mechanism + "\x00" + string(binary.BigEndian.AppendUint32(nil, uint32(len(response)))) + response
}

func TestHostileFirstMessage(t *testing.T) {
	s := serve(t, auth.Options{}, wire.Options{})
	const bad = "FATAL: malformed SCRAM message (SQLSTATE 08P01)"
	const noSASL = "FATAL: malformed SASL message (SQLSTATE 08P01)"
	for _, test := range []struct{ body, want string }{
		{"", noSASL},
		{"secret\x00", noSASL},
		{"SCRAM-SHA-256", noSASL},
		{"SCRAM-SHA-256\x00\x00\x00", noSASL},
		{"SCRAM-SHA-256\x00\x7f\xff\xff\xffn,,n=,r=a", noSASL},
		{"SCRAM-SHA-256\x00\xff\xff\xff\xfen,,n=,r=a", noSASL},
		{initial("SCRAM-SHA-256", "n,,n=,r=a") + "x", noSASL},
		{"SCRAM-SHA-256\x00\xff\xff\xff\xff", bad},
		{initial("SCRAM-SHA-256", ""), bad},
		{initial("MD5", "n,,n=,r=a"), "FATAL: client selected an invalid SASL authentication mechanism (SQLSTATE 08P01)"},
		{initial("SCRAM-SHA-256-PLUS", "p=tls-server-end-point,,n=,r=a"), "FATAL: client selected an invalid SASL authentication mechanism (SQLSTATE 08P01)"},
		{initial("SCRAM-SHA-256", "p=tls-server-end-point,,n=,r=a"), bad},
		{initial("SCRAM-SHA-256", "x,,n=,r=a"), bad},
		{initial("SCRAM-SHA-256", "n"), bad},
		{initial("SCRAM-SHA-256", "n,,"), bad},
		{initial("SCRAM-SHA-256", "n,,r=a"), bad},
		{initial("SCRAM-SHA-256", "n,,n="), bad},
		{initial("SCRAM-SHA-256", "n,,m=x,n=,r=a"), bad},
	} {
		d := dial(t, s, "alice")
		d.send(test.body)
		if got := d.read(); got != test.want {
			t.Errorf("%q: %s, want %s", test.body, got, test.want)
		}
		d.Close()
	}
}

func TestHostileFinalMessage(t *testing.T) {
	s := serve(t, auth.Options{}, wire.Options{})
	const bad = "FATAL: malformed SCRAM message (SQLSTATE 08P01)"
	const wrong = `FATAL: password authentication failed for user "alice" (SQLSTATE 28P01)`
	proof := base64.StdEncoding.EncodeToString(make([]byte, 32))
	for _, test := range []struct{ final, want string }{
		{"c=biws,r=NONCE,p=" + proof, wrong},
		{"c=biws,r=NONCEx,p=" + proof, bad},
		{"c=biws,r=abc,p=" + proof, bad},
		{"c=biws,r=,p=" + proof, bad},
		{"c=eSws,r=NONCE,p=" + proof, "FATAL: SCRAM channel binding check failed (SQLSTATE 28000)"},
		{"r=NONCE,p=" + proof, bad},
		{"c=biws,r=NONCE", bad},
		{"c=biws,r=NONCE,p=", bad},
		{"c=biws,r=NONCE,p=!!", bad},
		{"c=biws,r=NONCE,p=AAAA", bad},
		{"c=biws,r=NONCE,x=extra,p=" + proof, wrong},
		{"", bad},
		{strings.Repeat("c=biws,", 9000), bad},
	} {
		d := dial(t, s, "alice")
		d.send(initial("SCRAM-SHA-256", "n,,n=ignored,r=abc"))
		challenge := d.read()
		nonce, _, _ := strings.Cut(strings.TrimPrefix(challenge, "R11 r="), ",")
		d.send(strings.Replace(test.final, "NONCE", nonce, 1))
		if got := d.read(); got != test.want {
			t.Errorf("%.40q: %s, want %s", test.final, got, test.want)
		}
		d.Close()
	}
}

// TestDowngrade: a client that can bind but believes that we cannot was lied to.
func TestDowngrade(t *testing.T) {
	s := serve(t, auth.Options{}, wire.Options{TLS: tlsConfig(t, x509.ECDSAWithSHA256, elliptic.P256())})
	for _, test := range []struct{ body, want string }{
		{initial("SCRAM-SHA-256", "y,,n=,r=a"), "FATAL: SCRAM channel binding negotiation error (SQLSTATE 28000)"},
		{initial("SCRAM-SHA-256-PLUS", "n,,n=,r=a"), "FATAL: malformed SCRAM message (SQLSTATE 08P01)"},
		{initial("SCRAM-SHA-256-PLUS", "p=tls-unique,,n=,r=a"), "FATAL: unsupported SCRAM channel-binding type (SQLSTATE 08P01)"},
	} {
		nc, err := net.Dial("tcp", s.l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		nc.Write([]byte{0, 0, 0, 8, 4, 210, 22, 47})
		io.ReadFull(nc, make([]byte, 1))
		d := raw{tls.Client(nc, &tls.Config{InsecureSkipVerify: true}), t}
		d.Write([]byte("\x00\x00\x00\x14\x00\x03\x00\x00user\x00alice\x00\x00"))
		if got := d.read(); got != "R10 SCRAM-SHA-256-PLUS\x00SCRAM-SHA-256\x00\x00" {
			t.Fatalf("got %q", got)
		}
		d.send(test.body)
		if got := d.read(); got != test.want {
			t.Errorf("%q: %s, want %s", test.body, got, test.want)
		}
		nc.Close()
	}
}

// TestReplay sends the final message of one exchange in another.
func TestReplay(t *testing.T) {
	s := serve(t, auth.Options{}, wire.Options{})
	client, _ := scram.SHA256.NewClient("", "right", "")
	conv := client.WithNonceGenerator(func() string { return "same" }).NewConversation()
	first, _ := conv.Step("")
	d := dial(t, s, "alice")
	d.send(initial("SCRAM-SHA-256", first))
	final, err := conv.Step(strings.TrimPrefix(d.read(), "R11 "))
	if err != nil {
		t.Fatal(err)
	}
	d.send(final)
	if got := d.read(); !strings.HasPrefix(got, "R12 v=") {
		t.Fatalf("got %s", got)
	}
	d.Close()
	d = dial(t, s, "alice")
	d.send(initial("SCRAM-SHA-256", first))
	d.read()
	d.send(final)
	if got := d.read(); got != "FATAL: malformed SCRAM message (SQLSTATE 08P01)" {
		t.Errorf("got %s", got)
	}
	d.Close()
}

func TestProof(t *testing.T) {
	var key *auth.ClientKey
	s := serve(t, auth.Options{Keep: func(_ string, k *auth.ClientKey) { key = k }}, wire.Options{})
	s.connect(t, "user=alice password=right")
	<-s.outcome
	proof := key.Proof([]byte("message"))
	if again := key.Proof([]byte("message")); len(proof) != 32 || !bytes.Equal(proof, again) {
		t.Errorf("proof %x, then %x", proof, again)
	}
}

func TestSameSecret(t *testing.T) {
	for _, test := range []struct {
		want, got string
		same      bool
	}{{"abcd", "abcd", true}, {"abcd", "abce", false}, {"abcd", "abcde", false}, {"", "", false}} {
		if got := auth.SameSecret([]byte(test.want), []byte(test.got)); got != test.same {
			t.Errorf("%q %q: %v", test.want, test.got, got)
		}
	}
}
