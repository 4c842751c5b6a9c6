package wal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"hash/crc32"
)

// Print writes what is in the log in dir as text: segments, frames, and where and why reading stops. It takes no lock and
// changes nothing, so it may look at the log of a running process. Rows are counted, not shown: their columns are known to
// the catalog only. A damage is printed and returned.
func Print(w io.Writer, dir string) error { return printFolder(w, disk{dir}) }

func printFolder(w io.Writer, d folder) error {
	var last error
	err := eachSegment(d, func(name string, limit int64) error {
		if err := printSegment(w, d, name, limit); err != nil {
			fmt.Fprintf(w, "  %v\n", err)
			last = err
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("print wal: %w", err)
	}
	return last
}

// eachSegment calls fn with the segments in order and where their frames end, as the next one says; -1: nobody says.
func eachSegment(d folder, fn func(name string, limit int64) error) error {
	names, err := d.list()
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasSuffix(n, segmentSuffix) })
	slices.Sort(names)
	for i, name := range names {
		limit := int64(-1)
		if i < len(names)-1 {
			if next, err := readSegment(d, names[i+1]); err == nil {
				limit = next.prevEnd
			}
		}
		if err := fn(name, limit); err != nil {
			return err
		}
	}
	return nil
}

// Headers calls fn with the transactions of the log in dir, without what they do to tables, and the log's stream id. Like Print it takes no
// lock and changes nothing. A folder that is not there is an empty log.
func Headers(dir string, fn func(stream [16]byte, t *Txn)) error {
	d := disk{dir}
	err := eachSegment(d, func(name string, limit int64) error { return segmentHeaders(d, name, limit, fn) })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read wal: %w", err)
	}
	return nil
}

func segmentHeaders(d folder, name string, limit int64, fn func([16]byte, *Txn)) error {
	s, err := readSegment(d, name)
	if err != nil {
		return err
	}
	f, err := d.open(name)
	if err != nil {
		return err
	}
	defer f.close()
	end := limit
	if limit < 0 {
		end = s.size
	}
	r := newScan(f, &s, crc32.Update(0, castagnoli, s.stream[:]), end)
	for limit < 0 || r.off < limit {
		h, b, _, err := r.frame()
		if limit < 0 && errors.Is(err, errNoFrame) {
			return nil
		}
		if err != nil {
			return r.fatal(err)
		}
		t := h.txn(b)
		(&cursor{b: b, off: h.size()}).identity(t, &h)
		fn(s.stream, t)
	}
	return nil
}

// printSegment prints up to limit, which the next segment states; -1 is for the last one, which may end in a torn append.
func printSegment(w io.Writer, d folder, name string, limit int64) error {
	s, err := readSegment(d, name)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "segment %s: stream %x, from position %d, %d bytes", name, s.stream, s.first, s.size)
	if s.prevEnd > 0 {
		fmt.Fprintf(w, ", the one before ends at %d with %08x", s.prevEnd, s.prevCRC)
	}
	fmt.Fprintln(w)
	f, err := d.open(name)
	if err != nil {
		return err
	}
	defer f.close()
	end := limit
	if limit < 0 {
		end = s.size
	}
	r := newScan(f, &s, crc32.Update(0, castagnoli, s.stream[:]), end)
	for err == nil && (limit < 0 || r.off < limit) {
		err = printFrame(w, r)
	}
	if limit < 0 && errors.Is(err, errNoFrame) {
		return printRest(w, r)
	}
	if err != nil {
		return r.fatal(err)
	}
	fmt.Fprintf(w, "  %d end\n", r.off)
	return nil
}

func printRest(w io.Writer, r *scan) error {
	why := r.why
	rest, err := r.rest()
	if err != nil {
		return r.fatal(err)
	}
	fmt.Fprintf(w, "  %d end: %s", r.off, why)
	if rest > r.off {
		fmt.Fprint(w, ", frames of an unfinished append behind it")
	}
	fmt.Fprintln(w)
	return nil
}

func printFrame(w io.Writer, r *scan) error {
	at := r.off
	h, b, _, err := r.frame()
	if err != nil {
		return err
	}
	t := h.txn(b)
	c := &cursor{b: b, off: h.size()}
	fmt.Fprintf(w, "  %d %s position %d append %d length %d txn %x time %s", at, t.Kind, t.Position, h.first, h.length, t.ID,
		time.UnixMicro(t.Time).UTC().Format("2006-01-02T15:04:05.999999Z"))
	if c.identity(t, &h); h.writer > 0 {
		fmt.Fprintf(w, " writer %q sequence %d", t.Writer, t.Sequence)
	}
	if len(t.Answer) > 0 {
		fmt.Fprintf(w, " answer %d bytes", len(t.Answer))
	}
	if t.Kind == Resolved {
		fmt.Fprintf(w, " resolves %d committed %v", t.Resolves, t.Committed)
	}
	fmt.Fprintln(w)
	for i := range int(h.tables) {
		printTable(w, c, le.Uint64(b[atFirsts+8*i:]))
	}
	return c.err
}

func printTable(w io.Writer, c *cursor, first uint64) {
	s := c.section()
	if c.err != nil {
		return
	}
	fmt.Fprintf(w, "    table %d schema %d:", s.table, s.schema)
	if s.flags&opTruncate != 0 {
		fmt.Fprint(w, " truncate")
	}
	if s.deletes > 0 {
		fmt.Fprintf(w, " deletes %d", s.deletes)
	}
	if s.rows > 0 {
		fmt.Fprintf(w, " rows %d from %d, %d columns in %s form", s.rows, first, s.columns, [...]string{"no", "row", "column"}[s.form])
	}
	fmt.Fprintf(w, ", %d bytes\n", s.size)
	c.off = s.end
}
