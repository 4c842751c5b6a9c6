package server

import (
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// Values of the gateway's own statements travel as text.

func oidText(oid uint32) string { return strconv.FormatUint(uint64(oid), 10) }

func oidOf(b []byte) uint32 {
	n, _ := strconv.ParseUint(string(b), 10, 32)
	return uint32(n)
}

func intOf(b []byte) int64 {
	n, _ := strconv.ParseInt(string(b), 10, 64)
	return n
}

func stack() string { return string(debug.Stack()) }

// duration reads a time setting as SHOW prints it: 0, 500ms, 2s, 5min, 1h, 1d.
func duration(text string) time.Duration {
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyz")
	n, _ := strconv.ParseInt(digits, 10, 64)
	unit := map[string]time.Duration{"": time.Millisecond, "us": time.Microsecond, "ms": time.Millisecond, "s": time.Second, "min": time.Minute,
		"h": time.Hour, "d": 24 * time.Hour}[text[len(digits):]]
	return time.Duration(n) * unit
}
