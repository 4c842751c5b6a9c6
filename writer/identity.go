package writer

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"

	"sluice/writer/invariants"
	"sluice/writer/lock"
	"sluice/writer/table"
	"sluice/writer/wal"
	"sluice/writer/window"
)

// Retry identities (docs/design/0010-once.md). A transaction with a writer and a sequence leaves its answer in its own frame, hence with its
// rows or not at all; the next flip stores it with what it moves. So at every start the flips' answers and those of the replayed log are
// together what was committed, and a repeat is told the answer instead of running again. A lock on the identity makes twins run one
// after the other.

// Errors of Identify.
var (
	// ErrBelowWindow (55000): it is not known whether a transaction with this sequence has committed.
	ErrBelowWindow = errors.New("sequence is below the window of its writer")
	// ErrWindows (53200): the answers of all writers take all the memory they may.
	ErrWindows = errors.New("out of memory for the answers of transactions with a retry identity")
)

// identitySpace is the lock space of identities, in no table.
const identitySpace = 1

var identitySeed = maphash.MakeSeed()

// identityKey is what twins wait for. Two identities with one hash only wait for each other without need.
func identityKey(writer string, sequence int64) lock.Key {
	return lock.Key{Space: identitySpace, A: maphash.String(identitySeed, writer), B: uint64(sequence)}
}

// Identify gives the transaction a retry identity. When a transaction with it has committed, repeat is true and answer is that one's, and
// this one must not write. A twin that is under way is waited for. The writer's name up to the first slash says whose it is; the rest
// is not empty. The identity outlives rollbacks to savepoints. An error leaves the transaction without it.
func (t *Txn) Identify(ctx context.Context, writer string, sequence int64) (answer []byte, repeat bool, err error) {
	if err := t.check(ctx); err != nil {
		return nil, false, fmt.Errorf("identify: %w", err)
	}
	invariants.Check(t.writer == "" || t.sequence == wal.Unnumbered || t.writer == writer && t.sequence == sequence, "a transaction with two identities")
	if err := t.lockIdentity(ctx, writer, sequence); err != nil {
		return nil, false, fmt.Errorf("wait for a transaction with the same identity: %w", err)
	}
	r, below := t.w.windows.Find(writer, sequence, t.w.now().UnixMicro())
	switch {
	case below:
		return nil, false, ErrBelowWindow
	case r == nil && t.w.windows.Bytes() > t.w.opts.Memory/8:
		return nil, false, ErrWindows
	}
	t.writer, t.sequence = writer, sequence
	if r != nil {
		t.repeats = r
		return r.Answer, true, nil
	}
	return nil, false, nil
}

// lockIdentity locks an identity to the end of the transaction, whatever savepoints there are.
func (t *Txn) lockIdentity(ctx context.Context, writer string, sequence int64) error {
	before := t.locks.Held()
	waited, err := t.locks.Acquire(ctx, identityKey(writer, sequence), lock.ForUpdate, t.wait)
	t.noteWait(waited)
	if err != nil || t.locks.Held() == before { // a try before this one took it
		return err
	}
	t.locks.Sink()
	for i := range t.marks {
		t.marks[i].locks++
	}
	return nil
}

// SetAnswer is what a repeat of the transaction will be told. Identify comes before, Commit and its like after it.
func (t *Txn) SetAnswer(answer []byte) { t.answer = answer }

// Remembered reports whether the transaction's commit leaves a trace even if it wrote nothing.
func (t *Txn) Remembered() bool { return t.writer != "" && t.repeats == nil }

// Outcome is what became of a transaction.
type Outcome uint8

// The outcomes.
const (
	OutcomeExpired    Outcome = iota // nobody knows any more
	OutcomeInProgress                // it has not ended, or is prepared
	OutcomeCommitted
	OutcomeAborted
)

func (o Outcome) String() string {
	return [...]string{"expired", "in progress", "committed", "aborted"}[o]
}

// Token names a transaction for Writer.Outcome, also after a restart.
type Token struct {
	id       [16]byte
	stream   [16]byte
	after    table.Position // its commit's position is above
	writer   string
	sequence int64
}

// Token names the transaction, and from now on its commit is remembered: under its identity, or as one of owner's.
func (t *Txn) Token(owner string) Token {
	if t.writer == "" {
		t.writer, t.sequence = owner+"/", wal.Unnumbered
	}
	return t.token(t.writer, t.sequence)
}

// LastToken names a transaction whose commit had an unknown outcome. Only the next start of the gateway knows it, unless it has an identity.
func (t *Txn) LastToken() Token {
	if t.writer == "" {
		return t.token(window.Replayed, wal.Unnumbered)
	}
	return t.token(t.writer, t.sequence)
}

func (t *Txn) token(writer string, sequence int64) Token {
	return Token{id: t.id, stream: t.w.log.Stream(), after: t.w.Visible(), writer: writer, sequence: sequence}
}

// Writer is under which name the transaction is remembered; "" if it is not.
func (k Token) Writer() string { return k.writer }

// String is the token as text: letters, digits, - and _.
func (k Token) String() string {
	b := append(k.id[:], k.stream[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(k.after))
	b = binary.BigEndian.AppendUint64(b, uint64(k.sequence))
	return base64.RawURLEncoding.EncodeToString(append(b, k.writer...))
}

// ParseToken reads what Token.String printed.
func ParseToken(text string) (k Token, ok bool) {
	const fixed = 16 + 16 + 8 + 8
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) < fixed {
		return k, false
	}
	copy(k.id[:], b)
	copy(k.stream[:], b[16:])
	k.after = table.Position(binary.BigEndian.Uint64(b[32:]))
	k.sequence = int64(binary.BigEndian.Uint64(b[40:]))
	k.writer = string(b[fixed:])
	return k, true
}

// Outcome is what became of the transaction. It never guesses. ErrOutcomeUnknown: this process cannot tell, its next start can.
func (w *Writer) Outcome(k Token) (Outcome, error) {
	if w.underWay(k.id) { // asked first: a transaction ends only after its answer was put
		return OutcomeInProgress, nil
	}
	committed, certain := w.windows.Knows(k.id, k.writer, k.sequence, k.after)
	switch {
	case committed:
		return OutcomeCommitted, nil
	case w.Failed() != nil:
		return OutcomeExpired, ErrOutcomeUnknown
	case !certain || k.stream != w.log.Stream():
		return OutcomeExpired, nil
	}
	return OutcomeAborted, nil
}

// underWay holds the pump: what has left the queue has its answer put.
func (w *Writer) underWay(id [16]byte) bool {
	w.seq.pump.Lock()
	defer w.seq.pump.Unlock()
	w.seq.mu.Lock()
	queued := slices.ContainsFunc(w.seq.queue, func(e *entry) bool { return e.txn.ID == id && e.txn.Kind != wal.Resolved })
	w.seq.mu.Unlock()
	if queued {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for t := range w.open {
		if t.id == id {
			return true
		}
	}
	return false
}

// claim locks the identity of a transaction from before a restart whose fate is not known, so that a repeat waits for it.
func (w *Writer) claim(t *wal.Txn) *lock.Owner {
	if t.Kind != wal.Prepared || t.Writer == "" {
		return nil
	}
	o := w.locks.NewOwner()
	_, _ = o.Acquire(context.Background(), identityKey(t.Writer, t.Sequence), lock.ForUpdate, lock.Wait{Policy: lock.NoWait}) // nobody else is there
	return o
}
