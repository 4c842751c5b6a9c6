// Package auth proves who a client is, before it gets a session.
//
// Start with Authenticate, which runs the exchange on a connection fresh from wire.Accept: SCRAM-SHA-256 against the verifier
// that Postgres stores for the role, with channel binding over TLS, or, where the caller trusts the address, nothing for roles
// without a password. A role that does not exist is led through the same exchange as one that does and fails the same way.
//
// The package never sees a password. It recovers the client's SCRAM key, with which the gateway can log in to Postgres as the
// user later; the key is held in a type that does not print. Clear-text and MD5 passwords are never asked for.
package auth
