package keyindex

import "fmt"

// Merge adds to w the entries of all runs, which are given newest first. keep says what becomes of an entry: the row's name now, or
// false if it is dead. nil keeps all. Its memory is a block a run.
func Merge(w *Writer, runs []*Run, keep func(Entry) (Entry, bool)) error {
	m := merge{}
	for i, r := range runs {
		if err := m.begin(newCursor(r), i); err != nil {
			return fmt.Errorf("merge: %w", err)
		}
	}
	for i := len(m.heads)/2 - 1; i >= 0; i-- {
		m.down(i)
	}
	for len(m.heads) > 0 {
		e := m.heads[0].entry
		if err := m.advance(); err != nil {
			return fmt.Errorf("merge: %w", err)
		}
		hash := e.Hash
		if keep != nil {
			var ok bool
			if e, ok = keep(e); !ok {
				continue
			}
		}
		e.Hash = hash // the order's
		if err := w.Add(e); err != nil {
			return fmt.Errorf("merge: %w", err)
		}
	}
	return nil
}

// merge is a heap of runs by the hash of their next entry, then age.
type merge struct{ heads []head }

type head struct {
	entry Entry
	age   int
	rest  *cursor
}

func (a *head) before(b *head) bool {
	return a.entry.Hash < b.entry.Hash || a.entry.Hash == b.entry.Hash && a.age < b.age
}

func (m *merge) begin(c *cursor, age int) error {
	e, ok, err := c.next()
	if ok {
		m.heads = append(m.heads, head{e, age, c})
	}
	return err
}

// advance takes the first entry out.
func (m *merge) advance() error {
	e, ok, err := m.heads[0].rest.next()
	if err != nil {
		return err
	}
	if m.heads[0].entry = e; !ok {
		m.heads[0] = m.heads[len(m.heads)-1]
		m.heads = m.heads[:len(m.heads)-1]
	}
	m.down(0)
	return nil
}

// down restores the order below i.
func (m *merge) down(i int) {
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(m.heads); c++ {
			if m.heads[c].before(&m.heads[least]) {
				least = c
			}
		}
		if least == i {
			return
		}
		m.heads[i], m.heads[least] = m.heads[least], m.heads[i]
		i = least
	}
}

// MaxRuns is how many runs a lookup should have to ask: its price is one filter each.
const MaxRuns = 16

// Pick says which runs to merge next, given the number of entries of each, newest first: the runs [0, n); n is 0 if none. Runs are merged
// with what is not more than twice their size, so an entry is written again about log₂ of the final size often; over max, those that
// bring the number down cheapest.
func Pick(entries []uint64, max int) (n int) {
	var sum uint64
	for i, e := range entries {
		if i > 0 && e <= 2*sum || i < len(entries)-max+1 && len(entries) > max {
			n = i + 1
		} else if i > 0 {
			break
		}
		sum += e
	}
	return n
}
