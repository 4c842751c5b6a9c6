package server

import (
	"encoding/hex"
	"runtime/debug"
	"strconv"
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

func uuidText(id [16]byte) string { return hex.EncodeToString(id[:]) }

func stack() string { return string(debug.Stack()) }
