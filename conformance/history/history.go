// Package history judges what clients saw of transactions over lists: each transaction reads whole lists and appends elements that nobody
// else appends, so that a list shows the order in which its writers came, and with it who depends on whom. After Kingsbury and Alvaro, "Elle:
// Inferring Isolation Anomalies from Experimental Observations" (2020), and Adya's definitions of the anomalies (1999). Start with Check.
package history

import (
	"cmp"
	"fmt"
	"slices"
)

// Outcome is what the client knows about the end of a transaction.
type Outcome byte

const (
	OK      Outcome = iota // committed
	Failed                 // certainly rolled back
	Unknown                // the connection broke during COMMIT
)

// Op is one read or one append.
type Op struct {
	Key    int
	Append int   // the element, or 0: a read
	Read   []int // the list that was read
}

// Txn is one transaction of one session. Begin and End are moments of one clock: before the first statement was sent, after the last answer came.
type Txn struct {
	Session    int
	Ops        []Op
	Outcome    Outcome
	Begin, End int64
}

// Anomaly is one finding. Kind is a name of Adya's (G0, G1a, G1b, G1c, G-single, G-nonadjacent, G2), or: incompatible (two reads are no prefix
// of each other), duplicate (an element twice), internal (a transaction does not see its own appends), lost (an acknowledged append is not in the last read).
type Anomaly struct {
	Kind string
	Txns []int // indexes
	What string
}

func (a Anomaly) String() string { return fmt.Sprintf("%s %v: %s", a.Kind, a.Txns, a.What) }

// writer says who appended an element, with which of its operations, and whether it was the last one of that transaction to its list.
type writer struct {
	txn, op int
	last    bool
}

type element struct{ key, value int }

type checker struct {
	txns    []Txn
	writers map[element]writer
	order   map[int][]int // key → longest list read by somebody who committed
	found   []Anomaly
	edges   [][]edge
}

// Check looks for anomalies. Transactions of the last session that read all keys at the end tell what was lost. realTime adds that a
// transaction which began after another had ended comes behind it.
func Check(txns []Txn, realTime bool) []Anomaly {
	c := &checker{txns: txns, writers: map[element]writer{}, order: map[int][]int{}, edges: make([][]edge, len(txns))}
	c.index()
	c.reads()
	c.lost()
	c.dependencies()
	if realTime {
		c.inTime()
	}
	c.cycles()
	return c.found
}

func (c *checker) report(kind string, what string, txns ...int) {
	c.found = append(c.found, Anomaly{kind, txns, what})
}

// index notes who wrote what, and the longest list of each key.
func (c *checker) index() {
	for i, t := range c.txns {
		last := map[int]int{}
		for n, op := range t.Ops {
			if op.Append != 0 {
				c.writers[element{op.Key, op.Append}] = writer{txn: i, op: n}
				last[op.Key] = op.Append
			}
			if t.Outcome == OK && op.Append == 0 && len(op.Read) > len(c.order[op.Key]) {
				c.order[op.Key] = op.Read
			}
		}
		for k, v := range last {
			w := c.writers[element{k, v}]
			w.last = true
			c.writers[element{k, v}] = w
		}
	}
}

// reads judges each read by itself. Reads of transactions that failed later count too: they were shown to somebody.
func (c *checker) reads() {
	for i, t := range c.txns {
		own := map[int][]int{} // appended so far
		for _, op := range t.Ops {
			if op.Append != 0 {
				own[op.Key] = append(own[op.Key], op.Append)
				continue
			}
			c.read(i, op, own[op.Key])
		}
	}
}

func (c *checker) read(i int, op Op, own []int) {
	others := op.Read
	if n := len(op.Read) - len(own); n < 0 || !slices.Equal(op.Read[n:], own) {
		c.report("internal", fmt.Sprintf("key %d: read %v after own appends %v", op.Key, op.Read, own), i)
	} else {
		others = op.Read[:n]
	}
	seen, newest := map[int]bool{}, map[int]int{} // newest: transaction → its last operation seen in the list
	for at, v := range op.Read {
		if seen[v] {
			c.report("duplicate", fmt.Sprintf("key %d: element %d twice", op.Key, v), i)
		}
		seen[v] = true
		w, known := c.writers[element{op.Key, v}]
		if known && w.op < newest[w.txn] {
			c.report("incompatible", fmt.Sprintf("key %d: element %d stands behind a later one of its transaction", op.Key, v), i, w.txn)
		}
		newest[w.txn] = w.op
		switch {
		case !known:
			c.report("G1a", fmt.Sprintf("key %d: element %d was never appended", op.Key, v), i)
		case w.txn != i && c.txns[w.txn].Outcome == Failed:
			c.report("G1a", fmt.Sprintf("key %d: element %d was rolled back", op.Key, v), i, w.txn)
		case w.txn != i && at == len(others)-1 && !w.last:
			c.report("G1b", fmt.Sprintf("key %d: element %d is not the last of its transaction", op.Key, v), i, w.txn)
		}
	}
	if long := c.order[op.Key]; c.txns[i].Outcome == OK && !slices.Equal(op.Read, long[:len(op.Read)]) {
		c.report("incompatible", fmt.Sprintf("key %d: %v is no prefix of %v", op.Key, op.Read, long), i)
	}
}

// lost looks for acknowledged appends that the longest list does not have, if it was read after them.
func (c *checker) lost() {
	final := map[int]int64{}
	for _, t := range c.txns {
		for _, op := range t.Ops {
			if t.Outcome == OK && op.Append == 0 && len(op.Read) == len(c.order[op.Key]) {
				final[op.Key] = max(final[op.Key], t.Begin)
			}
		}
	}
	has := map[element]bool{}
	for k, list := range c.order {
		for _, v := range list {
			has[element{k, v}] = true
		}
	}
	for e, w := range c.writers {
		if t := c.txns[w.txn]; t.Outcome == OK && t.End < final[e.key] && !has[e] {
			c.report("lost", fmt.Sprintf("key %d: element %d", e.key, e.value), w.txn)
		}
	}
}

// kind of a dependency, in the order in which a cycle prefers them.
type kind byte

const (
	ww    kind = iota // wrote the next version
	wr                // read the version
	after             // began after the other had ended, or follows it in its session
	rw                // wrote what the other did not see yet: an anti-dependency
)

type edge struct {
	to   int
	kind kind
}

func (c *checker) edge(from, to int, k kind) {
	if from != to {
		c.edges[from] = append(c.edges[from], edge{to, k})
	}
}

// committed is the transaction that appended v, if it is one whose effects stand.
func (c *checker) committed(key, v int) (int, bool) {
	w, ok := c.writers[element{key, v}]
	return w.txn, ok && c.txns[w.txn].Outcome != Failed
}

func (c *checker) dependencies() {
	for key, list := range c.order {
		for i := 1; i < len(list); i++ {
			from, ok1 := c.committed(key, list[i-1])
			if to, ok2 := c.committed(key, list[i]); ok1 && ok2 {
				c.edge(from, to, ww)
			}
		}
	}
	for i, t := range c.txns {
		if t.Outcome != OK {
			continue
		}
		for _, op := range t.Ops {
			if op.Append == 0 {
				c.readEdges(i, op)
			}
		}
	}
}

// readEdges: who wrote the last element came before, who wrote the one behind it comes later. Own elements at the end say nothing.
func (c *checker) readEdges(i int, op Op) {
	n := len(op.Read)
	for n > 0 && c.own(i, op.Key, op.Read[n-1]) {
		n--
	}
	if n > 0 {
		if w, ok := c.committed(op.Key, op.Read[n-1]); ok {
			c.edge(w, i, wr)
		}
	}
	if long := c.order[op.Key]; n < len(long) && slices.Equal(long[:n], op.Read[:n]) {
		if w, ok := c.committed(op.Key, long[n]); ok {
			c.edge(i, w, rw)
		}
	}
}

func (c *checker) own(txn, key, v int) bool {
	w, ok := c.writers[element{key, v}]
	return ok && w.txn == txn
}

// inTime adds the order of the clock between committed transactions, sparsely: the newest ones that had ended when another began, of which none
// had begun after another of them ended.
func (c *checker) inTime() {
	type moment struct {
		at    int64
		begin bool
		txn   int
	}
	var all []moment
	for i, t := range c.txns {
		if t.Outcome == OK {
			all = append(all, moment{t.Begin, true, i}, moment{t.End, false, i})
		}
	}
	slices.SortFunc(all, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	var frontier []int
	before := map[int][]int{} // the frontier when a transaction began
	for _, m := range all {
		if m.begin {
			before[m.txn] = slices.Clone(frontier)
			for _, f := range frontier {
				c.edge(f, m.txn, after)
			}
			continue
		}
		covered := before[m.txn]
		delete(before, m.txn)
		frontier = append(slices.DeleteFunc(frontier, func(f int) bool { return slices.Contains(covered, f) }), m.txn)
	}
}
