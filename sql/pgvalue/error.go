package pgvalue

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strconv"
	"unicode/utf8"
)

// ErrNeedPostgres says that the value may be valid but only Postgres knows: use the exact lane for it.
var ErrNeedPostgres = errors.New("value needs postgres")

// ErrNoBinary says that the binary format of the type is not known here.
var ErrNoBinary = errors.New("no binary format for this type")

// Error is an error of Postgres, word for word.
type Error struct {
	Code    string // SQLSTATE
	Message string
	Detail  string
	Hint    string
	Context string // where it happened: COPY fills it
}

// Error prints the message with its SQLSTATE.
func (e *Error) Error() string { return e.Message + " (SQLSTATE " + e.Code + ")" }

// errInsufficient is what every receive function says when the bytes end too early.
var errInsufficient = &Error{Code: "08P01", Message: "insufficient data left in message"}

// errNoData is what they say when even the first byte is missing.
var errNoData = &Error{Code: "08P01", Message: "no data left in message"}

// errTrailing is what Postgres says when a receive function has not taken all bytes of a COPY field.
var errTrailing = &Error{Code: "22P03", Message: "incorrect binary data format"}

// syntaxError is the 22P02 of a type, unless the text is not even text: Postgres checks the encoding first.
func syntaxError(typ string, text []byte) error {
	if err := CheckUTF8(text); err != nil {
		return err
	}
	return &Error{Code: "22P02", Message: "invalid input syntax for type " + typ + `: "` + string(text) + `"`}
}

// rangeError is the 22003 of an integer type.
func rangeError(typ string, text []byte) error {
	if err := CheckUTF8(text); err != nil {
		return err
	}
	return &Error{Code: "22003", Message: `value "` + string(text) + `" is out of range for type ` + typ}
}

// needPostgres is ErrNeedPostgres, or the encoding error that comes before any look at the value.
func needPostgres(text []byte) error {
	if err := CheckUTF8(text); err != nil {
		return err
	}
	return ErrNeedPostgres
}

// CheckUTF8 returns Postgres' 22021 if text is not valid UTF-8 or has a zero byte.
func CheckUTF8(text []byte) error {
	if plainASCII(text) || utf8.Valid(text) && bytes.IndexByte(text, 0) < 0 {
		return nil
	}
	return encodingError(text)
}

// plainASCII reports whether text is ASCII without a zero byte.
func plainASCII(b []byte) bool {
	for ; len(b) >= 8; b = b[8:] {
		x := binary.LittleEndian.Uint64(b)
		if (x|(x-topBits>>7))&topBits != 0 {
			return false
		}
	}
	for _, c := range b {
		if c-1 >= 0x7f {
			return false
		}
	}
	return true
}

func encodingError(text []byte) error {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		if text[0] == 0 || r == utf8.RuneError && n == 1 {
			break
		}
		text = text[n:]
	}
	msg := []byte(`invalid byte sequence for encoding "UTF8":`)
	for _, c := range text[:min(leadLength(text[0]), len(text))] {
		msg = append(msg, " 0x"...)
		msg = append(msg, hexDigits[c>>4], hexDigits[c&15])
	}
	return &Error{Code: "22021", Message: string(msg)}
}

// leadLength is the length of a UTF-8 sequence by its first byte alone, as Postgres counts it.
func leadLength(c byte) int {
	switch {
	case c&0xe0 == 0xc0:
		return 2
	case c&0xf0 == 0xe0:
		return 3
	case c&0xf8 == 0xf0:
		return 4
	}
	return 1
}

const hexDigits = "0123456789abcdef"

func itoa(n int) string { return strconv.Itoa(n) }
