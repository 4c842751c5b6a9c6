package datafile

import (
	"encoding/hex"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"

	"sluice/writer/table"
)

// ParseText is a vector with the one value that text stands for, in the forms Postgres prints with DateStyle ISO and
// TimeZone UTC. It is for defaults of columns (table.Column.Initial); lists are not supported.
func ParseText(t table.Type, text string) (*table.Vec, error) {
	v := table.NewVec(t)
	if err := appendText(v, text); err != nil {
		return nil, fmt.Errorf("parse %s %q: %w", t, text, err)
	}
	return v, nil
}

func appendText(v *table.Vec, text string) error {
	switch v.Type.Kind {
	case table.Bool:
		b, err := strconv.ParseBool(text)
		v.AppendBool(b)
		return err
	case table.Int32:
		x, err := strconv.ParseInt(text, 10, 32)
		v.AppendInt32(int32(x))
		return err
	case table.Int64:
		x, err := strconv.ParseInt(text, 10, 64)
		v.AppendInt64(x)
		return err
	case table.Float32:
		x, err := strconv.ParseFloat(text, 32)
		v.AppendFloat32(float32(x))
		return err
	case table.Float64:
		x, err := strconv.ParseFloat(text, 64)
		v.AppendFloat64(x)
		return err
	case table.Decimal64, table.Decimal128:
		return appendDecimal(v, text)
	case table.UUID:
		b, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
		if err == nil && len(b) != 16 {
			err = fmt.Errorf("%d bytes", len(b))
		}
		v.AppendFixed(b)
		return err
	case table.String:
		v.AppendString(text)
		return nil
	case table.Binary:
		b, err := hex.DecodeString(strings.TrimPrefix(text, `\x`))
		v.AppendBytes(b)
		return err
	}
	return appendTime(v, text)
}

func appendDecimal(v *table.Vec, text string) error {
	whole, frac, _ := strings.Cut(text, ".")
	frac = strings.TrimRight(frac, "0")
	if len(frac) > v.Type.Scale {
		return fmt.Errorf("more than %d decimals", v.Type.Scale)
	}
	n, ok := new(big.Int).SetString(whole+frac+strings.Repeat("0", v.Type.Scale-len(frac)), 10)
	if !ok {
		return strconv.ErrSyntax
	}
	limit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(v.Type.Precision)), nil)
	if n.CmpAbs(limit) >= 0 {
		return strconv.ErrRange
	}
	if v.Type.Kind == table.Decimal64 {
		v.AppendInt64(n.Int64())
		return nil
	}
	if n.Sign() < 0 {
		n.Add(n, new(big.Int).Lsh(big.NewInt(1), 128))
	}
	b := n.FillBytes(make([]byte, 16))
	for i := range 8 {
		b[i], b[15-i] = b[15-i], b[i]
	}
	v.AppendFixed(b)
	return nil
}

func appendTime(v *table.Vec, text string) error {
	layout := map[table.Kind]string{table.Date: "2006-01-02", table.Time: "15:04:05", table.Timestamp: "2006-01-02 15:04:05",
		table.TimestampTZ: "2006-01-02 15:04:05-07"}[v.Type.Kind]
	if layout == "" {
		return fmt.Errorf("no text form")
	}
	at, err := time.Parse(layout, strings.Replace(text, "T", " ", 1)) // takes fractions of seconds, too
	switch v.Type.Kind {
	case table.Date:
		v.AppendInt32(int32(at.Unix() / 86400))
	case table.Time:
		v.AppendInt64(int64(at.Hour())*3600e6 + int64(at.Minute())*60e6 + int64(at.Second())*1e6 + int64(at.Nanosecond()/1000))
	default:
		v.AppendInt64(at.UnixMicro())
	}
	return err
}
