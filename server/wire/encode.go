package wire

import "encoding/binary"

// The Append functions append one whole message, type and length included.

// begin starts a message; end fills in the length.
func begin(dst []byte, typ byte) (out []byte, at int) {
	return append(dst, typ, 0, 0, 0, 0), len(dst) + 1
}

func end(dst []byte, at int) []byte {
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at))
	return dst
}

func appendInt16(dst []byte, v int) []byte { return append(dst, byte(v>>8), byte(v)) }

func appendInt32(dst []byte, v uint32) []byte { return binary.BigEndian.AppendUint32(dst, v) }

// appendString appends s without its terminator and without any NUL, which would otherwise end the field early and let text
// of one field become another.
func appendString(dst []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if s[i] == 0 {
			return append(append(dst, s[:i]...), withoutNUL(s[i:])...)
		}
	}
	return append(dst, s...)
}

func withoutNUL(s string) []byte {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != 0 {
			out = append(out, s[i])
		}
	}
	return out
}

func appendCString(dst []byte, s string) []byte { return append(appendString(dst, s), 0) }

func appendValues(dst []byte, values [][]byte) []byte {
	dst = appendInt16(dst, len(values))
	for _, v := range values {
		if v == nil {
			dst = append(dst, 0xff, 0xff, 0xff, 0xff)
			continue
		}
		dst = append(appendInt32(dst, uint32(len(v))), v...)
	}
	return dst
}

// AppendRowDescription appends a RowDescription.
func AppendRowDescription(dst []byte, fields []Field) []byte {
	dst, at := begin(dst, 'T')
	dst = appendInt16(dst, len(fields))
	for i := range fields {
		f := &fields[i]
		dst = appendCString(dst, f.Name)
		dst = appendInt32(dst, f.Table)
		dst = appendInt16(dst, int(f.Attr))
		dst = appendInt32(dst, f.Type)
		dst = appendInt16(dst, int(f.Size))
		dst = appendInt32(dst, uint32(f.Modifier))
		dst = appendInt16(dst, int(f.Format))
	}
	return end(dst, at)
}

// AppendDataRow appends a DataRow; a nil value is NULL.
func AppendDataRow(dst []byte, values [][]byte) []byte {
	dst, at := begin(dst, 'D')
	return end(appendValues(dst, values), at)
}

// AppendCommandComplete appends a CommandComplete.
func AppendCommandComplete(dst []byte, tag string) []byte { return appendText(dst, 'C', tag) }

func appendText(dst []byte, typ byte, text string) []byte {
	dst, at := begin(dst, typ)
	return end(appendCString(dst, text), at)
}

// AppendReadyForQuery appends a ReadyForQuery with status 'I', 'T' or 'E'.
func AppendReadyForQuery(dst []byte, status byte) []byte { return append(dst, 'Z', 0, 0, 0, 5, status) }

func appendBare(dst []byte, typ byte) []byte { return append(dst, typ, 0, 0, 0, 4) }

// AppendParameterDescription appends a ParameterDescription.
func AppendParameterDescription(dst []byte, types []uint32) []byte {
	dst, at := begin(dst, 't')
	dst = appendInt16(dst, len(types))
	for _, t := range types {
		dst = appendInt32(dst, t)
	}
	return end(dst, at)
}

// appendCopyStart appends a CopyInResponse (G) or CopyOutResponse (H): every column has the overall format.
func appendCopyStart(dst []byte, typ, format byte, columns int) []byte {
	dst, at := begin(dst, typ)
	dst = appendInt16(append(dst, format), columns)
	for range columns {
		dst = append(dst, 0, format)
	}
	return end(dst, at)
}

// AppendCopyData appends a CopyData message, the same in both directions.
func AppendCopyData(dst, chunk []byte) []byte {
	dst, at := begin(dst, 'd')
	return end(append(dst, chunk...), at)
}

// AppendParameterStatus appends a ParameterStatus.
func AppendParameterStatus(dst []byte, name, value string) []byte {
	dst, at := begin(dst, 'S')
	return end(appendCString(appendCString(dst, name), value), at)
}

// AppendBackendKeyData appends a BackendKeyData: 4 bytes of secret before protocol 3.2, up to 256 from there on.
func AppendBackendKeyData(dst []byte, pid uint32, secret []byte) []byte {
	dst, at := begin(dst, 'K')
	return end(append(appendInt32(dst, pid), secret...), at)
}

// AppendNotificationResponse appends a NotificationResponse.
func AppendNotificationResponse(dst []byte, n Notification) []byte {
	dst, at := begin(dst, 'A')
	return end(appendCString(appendCString(appendInt32(dst, n.PID), n.Channel), n.Payload), at)
}

// appendNegotiation appends a NegotiateProtocolVersion. The newest version is written whole, as Postgres and libpq have it.
func appendNegotiation(dst []byte, newest uint32, unknown []string) []byte {
	dst, at := begin(dst, 'v')
	dst = appendInt32(appendInt32(dst, newest), uint32(len(unknown)))
	for _, name := range unknown {
		dst = appendCString(dst, name)
	}
	return end(dst, at)
}

// appendAuthentication appends an Authentication message of the given kind.
func appendAuthentication(dst []byte, kind uint32, rest []byte) []byte {
	dst, at := begin(dst, 'R')
	return end(append(appendInt32(dst, kind), rest...), at)
}

// Messages of the client, which the gateway sends to a session backend.

// AppendQuery appends a Query.
func AppendQuery(dst []byte, sql string) []byte { return appendText(dst, 'Q', sql) }

// AppendParse appends a Parse.
func AppendParse(dst []byte, name, sql string, types []uint32) []byte {
	dst, at := begin(dst, 'P')
	dst = appendInt16(appendCString(appendCString(dst, name), sql), len(types))
	for _, t := range types {
		dst = appendInt32(dst, t)
	}
	return end(dst, at)
}

// AppendBind appends a Bind; a nil value is NULL, nil formats mean text.
func AppendBind(dst []byte, portal, statement string, paramFormats []int16, values [][]byte, resultFormats []int16) []byte {
	dst, at := begin(dst, 'B')
	dst = appendCString(appendCString(dst, portal), statement)
	dst = appendFormats(dst, paramFormats)
	dst = appendValues(dst, values)
	return end(appendFormats(dst, resultFormats), at)
}

func appendFormats(dst []byte, formats []int16) []byte {
	dst = appendInt16(dst, len(formats))
	for _, f := range formats {
		dst = appendInt16(dst, int(f))
	}
	return dst
}

// AppendDescribe appends a Describe of kind 'S' or 'P'.
func AppendDescribe(dst []byte, kind byte, name string) []byte {
	return appendNamed(dst, 'D', kind, name)
}

// AppendClose appends a Close of kind 'S' or 'P'.
func AppendClose(dst []byte, kind byte, name string) []byte { return appendNamed(dst, 'C', kind, name) }

func appendNamed(dst []byte, typ, kind byte, name string) []byte {
	dst, at := begin(dst, typ)
	return end(appendCString(append(dst, kind), name), at)
}

// AppendExecute appends an Execute; 0 rows asks for all.
func AppendExecute(dst []byte, portal string, maxRows int32) []byte {
	dst, at := begin(dst, 'E')
	return end(appendInt32(appendCString(dst, portal), uint32(maxRows)), at)
}

// AppendSync appends a Sync.
func AppendSync(dst []byte) []byte { return appendBare(dst, 'S') }

// AppendFlush appends a Flush.
func AppendFlush(dst []byte) []byte { return appendBare(dst, 'H') }

// AppendCopyFail appends a CopyFail.
func AppendCopyFail(dst []byte, reason string) []byte { return appendText(dst, 'f', reason) }

// AppendTerminate appends a Terminate.
func AppendTerminate(dst []byte) []byte { return appendBare(dst, 'X') }

// AppendCancelRequest appends a CancelRequest packet, which has no type byte and goes on a connection of its own.
func AppendCancelRequest(dst []byte, c Cancel) []byte {
	at := len(dst)
	dst = appendInt32(append(dst, 0, 0, 0, 0), cancelRequest)
	return end(append(appendInt32(dst, c.PID), c.Secret...), at)
}

// AppendFrame appends a message of any type.
func AppendFrame(dst []byte, typ byte, body []byte) []byte {
	dst, at := begin(dst, typ)
	return end(append(dst, body...), at)
}
