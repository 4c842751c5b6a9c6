package auth

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	_ "crypto/sha512" // certificates signed with SHA-384 or SHA-512
	"crypto/subtle"
	"crypto/x509"
	"encoding/base64"
	"strings"

	"github.com/xdg-go/scram"

	"sluice/server/wire"
)

const (
	mechanism     = "SCRAM-SHA-256"
	mechanismPlus = "SCRAM-SHA-256-PLUS"
)

// processKey makes mock salts when the caller gave no key.
var processKey = func() []byte {
	key := make([]byte, 32)
	rand.Read(key)
	return key
}()

// exchange is one SCRAM conversation. The texts are kept to recover the client's key, which the library does not hand out.
type exchange struct {
	c           *wire.Conn
	role        role
	verifier    verifier
	conv        *scram.ServerConversation
	plus        bool // offered
	clientFirst string
	serverFirst string
	clientFinal string
}

// scramLogin runs the exchange. A role that cannot log in by password goes through all of it with a verifier that no password
// has, so that neither bytes nor time tell which names exist.
func scramLogin(c *wire.Conn, st *wire.Startup, r role, o Options) error {
	v, ok := parseVerifier(r.verifier)
	if !ok || !r.exists || r.expired {
		v = mockVerifier(r.name, o.MockKey)
	}
	x := &exchange{c: c, role: r, verifier: v}
	x.start(endPoint(st))
	if err := x.run(); err != nil {
		return err
	}
	if o.Keep != nil {
		if key := x.clientKey(); key != nil {
			o.Keep(r.name, key)
		}
	}
	return nil
}

// start prepares the conversation. The user name inside the SCRAM messages is not looked at: drivers send anything there.
func (x *exchange) start(binding []byte) {
	v := x.verifier
	lookup := func(string) (scram.StoredCredentials, error) {
		return scram.StoredCredentials{KeyFactors: scram.KeyFactors{Salt: string(v.salt), Iters: v.iterations},
			StoredKey: v.storedKey, ServerKey: v.serverKey}, nil
	}
	server, err := scram.SHA256.NewServer(lookup)
	if err != nil {
		panic(err) // never: the constructor has no failure
	}
	if binding == nil {
		x.conv = server.NewConversation()
		return
	}
	x.plus = true
	x.conv = server.NewConversationWithChannelBinding(scram.ChannelBinding{Type: scram.ChannelBindingTLSServerEndpoint, Data: binding})
}

func (x *exchange) run() error {
	if x.plus {
		x.c.AuthenticationSASL(mechanismPlus, mechanism)
	} else {
		x.c.AuthenticationSASL(mechanism)
	}
	if err := x.first(); err != nil {
		return err
	}
	x.c.AuthenticationSASLContinue([]byte(x.serverFirst))
	final, err := answer(x.c)
	if err != nil {
		return err
	}
	x.clientFinal = string(final)
	outcome, err := x.conv.Step(x.clientFinal)
	if err != nil {
		return x.refusal(outcome)
	}
	x.c.AuthenticationSASLFinal([]byte(outcome))
	return nil
}

// first reads the mechanism and the client's first message, and makes the challenge.
func (x *exchange) first() error {
	body, err := answer(x.c)
	if err != nil {
		return err
	}
	chosen, response, err := wire.DecodeSASLInitialResponse(body)
	if err != nil {
		return wire.Fatalf(wire.CodeProtocolViolation, "malformed SASL message")
	}
	if chosen != mechanism && !(x.plus && chosen == mechanismPlus) {
		return wire.Fatalf(wire.CodeProtocolViolation, "client selected an invalid SASL authentication mechanism")
	}
	if len(response) == 0 {
		return malformed("The message is empty.")
	}
	if err := x.checkBinding(chosen, response[0]); err != nil {
		return err
	}
	x.clientFirst = string(response)
	if x.serverFirst, err = x.conv.Step(x.clientFirst); err != nil {
		return x.refusal(x.serverFirst)
	}
	return nil
}

// checkBinding compares the client's flag (y: I can bind, you cannot; n: I cannot; p: I do) with the mechanism.
func (x *exchange) checkBinding(chosen string, flag byte) error {
	switch {
	case flag == 'y' && x.plus:
		return wire.Fatalf(wire.CodeInvalidAuthorizationSpecification, "SCRAM channel binding negotiation error").WithDetail(
			"The client supports SCRAM channel binding but thinks the server does not.  However, this server does support channel binding.")
	case flag != 'p' && chosen == mechanismPlus:
		return malformed("The client selected SCRAM-SHA-256-PLUS, but the SCRAM message does not include channel binding data.")
	case flag == 'p' && chosen == mechanism:
		return malformed("The client selected SCRAM-SHA-256 without channel binding, but the SCRAM message includes channel binding data.")
	}
	return nil
}

func malformed(detail string) error {
	return wire.Fatalf(wire.CodeProtocolViolation, "malformed SCRAM message").WithDetail("%s", detail)
}

// refusal turns the library's answer into Postgres' words.
func (x *exchange) refusal(outcome string) error {
	switch outcome {
	case scram.ErrInvalidProof:
		return wire.Fatalf(wire.CodeInvalidPassword, "password authentication failed for user %s", quote(x.role.name))
	case scram.ErrChannelBindingsDontMatch:
		return wire.Fatalf(wire.CodeInvalidAuthorizationSpecification, "SCRAM channel binding check failed")
	case scram.ErrUnsupportedChannelBindingType:
		return wire.Fatalf(wire.CodeProtocolViolation, "unsupported SCRAM channel-binding type")
	}
	return malformed("The message does not follow the exchange.")
}

// clientKey is proof XOR HMAC(StoredKey, AuthMessage), nil if it is not the key of the verifier.
func (x *exchange) clientKey() *ClientKey {
	withoutProof, proofText, ok := cutLast(x.clientFinal, ",p=")
	if !ok {
		return nil
	}
	proof, err := base64.StdEncoding.DecodeString(proofText)
	if err != nil || len(proof) != sha256.Size {
		return nil
	}
	mac := hmac.New(sha256.New, x.verifier.storedKey)
	mac.Write([]byte(bare(x.clientFirst) + "," + x.serverFirst + "," + withoutProof))
	var k ClientKey
	subtle.XORBytes(k.key[:], proof, mac.Sum(nil))
	if digest := sha256.Sum256(k.key[:]); !hmac.Equal(digest[:], x.verifier.storedKey) {
		return nil
	}
	return &k
}

// bare is the client's first message without its gs2 header, which ends at the second comma.
func bare(message string) string {
	_, rest, _ := strings.Cut(message, ",")
	_, rest, _ = strings.Cut(rest, ",")
	return rest
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// endPoint is tls-server-end-point (RFC 5929) of the connection: the hash of our certificate by the hash of its signature, at
// least SHA-256. It is nil in clear text and for signatures without a hash (Ed25519), where binding is not offered.
func endPoint(st *wire.Startup) []byte {
	if len(st.Certificate) == 0 {
		return nil
	}
	cert, err := x509.ParseCertificate(st.Certificate)
	if err != nil {
		return nil
	}
	hash := crypto.SHA256
	switch cert.SignatureAlgorithm {
	case x509.PureEd25519, x509.UnknownSignatureAlgorithm:
		return nil
	case x509.SHA384WithRSA, x509.SHA384WithRSAPSS, x509.ECDSAWithSHA384:
		hash = crypto.SHA384
	case x509.SHA512WithRSA, x509.SHA512WithRSAPSS, x509.ECDSAWithSHA512:
		hash = crypto.SHA512
	}
	h := hash.New()
	h.Write(st.Certificate)
	return h.Sum(nil)
}
