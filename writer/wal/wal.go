// Package wal is the log of commits: one stream of frames, one frame a transaction, durable before anybody is told.
//
// It owns the bytes of a frame and of a segment (docs/format/wal.md), the folder that holds the segments, and the group
// commit. Start with Encode (a transaction becomes a Frame, outside any lock), then (*Log).Enqueue (the frame gets its
// position and joins the open group) and (*Log).Run (one goroutine that makes groups durable and publishes them).
//
//	Open ── takes the folder's flock, reads the segment headers
//	Replay ── yields what is in the log, decides where it ends, makes it ready for appending
//	Enqueue ── patches position, row numbers, segment and header checksum; copies into the group
//	Run ── swap group → pwritev → fdatasync → publish in order → close the group's channel
//	Trim ── renames segments that nobody needs into spares
//
// It never interprets rows, never asks a catalog, never splits a transaction over two appends, never publishes what is
// only probably durable, and never retries a failed write or sync: after one the process has to stop and replay.
package wal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"sluice/writer/table"
)

// Kind says what a frame decides.
type Kind uint8

// The kinds of a transaction's frame.
const (
	Commit   Kind = iota + 1 // the transaction is committed by this frame
	Prepared                 // its fate is decided elsewhere: see Resolved
	Resolved                 // tells the fate of an earlier Prepared frame
)

func (k Kind) String() string {
	switch k {
	case Commit:
		return "commit"
	case Prepared:
		return "prepared"
	case Resolved:
		return "resolved"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Txn is one transaction in the log.
type Txn struct {
	Position  table.Position // set by Enqueue
	Kind      Kind
	ID        [16]byte
	Time      int64          // commit time, µs since 1970 UTC; Enqueue raises it to that of the position before
	Writer    string         // retry identity; "" is none
	Sequence  int64          // of Writer; Unnumbered: the position is its number
	Answer    []byte         // what the client was told, for a repeat of the transaction; only with Writer
	Resolves  table.Position // Kind Resolved: the position of the prepared frame
	Committed bool           // Kind Resolved: its fate
	Tables    []TableOps
}

// Unnumbered is the Sequence of a transaction that is only to be remembered, not to be repeated: it had a token asked for.
const Unnumbered = -1

// TableOps is what a transaction does to one table: Truncate first, then Deletes and Rows.
type TableOps struct {
	Table    table.ID
	Schema   int          // table.Schema.ID that Rows are encoded with
	Truncate bool         // all rows before this transaction are gone
	First    uint64       // tail row number of the first row of Rows; set by Enqueue
	Rows     *table.Batch // inserted rows, or nil
	Deletes  []table.Ref  // never table.Own
}

// Errors of the log. A *CorruptError is an ErrCorrupt.
var (
	// ErrCorrupt means that the log holds something that no crash leaves behind. The process must not serve.
	ErrCorrupt = errors.New("wal corrupt")
	// ErrVersion means that the log was written by a version with a newer format. Nothing is skipped: the process must not serve.
	ErrVersion = errors.New("wal format not known")
	// ErrClosed is what a group gets that nobody will write: Run has returned. Its transactions are certainly not committed.
	ErrClosed = errors.New("wal closed")
)

// CorruptError names the place of a damage.
type CorruptError struct {
	Segment string // file name; "" when it is about the log as a whole
	Offset  int64
	Reason  string // what was read and what was expected
}

func (e *CorruptError) Error() string {
	if e.Segment == "" {
		return "wal corrupt: " + e.Reason
	}
	return fmt.Sprintf("wal corrupt: segment %s offset %d: %s", e.Segment, e.Offset, e.Reason)
}

// Unwrap makes a CorruptError an ErrCorrupt.
func (e *CorruptError) Unwrap() error { return ErrCorrupt }

// HeldError means that another process has the folder's lock.
type HeldError struct {
	Dir    string
	Holder string // pid, host and start of the holder as it wrote them down
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("wal folder %s is held by %s", e.Dir, e.Holder)
}

// UnknownError is what a group gets whose write or sync failed, and every group after it. The frames may be in the log
// or not; the page cache may show bytes that the disk never got, so neither a retry nor a read can tell. The process
// must stop and recover; only the replay of a fresh process decides, and clients are told that the outcome is unknown.
type UnknownError struct{ Err error }

func (e *UnknownError) Error() string { return "wal append outcome unknown: " + e.Err.Error() }

// Unwrap is the error of the device.
func (e *UnknownError) Unwrap() error { return e.Err }

// SafeToRetry is false: the transaction may have been committed.
func (e *UnknownError) SafeToRetry() bool { return false }

// Options of a log. The zero value is what a gateway uses.
type Options struct {
	SegmentSize int64            // bytes of a segment, 64 MiB by default; at least 8 KiB
	Spares      int              // zero-filled or recycled segments kept for reuse, 2 by default; more are deleted
	Now         func() time.Time // clock for the lock file, time.Now by default
	Random      io.Reader        // source of the stream id, crypto/rand by default
}

func (o Options) withDefaults() Options {
	if o.SegmentSize == 0 {
		o.SegmentSize = 64 << 20
	}
	o.SegmentSize = roundUp(max(o.SegmentSize, 2*blockSize), blockSize)
	if o.Spares == 0 {
		o.Spares = 2
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Random == nil {
		o.Random = rand.Reader
	}
	return o
}

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }
