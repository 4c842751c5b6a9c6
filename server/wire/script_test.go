package wire_test

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"sluice/server/wire"
)

// assemble turns a script's packet notation into bytes. Tokens are separated by blanks:
//
//	[ … ]      an int32 length that counts itself and what is between the brackets
//	'Q'        one byte
//	i8:1 i16:-1 i32:196608 u32:4294967295   numbers, big-endian
//	z"text"    a string with its terminator; "text" without one; both with Go's escapes
//	x:00ff     hex
//	30*"a"     a token repeated
func assemble(t testing.TB, script string) []byte {
	var out []byte
	var open []int
	for _, token := range tokens(script) {
		switch token {
		case "[":
			open = append(open, len(out))
			out = append(out, 0, 0, 0, 0)
		case "]":
			at := open[len(open)-1]
			open = open[:len(open)-1]
			n := len(out) - at
			copy(out[at:], []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
		default:
			out = append(out, bytesOf(t, token)...)
		}
	}
	return out
}

func tokens(s string) []string {
	var out []string
	quoted, from := false, -1
	for i, c := range s + " " {
		switch {
		case c == '"' && (i == 0 || s[i-1] != '\\'):
			quoted = !quoted
			if from < 0 {
				from = i
			}
		case unicode.IsSpace(c) && !quoted:
			if from >= 0 {
				out = append(out, s[from:i])
			}
			from = -1
		case from < 0:
			from = i
		}
	}
	return out
}

func bytesOf(t testing.TB, token string) []byte {
	if n, rest, ok := strings.Cut(token, "*"); ok && !strings.ContainsAny(n, `"'`) {
		return []byte(strings.Repeat(string(bytesOf(t, rest)), number(t, n)))
	}
	switch {
	case token[0] == '\'':
		return []byte{token[1]}
	case token[0] == '"':
		return []byte(unquote(t, token))
	case strings.HasPrefix(token, `z"`):
		return append([]byte(unquote(t, token[1:])), 0)
	}
	kind, value, _ := strings.Cut(token, ":")
	n := 0
	if kind != "x" {
		n = number(t, value)
	}
	switch kind {
	case "x":
		b, err := hex.DecodeString(value)
		if err != nil {
			t.Fatalf("token %s: %v", token, err)
		}
		return b
	case "i8":
		return []byte{byte(n)}
	case "i16":
		return []byte{byte(n >> 8), byte(n)}
	case "i32", "u32":
		return []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
	}
	t.Fatalf("unknown token %s", token)
	return nil
}

func number(t testing.TB, s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func unquote(t testing.TB, s string) string {
	out, err := strconv.Unquote(s)
	if err != nil {
		t.Fatalf("string %s: %v", s, err)
	}
	return out
}

// render prints what a server sent: whole messages, or single bytes where there is no message.
func render(b []byte) string {
	var out strings.Builder
	for len(b) > 0 {
		n := 0
		if len(b) >= 5 {
			n = int(b[1])<<24 | int(b[2])<<16 | int(b[3])<<8 | int(b[4])
		}
		if n < 4 || n > len(b)-1 {
			if b[0] != 'N' && b[0] != 'S' {
				fmt.Fprintf(&out, "text %q\n", b)
				break
			}
			fmt.Fprintf(&out, "byte %q\n", b[0])
			b = b[1:]
			continue
		}
		fmt.Fprintf(&out, "%s\n", renderMessage(b[0], b[5:1+n]))
		b = b[1+n:]
	}
	return out.String()
}

func renderMessage(typ byte, body []byte) string {
	if typ == 'E' || typ == 'N' {
		if e, err := wire.DecodeError(body); err == nil {
			text := e.Error()
			if e.Detail != "" {
				text += " DETAIL: " + e.Detail
			}
			if e.Hint != "" {
				text += " HINT: " + e.Hint
			}
			return fmt.Sprintf("%c %s", typ, text)
		}
	}
	if len(body) > 200 {
		return fmt.Sprintf("%c %d bytes", typ, len(body))
	}
	return fmt.Sprintf("%c %q", typ, body)
}
