package keyindex

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

const benchKeys = 10_000_000

// build makes a run of n random keys from entries in no order.
func build(b *testing.B, dir, name string, n int, first uint64) *Run {
	s := NewSorter(dir, 64<<20)
	defer s.Close()
	for i := range n {
		if err := s.Add(entryAt(nth(first+uint64(i)), i)); err != nil {
			b.Fatal(err)
		}
	}
	w, err := Create(filepath.Join(dir, name), Meta{})
	if err == nil {
		err = errors.Join(s.Write(w), w.Finish())
	}
	if err != nil {
		b.Fatal(err)
	}
	return openRun(b, filepath.Join(dir, name))
}

// cpu is the processor time of the process, which says more than the clock where others work too.
func cpu() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// perKey reports what one of n keys cost since the processor time before.
func perKey(b *testing.B, before time.Duration, n int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/key")
	b.ReportMetric(float64(cpu()-before)/float64(n), "cpu-ns/key")
}

// nth is the hash of the key i.
func nth(i uint64) uint64 {
	i = (i ^ i>>30) * 0xbf58476d1ce4e5b9
	i = (i ^ i>>27) * 0x94d049bb133111eb
	return i ^ i>>31
}

func BenchmarkBuild(b *testing.B) {
	before := cpu()
	for b.Loop() {
		r := build(b, b.TempDir(), "run", benchKeys, 0)
		b.ReportMetric(float64(r.Size())/benchKeys, "file-B/key")
		b.ReportMetric(float64(r.Bytes())/benchKeys, "mem-B/key")
	}
	perKey(b, before, b.N*benchKeys)
}

func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	build(b, dir, "run", benchKeys, 0)
	for b.Loop() {
		r, err := Open(filepath.Join(dir, "run"))
		if err != nil {
			b.Fatal(err)
		}
		r.Close()
	}
}

func BenchmarkMerge(b *testing.B) {
	dir := b.TempDir()
	var runs []*Run
	for i := range 10 {
		runs = append(runs, build(b, dir, string(rune('a'+i)), benchKeys/10, uint64(i)*benchKeys/10))
	}
	before := cpu()
	for b.Loop() {
		w, err := Create(filepath.Join(dir, "merged"), Meta{})
		if err == nil {
			err = errors.Join(Merge(w, runs, nil), w.Finish())
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	perKey(b, before, b.N*benchKeys)
}

// BenchmarkLookup asks for 1,000 random keys at a time, of one run and of ten.
func BenchmarkLookup(b *testing.B) {
	dir := b.TempDir()
	one := []*Run{build(b, dir, "one", benchKeys, 0)}
	var ten []*Run
	for i := range 10 {
		ten = append(ten, build(b, dir, string(rune('a'+i)), benchKeys/10, uint64(i)*benchKeys/10))
	}
	for _, runs := range [][]*Run{one, ten} {
		for _, batch := range []int{1, 1000} {
			name := map[int]string{1: "1run", 10: "10runs"}[len(runs)] + map[int]string{1: "/1key", 1000: "/1000keys"}[batch]
			b.Run(name+"/present", func(b *testing.B) { lookups(b, runs, batch, 0, 1) })
			b.Run(name+"/absent", func(b *testing.B) { lookups(b, runs, batch, benchKeys, 0) })
		}
	}
}

func lookups(b *testing.B, runs []*Run, batch int, from uint64, want float64) {
	rng := rand.New(rand.NewPCG(1, 1))
	hashes := make([]uint64, batch)
	found, asked, before := 0, 0, cpu()
	for b.Loop() {
		for i := range hashes {
			hashes[i] = nth(from + rng.Uint64N(benchKeys))
		}
		slices.Sort(hashes)
		for _, r := range runs {
			if err := r.Lookup(hashes, func(int, Entry) bool { found++; return true }); err != nil {
				b.Fatal(err)
			}
		}
		asked += batch
	}
	if float64(found) < want*float64(asked) {
		b.Fatalf("found %d of %d", found, asked)
	}
	perKey(b, before, asked)
}

// BenchmarkSpill adds 20 million keys, 1,000 at a time, within 64 MiB.
func BenchmarkSpill(b *testing.B) {
	const keys, batch = 20_000_000, 1000
	before := cpu()
	for b.Loop() {
		s := NewSpill(b.TempDir(), 64<<20)
		most := int64(0)
		list := make([]Entry, batch)
		for at := 0; at < keys; at += batch {
			for i := range list {
				list[i] = entryAt(nth(uint64(at+i)), at+i)
			}
			if conflict, err := s.Add(list, func(int, Entry) bool { return true }); conflict >= 0 || err != nil {
				b.Fatal(conflict, err)
			}
			most = max(most, s.Bytes())
		}
		b.ReportMetric(float64(most)/(1<<20), "mem-MiB")
		b.ReportMetric(float64(len(s.runs)), "runs")
		s.Close()
	}
	perKey(b, before, b.N*keys)
}
