package history

import (
	"fmt"
	"slices"
	"strings"
)

// cycles names the shortest cycle of each class in each strongly connected component.
func (c *checker) cycles() {
	for _, k := range []struct {
		name string
		most kind
	}{{"G0", ww}, {"G1c", after}} {
		for _, part := range c.components(k.most) {
			if path := c.shortest(part, part[0], part[0], k.most); path != nil {
				c.cycle(k.name, path)
			}
		}
		if len(c.found) > 0 && k.most == ww {
			return // everything above is broken with it
		}
	}
	for _, part := range c.components(rw) {
		c.anti(part)
	}
}

// anti classifies the cycles of a component that need anti-dependencies: one is G-single, several of which no two follow each other are
// forbidden by snapshot isolation too, others are G2.
func (c *checker) anti(part []int) {
	in := map[int]bool{}
	for _, i := range part {
		in[i] = true
	}
	two := []int(nil)
	for _, i := range part {
		for _, e := range c.edges[i] {
			if e.kind != rw || !in[e.to] {
				continue
			}
			if path := c.shortest(part, e.to, i, after); path != nil {
				c.cycle("G-single", append([]int{i}, path...))
				return
			}
			if path := c.apart(in, i, e.to); path != nil && two == nil {
				two = path
			}
		}
	}
	if two != nil {
		c.cycle("G-nonadjacent", two)
		return
	}
	if path := c.shortest(part, part[0], part[0], rw); path != nil {
		c.cycle("G2", path)
	}
}

func (c *checker) cycle(name string, path []int) {
	var steps []string
	for i := 1; i < len(path); i++ {
		for _, e := range c.edges[path[i-1]] {
			if e.to == path[i] {
				steps = append(steps, fmt.Sprintf("%d %s", path[i-1], [...]string{"ww", "wr", "after", "rw"}[e.kind]))
				break
			}
		}
	}
	c.report(name, strings.Join(steps, " → "), path...)
}

// shortest is a shortest path from a transaction to another (or, for from = to, a cycle) inside part by edges up to most; nil if there is none.
func (c *checker) shortest(part []int, from, to int, most kind) []int {
	in := map[int]bool{}
	for _, i := range part {
		in[i] = true
	}
	came := map[int]int{}
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		for _, e := range c.edges[queue[0]] {
			if e.kind > most || !in[e.to] {
				continue
			}
			if e.to == to {
				path := []int{to}
				for at := queue[0]; ; at = came[at] {
					if path = append(path, at); at == from {
						slices.Reverse(path)
						return path
					}
				}
			}
			if _, seen := came[e.to]; !seen && e.to != from {
				came[e.to] = queue[0]
				queue = append(queue, e.to)
			}
		}
	}
	return nil
}

// apart is a cycle that begins with the anti-dependency from → to and has no two of them in a row.
func (c *checker) apart(in map[int]bool, from, to int) []int {
	type state struct {
		txn  int
		anti bool // reached by an anti-dependency
	}
	start := state{to, true}
	came := map[state]state{}
	for queue := []state{start}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for _, e := range c.edges[at.txn] {
			next := state{e.to, e.kind == rw}
			if !in[e.to] || at.anti && next.anti {
				continue
			}
			if e.to == from && !next.anti {
				path := []int{from}
				for s := at; ; s = came[s] {
					if path = append(path, s.txn); s == start {
						path = append(path, from)
						slices.Reverse(path)
						return path
					}
				}
			}
			if _, seen := came[next]; !seen && next != start {
				came[next] = at
				queue = append(queue, next)
			}
		}
	}
	return nil
}

// components are the strongly connected components of more than one transaction, by edges up to most (Tarjan 1972, without recursion).
func (c *checker) components(most kind) (out [][]int) {
	n := len(c.edges)
	index, low, on := make([]int, n), make([]int, n), make([]bool, n)
	type frame struct{ txn, edge int }
	var stack []int
	next := 1
	for root := range n {
		if index[root] != 0 {
			continue
		}
		for calls := []frame{{root, 0}}; len(calls) > 0; {
			f := &calls[len(calls)-1]
			if f.edge == 0 {
				index[f.txn], low[f.txn], on[f.txn] = next, next, true
				next++
				stack = append(stack, f.txn)
			}
			if f.edge < len(c.edges[f.txn]) {
				e := c.edges[f.txn][f.edge]
				f.edge++
				switch {
				case e.kind > most:
				case index[e.to] == 0:
					calls = append(calls, frame{e.to, 0})
				case on[e.to]:
					low[f.txn] = min(low[f.txn], index[e.to])
				}
				continue
			}
			txn := f.txn
			calls = calls[:len(calls)-1]
			if len(calls) > 0 {
				p := calls[len(calls)-1].txn
				low[p] = min(low[p], low[txn])
			}
			if low[txn] == index[txn] {
				at := len(stack) - 1
				for on[stack[at]] = false; stack[at] != txn; on[stack[at]] = false {
					at--
				}
				if part := slices.Clone(stack[at:]); len(part) > 1 {
					out = append(out, part)
				}
				stack = stack[:at]
			}
		}
	}
	return out
}
