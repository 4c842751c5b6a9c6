package catalogpg

import (
	"context"
	"fmt"
	"time"
)

// Seams for tests.
var (
	Judge         = judge
	ReadPidFile   = readPidFile
	FindBinaries  = findBinaries
	ControlParams = controlParams
)

// ControlText runs one statement on the control connection and returns its first value as text.
func ControlText(c *Catalog, sql string, args ...any) (string, error) {
	rows, err := c.pool.Query(context.Background(), sql, args...)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	out := ""
	if rows.Next() {
		vals, err := rows.Values()
		if err != nil {
			return "", err
		}
		out = fmt.Sprint(vals[0])
	}
	rows.Close()
	return out, rows.Err()
}

func (e *Embedded) Socket() string  { return e.socket }
func (e *Embedded) PID() int        { return e.pid }
func (e *Embedded) Adopted() bool   { return e.child == nil }
func (e *Embedded) Cluster() string { return e.cluster() }

// SetAnswerLimit shortens the patience with a postmaster that was left behind.
func SetAnswerLimit(d time.Duration) (restore func()) {
	was := answerLimit
	answerLimit = d
	return func() { answerLimit = was }
}

// SetPendingLimit shortens the patience with a transaction that has not ended.
func SetPendingLimit(limit string) (restore func()) {
	was := pendingLimit
	pendingLimit = limit
	return func() { pendingLimit = was }
}

// Abandon forgets the cluster as a killed gateway would: the lock falls, the postmaster stays.
func (e *Embedded) Abandon() { e.lock.Close() }
