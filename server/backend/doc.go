// Package backend is the gateway's end of a session backend: one Postgres connection, logged in as the user, that answers what
// the gateway does not answer itself.
//
// Start with New on a connection that is past its login. The sending methods (Query, Parse, Bind, …, Forward) only queue a
// message and a Call for its answer; Drain sends what is queued and reads until every call is answered, handing the backend's
// messages, raw and undecoded, to the Sink of their call. A call without a sink is hidden: its answer and its notices are
// dropped. Exec runs a statement of the gateway's own in the middle of all that and decodes its rows.
//
//	be := backend.New(nc, backend.Options{Key: key, Dial: dial, Hooks: hooks})
//	sink := func(typ byte, frame []byte) error { client.Raw(frame); return nil }
//	be.Forward(sink, 'P', body); be.Forward(sink, 'B', body); call := be.Forward(sink, 'E', body)
//	err := be.Drain()              // connection-level failure, ErrCopyIn, or an error of a sink
//	call.Err, call.Skipped         // the ErrorResponse, or whether an earlier one made the backend skip it
//	be.Sync(sink); err = be.Drain(); be.Status()
//
// The package knows the shape of the conversation (which message ends which answer, what an error skips), never what a
// statement means. It owns one goroutine for a write that cannot finish before the backend was read, which has ended when
// Close returns, one in CopyIn, which has ended when that returns, and one between Watch and Unwatch.
package backend
