package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// report is a whole run: bench.json, and what the page is made from.
type report struct {
	Date    string     `json:"date"`
	Machine machine    `json:"machine"`
	Options conditions `json:"conditions"`
	Results []result   `json:"results"`
}

type machine struct {
	Cores    int           `json:"cores"`
	MemoryGB int           `json:"memory_gb"`
	Kernel   string        `json:"kernel"`
	Go       string        `json:"go"`
	Postgres string        `json:"postgres"`
	Load     string        `json:"load_at_start"`
	Sync     time.Duration `json:"fdatasync_p50_ns"`
}

type conditions struct {
	Rounds  int       `json:"rounds"`
	Seconds float64   `json:"seconds"`
	Sides   [2]string `json:"sides"`
	sizes
}

// result is one workload: every turn of both sides, and what follows from them.
type result struct {
	Name     string       `json:"name"`
	Title    string       `json:"title"`
	Bar      bar          `json:"bar"`
	Error    string       `json:"error,omitempty"`
	Sides    [2][]outcome `json:"turns"`
	Medians  [2]medians   `json:"medians"`
	Ratio    float64      `json:"ratio"`         // rows per second, second side to first: median over the rounds
	CPURatio float64      `json:"cpu_ratio"`     // rows per second of server CPU until acknowledged
	Settled  float64      `json:"settled_ratio"` // the same with the work that follows
	Verdict  string       `json:"verdict"`
}

// medians over the rounds of one side.
type medians struct {
	Rate    float64 `json:"rows_per_second"`
	Wall    float64 `json:"wall_seconds"`
	CPU     float64 `json:"cpu_seconds_per_million_rows"`
	Settled float64 `json:"settled_cpu_seconds_per_million_rows"`
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
	Peak    int64   `json:"peak_memory_bytes"`
}

func (o outcome) rate() float64 { return float64(o.Rows) / o.Wall.Seconds() }

// perMillion is CPU seconds for a million rows.
func (o outcome) perMillion(cpu time.Duration) float64 { return cpu.Seconds() / float64(o.Rows) * 1e6 }

func (o outcome) String() string {
	s := fmt.Sprintf("%9.0f rows/s  %7.2f s  CPU %6.2f s per million rows, settled %6.2f", o.rate(), o.Wall.Seconds(), o.perMillion(o.CPU), o.perMillion(o.Settled))
	if o.P50 > 0 {
		s += fmt.Sprintf("  p50 %s p99 %s", millis(o.P50.Seconds()*1e3), millis(o.P99.Seconds()*1e3))
	}
	return s + fmt.Sprintf("  %d MB", o.Memory>>20)
}

// conclude computes medians, ratios and the verdict.
func (r *result) conclude() {
	for i, turns := range r.Sides {
		m := &r.Medians[i]
		m.Rate = medianOf(turns, outcome.rate)
		m.Wall = medianOf(turns, func(o outcome) float64 { return o.Wall.Seconds() })
		m.CPU = medianOf(turns, func(o outcome) float64 { return o.perMillion(o.CPU) })
		m.Settled = medianOf(turns, func(o outcome) float64 { return o.perMillion(o.Settled) })
		m.P50 = medianOf(turns, func(o outcome) float64 { return o.P50.Seconds() * 1e3 })
		m.P99 = medianOf(turns, func(o outcome) float64 { return o.P99.Seconds() * 1e3 })
		for _, o := range turns {
			m.Peak = max(m.Peak, o.Memory)
		}
	}
	r.Ratio = r.ratioOf(outcome.rate)
	r.CPURatio = 1 / r.ratioOf(func(o outcome) float64 { return o.perMillion(o.CPU) })
	r.Settled = 1 / r.ratioOf(func(o outcome) float64 { return o.perMillion(o.Settled) })
	r.Verdict = r.Bar.judge(r.Ratio, r.CPURatio)
}

// ratioOf is the median over the rounds of second side to first: both turns of a round saw the same noise. A cost below
// what /proc can show is not taken for zero.
func (r *result) ratioOf(value func(outcome) float64) float64 {
	var all []float64
	for i := range r.Sides[0] {
		all = append(all, max(value(r.Sides[1][i]), 1e-3)/max(value(r.Sides[0][i]), 1e-3))
	}
	return median(all)
}

func medianOf(turns []outcome, value func(outcome) float64) float64 {
	var all []float64
	for _, o := range turns {
		all = append(all, value(o))
	}
	return median(all)
}

func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	mid := len(all) / 2
	if len(all)%2 == 1 {
		return all[mid]
	}
	return (all[mid-1] + all[mid]) / 2
}

// judge says for each bar whether it was reached.
func (b bar) judge(ratio, cpu float64) string {
	var said []string
	say := func(what string, want, got float64) {
		if want > 0 {
			word := "missed"
			if got >= want {
				word = "met"
			}
			said = append(said, fmt.Sprintf("%s%.3g× %s", what, want, word))
		}
	}
	say("first ", b.Now, ratio)
	say("goal ", b.Goal, ratio)
	say("CPU ", b.CPU, cpu)
	return strings.Join(said, ", ")
}

// failures is an error that counts the workloads that did not end well.
func (r *report) failures() error {
	var bad []string
	for _, res := range r.Results {
		if res.Error != "" {
			bad = append(bad, res.Name)
		}
	}
	if len(r.Results) == 0 {
		return errors.New("no workload has such a name")
	}
	if len(bad) > 0 {
		return fmt.Errorf("%d of %d workloads failed: %s", len(bad), len(r.Results), strings.Join(bad, ", "))
	}
	return nil
}

var headings = []string{"workload", "rows/s", "", "ratio", "p50 ms", "", "p99 ms", "", "CPU s/M rows", "", "ratio", "settled", "", "ratio", "peak MB", "", "bars"}

// cells is the line of one result.
func (r result) cells() []string {
	if r.Error != "" {
		return []string{r.Title, "failed"}
	}
	a, b := r.Medians[0], r.Medians[1]
	return []string{r.Title, count(a.Rate), count(b.Rate), times(r.Ratio), millis(a.P50), millis(b.P50), millis(a.P99), millis(b.P99),
		fmt.Sprintf("%.2f", a.CPU), fmt.Sprintf("%.2f", b.CPU), times(r.CPURatio), fmt.Sprintf("%.2f", a.Settled), fmt.Sprintf("%.2f", b.Settled),
		times(r.Settled), fmt.Sprint(a.Peak >> 20), fmt.Sprint(b.Peak >> 20), r.Verdict}
}

// named puts the names of the sides into the headings: each pair of columns is first and second side.
func (c conditions) named() []string {
	out := slices.Clone(headings)
	for i := range out {
		if out[i] == "" {
			out[i-1], out[i] = out[i-1]+" "+c.Sides[0], c.Sides[1]
		}
	}
	return out
}

func count(f float64) string {
	s := fmt.Sprintf("%.0f", f)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func times(f float64) string { return fmt.Sprintf("%.2f×", f) }

func millis(f float64) string {
	if f == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", f)
}

// writeTable prints the results for a terminal.
func (r *report) writeTable(w io.Writer) {
	fmt.Fprintf(w, "\n%s\n\n", r.line())
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(r.Options.named(), "\t"))
	for _, res := range r.Results {
		fmt.Fprintln(t, strings.Join(res.cells(), "\t"))
	}
	_ = t.Flush()
	for _, res := range r.Results {
		if res.Error != "" {
			fmt.Fprintf(w, "\n%s failed on %s\n", res.Name, res.Error)
		}
	}
}

func (r *report) line() string {
	m, c := r.Machine, r.Options
	return fmt.Sprintf("%s. %d cores, %d GB, Linux %s, %s, Postgres %s; load %s at the start; fdatasync of 512 bytes %s ms (median). "+
		"%d rounds of %g s; COPY of %s rows; %s keys.", r.Date, m.Cores, m.MemoryGB, m.Kernel, m.Go, m.Postgres, m.Load,
		millis(m.Sync.Seconds()*1e3), c.Rounds, c.Seconds, count(float64(c.CopyRows)), count(float64(c.Keys)))
}

const explanation = `
- Made by ` + "`make bench`" + `: a Postgres with default durability and the gateway side by side in one run on one disk, in turns; the side that
  begins alternates. Rates, latencies and CPU are medians over the rounds; a ratio is the median of the ratios of the rounds, above 1 if the
  gateway is better. The load generator runs on the same cores.
- After every turn the table's count, keys, sums, least and greatest values are compared with what was acknowledged. A difference is a failure.
- CPU is that of the server's whole process tree (the gateway with its own Postgres and readers; Postgres with all its children). The first figure
  ends with the last acknowledgement; *settled* includes what follows: for the gateway until all rows are in committed Parquet files, for Postgres
  until it is quiet (its checkpoint, minutes later, is not counted). CPU per row is steadier than the rate on a busy machine.
- Single-row and pipeline work comes from pgbench (prepared, one thread); the cost of connecting is measured apart and taken out. Where a Go client
  sends statements, its own time for making them is not counted.
- Memory is private memory of all processes plus the largest shared one (Postgres' buffers, 1 GB), without cached file pages. The servers live
  through all workloads, so a peak includes what earlier ones left.
- Table: bigint, int, text of 18 bytes, timestamptz. *first*, *goal*: the ratio of rates we want of the first complete gateway, and in the end;
  *CPU*: the ratio of rows per second of server CPU in the end.
`

// page is bench.md.
func (r *report) page() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Benchmark\n\n%s\n\n", r.line())
	row := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	row(r.Options.named())
	rule := make([]string, len(headings))
	for i := range rule {
		rule[i] = "---:"
	}
	rule[0], rule[len(rule)-1] = "---", "---"
	row(rule)
	for _, res := range r.Results {
		cells := res.cells()
		for len(cells) < len(headings) {
			cells = append(cells, "")
		}
		row(cells)
	}
	for _, res := range r.Results {
		if res.Error != "" {
			fmt.Fprintf(&b, "\n%s failed on %s\n", res.Title, res.Error)
		}
	}
	b.WriteString(explanation)
	return b.Bytes()
}

// save writes bench.json and bench.md, if a folder is named.
func (r *report) save(dir string) error {
	if dir == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "bench.json"), append(text, '\n'), 0o644),
		os.WriteFile(filepath.Join(dir, "bench.md"), r.page(), 0o644))
}

// describe is what matters of this machine.
func describe(ctx context.Context, postgres *server, dir string) machine {
	m := machine{Cores: runtime.NumCPU(), Go: runtime.Version(), Sync: probeSync(filepath.Join(dir, "probe"))}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	m.Kernel = strings.TrimSpace(string(kernel))
	load, _ := os.ReadFile("/proc/loadavg")
	m.Load, _, _ = strings.Cut(string(load), " ")
	var si syscall.Sysinfo_t
	if syscall.Sysinfo(&si) == nil {
		m.MemoryGB = int((uint64(si.Totalram)*uint64(si.Unit) + 1<<29) >> 30)
	}
	version, _ := postgres.ask(ctx, "show server_version")
	m.Postgres, _, _ = strings.Cut(version, " ")
	return m
}

// probeSync is the median time of a durable write of 512 bytes into a file that has all its blocks.
func probeSync(path string) time.Duration {
	f, err := os.Create(path)
	if err != nil {
		return 0
	}
	defer os.Remove(path)
	defer f.Close()
	block := make([]byte, 1<<20)
	if _, err := f.Write(block); err != nil || f.Sync() != nil {
		return 0
	}
	var all []time.Duration
	for i := range int64(200) {
		start := time.Now()
		if _, err := f.WriteAt(block[:512], i*512); err != nil || syscall.Fdatasync(int(f.Fd())) != nil {
			return 0
		}
		all = append(all, time.Since(start))
	}
	slices.Sort(all)
	return quantile(all, 0.5)
}
