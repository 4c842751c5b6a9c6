package auth

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/xdg-go/scram"
)

// NewVerifier makes what Postgres stores for a password. A text that is a SCRAM verifier already stays as it is, as in Postgres; an MD5 one
// is refused, since nobody could log in with it.
func NewVerifier(password string) (string, error) {
	if _, ok := parseVerifier(password); ok {
		return password, nil
	}
	if strings.HasPrefix(password, "md5") && len(password) == len("md5")+32 {
		return "", fmt.Errorf("make verifier: MD5 passwords are not supported")
	}
	salt := make([]byte, saltSize)
	rand.Read(salt)
	return makeVerifier(password, salt)
}

// makeVerifier leaves a password that has no SASLprep form as it is, as Postgres and its clients do.
func makeVerifier(password string, salt []byte) (string, error) {
	client, err := scram.SHA256.NewClient("", password, "")
	if err != nil {
		if client, err = scram.SHA256.NewClientUnprepped("", password, ""); err != nil {
			return "", fmt.Errorf("make verifier: %w", err)
		}
	}
	keys, err := client.GetStoredCredentialsWithError(scram.KeyFactors{Salt: string(salt), Iters: mockIterations})
	if err != nil {
		return "", fmt.Errorf("make verifier: %w", err)
	}
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("%s$%d:%s$%s:%s", mechanism, mockIterations, b64(salt), b64(keys.StoredKey), b64(keys.ServerKey)), nil
}
