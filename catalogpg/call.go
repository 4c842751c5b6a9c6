package catalogpg

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5/pgproto3"

	"sluice/writer/catalog"
)

// OIDs of parameter types.
const (
	oidBool  = 16
	oidBytea = 17
	oidInt2s = 1005
	oidInt4  = 23
	oidText  = 25
	oidOID   = 26
	oidXid   = 28
	oidTids  = 1010
	oidTexts = 1009
	oidUUID  = 2950
	oidJSONB = 3802
)

// Call is one statement of the gateway's own on a user's backend. Parameters and results are binary.
type Call struct {
	SQL    string
	Types  []uint32
	Params [][]byte
}

// Append appends the messages of the call to dst: Close, Parse, Bind, Execute, Close; answered by CloseComplete, ParseComplete, BindComplete,
// DataRows, CommandComplete and CloseComplete. name is used for the statement and the portal: one that the client never uses. The first
// Close is there because a statement of this name may have been left behind by an error.
func (c Call) Append(dst []byte, name string) ([]byte, error) {
	formats := make([]int16, len(c.Params))
	for i := range formats {
		formats[i] = 1
	}
	for _, m := range []pgproto3.FrontendMessage{
		&pgproto3.Close{ObjectType: 'S', Name: name},
		&pgproto3.Parse{Name: name, Query: c.SQL, ParameterOIDs: c.Types},
		&pgproto3.Bind{DestinationPortal: name, PreparedStatement: name, ParameterFormatCodes: formats, Parameters: c.Params,
			ResultFormatCodes: []int16{1}},
		&pgproto3.Execute{Portal: name},
		&pgproto3.Close{ObjectType: 'P', Name: name},
	} {
		var err error
		if dst, err = m.Encode(dst); err != nil {
			return nil, fmt.Errorf("encode call: %w", err)
		}
	}
	return dst, nil
}

// CountsCall asks for the scans of and inserts into shadows by this backend so far, those included that the current transaction made and that
// are not recorded yet: compare two answers with Counts.Since. One row, for DecodeCounts.
func CountsCall() Call {
	return Call{SQL: `select rels, n, inserts from sluice.counts()`}
}

// FillCall copies rows into an empty shadow. cols[i] is an array literal of column attnums[i]: one element per row, each the value's text,
// for example {1,NULL,"a\"b"}. Generated columns are left out. n is the number of rows, needed only if there are no columns. One row, for
// DecodeFill. Run it inside a savepoint of its own.
func (b *Backend) FillCall(rel uint32, attnums []int16, cols []string, n int) Call {
	return Call{`select fillxid, tids from sluice.fill($1, $2, $3, $4, $5)`, []uint32{oidBytea, oidOID, oidInt2s, oidTexts, oidInt4},
		[][]byte{b.Key, be32(rel), array(21, len(attnums), func(dst []byte, i int) []byte {
			return binary.BigEndian.AppendUint16(append(dst, 0, 0, 0, 2), uint16(attnums[i]))
		}), array(oidText, len(cols), func(dst []byte, i int) []byte {
			return append(binary.BigEndian.AppendUint32(dst, uint32(len(cols[i]))), cols[i]...)
		}), be32(uint32(n))}}
}

// ChangeCall asks what happened to a filled shadow. Rows for DecodeChange. With the zero Fill every row is new.
func (b *Backend) ChangeCall(rel uint32, f Fill) Call {
	xid := be32(f.Xid)
	if f.Xid == 0 {
		xid = nil
	}
	return Call{`select kind, tid, vals from sluice.change($1, $2, $3, $4)`, []uint32{oidBytea, oidOID, oidXid, oidTids},
		[][]byte{b.Key, be32(rel), xid, array(27, len(f.TIDs), func(dst []byte, i int) []byte {
			return append(append(dst, 0, 0, 0, 6), f.TIDs[i][:]...)
		})}}
}

// ClearCall deletes all rows of a shadow, where the fill cannot be rolled back.
func (b *Backend) ClearCall(rel uint32) Call {
	return Call{`select sluice.clear($1, $2)`, []uint32{oidBytea, oidOID}, [][]byte{b.Key, be32(rel)}}
}

// EffectsCall asks what this transaction did besides shadows. One row, for DecodeEffects.
func (b *Backend) EffectsCall() Call {
	return Call{`select sluice.effects($1)::text`, []uint32{oidBytea}, [][]byte{b.Key}}
}

// ReconcileCall asks for the relations that this transaction's DDL touched. Rows for DecodeCandidate.
func (b *Backend) ReconcileCall() Call {
	return Call{`select rel, known, state::text from sluice.reconcile_candidates($1)`, []uint32{oidBytea}, [][]byte{b.Key}}
}

// RelPut is what RelPutCall records. Nil leaves a part as it is; Kind "" and numbers 0 as well.
type RelPut struct {
	Kind        string            `json:"kind,omitempty"`
	Version     int               `json:"version,omitempty"`
	Fields      []Field           `json:"columns,omitempty"`
	LastFieldID int               `json:"last_field_id,omitempty"`
	Options     map[string]string `json:"options,omitempty"`
}

// RelPutCall records a relation in the transaction of its DDL, and has lake tables watched.
func (b *Backend) RelPutCall(rel uint32, p RelPut) Call {
	text, _ := json.Marshal(p) // strings and numbers only
	return Call{`select sluice.rel_put($1, $2, $3)`, []uint32{oidBytea, oidOID, oidJSONB}, [][]byte{b.Key, be32(rel), jsonb(text)}}
}

// RelDropCall forgets a relation. Its pointer goes with the flip that moves it to nothing.
func (b *Backend) RelDropCall(rel uint32) Call {
	return Call{`select sluice.rel_drop($1, $2)`, []uint32{oidBytea, oidOID}, [][]byte{b.Key, be32(rel)}}
}

// FlipCall is the flip as one more statement of the user's transaction, directly before COMMIT. Its errors go through FlipError; if the
// answer to COMMIT is lost, Catalog.Resolve tells the outcome.
func (b *Backend) FlipCall(f catalog.Flip) (Call, error) {
	arg, err := EncodeFlip(f)
	if err != nil {
		return Call{}, err
	}
	return Call{`select sluice.flip($1, $2)`, []uint32{oidBytea, oidJSONB}, [][]byte{b.Key, jsonb(arg)}}, nil
}

// DecideCall puts the decision row of a mixed transaction into the user's transaction.
func (b *Backend) DecideCall(txid [16]byte) Call {
	return Call{`select sluice.decide($1, $2)`, []uint32{oidBytea, oidUUID}, [][]byte{b.Key, txid[:]}}
}

func be32(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// jsonb is binary jsonb: a version byte and the text.
func jsonb(text []byte) []byte { return append([]byte{1}, text...) }

// array is a binary array without NULLs; item appends one element with its length.
func array(elem uint32, n int, item func(dst []byte, i int) []byte) []byte {
	if n == 0 {
		return append(make([]byte, 8), be32(elem)...)
	}
	dst := make([]byte, 0, 20+n*10)
	for _, x := range []uint32{1, 0, elem, uint32(n), 1} {
		dst = binary.BigEndian.AppendUint32(dst, x)
	}
	for i := range n {
		dst = item(dst, i)
	}
	return dst
}
