package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
)

// Limits of the iteration count: below, a stolen verifier is broken too easily; above, one login would keep a client busy for
// minutes. A verifier outside them is of no use.
const (
	minIterations  = 4096
	maxIterations  = 1_000_000
	mockIterations = 4096 // what Postgres uses for new passwords
	saltSize       = 16   // likewise
)

// verifier is a parsed SCRAM-SHA-256 verifier.
type verifier struct {
	iterations int
	salt       []byte
	storedKey  []byte
	serverKey  []byte
}

// parseVerifier parses SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>.
func parseVerifier(s string) (verifier, bool) {
	parts := strings.Split(s, "$")
	if len(parts) != 3 || parts[0] != mechanism {
		return verifier{}, false
	}
	count, salt, _ := strings.Cut(parts[1], ":")
	stored, server, _ := strings.Cut(parts[2], ":")
	iterations, err := strconv.Atoi(count)
	v := verifier{iterations: iterations, salt: decode(salt), storedKey: decode(stored), serverKey: decode(server)}
	ok := err == nil && iterations >= minIterations && iterations <= maxIterations &&
		len(v.salt) > 0 && len(v.storedKey) == sha256.Size && len(v.serverKey) == sha256.Size
	return v, ok
}

func decode(s string) []byte {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return nil
	}
	return b
}

// mockVerifier is one that no password has. Its salt is the same for each try at a name, as that of a real role.
func mockVerifier(name string, key []byte) verifier {
	if len(key) == 0 {
		key = processKey
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(name))
	v := verifier{iterations: mockIterations, salt: mac.Sum(nil)[:saltSize], storedKey: make([]byte, sha256.Size), serverKey: make([]byte, sha256.Size)}
	rand.Read(v.storedKey)
	rand.Read(v.serverKey)
	return v
}

// ClientKey is a client's SCRAM key. With it one can log in as the client wherever its verifier is known, so it stays in memory
// and does not print.
type ClientKey struct{ key [sha256.Size]byte }

// Reveal is the key itself.
func (k *ClientKey) Reveal() []byte { return k.key[:] }

// Proof is the proof that answers a server's challenge: the key XOR HMAC(SHA-256(key), authMessage).
func (k *ClientKey) Proof(authMessage []byte) []byte {
	stored := sha256.Sum256(k.key[:])
	mac := hmac.New(sha256.New, stored[:])
	mac.Write(authMessage)
	proof := mac.Sum(nil)
	for i := range proof {
		proof[i] ^= k.key[i]
	}
	return proof
}

const redacted = "[redacted]"

// Format prints a placeholder for every verb.
func (k ClientKey) Format(f fmt.State, _ rune) { fmt.Fprint(f, redacted) }

// String is a placeholder.
func (k ClientKey) String() string { return redacted }

// MarshalText is a placeholder, also in JSON.
func (k ClientKey) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue is a placeholder.
func (k ClientKey) LogValue() slog.Value { return slog.StringValue(redacted) }
