package copyfmt

import (
	"errors"
	"strings"

	"sluice/sql/pgvalue"
)

// Format is the format of the data.
type Format uint8

// The formats.
const (
	Text Format = iota
	CSV
	Binary
)

// Header says whether the first line is a header.
type Header uint8

// The values of the option HEADER.
const (
	NoHeader Header = iota
	WithHeader
	MatchHeader // it must name the columns
)

// ErrEncoding says that the option ENCODING asks for another encoding than UTF8.
var ErrEncoding = errors.New("only encoding UTF8 is read here")

// Options is the options of a COPY. The zero value is COPY without options.
type Options struct {
	Format        Format
	Delimiter     string  // "" is the format's own
	Null          *string // nil is the format's own
	Header        Header
	Quote         string // "" is the format's own
	Escape        string // "" is the format's own
	ForceQuote    []string
	ForceQuoteAll bool
	ForceNotNull  []string
	ForceNull     []string
	Encoding      string // "" is UTF8
}

// Check returns the error that Postgres gives for the combination of options of a COPY FROM (or else COPY TO).
func (o *Options) Check(from bool) error {
	switch strings.ToUpper(strings.NewReplacer("-", "", "_", "").Replace(o.Encoding)) {
	case "", "UTF8", "UNICODE":
	default:
		return ErrEncoding
	}
	for _, check := range []func(bool) error{o.checkBinary, o.checkDelimiter, o.checkQuote, o.checkForce, o.checkNull} {
		if err := check(from); err != nil {
			return err
		}
	}
	return nil
}

const (
	unsupported = "0A000"
	badValue    = "22023"
	badSyntax   = "42601"
)

func fail(code, message string) error { return &pgvalue.Error{Code: code, Message: message} }

func (o *Options) checkBinary(bool) error {
	switch {
	case o.Format != Binary:
		return nil
	case o.Delimiter != "":
		return fail(badSyntax, "cannot specify DELIMITER in BINARY mode")
	case o.Null != nil:
		return fail(badSyntax, "cannot specify NULL in BINARY mode")
	}
	return nil
}

func (o *Options) checkDelimiter(bool) error {
	delim := o.delimiter()
	switch {
	case len(delim) != 1:
		return fail(unsupported, "COPY delimiter must be a single one-byte character")
	case strings.ContainsAny(delim, "\r\n"):
		return fail(badValue, "COPY delimiter cannot be newline or carriage return")
	case strings.ContainsAny(o.null(), "\r\n"):
		return fail(badValue, "COPY null representation cannot use newline or carriage return")
	case o.Format != CSV && strings.Contains(`\.abcdefghijklmnopqrstuvwxyz0123456789`, delim):
		return fail(badValue, `COPY delimiter cannot be "`+delim+`"`)
	case o.Format == Binary && o.Header != NoHeader:
		return fail(unsupported, "cannot specify HEADER in BINARY mode")
	}
	return nil
}

func (o *Options) checkQuote(bool) error {
	csv := o.Format == CSV
	switch {
	case !csv && o.Quote != "":
		return fail(unsupported, "COPY quote available only in CSV mode")
	case csv && len(o.quote()) != 1:
		return fail(unsupported, "COPY quote must be a single one-byte character")
	case csv && o.delimiter() == o.quote():
		return fail(badValue, "COPY delimiter and quote must be different")
	case !csv && o.Escape != "":
		return fail(unsupported, "COPY escape available only in CSV mode")
	case csv && len(o.escape()) != 1:
		return fail(unsupported, "COPY escape must be a single one-byte character")
	}
	return nil
}

func (o *Options) checkForce(from bool) error {
	csv := o.Format == CSV
	forceQuote := o.ForceQuoteAll || len(o.ForceQuote) > 0
	switch {
	case !csv && forceQuote:
		return fail(unsupported, "COPY force quote available only in CSV mode")
	case forceQuote && from:
		return fail(unsupported, "COPY force quote only available using COPY TO")
	case !csv && len(o.ForceNotNull) > 0:
		return fail(unsupported, "COPY force not null available only in CSV mode")
	case len(o.ForceNotNull) > 0 && !from:
		return fail(unsupported, "COPY force not null only available using COPY FROM")
	case !csv && len(o.ForceNull) > 0:
		return fail(unsupported, "COPY force null available only in CSV mode")
	case len(o.ForceNull) > 0 && !from:
		return fail(unsupported, "COPY force null only available using COPY FROM")
	}
	return nil
}

func (o *Options) checkNull(bool) error {
	switch {
	case strings.Contains(o.null(), o.delimiter()):
		return fail(unsupported, "COPY delimiter must not appear in the NULL specification")
	case o.Format == CSV && strings.Contains(o.null(), o.quote()):
		return fail(unsupported, "CSV quote character must not appear in the NULL specification")
	}
	return nil
}

func (o *Options) delimiter() string {
	switch {
	case o.Delimiter != "":
		return o.Delimiter
	case o.Format == CSV:
		return ","
	}
	return "\t"
}

func (o *Options) null() string {
	switch {
	case o.Null != nil:
		return *o.Null
	case o.Format == CSV:
		return ""
	}
	return `\N`
}

func (o *Options) quote() string {
	if o.Quote == "" {
		return `"`
	}
	return o.Quote
}

func (o *Options) escape() string {
	if o.Escape == "" {
		return o.quote()
	}
	return o.Escape
}
