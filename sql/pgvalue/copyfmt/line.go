package copyfmt

import "sluice/sql/pgvalue"

type eolKind uint8

const (
	unknownEOL eolKind = iota
	newline
	carriage
	carriageNewline
)

// scanner finds the end of a line. It can stop in the middle and go on when there is more.
type scanner struct {
	eol     eolKind // the first line decides
	at      int     // bytes of the line seen so far
	inQuote bool
	escaped bool
	lines   int64 // line ends inside quotes
}

func (s *scanner) restart() { *s = scanner{eol: s.eol} }

func (p *Parser) csv() bool { return p.format == CSV }

// next finds the line that buf begins with: the line, where the next one begins, and whether it is all there. At the end
// of the data (final) the rest is a line.
func (s *scanner) next(p *Parser, buf []byte, final bool) (line []byte, next int, found bool, err error) {
	for s.at < len(buf) {
		c := buf[s.at]
		// Decisions about these need the bytes behind them.
		if (c == '\r' || c == '\\') && s.at+1 == len(buf) && !final {
			return nil, 0, false, nil
		}
		if p.csv() {
			s.quotes(p, c)
		}
		switch {
		case (c == '\r' || c == '\n') && !s.inQuote:
			n, err := s.lineEnd(p, buf)
			return buf[:s.at], s.at + n, err == nil, err
		case c == '\\' && (!p.csv() || s.at == 0):
			done, wait, err := s.backslash(p, buf, final)
			if wait || err != nil {
				return nil, 0, false, err
			}
			if done {
				p.ended = true
				return buf[:s.at], len(buf), true, nil
			}
		default:
			s.at++
		}
	}
	return buf, len(buf), final, nil
}

// quotes follows quotes and escapes; an escape counts only inside quotes and directly in front of a quote.
func (s *scanner) quotes(p *Parser, c byte) {
	isEscape := p.escape != p.quote && c == p.escape
	if s.inQuote && isEscape {
		s.escaped = !s.escaped
	}
	if c == p.quote && !s.escaped {
		s.inQuote = !s.inQuote
	}
	if !isEscape {
		s.escaped = false
	}
	end := byte('\r')
	if s.eol == newline {
		end = '\n'
	}
	if s.inQuote && c == end {
		s.lines++
	}
}

// lineEnd takes the line end at s.at and returns its length.
func (s *scanner) lineEnd(p *Parser, buf []byte) (int, error) {
	if buf[s.at] == '\n' {
		if s.eol == carriage || s.eol == carriageNewline {
			return 0, strayEnd(p, "newline", "n")
		}
		s.eol = newline
		return 1, nil
	}
	if s.eol == newline {
		return 0, strayEnd(p, "carriage return", "r")
	}
	if s.eol == carriage {
		return 1, nil
	}
	if s.at+1 < len(buf) && buf[s.at+1] == '\n' {
		s.eol = carriageNewline
		return 2, nil
	}
	if s.eol == carriageNewline {
		return 0, strayEnd(p, "carriage return", "r")
	}
	s.eol = carriage
	return 1, nil
}

func strayEnd(p *Parser, name, letter string) error {
	if p.csv() {
		return &pgvalue.Error{Code: "22P04", Message: "unquoted " + name + " found in data",
			Hint: "Use quoted CSV field to represent " + name + "."}
	}
	return &pgvalue.Error{Code: "22P04", Message: "literal " + name + " found in data",
		Hint: `Use "\` + letter + `" to represent ` + name + `.`}
}

// backslash passes over an escape sequence, or finds the end marker \. with its line end.
func (s *scanner) backslash(p *Parser, buf []byte, final bool) (done, wait bool, err error) {
	rest := buf[s.at+1:]
	if len(rest) == 0 {
		s.at++
		return false, false, nil
	}
	if rest[0] != '.' {
		s.at++
		if !p.csv() {
			s.at++ // the second byte is not looked at: \\. is not an end marker
		}
		return false, false, nil
	}
	end := rest[1:]
	need := 1
	if s.eol == carriageNewline {
		need = 2
	}
	if len(end) < need && !final {
		return false, true, nil
	}
	ok, err := s.markerEnd(end)
	if err != nil && p.csv() && err != errMarkerMismatch {
		ok, err = false, nil
	}
	if !ok && err == nil {
		s.at++ // text that looks like a marker
	}
	return ok, false, err
}

var (
	errMarkerCorrupt  = &pgvalue.Error{Code: "22P04", Message: "end-of-copy marker corrupt"}
	errMarkerStyle    = &pgvalue.Error{Code: "22P04", Message: "end-of-copy marker does not match previous newline style"}
	errMarkerMismatch = &pgvalue.Error{Code: "22P04", Message: "end-of-copy marker does not match previous newline style"}
)

// markerEnd checks what follows the end marker. In CSV only errMarkerMismatch is an error; with the others \. is text.
func (s *scanner) markerEnd(end []byte) (bool, error) {
	at := func(i int) byte {
		if i < len(end) {
			return end[i]
		}
		return 0
	}
	c := at(0)
	if s.eol == carriageNewline {
		if c == '\n' {
			return false, errMarkerStyle
		}
		if c != '\r' {
			return false, errMarkerCorrupt
		}
		c = at(1)
	}
	if c != '\r' && c != '\n' {
		return false, errMarkerCorrupt
	}
	if (s.eol == newline || s.eol == carriageNewline) && c != '\n' || s.eol == carriage && c != '\r' {
		return false, errMarkerMismatch
	}
	return true, nil
}
