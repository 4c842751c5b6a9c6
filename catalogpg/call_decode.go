package catalogpg

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// TID is a ctid as the wire has it: block (4 bytes), item (2 bytes).
type TID [6]byte

func (t TID) String() string {
	return fmt.Sprintf("(%d,%d)", binary.BigEndian.Uint32(t[:4]), binary.BigEndian.Uint16(t[4:]))
}

// Fill is what a fill left in a shadow: row i has TIDs[i]. Xid is 0 for a fill of no rows.
type Fill struct {
	Xid  uint32
	TIDs []TID
}

// ChangeKind says what happened to a row of a shadow.
type ChangeKind byte

const (
	New    ChangeKind = 'n' // inserted, or the new version of an updated row
	Gone   ChangeKind = 'g' // a copied row that was deleted or updated
	Locked ChangeKind = 'l' // a copied row that was locked, or whose change was rolled back
)

// Change is one row of a shadow that is not as it was filled. Vals is there for New: all columns in attnum order as their output functions
// print them, nil for NULL. It points into the row it was decoded from.
type Change struct {
	Kind ChangeKind
	TID  TID
	Vals [][]byte
}

// Counts holds the activity per shadow.
type Counts map[uint32]Activity

// Activity counts scans and rows inserted.
type Activity struct{ Scans, Inserts int64 }

// Since lists the shadows that were scanned and those that were inserted into after before was taken, in ascending order.
func (c Counts) Since(before Counts) (scanned, inserted []uint32) {
	for rel, n := range c {
		old := before[rel]
		if n.Scans > old.Scans {
			scanned = append(scanned, rel)
		}
		if n.Inserts > old.Inserts {
			inserted = append(inserted, rel)
		}
	}
	slices.Sort(scanned)
	slices.Sort(inserted)
	return scanned, inserted
}

// Effects is what a transaction did besides shadows. Catalog counts changed rows of system catalogs over more than this transaction: compare
// two answers.
type Effects struct {
	Xid      string      `json:"xid"` // "" while it has written nothing
	Rels     []EffectRel `json:"rels"`
	Catalog  int64       `json:"catalog"`
	Advisory int         `json:"advisory"` // advisory locks held
}

// EffectRel is a relation that may have been written: the lock modes say so.
type EffectRel struct {
	OID         uint32   `json:"oid"`
	Kind        string   `json:"kind"` // "" if dropped
	Persistence string   `json:"persistence"`
	Modes       []string `json:"modes"`
}

// Candidate is a relation that DDL touched. State nil: dropped.
type Candidate struct {
	OID   uint32
	Known bool // recorded in sluice.rel
	State *Rel
}

var errRow = errors.New("row is not of this call")

// DecodeCounts reads the row of CountsCall: relations, scans and inserts together, inserts.
func DecodeCounts(row [][]byte) (Counts, error) {
	if len(row) != 3 {
		return nil, fmt.Errorf("read counts: %w", errRow)
	}
	var cols [3][][]byte
	for i, b := range row {
		var err error
		if cols[i], err = readArray(b); err != nil || len(cols[i]) != len(cols[0]) {
			return nil, fmt.Errorf("read counts: %w", errRow)
		}
	}
	c := make(Counts, len(cols[0]))
	for i, rel := range cols[0] {
		n, inserts := int64(binary.BigEndian.Uint64(cols[1][i])), int64(binary.BigEndian.Uint64(cols[2][i]))
		old := c[binary.BigEndian.Uint32(rel)]
		c[binary.BigEndian.Uint32(rel)] = Activity{old.Scans + n - inserts, old.Inserts + inserts}
	}
	return c, nil
}

// DecodeFill reads the row of FillCall.
func DecodeFill(row [][]byte) (Fill, error) {
	if len(row) != 2 {
		return Fill{}, fmt.Errorf("read fill: %w", errRow)
	}
	var f Fill
	if row[0] != nil {
		f.Xid = binary.BigEndian.Uint32(row[0])
	}
	tids, err := readArray(row[1])
	if err != nil {
		return Fill{}, fmt.Errorf("read fill: %w", err)
	}
	f.TIDs = make([]TID, len(tids))
	for i, t := range tids {
		f.TIDs[i] = TID(t)
	}
	return f, nil
}

// DecodeChange reads one row of ChangeCall.
func DecodeChange(row [][]byte) (Change, error) {
	if len(row) != 3 || len(row[0]) != 1 || len(row[1]) != 6 {
		return Change{}, fmt.Errorf("read change: %w", errRow)
	}
	c := Change{Kind: ChangeKind(row[0][0]), TID: TID(row[1])}
	if row[2] == nil {
		return c, nil
	}
	var err error
	if c.Vals, err = readArray(row[2]); err != nil {
		return Change{}, fmt.Errorf("read change: %w", err)
	}
	return c, nil
}

// DecodeEffects reads the row of EffectsCall.
func DecodeEffects(row [][]byte) (e Effects, err error) {
	if len(row) != 1 {
		return e, fmt.Errorf("read effects: %w", errRow)
	}
	if err := json.Unmarshal(row[0], &e); err != nil {
		return e, fmt.Errorf("read effects: %w", err)
	}
	return e, nil
}

// DecodeCandidate reads one row of ReconcileCall. State.Lake is not filled in: the gateway knows what it recorded.
func DecodeCandidate(row [][]byte) (Candidate, error) {
	if len(row) != 3 || len(row[0]) != 4 || len(row[1]) != 1 {
		return Candidate{}, fmt.Errorf("read candidate: %w", errRow)
	}
	c := Candidate{OID: binary.BigEndian.Uint32(row[0]), Known: row[1][0] == 1}
	if row[2] == nil {
		return c, nil
	}
	var err error
	c.State, err = decodeRel(row[2], nil)
	return c, err
}

// DecodeCandidates reads all rows of the answer to ReconcileCall.
func DecodeCandidates(rows [][][]byte) ([]Candidate, error) {
	var out []Candidate
	for _, r := range rows {
		c, err := DecodeCandidate(r)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// readArray splits a one-dimensional binary array into its elements, nil for NULL.
func readArray(b []byte) ([][]byte, error) {
	if len(b) < 12 {
		return nil, errRow
	}
	dims := binary.BigEndian.Uint32(b)
	if dims == 0 {
		return [][]byte{}, nil
	}
	if dims != 1 || len(b) < 20 {
		return nil, errRow
	}
	n := int(binary.BigEndian.Uint32(b[12:]))
	b = b[20:]
	if n > len(b)/4 {
		return nil, errRow
	}
	items := make([][]byte, n)
	for i := range items {
		if len(b) < 4 {
			return nil, errRow
		}
		size := int32(binary.BigEndian.Uint32(b))
		b = b[4:]
		if size < 0 {
			continue
		}
		if int(size) > len(b) {
			return nil, errRow
		}
		items[i], b = b[:size:size], b[size:]
	}
	return items, nil
}
