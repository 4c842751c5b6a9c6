package catalogpg

import "strings"

// QuoteIdent quotes a name for SQL text. It always quotes: what needs no quotes today may be a keyword tomorrow.
func QuoteIdent(name string) string {
	return `"` + strings.ReplaceAll(strings.ReplaceAll(name, "\x00", ""), `"`, `""`) + `"`
}

// QuoteLiteral quotes a string for SQL text, under any setting of standard_conforming_strings.
func QuoteLiteral(s string) string {
	s = strings.ReplaceAll(strings.ReplaceAll(s, "\x00", ""), `'`, `''`)
	if strings.Contains(s, `\`) {
		return ` E'` + strings.ReplaceAll(s, `\`, `\\`) + `'`
	}
	return `'` + s + `'`
}
