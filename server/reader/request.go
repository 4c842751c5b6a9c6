package reader

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"sluice/server/scan"
)

// description is a request without its rows.
type description struct {
	SQL    string
	Tables []tableDescription
}

type tableDescription struct {
	Name    string
	Columns []scan.Column
	Files   []fileDescription
	RowID   string `json:",omitempty"`
}

type fileDescription struct {
	Path string
	Rows uint64
	Dead []byte `json:",omitempty"` // a serialised bitmap
}

// writeRequest sends r.
func writeRequest(w io.Writer, r *scan.Request) error {
	d := description{SQL: r.SQL}
	for _, t := range r.Tables {
		td := tableDescription{Name: t.Name, Columns: t.Columns, RowID: t.RowID}
		for _, f := range t.Files {
			fd := fileDescription{Path: f.Path, Rows: f.Rows}
			if f.Dead != nil && !f.Dead.IsEmpty() {
				var err error
				if fd.Dead, err = f.Dead.ToBytes(); err != nil {
					return fmt.Errorf("encode deleted rows of %s: %w", f.Path, err)
				}
			}
			td.Files = append(td.Files, fd)
		}
		d.Tables = append(d.Tables, td)
	}
	body, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if err := writeFrame(w, frameRequest, body); err != nil {
		return err
	}
	for i, t := range r.Tables {
		for _, rec := range t.Rows {
			if err := writeRows(w, i, rec); err != nil {
				return err
			}
		}
	}
	return writeFrame(w, frameRun)
}

// rowsPerFrame keeps a frame of rows small enough for maxFrame.
const rowsPerFrame = 1 << 16

func writeRows(w io.Writer, t int, rec arrow.RecordBatch) error {
	for begin := int64(0); begin < rec.NumRows(); begin += rowsPerFrame {
		part := rec.NewSlice(begin, min(begin+rowsPerFrame, rec.NumRows()))
		var buf bytes.Buffer
		enc := ipc.NewWriter(&buf, ipc.WithSchema(rec.Schema()))
		err := enc.Write(part)
		if cerr := enc.Close(); err == nil {
			err = cerr
		}
		part.Release()
		if err != nil {
			return fmt.Errorf("encode rows: %w", err)
		}
		if err := writeFrame(w, frameRows, binary.LittleEndian.AppendUint16(nil, uint16(t)), buf.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// readRequest receives a request; io.EOF is the end of all requests.
func readRequest(r io.Reader) (*scan.Request, error) {
	typ, body, err := readFrame(r)
	if err != nil {
		return nil, err
	}
	if typ != frameRequest {
		return nil, fmt.Errorf("unexpected frame %q", typ)
	}
	req, err := decodeDescription(body)
	if err != nil {
		return nil, err
	}
	for {
		typ, body, err := readFrame(r)
		switch {
		case err != nil:
			return nil, noEOF(err)
		case typ == frameRun:
			return req, nil
		case typ != frameRows || len(body) < 2 || int(binary.LittleEndian.Uint16(body)) >= len(req.Tables):
			return nil, fmt.Errorf("unexpected frame %q", typ)
		}
		t := &req.Tables[binary.LittleEndian.Uint16(body)]
		if t.Rows, err = appendRecords(t.Rows, body[2:]); err != nil {
			return nil, err
		}
	}
}

func decodeDescription(body []byte) (*scan.Request, error) {
	var d description
	if err := json.Unmarshal(body, &d); err != nil {
		return nil, fmt.Errorf("decode request: %w", err)
	}
	req := &scan.Request{SQL: d.SQL}
	for _, td := range d.Tables {
		t := scan.Table{Name: td.Name, Columns: td.Columns, RowID: td.RowID}
		for _, fd := range td.Files {
			f := scan.File{Path: fd.Path, Rows: fd.Rows}
			if len(fd.Dead) > 0 {
				f.Dead = roaring.New()
				if err := f.Dead.UnmarshalBinary(fd.Dead); err != nil {
					return nil, fmt.Errorf("decode deleted rows of %s: %w", fd.Path, err)
				}
			}
			t.Files = append(t.Files, f)
		}
		req.Tables = append(req.Tables, t)
	}
	return req, nil
}

func appendRecords(list []arrow.RecordBatch, stream []byte) ([]arrow.RecordBatch, error) {
	dec, err := ipc.NewReader(bytes.NewReader(stream))
	if err != nil {
		return nil, fmt.Errorf("decode rows: %w", err)
	}
	defer dec.Release()
	for dec.Next() {
		rec := dec.RecordBatch()
		rec.Retain()
		list = append(list, rec)
	}
	return list, dec.Err()
}

func encodeError(e *scan.Error) []byte {
	body, err := json.Marshal(e)
	if err != nil {
		return []byte(`{"Code":"58000"}`)
	}
	return body
}

func decodeError(body []byte) error {
	e := &scan.Error{}
	if err := json.Unmarshal(body, e); err != nil {
		return &brokenError{err}
	}
	return e
}
