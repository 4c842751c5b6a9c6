package copyfmt

import "bytes"

// Split cuts data of the text format behind its last complete row, so that several parsers can share a stream. A line end
// behind an odd number of backslashes is part of a value.
func Split(buf []byte) (complete, rest []byte) {
	end := len(buf)
	for {
		end = bytes.LastIndexByte(buf[:end], '\n')
		if end < 0 {
			return nil, buf
		}
		slashes := end
		for slashes > 0 && buf[slashes-1] == '\\' {
			slashes--
		}
		if (end-slashes)%2 == 0 {
			return buf[:end+1], buf[end+1:]
		}
	}
}
