package wal

import (
	"bytes"
	"encoding/hex"
	"flag"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/writer/table"
)

// goldenFrames are the frames whose bytes are kept for ever, one file a form. A new format version adds files; it never
// changes one.
func goldenFrames() map[string]*Txn {
	s := everyType()
	id := [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	ops := func(rows int) []TableOps {
		return []TableOps{
			{Table: 16384, Schema: 3, Rows: seeded(uint64(rows)).batch(s, rows), Deletes: []table.Ref{{File: 0, Row: 77}, {File: 26, Row: 1 << 40}, {File: 27}}},
			{Table: 16390, Schema: 3, Truncate: true},
		}
	}
	return map[string]*Txn{
		"frame-v1-rows":     {Kind: Commit, ID: id, Time: 1767225600000000, Writer: "loader", Sequence: 42, Tables: ops(3)},
		"frame-v1-answer":   {Kind: Commit, ID: id, Time: 1767225600000004, Writer: "16384/loader", Sequence: 43, Answer: []byte("INSERT 0 3\x00"), Tables: ops(3)},
		"frame-v1-columns":  {Kind: Commit, ID: id, Time: 1767225600000001, Tables: ops(17)},
		"frame-v1-prepared": {Kind: Prepared, ID: id, Time: 1767225600000002, Tables: ops(1)},
		"frame-v1-resolved": {Kind: Resolved, ID: id, Time: 1767225600000003, Resolves: 7, Committed: true},
	}
}

var goldenSeed = crc32.Update(0, castagnoli, bytes.Repeat([]byte{0xab}, 16))

func rewriting() bool { return flag.Lookup("rewrite").Value.String() == "true" }

// TestGolden reads the kept bytes and writes them again.
func TestGolden(t *testing.T) {
	for name, x := range goldenFrames() {
		f := Encode(x)
		f.patch(goldenSeed, 2, 9, 9, firsts(x, 1000))
		b := golden(t, name, f.bytes)
		h, ok := readHeader(b, int64(len(b)))
		if !ok || !h.verify(b, goldenSeed) || !h.verifyFrame(b) || !h.known() {
			t.Fatalf("%s: header %+v", name, h)
		}
		got, err := decode(b, &h, schemaOf(everyType()), false)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if g, w := printTxn(got), printTxn(x); g != w {
			t.Fatalf("%s: got\n%s\nwant\n%s", name, g, w)
		}
	}
}

func TestGoldenSegmentHeader(t *testing.T) {
	want := segmentHeader{stream: [16]byte(bytes.Repeat([]byte{0xab}, 16)), number: 3, first: 9, prevEnd: 67108000, prevCRC: 0x12345678}
	got, err := decodeSegmentHeader(golden(t, "segment-v1", want.encode()))
	if err != nil || got != want {
		t.Fatalf("got %+v, %v", got, err)
	}
}

// golden is the kept content of name, which must be what today's encoder writes, and have its twin in hex.
func golden(t *testing.T, name string, now []byte) []byte {
	t.Helper()
	bin, twin := filepath.Join("testdata", name+".bin"), filepath.Join("testdata", name+".hex")
	if rewriting() {
		if err := os.WriteFile(bin, now, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(twin, []byte(dump(now)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(twin)
	if err != nil || string(text) != dump(b) {
		t.Fatalf("%s is not the dump of %s (%v)", twin, bin, err)
	}
	if !bytes.Equal(b, now) {
		t.Fatalf("%s: the encoder writes\n%s\nkept is\n%s", name, dump(now), dump(b))
	}
	return b
}

// dump is hex.Dump with runs of zero lines as one star.
func dump(b []byte) string {
	var out strings.Builder
	star := false
	for line := range strings.Lines(hex.Dump(b)) {
		zero := strings.Contains(line, "|................|") && strings.Count(line, "00 ") >= 15 && !strings.ContainsAny(line[10:58], "123456789abcdef")
		if zero && !star {
			out.WriteString("*\n")
		}
		if !zero {
			out.WriteString(line)
		}
		star = zero
	}
	return out.String()
}
