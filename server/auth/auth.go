package auth

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"time"

	"sluice/server/wire"
)

// Verifiers knows the roles.
type Verifiers interface {
	// Verifier returns what Postgres stores as the role's password ("" if it has none), whether the role exists, whether it
	// may log in, and when its password expires (zero: never). A role that clients may not use does not exist.
	Verifier(ctx context.Context, role string) (verifier string, exists, canLogin bool, validUntil time.Time, err error)
}

// Options say how to authenticate.
type Options struct {
	Verifiers Verifiers
	Trust     bool                            // let roles without a password in; the caller has looked at the address
	Keep      func(role string, k *ClientKey) // gets the recovered key; nil: it is forgotten
	MockKey   []byte                          // makes the salts of unknown roles, best the same after a restart; nil: random
	Now       func() time.Time                // nil: time.Now
}

// role is what Verifiers said of the start-up's user.
type role struct {
	name     string
	verifier string
	exists   bool
	canLogin bool
	expired  bool
}

// Authenticate runs the exchange up to AuthenticationOk, which is appended and not flushed. A *wire.Error (always FATAL) is to
// be sent to the client; any other error means that there is nobody left to talk to, or that the roles cannot be looked up.
func Authenticate(ctx context.Context, c *wire.Conn, st *wire.Startup, o Options) error {
	r, err := lookUp(ctx, st.User, o)
	if err != nil {
		return fmt.Errorf("authenticate: %w", err)
	}
	if o.Trust && r.verifier == "" {
		if !r.exists {
			return wire.Fatalf(wire.CodeInvalidAuthorizationSpecification, "role %s does not exist", quote(r.name))
		}
	} else if err := scramLogin(c, st, r, o); err != nil {
		return err
	}
	if !r.canLogin {
		return wire.Fatalf(wire.CodeInvalidAuthorizationSpecification, "role %s is not permitted to log in", quote(r.name))
	}
	c.AuthenticationOK()
	return nil
}

func lookUp(ctx context.Context, name string, o Options) (role, error) {
	verifier, exists, canLogin, until, err := o.Verifiers.Verifier(ctx, name)
	if err != nil {
		return role{}, err
	}
	now := o.Now
	if now == nil {
		now = time.Now
	}
	expired := !until.IsZero() && until.Before(now())
	return role{name: name, verifier: verifier, exists: exists, canLogin: canLogin, expired: expired}, nil
}

// quote puts a name between quotes as Postgres' messages do: without escapes.
func quote(name string) string { return `"` + name + `"` }

// SameSecret compares a cancel secret without telling by its time how much of it is right.
func SameSecret(want, got []byte) bool {
	return len(want) > 0 && subtle.ConstantTimeCompare(want, got) == 1
}

// answer sends what is pending and reads the client's next authentication message.
func answer(c *wire.Conn) ([]byte, error) {
	if err := c.Flush(); err != nil {
		return nil, fmt.Errorf("authenticate: %w", err)
	}
	_, body, err := c.Read()
	var e *wire.Error
	if err != nil && !errors.As(err, &e) {
		return nil, fmt.Errorf("authenticate: %w", err)
	}
	return body, err
}
