// Package writer is the transactional core: it takes batches of rows for many tables and makes them durable and visible
// together, at one position of the log, and moves them into lake tables behind everybody's back.
//
// It owns transactions: their rows, deletes, savepoints, locks and pending schema changes; the order of commits (the
// sequencer); and the loop that flushes. Start with Open, then Run, then Begin. It knows no SQL, no wire and no Postgres: what
// a key is, and what a Postgres COMMIT decides, it is told through functions.
//
// # The calls, in the order of use
//
//	w, err := writer.Open(ctx, writer.Options{...})        // recovery, then ready
//	err = w.Run(ctx)                                       // commits are acknowledged only while Run runs; drains when ctx ends
//	err = w.Close()                                        // after Run returned
//
//	t := w.Begin(writer.TxnOptions{Isolation: writer.ReadCommitted, Writer: "", Sequence: 0})
//	t.ID() [16]byte; t.Isolation() Isolation; t.LockOwner() *lock.Owner
//	v := t.Statement() *View                               // READ COMMITTED: newest; else the transaction's first snapshot
//
//	v.Table(id) (*TableDef, bool)                          // the table as this transaction sees it (its own Define included)
//	v.Scan(ctx, id, func(Rows) error) error                // live rows: files − deletes + tail + own rows − own deletes
//	v.ScanColumns(ctx, id, cols []int, fn)                 // the same; columns not asked for may be nil in Batch.Cols
//	v.ByKey(ctx, id, uniqueID uint32, key []byte) (Rows, bool, error)
//	v.Fetch(ctx, id, refs []table.Ref) (*table.Batch, error) // rows by name, in the order asked
//	v.Size(id) (rows, bytes int64)                         // estimate
//	v.Files(id) []FileView                                 // for readers of Parquet: live files and their dead rows at this view
//	v.Tail(ctx, id, fn)                                    // Scan without the files
//	v.Position() table.Position
//
//	t.Insert(ctx, id, batch) (first uint64, err error)     // rows get Refs {table.Own, first+i}; *UniqueConflict
//	t.Delete(ctx, id, refs, lock.ForUpdate) error          // or lock.ForNoKeyUpdate; *RowMoved
//	t.Update(ctx, id, refs, batch, mode) (first, err)      // Delete + Insert as one: a key that keeps its row's key never conflicts
//	t.Truncate(ctx, id) error                              // takes the table lock AccessExclusive
//	t.LockRows(ctx, id, refs, mode, wait) (locked []bool, err error) // wait: lock.Wait, lock.NoWait, lock.SkipLocked
//	t.LockTable(ctx, id, mode, wait) error
//	t.Current(id, ref) (table.Ref, bool)                   // newest name of a row, and whether it is live in the newest state
//
//	sp := t.Savepoint(); t.RollbackTo(sp); t.Release(sp)
//	pos, err := t.Commit(ctx, writer.CommitOptions{WaitFlip: false})
//	t.Rollback()
//
//	pos, err := t.Prepare(ctx)                             // durable; it and all higher positions are published only after
//	err = t.Resolve(ctx, committed)
//
//	err := t.Define(ctx, writer.TableChange{Kind: writer.Create, Def: def}) // Create, Alter, Rename, Drop; not yet committed
//	pos, err := t.CommitDDL(ctx, func(ctx context.Context, f *catalog.Flip) error { … }) // decide: COMMIT with the flip in it
//	t.HasDDL() bool
//
//	release, err := w.Gate().Shared(ctx)                   // a Postgres snapshot and a position together
//	release, err := w.Gate().Exclusive(ctx)                // Prepare … COMMIT … Resolve of a Postgres-decided transaction
//	pos, err := w.Flush(ctx)                               // everything visible now is in files when it returns
//	w.Gauges() realtime.Gauges; w.Visible(); w.Progress()
//
// # Errors
//
// *UniqueConflict, *RowMoved, ErrSerialization, ErrMemory, ErrUnknownTable, ErrOutcomeUnknown, ErrStopped, and those of lock.
//
// # What it never does
//
// It never acknowledges before the log is durable and the rows are published, never deletes a file, never starts a goroutine
// outside Run, and never lets an effect out that the one decider of the transaction has not decided (DESIGN section 4).
package writer
