package reader

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"

	duckdb "github.com/duckdb/duckdb-go/v2"
)

// DuckDB divides decimals as doubles, Postgres exactly, to a scale that depends on both values. These functions divide as Postgres does;
// the printer (sql.DuckDB) calls them where a statement divides numerics or asks for an average.

// roomMessage is the error of a quotient that has more decimals than the query calculates with.
const roomMessage = "a quotient needs %d decimals"

var errDivision = errors.New("division by zero")

// number is a Postgres numeric: n / 10^scale, printed with scale digits.
type number struct {
	n     *big.Int
	scale int
}

// parseNumber reads plain decimal text and gives it the scale, which may only cut or add zeros.
func parseNumber(text string, scale int) (number, error) {
	whole, frac, _ := strings.Cut(text, ".")
	for len(frac) > scale && frac[len(frac)-1] == '0' {
		frac = frac[:len(frac)-1]
	}
	if len(frac) > scale {
		return number{}, fmt.Errorf("%s has more than %d decimals", text, scale)
	}
	n, ok := new(big.Int).SetString(whole+frac+strings.Repeat("0", scale-len(frac)), 10)
	if !ok {
		return number{}, fmt.Errorf("%q is not a number", text)
	}
	return number{n, scale}, nil
}

func (x number) String() string {
	text := new(big.Int).Abs(x.n).String()
	if pad := x.scale + 1 - len(text); pad > 0 {
		text = strings.Repeat("0", pad) + text
	}
	if x.scale > 0 {
		text = text[:len(text)-x.scale] + "." + text[len(text)-x.scale:]
	}
	if x.n.Sign() < 0 {
		return "-" + text
	}
	return text
}

// leading is the weight and the value of the first digit to base 10,000, as Postgres keeps numerics; 0 and 0 for zero.
func (x number) leading() (weight, digit int) {
	if x.n.Sign() == 0 {
		return 0, 0
	}
	text := new(big.Int).Abs(x.n).String()
	if odd := x.scale % 4; odd > 0 {
		text += strings.Repeat("0", 4-odd)
	}
	groups := (len(text) + 3) / 4
	digit, _ = strconv.Atoi(text[:len(text)-4*(groups-1)])
	return groups - 1 - (x.scale+3)/4, digit
}

// divisionScale is select_div_scale of numeric.c.
func divisionScale(x, y number) int {
	wx, dx := x.leading()
	wy, dy := y.leading()
	weight := wx - wy
	if dx <= dy {
		weight--
	}
	return max(16-4*weight, x.scale, y.scale, 0)
}

// divide is x / y as numeric_div has it: rounded half away from zero.
func divide(x, y number) (number, error) {
	if y.n.Sign() == 0 {
		return number{}, errDivision
	}
	scale := divisionScale(x, y)
	n, d := new(big.Int).Abs(x.n), new(big.Int).Abs(y.n)
	n.Mul(n, pow10(scale+y.scale))
	d.Mul(d, pow10(x.scale))
	n.Mul(n, big.NewInt(2)).Add(n, d)
	n.Quo(n, d.Mul(d, big.NewInt(2)))
	if x.n.Sign()*y.n.Sign() < 0 {
		n.Neg(n)
	}
	return number{n, scale}, nil
}

func pow10(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// operands reads the arguments dividend, its scale, divisor, its scale; the last is how many decimals the query has room for.
func operands(args []driver.Value) (x, y number, err error) {
	if x, err = parseNumber(args[0].(string), int(args[1].(int32))); err != nil {
		return x, y, err
	}
	y, err = parseNumber(args[2].(string), int(args[3].(int32)))
	return x, y, err
}

func quotient(args []driver.Value) (any, error) {
	x, y, err := operands(args)
	if err != nil {
		return nil, err
	}
	q, err := divide(x, y)
	if err != nil {
		return nil, err
	}
	room := int(args[4].(int32))
	text := q.String()
	for cut := q.scale - room; cut > 0; cut-- {
		if text[len(text)-1] != '0' {
			return nil, fmt.Errorf(roomMessage, q.scale)
		}
		text = text[:len(text)-1]
	}
	return text, nil
}

func quotientDigits(args []driver.Value) (any, error) {
	x, y, err := operands(args)
	if err != nil {
		return nil, err
	}
	if y.n.Sign() == 0 {
		return nil, errDivision
	}
	return int32(divisionScale(x, y)), nil
}

// scalar is a function of DuckDB that is carried out here, row by row.
type scalar struct {
	result duckdb.Type
	row    func([]driver.Value) (any, error)
}

var scalars = map[string]scalar{
	"sluice_div":       {duckdb.TYPE_VARCHAR, quotient},
	"sluice_div_scale": {duckdb.TYPE_INTEGER, quotientDigits},
}

// Config implements duckdb.ScalarFunc.
func (s scalar) Config() duckdb.ScalarFuncConfig {
	text, _ := duckdb.NewTypeInfo(duckdb.TYPE_VARCHAR)
	digits, _ := duckdb.NewTypeInfo(duckdb.TYPE_INTEGER)
	result, _ := duckdb.NewTypeInfo(s.result)
	return duckdb.ScalarFuncConfig{InputTypeInfos: []duckdb.TypeInfo{text, digits, text, digits, digits}, ResultTypeInfo: result}
}

// Executor implements duckdb.ScalarFunc.
func (s scalar) Executor() duckdb.ScalarFuncExecutor {
	return duckdb.ScalarFuncExecutor{RowExecutor: func(args []driver.Value) (any, error) {
		for _, a := range args {
			if a == nil {
				return nil, nil
			}
		}
		return s.row(args)
	}}
}

func registerScalars(conn *sql.Conn) error {
	for name, f := range scalars {
		if err := duckdb.RegisterScalarUDF(conn, name, f); err != nil {
			return fmt.Errorf("register %s: %w", name, err)
		}
	}
	return nil
}
