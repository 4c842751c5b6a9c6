package writer

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"math"

	"sluice/writer/catalog"
	"sluice/writer/lock"
	"sluice/writer/table"
	"sluice/writer/wal"
)

// Held transactions outlive their session and the process until somebody decides them, perhaps in days (PREPARE TRANSACTION). Nothing waits
// for one but who wants its locks (docs/design/0011-two-phase.md):
//
//	Hold          its state goes to the catalog: rows, names of deleted rows, locks
//	              a crash from here on: the catalog knows its fate, or that it has none yet. Then the next start makes it again
//	Postgres PREPARE TRANSACTION, with the decision row
//	Postgres COMMIT PREPARED                      decides
//	              a crash: the next start finds the decision and goes on below
//	EndHeld       an ordinary commit: a frame at a new position, published
//	              a crash: the frame has its identity; the next start sees that it is done
//	its state is taken out of the catalog
//
// Row maps that its names need are kept until then, also over restarts.

// ErrNotHeld (0A000): the transaction cannot be held.
var ErrNotHeld = errors.New("transaction cannot be prepared")

// maxHeld is the most bytes that the state of a held transaction may have.
const maxHeld = 64 << 20

// heldState is what the catalog keeps.
type heldState struct {
	Frame    []byte
	Versions [][]int // see ownTable.versions
	Locks    []heldLock
}

type heldLock struct {
	Key  lock.Key
	Mode lock.Mode
}

// Holds reports whether the transaction has anything that has to be held: writes, or locks.
func (t *Txn) Holds() bool { return t.Wrote() || t.locks.Held() > 0 }

// Hold puts the transaction's state into the catalog under a name, which need not be the only one of its kind. It is still open, and nothing may be
// written any more. Keep or Drop follows.
func (t *Txn) Hold(ctx context.Context, name string) error {
	if err := t.check(ctx); err != nil {
		return fmt.Errorf("hold: %w", err)
	}
	switch {
	case len(t.changes) > 0:
		return fmt.Errorf("%w: it has changed tables", ErrNotHeld)
	case t.flip != "":
		return fmt.Errorf("%w: its rows are in files already", ErrNotHeld)
	case t.reads != nil:
		return fmt.Errorf("%w: it is SERIALIZABLE", ErrNotHeld)
	case t.writer != "" && t.sequence != wal.Unnumbered:
		return fmt.Errorf("%w: it has a retry identity", ErrNotHeld)
	}
	if t.writer == "" {
		t.writer, t.sequence = "0/", wal.Unnumbered // nobody's
	}
	t.w.mu.Lock()
	t.names = t.w.store.Generation() + 1 // maps from here on are kept: names may be of now
	t.w.mu.Unlock()
	state, err := t.state()
	if err != nil {
		return fmt.Errorf("hold: %w", err)
	}
	return t.w.opts.Catalog.Prepare(ctx, catalog.Prepared{ID: t.id, Name: name, State: state})
}

func (t *Txn) state() ([]byte, error) {
	e := t.entry(wal.Prepared, t.w.now().UnixMicro())
	s := heldState{Frame: e.frame.Alone(), Versions: e.versions}
	t.locks.Each(func(k lock.Key, m lock.Mode) { s.Locks = append(s.Locks, heldLock{k, m}) })
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(s); err != nil {
		return nil, err
	}
	if b.Len() > maxHeld {
		return nil, fmt.Errorf("%w: it is larger than %d MB", ErrNotHeld, maxHeld>>20)
	}
	return b.Bytes(), nil
}

// Keep makes a transaction that Hold has put into the catalog findable by its name. Its session may go.
func (t *Txn) Keep(name string) {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	t.w.held[name], t.snapshot = t, nil
	t.began = readsNothing
}

// readsNothing is began of a transaction that looks at no snapshot any more: those may expire. What its names need, names says.
const readsNothing = math.MaxUint64 - 1

// Held is the transaction that is held under a name, nil if there is none.
func (w *Writer) Held(name string) *Txn {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held[name]
}

// EndHeld ends a held transaction as it was decided, and returns when a commit is published. Of two callers one does it.
func (w *Writer) EndHeld(ctx context.Context, name string, t *Txn, committed bool, opts CommitOptions) error {
	if !w.letGo(name, t) {
		return nil
	}
	return t.EndHold(ctx, committed, opts)
}

// letGo reports whether the caller is the first. The name may be another's by now: Postgres gave it away when it had decided.
func (w *Writer) letGo(name string, t *Txn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held[name] == t {
		delete(w.held, name)
	}
	first := !t.decided
	t.decided = true
	return first
}

// EndHold is EndHeld of a transaction that was not kept.
func (t *Txn) EndHold(ctx context.Context, committed bool, opts CommitOptions) (err error) {
	defer t.end()
	if committed {
		if _, err = t.Commit(context.WithoutCancel(ctx), opts); err != nil {
			return err // the next start goes on
		}
	}
	return t.w.opts.Catalog.ForgetPrepared(ctx, t.id)
}

// restoreHeld makes the held transactions again at a start. Those that are decided are left for SettleHeld.
func (w *Writer) restoreHeld(ctx context.Context) error {
	list, err := w.opts.Catalog.PreparedTransactions(ctx)
	if err != nil {
		return fmt.Errorf("load catalog: %w", err)
	}
	for _, p := range list {
		if err := w.restore(ctx, p); err != nil {
			return fmt.Errorf("restore prepared transaction %q: %w", p.Name, err)
		}
	}
	return nil
}

func (w *Writer) restore(ctx context.Context, p catalog.Prepared) error {
	committed := false
	if !p.Pending {
		var err error
		if committed, err = w.opts.Catalog.Decision(ctx, p.ID); errors.Is(err, catalog.ErrPending) {
			p.Pending = true
		} else if err != nil {
			return err
		}
	}
	var s heldState
	if err := gob.NewDecoder(bytes.NewReader(p.State)).Decode(&s); err != nil {
		return err
	}
	x, err := wal.Decode(s.Frame, w.schema)
	if err != nil {
		return err
	}
	done, _ := w.windows.Knows(x.ID, x.Writer, x.Sequence, 0)
	if !p.Pending && (!committed || done) {
		return w.opts.Catalog.ForgetPrepared(ctx, p.ID)
	}
	t, err := w.again(ctx, x, &s)
	if err != nil {
		return err
	}
	if p.Pending {
		w.held[p.Name] = t
	} else {
		w.settled = append(w.settled, t)
	}
	return nil
}

func (w *Writer) schema(id table.ID, schema int) (*table.Schema, error) {
	v := w.store.View()
	tv, ok := v.Table(id)
	if !ok || tv.Def.Schema.ID != schema {
		return nil, fmt.Errorf("table %d does not have schema %d any more", id, schema)
	}
	return tv.Def.Schema, nil
}

// again makes a transaction from its state. Nobody else is there yet: no lock is waited for.
func (w *Writer) again(ctx context.Context, x *wal.Txn, s *heldState) (*Txn, error) {
	t := w.Begin(TxnOptions{})
	w.mu.Lock()
	t.id, t.writer, t.sequence = x.ID, x.Writer, x.Sequence
	t.began, t.names = readsNothing, 0
	w.mu.Unlock()
	t.wait = lock.Wait{Policy: lock.NoWait}
	for _, l := range s.Locks {
		if err := t.relock(ctx, l); err != nil {
			return nil, err
		}
	}
	for i := range x.Tables {
		var versions []int
		if s.Versions != nil {
			versions = s.Versions[i]
		}
		if err := t.redo(ctx, &x.Tables[i], versions); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *Txn) relock(ctx context.Context, l heldLock) error {
	if l.Key.Space == lock.TableSpace {
		return t.LockTable(ctx, l.Key.Table, l.Mode, t.wait)
	}
	return t.lockRow(ctx, l.Key.Table, table.Ref{File: table.FileID(l.Key.A), Row: l.Key.B}, l.Mode, t.wait)
}

// redo does what a frame does to a table once more. Rows that have newer versions come first, then those that only go.
func (t *Txn) redo(ctx context.Context, op *wal.TableOps, versions []int) error {
	if op.Truncate {
		if err := t.Truncate(ctx, op.Table); err != nil {
			return err
		}
	}
	var gone, updated []table.Ref
	var order []int32
	newer := map[int]bool{}
	for k, ref := range op.Deletes {
		if versions == nil || versions[k] <= 0 {
			gone = append(gone, ref)
			continue
		}
		updated, order = append(updated, ref), append(order, int32(versions[k]-1))
		newer[versions[k]-1] = true
	}
	if len(gone) > 0 {
		if err := t.Delete(ctx, op.Table, gone, lock.ForUpdate); err != nil {
			return err
		}
	}
	if op.Rows == nil {
		return nil
	}
	for row := range op.Rows.Rows {
		if !newer[row] {
			order = append(order, int32(row))
		}
	}
	_, err := t.Update(ctx, op.Table, updated, pick(op.Rows, order), lock.ForNoKeyUpdate)
	return err
}

// SettleHeld commits what Postgres had decided to commit when the process before this one ended. Run must be running, and no client be served yet.
func (w *Writer) SettleHeld(ctx context.Context) error {
	for len(w.settled) > 0 {
		if err := w.settled[0].EndHold(ctx, true, CommitOptions{}); err != nil {
			return fmt.Errorf("commit prepared transaction: %w", err)
		}
		w.settled = w.settled[1:]
	}
	return nil
}

// needed is the oldest generation whose row maps replays may use: of frames behind pos, and of held transactions.
func (w *Writer) needed(pos table.Position) uint64 {
	needed := w.flusher.needed(pos)
	w.mu.Lock()
	defer w.mu.Unlock()
	for t := range w.open {
		needed = min(needed, t.names)
	}
	return needed
}

// notHeld is names of a transaction that is not held.
const notHeld = ^uint64(0)
