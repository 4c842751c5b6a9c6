// Package writer is the transactional core: it takes batches of rows for many tables and makes them durable and visible
// together, at one position of the log, and moves them into lake tables behind everybody's back.
//
// It owns transactions: their rows, deletes, savepoints, locks and pending schema changes; the order of commits (the
// sequencer); and the loop that flushes. Start with Open, then Run, then Begin. It knows no SQL, no wire and no Postgres: what
// a key is, and what a Postgres COMMIT decides, it is told through functions.
//
// # The calls, in the order of use
//
//	w, err := writer.Open(ctx, writer.Options{Dir, Catalog, Objects, Format, Tables, …}) // recovery, then ready
//	err = w.Run(ctx)                                       // commits are acknowledged only while Run runs; drains when ctx ends
//	err = w.Close()                                        // after Run returned
//
//	t := w.Begin(writer.TxnOptions{Isolation: writer.ReadCommitted})
//	t.ID() [16]byte; t.Isolation() Isolation; t.LockOwner() *lock.Owner; t.Wrote() bool; t.HasDDL() bool
//	t.SetWait(lock.Wait{Timeout: d})                       // for locks that are taken on the way (lock_timeout)
//	answer, repeat, err := t.Identify(ctx, writer, seq)    // retry identity; of a repeat answer is what it is to be told
//	t.SetAnswer(answer)                                    // before the end: what a repeat will be told
//	k := t.Token(owner); o, err := w.Outcome(k)            // committed, aborted, in progress or expired, also after a restart
//	v := t.Statement() *View                               // READ COMMITTED: newest; else the transaction's first snapshot
//
//	v.Table(id) (*Def, bool)                               // the table as this transaction sees it (its own Define included)
//	v.Scan(ctx, id, func(Rows) error) error                // live rows: files − deletes + tail + own rows − own deletes
//	v.ScanColumns(ctx, id, cols []int, fn) error           // the same; batches have the schema datafile.Project(schema, cols)
//	v.Tail(ctx, id, cols []int, fn) error                  // ScanColumns without the files
//	v.Files(id) ([]FileView, error)                        // for readers of Parquet: live files and their dead rows at this view
//	v.ByKey(ctx, id, uniqueID uint32, key []byte) (Rows, bool, error); v.ByKeys(ctx, id, uniqueID, keys, fn)
//	v.Fetch(ctx, id, refs []table.Ref) (*table.Batch, error) // rows by name, in the order asked
//	v.Size(id) (rows, bytes int64)                         // estimate
//	v.Position() table.Position
//	r.Ref(i) table.Ref; r.Live() int                       // of Rows{Batch, Sel, File, First}
//
//	t.Insert(ctx, id, batch) (first uint64, err error)     // rows get Refs {table.Own, first+i}; *UniqueConflict, after waiting for
//	                                                       // whoever deletes or updates the row that has the key
//	t.Delete(ctx, id, refs, lock.ForUpdate) error          // or lock.ForNoKeyUpdate; *RowMoved
//	t.Update(ctx, id, refs, batch, mode) (first, err)      // row i of batch is the newer version of refs[i]: keys may stay, or move
//	                                                       // among the rows; locks of others on refs[i] follow to it at the commit
//	t.Truncate(ctx, id) error                              // takes the table lock AccessExclusive
//	t.LockRows(ctx, id, refs, mode, lock.Wait{…}) (locked []bool, err error)
//	t.LockTable(ctx, id, mode, lock.Wait{…}) error
//	t.Current(id, ref) (table.Ref, bool)                   // newest name of a row, and whether it is live in the newest state
//
//	sp := t.Savepoint(); t.RollbackTo(sp); t.Release(sp)   // after RollbackTo or Define take a new Statement
//	pos, err := t.Commit(ctx, writer.CommitOptions{WaitFlip: false})
//	t.Rollback()                                           // nothing after the end, so it can be deferred
//
//	pos, err := t.Prepare(ctx)                             // durable; it and all higher positions are published only after
//	err = t.Resolve(ctx, committed)
//	err := t.Hold(ctx, name); t.Keep(name)                 // outlives session and process; nothing waits for it but who wants its locks
//	t = w.Held(name); err = w.EndHeld(ctx, name, t, committed, opts); w.SettleHeld(ctx) // decided; decided before a restart
//	t.Leave(release)                                       // the answer was lost: Run asks for it until it is there, and resolves
//
//	err := t.Define(ctx, writer.TableChange{Kind: writer.Create, Def: def}) // Create, Alter, Rename, Drop; not yet committed
//	pos, err := t.CommitDDL(ctx, func(ctx context.Context, f *catalog.Flip) error { … }) // decide: COMMIT with the flip in it
//
//	release, err := w.Gate().Shared(ctx)                   // a Postgres snapshot and a position together
//	release, err := w.Gate().Exclusive(ctx)                // Prepare … COMMIT … Resolve; CommitDDL takes it by itself
//	pos, err := w.Flush(ctx)                               // everything visible now is in files when it returns
//	done, err := w.Compact(ctx, id)                        // small and sparse files of a table become fewer
//	done, err := w.Expire(ctx, id, age)                    // old snapshots, and what only they reach, go
//	w.Gauges() realtime.Gauges; w.Visible(); w.Progress(); w.Stream(); w.Locks()
//
// # Errors
//
// *UniqueConflict, *RowMoved, ErrSerialization, ErrMemory, ErrUnknownTable, ErrSchemaChanged, ErrOutcomeUnknown, ErrStopped, ErrBelowWindow, ErrWindows,
// ErrDone, and those of lock. After a failed statement the transaction is as it was before it, but for locks.
//
// # Memory
//
// Rows of open transactions and the tail share Options.Memory. When it is used up the tail is flushed; rows of a transaction
// beyond Options.SpillBytes go to files before the commit, which is then a flip and not a frame (docs/design/0007-bulk.md).
// ErrMemory is left for what cannot go that way: rows of a table that the transaction itself created or changed, Prepare and
// schema changes after rows have gone, and locks and keys, which stay in memory.
//
// # Positions of schema changes and of large transactions
//
// A transaction that CommitDDL ends, or that has rows in files, takes a position only if it wrote rows: an empty prepared frame stands in the log for it,
// and the flip, which has its rows as files, moves progress to that position. So positions stay gapless (I7), every catalog
// state is a prefix of the log (I3), and a replay either starts behind the frame or finds no decision for it.
//
// # What it never does
//
// It never acknowledges before the log is durable and the rows are published, never deletes a file that a flip may still name,
// never starts a goroutine outside Run, and never lets an effect out that the one decider of the transaction has not decided
// (DESIGN section 4).
package writer
