// Package wire is the server's side of the Postgres protocol on one connection: start-up, messages in, messages out.
//
// Start with Accept, which takes a fresh net.Conn through TLS and the start-up packet; then Conn.Read returns one client
// message at a time and the Conn's writers append answers to one output buffer until Flush. The package decodes and encodes
// bytes; it never authenticates, knows no SQL, keeps no session state and starts no goroutine.
//
//	c, st, err := wire.Accept(ctx, nc, wire.Options{TLS: cfg})   // err: already answered and closed
//	if st.Cancel != nil { … c.Close() }                          // a CancelRequest, nothing may be answered
//	// authenticate (package auth), then
//	c.Authenticated()                                            // lifts the deadline and the 64 KiB cap
//	c.ParameterStatus("server_version", "15.18")
//	c.BackendKeyData(pid, wire.NewSecret(st.Protocol))
//	c.ReadyForQuery('I'); err = c.Flush()
//	for {
//		typ, body, err := c.Read()                               // body is valid until the next Read
//		…                                                        // DecodeBind(body, &m), c.DataRow(values), …
//		if !c.Buffered() { err = c.Flush() }
//	}
//
// # Reading
//
// An idle connection holds no buffer: Read first waits until the socket is readable and takes a buffer from a pool only then.
// A message is read into a buffer that grows as its bytes arrive; its declared length alone allocates nothing. A message over
// the cap is FATAL 08P01; one that the Budget refuses is skipped and reported as ERROR 53200, after which reading goes on.
// Read may be interrupted by SetReadDeadline and called again: nothing is lost.
//
// # Writing
//
// Writers only append, except that more than 64 KiB of pending output is written at once, so that a result of any size needs
// bounded memory. Write errors are kept and reported by the next Flush. All writers may be called from several goroutines:
// each message is appended whole (Notify relies on that).
package wire
