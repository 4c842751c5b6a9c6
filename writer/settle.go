package writer

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// settleEvery is how often the catalog is asked again for a decision that it could not tell.
const settleEvery = time.Second

// settler asks the catalog for the fates of prepared transactions that nobody else will learn: those whose sessions lost the answer, and those
// from before a restart whose Postgres transaction still ran when the log was replayed.
type settler struct {
	kick chan struct{} // holds a token when the list has grown
	mu   sync.Mutex
	list []unsettled
}

type unsettled struct {
	id      [16]byte
	resolve func(committed bool) error
}

// Leave hands over a prepared transaction whose decision the caller could not learn: Run asks the catalog until it answers, resolves it, and calls
// release. Until then what was committed after it is not visible, and its locks stay. A crash leaves the question to the next start.
func (t *Txn) Leave(release func()) {
	t.left = true
	t.w.settler.add(unsettled{t.id, func(committed bool) error {
		defer release()
		return t.Resolve(context.Background(), committed)
	}})
}

func (s *settler) add(u unsettled) {
	s.mu.Lock()
	s.list = append(s.list, u)
	s.mu.Unlock()
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// leaveReplayed puts the undecided transactions of the log on the list.
func (w *Writer) leaveReplayed() {
	w.seq.mu.Lock()
	defer w.seq.mu.Unlock()
	for _, e := range w.seq.queue {
		if e.open && e.group == nil {
			w.settler.add(unsettled{e.txn.ID, func(committed bool) error { return w.resolve(e, e.txn.ID, committed) }})
		}
	}
}

func (w *Writer) runSettler(ctx context.Context) error {
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.settler.kick:
		case <-again:
		}
		if again = nil; !w.settleLeft(ctx) {
			again = time.After(settleEvery)
		}
	}
}

// settleLeft asks for every transaction on the list, and reports whether the list is empty after that.
func (w *Writer) settleLeft(ctx context.Context) bool {
	s := &w.settler
	s.mu.Lock()
	list := s.list
	s.list = nil
	s.mu.Unlock()
	var rest []unsettled
	for _, u := range list {
		if err := w.settleOne(ctx, u); err != nil {
			w.opts.Log.Warn("the fate of a transaction is not known yet", "transaction", fmt.Sprintf("%x", u.id), "error", err)
			rest = append(rest, u)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, rest...)
	return len(s.list) == 0
}

// settleOne fails if there is no answer. What resolving says is not ours to tell: a log that failed has told everybody.
func (w *Writer) settleOne(ctx context.Context, u unsettled) error {
	committed, err := w.opts.Catalog.Decision(ctx, u.id)
	if err != nil {
		return err
	}
	if err := u.resolve(committed); err == nil {
		w.opts.Log.Info("the fate of a transaction is known", "transaction", fmt.Sprintf("%x", u.id), "committed", committed)
	}
	return nil
}
