package wire

import (
	"bytes"
	"encoding/binary"
)

// The decoders read one message body in place: byte slices alias it, counts are unsigned 16 bit, lengths signed 32 bit, every
// field must end inside the message and the message must be used up. Texts are Postgres' own.

// Parse is a Parse message.
type Parse struct {
	Name  []byte
	Query []byte
	types []byte
}

// NumTypes is the number of parameter types the client declared, which may be less than the statement has parameters.
func (m *Parse) NumTypes() int { return len(m.types) / 4 }

// Type is the declared type of parameter i (from 0); 0 leaves it to the server.
func (m *Parse) Type(i int) uint32 { return binary.BigEndian.Uint32(m.types[4*i:]) }

// DecodeParse decodes a Parse message into m.
func DecodeParse(body []byte, m *Parse) error {
	r := reader{b: body}
	m.Name = r.cstring()
	m.Query = r.cstring()
	m.types = r.bytes(4 * r.count())
	return r.finish()
}

// Bind is a Bind message. Values is reused by the next decode into the same Bind; a nil value is NULL.
type Bind struct {
	Portal        []byte
	Statement     []byte
	Values        [][]byte
	paramFormats  []byte
	resultFormats []byte
}

// ParamFormat is the format of parameter i (from 0): 0 text, 1 binary.
func (m *Bind) ParamFormat(i int) int16 { return formatOf(m.paramFormats, i) }

// NumResultFormats is the number of result format codes: 0 (all text), 1 (for all columns) or one for each column.
func (m *Bind) NumResultFormats() int { return len(m.resultFormats) / 2 }

// ResultFormat is the format of result column i (from 0). With more than one code i must be below NumResultFormats.
func (m *Bind) ResultFormat(i int) int16 { return formatOf(m.resultFormats, i) }

// KnownFormats reports whether all format codes are those of text and binary.
func (m *Bind) KnownFormats() bool { return known(m.paramFormats) && known(m.resultFormats) }

func known(codes []byte) bool {
	for i := 0; i < len(codes); i += 2 {
		if codes[i] != 0 || codes[i+1] > 1 {
			return false
		}
	}
	return true
}

func formatOf(codes []byte, i int) int16 {
	switch len(codes) {
	case 0:
		return 0
	case 2:
		i = 0
	}
	return int16(binary.BigEndian.Uint16(codes[2*i:]))
}

// DecodeBind decodes a Bind message into m.
func DecodeBind(body []byte, m *Bind) error {
	r := reader{b: body}
	m.Portal = r.cstring()
	m.Statement = r.cstring()
	m.paramFormats = r.bytes(2 * r.count())
	n := r.count()
	m.Values = r.values(m.Values[:0], n)
	m.resultFormats = r.bytes(2 * r.count())
	if err := r.finish(); err != nil {
		return err
	}
	if codes := len(m.paramFormats) / 2; codes > 1 && codes != n {
		return Errorf(CodeProtocolViolation, "bind message has %d parameter formats but %d parameters", codes, n)
	}
	return nil
}

// Describe is a Describe or Close message: Kind is 'S' (statement) or 'P' (portal).
type Describe struct {
	Kind byte
	Name []byte
}

// Close is a Close message.
type Close Describe

// DecodeDescribe decodes a Describe message into m.
func DecodeDescribe(body []byte, m *Describe) error { return decodeNamed(body, m, "DESCRIBE") }

// DecodeClose decodes a Close message into m.
func DecodeClose(body []byte, m *Close) error { return decodeNamed(body, (*Describe)(m), "CLOSE") }

func decodeNamed(body []byte, m *Describe, what string) error {
	r := reader{b: body}
	m.Kind = r.byte()
	m.Name = r.cstring()
	if err := r.finish(); err != nil {
		return err
	}
	if m.Kind != 'S' && m.Kind != 'P' {
		return Errorf(CodeProtocolViolation, "invalid %s message subtype %d", what, m.Kind)
	}
	return nil
}

// Execute is an Execute message. MaxRows of 0 or less asks for all rows.
type Execute struct {
	Portal  []byte
	MaxRows int32
}

// DecodeExecute decodes an Execute message into m.
func DecodeExecute(body []byte, m *Execute) error {
	r := reader{b: body}
	m.Portal = r.cstring()
	m.MaxRows = r.int32()
	return r.finish()
}

// DecodeQuery returns the text of a Query message.
func DecodeQuery(body []byte) ([]byte, error) { return decodeText(body) }

// DecodeCopyFail returns the client's reason.
func DecodeCopyFail(body []byte) ([]byte, error) { return decodeText(body) }

// DecodeSASLInitialResponse decodes the first authentication message; response is nil if the client sent none.
func DecodeSASLInitialResponse(body []byte) (mechanism string, response []byte, err error) {
	r := reader{b: body}
	mechanism = string(r.cstring())
	size := r.int32()
	if size != -1 {
		response = r.bytes(int(size))
	}
	return mechanism, response, r.finish()
}

func decodeText(body []byte) ([]byte, error) {
	r := reader{b: body}
	text := r.cstring()
	return text, r.finish()
}

// CheckEmpty checks a message without a body: Sync, Flush, CopyDone.
func CheckEmpty(body []byte) error {
	r := reader{b: body}
	return r.finish()
}

// Field is one column of a RowDescription.
type Field struct {
	Name     string
	Table    uint32 // 0: not a column of a table
	Attr     int16
	Type     uint32
	Size     int16
	Modifier int32
	Format   int16
}

// DecodeRowDescription decodes the body of a RowDescription.
func DecodeRowDescription(body []byte) ([]Field, error) {
	r := reader{b: body}
	n := r.count()
	fields := make([]Field, 0, min(n, len(body)/19)) // 19 bytes is the shortest field
	for i := 0; i < n && r.err == nil; i++ {
		fields = append(fields, Field{
			Name: string(r.cstring()), Table: uint32(r.int32()), Attr: r.int16(),
			Type: uint32(r.int32()), Size: r.int16(), Modifier: r.int32(), Format: r.int16(),
		})
	}
	return fields, r.finish()
}

// DecodeDataRow appends the values of a DataRow to dst; they alias body, nil is NULL.
func DecodeDataRow(body []byte, dst [][]byte) ([][]byte, error) {
	r := reader{b: body}
	dst = r.values(dst, r.count())
	return dst, r.finish()
}

// DecodeParameterDescription decodes the body of a ParameterDescription.
func DecodeParameterDescription(body []byte) ([]uint32, error) {
	r := reader{b: body}
	raw := r.bytes(4 * r.count())
	types := make([]uint32, len(raw)/4)
	for i := range types {
		types[i] = binary.BigEndian.Uint32(raw[4*i:])
	}
	return types, r.finish()
}

// DecodeParameterStatus decodes the body of a ParameterStatus.
func DecodeParameterStatus(body []byte) (name, value string, err error) {
	r := reader{b: body}
	name, value = string(r.cstring()), string(r.cstring())
	return name, value, r.finish()
}

// Notification is a NotificationResponse.
type Notification struct {
	PID     uint32
	Channel string
	Payload string
}

// reader walks through one message. The first error sticks and every later read gives a zero value.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(text string) {
	if r.err == nil {
		r.err = Errorf(CodeProtocolViolation, "%s", text)
	}
	r.b = nil
}

func (r *reader) bytes(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.fail("insufficient data left in message")
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail("no data left in message")
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *reader) count() int {
	if b := r.bytes(2); b != nil {
		return int(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (r *reader) int16() int16 { return int16(r.count()) }

func (r *reader) int32() int32 {
	if b := r.bytes(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (r *reader) cstring() []byte {
	i := bytes.IndexByte(r.b, 0)
	if i < 0 {
		r.fail("invalid string in message")
		return nil
	}
	out := r.b[:i:i]
	r.b = r.b[i+1:]
	return out
}

// values appends n length-prefixed values; length -1 is NULL.
func (r *reader) values(dst [][]byte, n int) [][]byte {
	for i := 0; i < n && r.err == nil; i++ {
		size := r.int32()
		if size == -1 {
			dst = append(dst, nil)
			continue
		}
		dst = append(dst, r.bytes(int(size)))
	}
	return dst
}

func (r *reader) finish() error {
	if len(r.b) != 0 {
		r.fail("invalid message format")
	}
	return r.err
}
