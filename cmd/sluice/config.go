package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// config is what the command line and the environment say.
type config struct {
	Listen         string
	HTTP           string
	Data           string
	Catalog        connString
	Database       string
	Warehouse      string
	Memory         size
	FlushAge       time.Duration
	CompactAge     time.Duration
	ExpireAge      time.Duration
	FlushBytes     size
	ExactLimit     int64
	ScanRows       int64
	MaxClients     int
	MaxMessage     size
	StartupTimeout time.Duration
	DrainTimeout   time.Duration
	TLSCert        string
	TLSKey         string
	InsecureListen bool
	S3Endpoint     string
	S3Region       string
	S3PathStyle    bool
	LogLevel       slog.Level
	LogFormat      string
}

// setting is one flag with its twin in the environment. The table below is the only list of them: flags, variables and help
// are made from it.
type setting struct {
	name     string
	argument string // what the value is, in the help
	standard string // default, as a user would write it
	help     string
	set      func(c *config, value string) error
	yes      bool     // a flag without an argument
	of       []string // subcommands that know it; nil: serve
}

// env is the name of the variable.
func (s setting) env() string {
	return "SLUICE_" + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
}

var everywhere = []string{"serve", "fsck", "dump"}

var settings = []setting{
	{name: "listen", argument: "HOST:PORT", standard: "127.0.0.1:5433", help: "where Postgres clients connect",
		set: func(c *config, v string) error { return address(&c.Listen, v) }},
	{name: "http", argument: "HOST:PORT", standard: "127.0.0.1:8181", help: "Iceberg REST catalog, /healthz and /metrics; empty: none",
		set: func(c *config, v string) error { return address(&c.HTTP, v) }},
	{name: "data", argument: "DIR", standard: "sluice-data", help: "log, caches and the private catalog Postgres", of: everywhere,
		set: func(c *config, v string) error { return directory(&c.Data, v) }},
	{name: "catalog", argument: "postgres://…", help: "catalog Postgres (15 or newer); empty: a private one inside --data", of: everywhere,
		set: func(c *config, v string) error { c.Catalog = connString(v); return nil }},
	{name: "database", argument: "NAME", standard: "lake", help: "name of the lake's database; it cannot be changed later", of: everywhere,
		set: func(c *config, v string) error { c.Database = v; return nil }},
	{name: "warehouse", argument: "DIR|s3://BUCKET/PREFIX", help: "where tables are; empty: the folder warehouse inside --data", of: everywhere,
		set: func(c *config, v string) error { c.Warehouse = v; return nil }},
	{name: "memory", argument: "BYTES", standard: "auto", help: "memory for rows, locks, sorts and queues; auto: the smaller of 2GB and a quarter of the machine",
		set: func(c *config, v string) error { return c.Memory.Set(v) }},
	{name: "flush-age", argument: "DURATION", standard: "5s", help: "a row is in files after about this long; negative: only by size and on demand",
		set: func(c *config, v string) error { return duration(&c.FlushAge, v) }},
	{name: "flush-bytes", argument: "BYTES", standard: "auto", help: "or when so much is not yet in files; auto: a quarter of --memory",
		set: func(c *config, v string) error { return c.FlushBytes.Set(v) }},
	{name: "compact-age", argument: "DURATION", standard: "1m", help: "how often to look for tables with many small files and merge those; negative: only on demand",
		set: func(c *config, v string) error { return duration(&c.CompactAge, v) }},
	{name: "expire-age", argument: "DURATION", standard: "1h", help: "how often to remove snapshots that are older than the table property history.expire.max-snapshot-age-ms (5 days); negative: never",
		set: func(c *config, v string) error { return duration(&c.ExpireAge, v) }},
	{name: "exact-limit", argument: "ROWS", standard: "200000", help: "rows of one table that a statement may copy into Postgres",
		set: func(c *config, v string) error { return number(&c.ExactLimit, v) }},
	{name: "scan-rows", argument: "ROWS", standard: "0", help: "tables with more rows are read in the scan lane where a query is proven for it; 0: as --exact-limit, -1: all",
		set: func(c *config, v string) (err error) { c.ScanRows, err = strconv.ParseInt(v, 10, 64); return err }},
	{name: "max-clients", argument: "N", standard: "1000", help: "client connections at once; more are refused with 53300",
		set: func(c *config, v string) error { var n int64; err := number(&n, v); c.MaxClients = int(n); return err }},
	{name: "max-message", argument: "BYTES", standard: "1GB", help: "longest message of a client",
		set: func(c *config, v string) error { return c.MaxMessage.Set(v) }},
	{name: "startup-timeout", argument: "DURATION", standard: "60s", help: "time for a client to authenticate",
		set: func(c *config, v string) error { return duration(&c.StartupTimeout, v) }},
	{name: "drain-timeout", argument: "DURATION", standard: "30s", help: "time for running statements to end after SIGTERM",
		set: func(c *config, v string) error { return duration(&c.DrainTimeout, v) }},
	{name: "tls-cert", argument: "FILE", help: "certificate chain for Postgres clients, PEM",
		set: func(c *config, v string) error { c.TLSCert = v; return nil }},
	{name: "tls-key", argument: "FILE", help: "its private key, PEM",
		set: func(c *config, v string) error { c.TLSKey = v; return nil }},
	{name: "insecure-listen", yes: true, standard: "false", help: "allow addresses beyond loopback without TLS, and roles without password from there",
		set: func(c *config, v string) error { return boolean(&c.InsecureListen, v) }},
	{name: "s3-endpoint", argument: "URL", help: "of an S3 warehouse that is not Amazon's; keys come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", of: everywhere,
		set: func(c *config, v string) error { c.S3Endpoint = v; return nil }},
	{name: "s3-region", argument: "NAME", standard: "us-east-1", help: "region of an S3 warehouse", of: everywhere,
		set: func(c *config, v string) error { c.S3Region = v; return nil }},
	{name: "s3-path-style", yes: true, standard: "false", help: "address buckets by path instead of by host name", of: everywhere,
		set: func(c *config, v string) error { return boolean(&c.S3PathStyle, v) }},
	{name: "log-level", argument: "LEVEL", standard: "info", help: "debug, info, warn or error", of: everywhere,
		set: func(c *config, v string) error { return c.LogLevel.UnmarshalText([]byte(v)) }},
	{name: "log-format", argument: "FORMAT", standard: "text", help: "text or json, on standard error", of: everywhere,
		set: func(c *config, v string) error { return oneOf(&c.LogFormat, v, "text", "json") }},
}

// knows tells whether the subcommand has the setting.
func (s setting) knows(command string) bool {
	if s.of == nil {
		return command == "serve"
	}
	for _, of := range s.of {
		if of == command {
			return true
		}
	}
	return false
}

// parseConfig reads defaults, then the environment, then flags. rest is what follows the flags.
func parseConfig(command string, args []string, getenv func(string) string, out io.Writer) (c config, rest []string, err error) {
	fs := flag.NewFlagSet(command, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	for _, s := range settings {
		if !s.knows(command) {
			continue
		}
		if err := s.initial(&c, getenv); err != nil {
			return c, nil, err
		}
		if s.yes {
			fs.BoolFunc(s.name, s.help, func(v string) error { return s.set(&c, v) })
		} else {
			fs.Func(s.name, s.help, func(v string) error { return s.set(&c, v) })
		}
	}
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		help(out, command)
		return c, nil, err
	case err != nil:
		return c, nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	c.complete()
	if err := c.check(command); err != nil {
		return c, nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	return c, fs.Args(), nil
}

// initial sets the default and then what the environment says.
func (s setting) initial(c *config, getenv func(string) string) error {
	if s.standard != "" {
		if err := s.set(c, s.standard); err != nil {
			return fmt.Errorf("default of --%s: %w", s.name, err)
		}
	}
	if v := getenv(s.env()); v != "" {
		if err := s.set(c, v); err != nil {
			return fmt.Errorf("%w: %s: %w", errUsage, s.env(), err)
		}
	}
	return nil
}

func help(w io.Writer, command string) {
	fmt.Fprintf(w, "Usage: sluice %s [flags]\n\nSizes take B, kB, MB, GB, TB (1024 each); durations ms, s, m, h. Each flag can be set by the variable below it.\n\n", command)
	for _, s := range settings {
		if !s.knows(command) {
			continue
		}
		fmt.Fprintf(w, "  --%s\n", strings.TrimSpace(s.name+" "+s.argument))
		fmt.Fprintf(w, "        %s", s.help)
		if s.standard != "" && !s.yes {
			fmt.Fprintf(w, " (default %s)", s.standard)
		}
		fmt.Fprintf(w, "\n        $%s\n", s.env())
	}
}

// complete fills in the defaults that depend on other settings.
func (c *config) complete() {
	if c.Warehouse == "" && c.Data != "" {
		c.Warehouse = filepath.Join(c.Data, "warehouse")
	}
	if c.Memory == 0 {
		c.Memory = min(2<<30, size(machineMemory()/4))
	}
	if c.FlushBytes == 0 {
		c.FlushBytes = c.Memory / 4
	}
}

// check refuses what would let strangers in.
func (c *config) check(command string) error {
	if command != "serve" {
		return nil
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return errors.New("--tls-cert and --tls-key go together")
	}
	if c.InsecureListen {
		return nil
	}
	if !loopback(c.Listen) && c.TLSCert == "" {
		return fmt.Errorf("--listen %s is reachable from other machines, and there is no TLS: give --tls-cert and --tls-key, or say --insecure-listen", c.Listen)
	}
	if c.HTTP != "" && !loopback(c.HTTP) {
		return fmt.Errorf("--http %s is reachable from other machines, and HTTP asks for no password: listen on loopback, or say --insecure-listen", c.HTTP)
	}
	return nil
}

// Trust tells whether roles without a password may log in. Beyond loopback only --insecure-listen allows that.
func (c *config) Trust() bool { return c.InsecureListen || loopback(c.Listen) }

// loopback tells whether only this machine can reach the address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// logger writes to w, which is standard error in the program.
func (c *config) logger(w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: c.LogLevel}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// connString may hold a password, so it does not print.
type connString string

const redacted = "[redacted]"

// Reveal is the string itself.
func (s connString) Reveal() string { return string(s) }

// String is a placeholder.
func (s connString) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString is a placeholder.
func (s connString) GoString() string { return s.String() }

// MarshalText is a placeholder, also in JSON.
func (s connString) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue is a placeholder.
func (s connString) LogValue() slog.Value { return slog.StringValue(s.String()) }

// size is a number of bytes; 0 is auto.
type size int64

var sizeUnits = []struct {
	suffix string
	bytes  int64
}{{"tb", 1 << 40}, {"gb", 1 << 30}, {"mb", 1 << 20}, {"kb", 1 << 10}, {"b", 1}}

// Set reads a size as Postgres' settings have it: 128MB.
func (z *size) Set(v string) error {
	if v == "auto" {
		*z = 0
		return nil
	}
	text, unit := strings.ToLower(v), int64(1)
	for _, u := range sizeUnits {
		if number, ok := strings.CutSuffix(text, u.suffix); ok {
			text, unit = strings.TrimSpace(number), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 || n > (1<<62)/unit {
		return fmt.Errorf("%q is not a size", v)
	}
	*z = size(n * unit)
	return nil
}

func address(to *string, v string) error {
	if v != "" {
		if _, _, err := net.SplitHostPort(v); err != nil {
			return fmt.Errorf("%q is not HOST:PORT", v)
		}
	}
	*to = v
	return nil
}

func directory(to *string, v string) (err error) {
	*to, err = filepath.Abs(v)
	return err
}

func duration(to *time.Duration, v string) (err error) {
	*to, err = time.ParseDuration(v)
	return err
}

func number(to *int64, v string) (err error) {
	*to, err = strconv.ParseInt(v, 10, 64)
	if err != nil || *to <= 0 {
		return fmt.Errorf("%q is not a positive number", v)
	}
	return nil
}

func boolean(to *bool, v string) (err error) {
	if *to, err = strconv.ParseBool(v); err != nil {
		return fmt.Errorf("%q is neither true nor false", v)
	}
	return nil
}

func oneOf(to *string, v string, allowed ...string) error {
	for _, a := range allowed {
		if v == a {
			*to = v
			return nil
		}
	}
	return fmt.Errorf("%q is none of %s", v, strings.Join(allowed, ", "))
}

// machineMemory is the memory of the machine or of our control group, whichever is less; 8 GB if it cannot be found out.
func machineMemory() int64 {
	memory := int64(8 << 30)
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kb int64
		if _, err := fmt.Sscanf(string(text), "MemTotal: %d kB", &kb); err == nil {
			memory = kb << 10
		}
	}
	if text, err := os.ReadFile("/sys/fs/cgroup/memory.max"); err == nil {
		if limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
			memory = min(memory, limit)
		}
	}
	return memory
}
