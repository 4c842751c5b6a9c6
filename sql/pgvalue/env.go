package pgvalue

import (
	"strconv"
	"strings"
	"time"
)

// Env is the settings of a session that change how values are printed or read. It is not safe for use while Set runs.
type Env struct {
	iso         bool
	loc         *time.Location // nil: a zone that only Postgres knows
	interval    string
	byteaEscape bool
	floatDigits int
	canonical   bool // exactly the settings under which text is stored
}

var defaultEnv = DefaultEnv()

// DefaultEnv is DateStyle ISO, TimeZone UTC, IntervalStyle postgres, bytea_output hex, extra_float_digits 1: the settings
// under which Exact and kept text is stored.
func DefaultEnv() *Env {
	return &Env{iso: true, loc: time.UTC, interval: "postgres", floatDigits: 1, canonical: true}
}

// Set takes the new value of a setting, as SHOW prints it. Settings that do not concern values are ignored.
func (e *Env) Set(name, value string) {
	switch strings.ToLower(name) {
	case "datestyle":
		e.iso = strings.HasPrefix(strings.ToLower(value), "iso")
	case "timezone":
		e.loc = location(value)
	case "intervalstyle":
		e.interval = strings.ToLower(value)
	case "bytea_output":
		e.byteaEscape = strings.EqualFold(value, "escape")
	case "extra_float_digits":
		e.floatDigits, _ = strconv.Atoi(value)
	}
	e.canonical = e.iso && e.loc == time.UTC && e.interval == "postgres" && !e.byteaEscape && e.floatDigits > 0
}

func location(name string) *time.Location {
	switch strings.ToUpper(name) {
	case "UTC", "GMT", "ETC/UTC", "ETC/GMT", "ZULU", "UNIVERSAL":
		return time.UTC
	case "", "LOCAL": // Go's own meanings
		return nil
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil
	}
	return loc
}

func (e *Env) or() *Env {
	if e == nil {
		return defaultEnv
	}
	return e
}
