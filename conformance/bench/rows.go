package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
)

// row is one row of every table: bigint, int, text, timestamptz.
type row struct {
	id int64
	n  int32
	h  uint64 // the text is made from it
	at int64  // microseconds since 1970
}

const columns = "id bigint, n int, s text, ts timestamptz"

// firstAt is 2026-01-01 in microseconds since 1970; postgresEpoch is 2000-01-01.
const (
	firstAt       = 1767225600000000
	postgresEpoch = 946684800000000
)

// rowAt is row i of the one endless sequence of rows; the id is i.
func rowAt(i int64) row {
	h := scramble(uint64(i))
	return row{id: i, n: int32(h % 100000), h: h, at: firstAt + i*1370 + int64(h>>50)%1000}
}

// scramble is splitmix64.
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// textLen is 12 to 24, 18 on average.
func (r row) textLen() int { return 12 + int(r.h>>32%13) }

// appendText writes lower-case letters: nothing to escape in any format.
func (r row) appendText(b []byte) []byte {
	h := r.h
	for i, n := 0, r.textLen(); i < n; i++ {
		if i == 12 {
			h = scramble(r.h)
		}
		b = append(b, 'a'+byte(h&15)+byte(i&7))
		h >>= 4
	}
	return b
}

func (r row) text() string { return string(r.appendText(make([]byte, 0, 24))) }

func (r row) time() time.Time { return time.UnixMicro(r.at).UTC() }

func (r row) appendTime(b []byte) []byte {
	return r.time().AppendFormat(b, "2006-01-02 15:04:05.999999-07")
}

// appendLine writes the row as COPY text (tab) or csv (comma).
func (r row) appendLine(b []byte, sep byte) []byte {
	b = append(strconv.AppendInt(b, r.id, 10), sep)
	b = append(strconv.AppendInt(b, int64(r.n), 10), sep)
	b = append(r.appendText(b), sep)
	return append(r.appendTime(b), '\n')
}

// appendValues writes the row as a tuple of literals.
func (r row) appendValues(b []byte) []byte {
	b = append(strconv.AppendInt(append(b, '('), r.id, 10), ", "...)
	b = append(strconv.AppendInt(b, int64(r.n), 10), ", '"...)
	b = append(r.appendText(b), "', '"...)
	return append(r.appendTime(b), "')"...)
}

// appendBinary writes the row as a tuple of COPY binary.
func (r row) appendBinary(b []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint16(b, 4)
	b = be.AppendUint64(be.AppendUint32(b, 8), uint64(r.id))
	b = be.AppendUint32(be.AppendUint32(b, 4), uint32(r.n))
	b = r.appendText(be.AppendUint32(b, uint32(r.textLen())))
	return be.AppendUint64(be.AppendUint32(b, 8), uint64(r.at-postgresEpoch))
}

var binaryHead = []byte("PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00")

// writeRows makes a file of the first n rows in a COPY format and waits until the disk has it.
func writeRows(path, format string, n int64) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	w := bufio.NewWriterSize(f, 1<<20)
	if err := encodeRows(w, format, n); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Sync()
}

func encodeRows(w io.Writer, format string, n int64) error {
	var b []byte
	if format == "binary" {
		b = append(b, binaryHead...)
	}
	for i := range n {
		switch format {
		case "text":
			b = rowAt(i).appendLine(b, '\t')
		case "csv":
			b = rowAt(i).appendLine(b, ',')
		case "binary":
			b = rowAt(i).appendBinary(b)
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		b = b[:0]
	}
	if format == "binary" {
		_, err := w.Write([]byte{0xff, 0xff})
		return err
	}
	return nil
}

// content is what a table holds, as far as the check looks: enough that a lost, doubled or changed row shows.
type content struct {
	rows, ids        int64 // ids: how many different ones
	sumID, sumN, len int64
	minS, maxS       string
	minAt, maxAt     int64
	buf              []byte
}

// checkSQL asks a table for its content as text, in the order of content.String.
func checkSQL(table string) string {
	return "select count(*), count(distinct id), coalesce(sum(id), 0), coalesce(sum(n), 0), coalesce(sum(length(s)), 0), " +
		"min(s), max(s), min(ts), max(ts) from " + table
}

// add counts a row with an id that was not added before.
func (c *content) add(r row) {
	c.buf = r.appendText(c.buf[:0])
	if c.rows == 0 || string(c.buf) < c.minS {
		c.minS = string(c.buf)
	}
	if c.rows == 0 || string(c.buf) > c.maxS {
		c.maxS = string(c.buf)
	}
	if c.rows == 0 || r.at < c.minAt {
		c.minAt = r.at
	}
	if c.rows == 0 || r.at > c.maxAt {
		c.maxAt = r.at
	}
	c.rows++
	c.ids++
	c.sumID += r.id
	c.sumN += int64(r.n)
	c.len += int64(r.textLen())
}

// String is the content as checkSQL answers it, columns joined by a bar.
func (c *content) String() string {
	head := fmt.Sprintf("%d|%d|%d|%d|%d|", c.rows, c.ids, c.sumID, c.sumN, c.len)
	if c.rows == 0 {
		return head + "|||"
	}
	return head + c.minS + "|" + c.maxS + "|" + string(row{at: c.minAt}.appendTime(nil)) + "|" + string(row{at: c.maxAt}.appendTime(nil))
}

// firstRows is the content of a table that holds rows 0 to n-1.
func firstRows(n int64) *content {
	c := &content{}
	for i := range n {
		c.add(rowAt(i))
	}
	return c
}
