// Package catalogpg is everything that talks to the catalog Postgres: the embedded cluster, the schema sluice in it, the flip, the shadow
// relations and the sessions' backends.
//
// It owns the tables and functions of the schemas sluice, sluice_iceberg and sluice_fill_fn (migrations/), and all SQL text that the gateway
// itself sends. Start with StartEmbedded and Open. It never sees rows as Arrow, never reads or writes a data file, and never sends a user's
// statement anywhere but to the backend that is logged in as that user.
//
//	e, err := StartEmbedded(ctx, dir, log)               // or ConnString below
//	c, err := Open(ctx, Config{Embedded: e, Log: log})   // makes database lake and user lake, checks (R21), migrates
//	go c.Run(ctx)                                        // Config.Notify: sluice_ddl "oid:version", sluice_commits "id:position"
//	rels, err := c.Rels(ctx)                             // what Postgres says of every recorded relation, and Rel.Lake
//	state, err := c.Load(ctx)                            // pointers and bookkeeping: catalog.Catalog
//	id, err := c.Flip(ctx, flip)
//	committed, err := c.Resolve(ctx, flipID)
//	committed, err := c.Decision(ctx, txid)
//	rels, err := c.Inside(ctx); places, err := c.Places(ctx)  // the tables of the views over the inside; where lake tables stand
//	verifier, exists, canLogin, until, err := c.Verifier(ctx, role)
//	err = c.EnsureOwner(ctx, role), c.ForgetOwner(ctx, role)  // who owns lake tables
//	err = e.Stop(ctx) | e.Leave()                        // Leave: the next start adopts the running cluster; e.Run tells when it ends
//
//	b, err := c.Attach(ctx, user, database, params)      // *DatabaseError (3D000), *RoleError (28000), else *pgconn.PgError
//	err = b.Cancel(ctx)
//	err = b.Close()
//
// Privileged statements on a user's backend are Calls: put them into the session's own pipeline with Call.Append, or run one with
// Backend.Do. Each has its Decode function.
//
//	CountsCall()                     one row, DecodeCounts; Counts.Since names the shadows scanned and inserted into
//	b.FillCall(rel, attnums, cols, n)  one row, DecodeFill; MissingOwner(code, detail) → c.EnsureOwner, then again
//	b.ChangeCall(rel, fill)          rows, DecodeChange
//	b.ClearCall(rel)
//	b.EffectsCall()                  one row, DecodeEffects
//	b.ReconcileCall()                rows, DecodeCandidate
//	b.RelPutCall(rel, put), b.RelDropCall(rel)
//	b.FlipCall(flip)                 errors through FlipError
//	b.DecideCall(txid)
//	b.RoleCall(RoleText(st), forget) statements about roles, in the user's transaction with the rights of sluice_roles
//
// The order of one filled statement: SAVEPOINT a, fill every table (locks of the gateway are held), SAVEPOINT b, counts, the user's
// statement, counts, change, ROLLBACK TO a. Fill and change scan and insert themselves, so the first counts come after the last fill, and
// the second before change.
//
// DDL writes sluice.rel and sluice.watch, flips write sluice.pointer and iceberg_tables: an open DDL transaction never makes a flush wait, and
// a flip takes a table's present name from sluice.rel, so that a rename is a flip with From == To.
//
// Known limits: a fill needs a transaction that may write (25006 in READ ONLY ones); a DDL transaction at REPEATABLE READ fails its flip with
// 40001 if any other flip committed since its snapshot; tables with FORCE ROW LEVEL SECURITY and types with a user's cast from text cannot be
// filled (0A000); fills leave dead rows that autovacuum removes within seconds.
//
// Tables made through the database lake have the access method lake, which is heap under another name: Rel.AM tells lake tables from tables
// USING heap, however they were made.
package catalogpg
