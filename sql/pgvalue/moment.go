package pgvalue

import (
	"encoding/binary"
	"math"
	"strconv"
	"time"
	"unsafe"

	"sluice/writer/table"
)

// A moment is a date, time or timestamp as Postgres holds it: days, or microseconds, since 2000-01-01 (time: since
// midnight), with the ends of int64 for the infinities.
type moment = int64

const (
	never     moment = math.MinInt64 // -infinity
	forever   moment = math.MaxInt64 // infinity
	usSecond         = 1_000_000
	usDay            = 86_400 * usSecond
	epochDays        = 10_957 // 1970-01-01 to 2000-01-01
	epochUS          = epochDays * usDay
	firstDay         = -2_451_545    // 4714-11-24 BC, from 2000-01-01
	endDay           = 2_145_031_949 // after 5874897-12-31
	firstUS          = -211_813_488_000_000_000
	endUS            = 9_223_371_331_200_000_000
	// What the lake takes: years 0001 to 9999.
	lakeFirstDay = -730_119
	lakeEndDay   = 2_921_940
)

// civil is a parsed date and time of day.
type civil struct {
	day   moment // since 2000-01-01
	us    int64  // of the day; may reach into the next by rounding
	clock bool   // has a time of day
	zoned bool
	east  int // zone: seconds east of UTC
}

func (c *Codec) appendTemporal(v *table.Vec, text []byte, env *Env) error {
	m, ok := c.parseMoment(text, env)
	if !ok {
		return needPostgres(text)
	}
	c.storeMoment(v, m)
	return nil
}

func (c *Codec) parseMoment(text []byte, env *Env) (moment, bool) {
	if c.form == formTimestamp || c.form == formTimestampTZ {
		if t, n, ok := plainStamp(text); ok && t.zone(text[n:]) {
			return c.stamp(&t, env)
		}
	}
	b := trimBlanks(text)
	if c.form == formTime {
		us, rest, ok := parseClock(b)
		return roundUS(us, c.limit), ok && len(rest) == 0
	}
	switch {
	case foldEqual(b, "infinity"):
		return forever, true
	case foldEqual(b, "-infinity"):
		return never, true
	}
	t, ok := parseCivil(b)
	if !ok {
		return 0, false
	}
	if c.form == formDate {
		return t.day, t.day >= firstDay && t.day < endDay
	}
	return c.stamp(&t, env)
}

func (c *Codec) stamp(t *civil, env *Env) (moment, bool) {
	if c.form == formTimestamp {
		t.east = 0 // a zone is read and forgotten
	} else if !zoneOf(t, env.loc) {
		return 0, false
	}
	return t.timestamp(c.limit)
}

func (t *civil) timestamp(limit int) (moment, bool) {
	if t.day < firstDay-1 || t.day > endUS/usDay {
		return 0, false
	}
	m := t.day*usDay + t.us - int64(t.east)*usSecond
	if m < firstUS || m >= endUS {
		return 0, false
	}
	m = roundUS(m, limit)
	return m, m >= firstUS && m < endUS
}

// roundUS rounds to limit digits of the second, half away from zero.
func roundUS(m moment, limit int) moment {
	if limit < 0 || m == never || m == forever {
		return m
	}
	unit := int64(pow10[6-limit])
	if m < 0 {
		return -((-m + unit/2) / unit * unit)
	}
	return (m + unit/2) / unit * unit
}

// The layouts YYYY-MM-, DD HH:MM and HH:MM:SS as little-endian words, and what to add to a digit or separator so that
// the top bit shows a wrong one.
const (
	zerosDate, limitDate   = 0x2d30302d30303030, 0x7f76767f76767676
	zerosMid, limitMid     = 0x30303a3030203030, 0x76767f76767f7676
	zerosClock, limitClock = 0x30303a30303a3030, 0x76767f76767f7676
	topBits                = 0x8080808080808080
)

// plainStamp reads the YYYY-MM-DD( |T)HH:MM:SS[.f] that b begins with, eight bytes at a time; n is its length.
func plainStamp(b []byte) (t civil, n int, ok bool) {
	if len(b) < 19 {
		return t, 0, false
	}
	date := binary.LittleEndian.Uint64(b) ^ zerosDate
	mid := binary.LittleEndian.Uint64(b[8:]) ^ zerosMid
	clock := binary.LittleEndian.Uint64(b[11:]) ^ zerosClock
	if b[10] == 'T' {
		mid ^= (' ' ^ 'T') << 16
	}
	if (date|(date+limitDate)|mid|(mid+limitMid)|clock|(clock+limitClock))&topBits != 0 {
		return t, 0, false
	}
	// Byte i of these holds digits i and i+1 as a number.
	date, mid, clock = date*10+date>>8, mid*10+mid>>8, clock*10+clock>>8
	year := int(date&0xff)*100 + int(date>>16&0xff)
	month, day := int(date>>40&0xff), int(mid&0xff)
	hour, minute, sec := int64(clock&0xff), int64(clock>>24&0xff), int64(clock>>48&0xff)
	if year == 0 || month-1 > 11 || month < 1 || day < 1 || day > 28 && day > monthDays(year, month) || hour > 23 || minute > 59 || sec > 59 {
		return t, 0, false
	}
	t.day, t.clock = daysOf(year, month, day), true
	rest := b[19:]
	if len(rest) > 1 && rest[0] == '.' {
		if t.us, rest, ok = parseFraction(rest); !ok {
			return t, 0, false
		}
	}
	t.us += (hour*3600 + minute*60 + sec) * usSecond
	return t, len(b) - len(rest), true
}

// two reads two digits at b[i:]; 100 and more if they are none.
func two(b []byte, i int) int {
	hi, lo := b[i]-'0', b[i+1]-'0'
	if hi > 9 || lo > 9 {
		return 100
	}
	return int(hi)*10 + int(lo)
}

// parseCivil reads YYYY-MM-DD[( |T)HH:MM[:SS[.f]][zone]][ BC]. Whatever else Postgres reads is not for here.
func parseCivil(b []byte) (t civil, ok bool) {
	bc := len(b) > 3 && string(b[len(b)-3:]) == " BC"
	if bc {
		b = b[:len(b)-3]
	}
	n := 0
	year := 0
	for n < len(b) && n < 7 && b[n]-'0' <= 9 {
		year = year*10 + int(b[n]-'0')
		n++
	}
	if n < 4 || year == 0 || len(b) < n+6 || b[n] != '-' || b[n+3] != '-' {
		return t, false
	}
	if bc {
		year = 1 - year
	}
	month, day := two(b, n+1), two(b, n+4)
	if month < 1 || month > 12 || day < 1 || day > monthDays(year, month) {
		return t, false
	}
	t.day = daysOf(year, month, day)
	return t, t.parseRest(b[n+6:])
}

// parseRest reads what follows the date.
func (t *civil) parseRest(b []byte) (ok bool) {
	if len(b) == 0 {
		return true
	}
	if b[0] != ' ' && b[0] != 'T' {
		return false
	}
	t.clock = true
	if t.us, b, ok = parseClock(b[1:]); !ok {
		return false
	}
	return t.zone(b)
}

// zone reads the offset behind a time of day, or nothing.
func (t *civil) zone(b []byte) (ok bool) {
	if len(b) == 0 {
		return true
	}
	t.zoned = true
	t.east, ok = parseOffset(b)
	return ok
}

// parseClock reads HH:MM[:SS[.f]]; the fraction is rounded as Postgres rounds it, through a double.
func parseClock(b []byte) (us int64, rest []byte, ok bool) {
	if len(b) < 5 || b[2] != ':' {
		return 0, nil, false
	}
	hour, minute, sec := two(b, 0), two(b, 3), 0
	if hour > 24 || minute > 59 {
		return 0, nil, false
	}
	b = b[5:]
	if len(b) >= 3 && b[0] == ':' {
		if sec = two(b, 1); sec > 59 {
			return 0, nil, false
		}
		b = b[3:]
		if len(b) > 0 && b[0] == '.' {
			if us, b, ok = parseFraction(b); !ok {
				return 0, nil, false
			}
		}
	}
	us += int64(hour*3600+minute*60+sec) * usSecond
	return us, b, hour < 24 || us == usDay
}

func parseFraction(b []byte) (us int64, rest []byte, ok bool) {
	n := 1
	for n < len(b) && b[n]-'0' <= 9 {
		if n <= 6 {
			us = us*10 + int64(b[n]-'0')
		}
		n++
	}
	if n == 1 {
		return 0, nil, false
	}
	if n <= 7 {
		return us * int64(pow10[7-n]), b[n:], true
	}
	f, err := strconv.ParseFloat(unsafe.String(unsafe.SliceData(b), n), 64)
	return int64(math.RoundToEven(f * usSecond)), b[n:], err == nil
}

// parseOffset reads Z, ±HH, ±HHMM, ±HH:MM and ±HH:MM:SS.
func parseOffset(b []byte) (east int, ok bool) {
	if len(b) == 1 && (b[0] == 'Z' || b[0] == 'z') || string(b) == " UTC" {
		return 0, true
	}
	if len(b) > 1 && b[0] == ' ' {
		b = b[1:]
	}
	neg := b[0] == '-'
	if !neg && b[0] != '+' {
		return 0, false
	}
	h, m, s := 100, 0, 0
	switch b = b[1:]; {
	case len(b) == 2:
		h = two(b, 0)
	case len(b) == 4:
		h, m = two(b, 0), two(b, 2)
	case len(b) == 5 && b[2] == ':':
		h, m = two(b, 0), two(b, 3)
	case len(b) == 8 && b[2] == ':' && b[5] == ':':
		h, m, s = two(b, 0), two(b, 3), two(b, 6)
	}
	east = h*3600 + m*60 + s
	if neg {
		east = -east
	}
	return east, h <= 15 && m < 60 && s < 60
}

// zoneOf fills in the offset of a local time of loc. In a gap the offset before it counts, in an overlap the one after.
func zoneOf(t *civil, loc *time.Location) bool {
	if t.zoned || loc == time.UTC {
		return true
	}
	if loc == nil {
		return false
	}
	local := (t.day+epochDays)*86_400 + t.us/usSecond
	at := time.Unix(local-86_400, 0).In(loc)
	_, before := at.Zone()
	t.east = before
	_, end := at.ZoneBounds()
	if end.IsZero() {
		return true
	}
	_, after := end.Zone()
	edge, early, late := end.Unix(), local-int64(before), local-int64(after)
	switch {
	case early < edge && late < edge:
	case early > edge && late >= edge, early <= late:
		t.east = after
	}
	return true
}

var monthLength = [...]int{0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}

func monthDays(year, month int) int {
	if month == 2 && year%4 == 0 && (year%100 != 0 || year%400 == 0) {
		return 29
	}
	return monthLength[month]
}

// daysOf is the day number from 2000-01-01 in the proleptic Gregorian calendar; year 0 is 1 BC. Years begin in March here,
// so that the leap day is the last of its year.
func daysOf(year, month, day int) moment {
	if month < 3 {
		year--
		month += 12
	}
	era := floorDiv(year, 400)
	y := year - era*400
	return int64(era)*146_097 + int64(y*365+y/4-y/100+(153*(month-3)+2)/5+day-1) - 730_425
}

// dateOf is the inverse of daysOf.
func dateOf(m moment) (year, month, day int) {
	n := int(m) + 730_425
	era := floorDiv(n, 146_097)
	n -= era * 146_097
	y := (n - n/1460 + n/36_524 - n/146_096) / 365
	n -= y*365 + y/4 - y/100
	month = (5*n + 2) / 153
	day = n - (153*month+2)/5 + 1
	year = y + era*400
	if month += 3; month > 12 {
		return year + 1, month - 12, day
	}
	return year, month, day
}

func (c *Codec) storeMoment(v *table.Vec, m moment) {
	switch c.form {
	case formTime:
		v.AppendInt64(m)
	case formDate:
		if m < lakeFirstDay || m >= lakeEndDay {
			v.AppendExact(string(c.canonicalMoment(m)))
			return
		}
		v.AppendInt32(int32(m + epochDays))
	default:
		if m < lakeFirstDay*usDay || m >= lakeEndDay*usDay {
			v.AppendExact(string(c.canonicalMoment(m)))
			return
		}
		v.AppendInt64(m + epochUS)
	}
}

func (c *Codec) canonicalMoment(m moment) []byte {
	b, _ := c.temporalText(nil, m, defaultEnv)
	return b
}

// moment is value i; an Exact value that cannot be read back here is never.
func (c *Codec) moment(v *table.Vec, i int) moment {
	switch c.form {
	case formTime:
		return v.Int64(i)
	case formDate:
		return int64(v.Int32(i)) - epochDays
	}
	return v.Int64(i) - epochUS
}

// parseExact reads the canonical text of a value in Vec.Exact.
func (c *Codec) parseExact(text string) (moment, error) {
	free := *c
	free.limit = -1
	m, ok := free.parseMoment([]byte(text), defaultEnv)
	if !ok {
		return 0, ErrNeedPostgres
	}
	return m, nil
}

func (c *Codec) momentAt(v *table.Vec, i int) (moment, error) {
	if len(v.Exact) > 0 {
		if text, ok := v.ExactText(i); ok {
			return c.parseExact(text)
		}
	}
	return c.moment(v, i), nil
}

// temporalText prints m in the ISO style.
func (c *Codec) temporalText(dst []byte, m moment, env *Env) ([]byte, error) {
	if c.form == formTime {
		return appendClock(dst, m), nil
	}
	if m == never || m == forever {
		return append(dst, infinityText(m)...), nil
	}
	if !env.iso {
		return dst, ErrNeedPostgres
	}
	switch c.form {
	case formDate:
		return appendEra(appendDate(dst, m), m), nil
	case formTimestampTZ:
		return appendZoned(dst, m, env.loc)
	}
	day := floorDay(m)
	dst = append(appendDate(dst, day), ' ')
	return appendEra(appendClock(dst, m-day*usDay), day), nil
}

func infinityText(m moment) string {
	if m == never {
		return "-infinity"
	}
	return "infinity"
}

func appendZoned(dst []byte, m moment, loc *time.Location) ([]byte, error) {
	if loc == nil {
		return dst, ErrNeedPostgres
	}
	east := 0
	if loc != time.UTC {
		_, east = time.Unix(floorSecond(m)+epochUS/usSecond, 0).In(loc).Zone()
	}
	local := m + int64(east)*usSecond
	day := floorDay(local)
	dst = append(appendDate(dst, day), ' ')
	dst = appendOffset(appendClock(dst, local-day*usDay), east)
	return appendEra(dst, day), nil
}

func floorDay(us int64) int64 {
	d := us / usDay
	if us%usDay < 0 {
		d--
	}
	return d
}

func floorSecond(us int64) int64 {
	s := us / usSecond
	if us%usSecond < 0 {
		s--
	}
	return s
}

// appendDate prints year, month and day; the era comes at the very end of the value.
func appendDate(dst []byte, day moment) []byte {
	year, month, d := dateOf(day)
	if year <= 0 {
		year = 1 - year
	}
	if year > 9999 {
		dst = strconv.AppendInt(dst, int64(year), 10)
	} else {
		dst = appendTwo(appendTwo(dst, year/100), year%100)
	}
	return appendTwo(append(appendTwo(append(dst, '-'), month), '-'), d)
}

func appendEra(dst []byte, day moment) []byte {
	if day < lakeFirstDay {
		return append(dst, " BC"...)
	}
	return dst
}

func appendTwo(dst []byte, n int) []byte { return append(dst, byte('0'+n/10), byte('0'+n%10)) }

// appendClock prints HH:MM:SS and the fraction without trailing zeros.
func appendClock(dst []byte, us int64) []byte {
	s, f := int(us/usSecond), int(us%usSecond)
	dst = append(appendTwo(dst, s/3600), ':')
	dst = append(appendTwo(dst, s/60%60), ':')
	dst = appendTwo(dst, s%60)
	if f == 0 {
		return dst
	}
	dst = appendTwo(appendTwo(appendTwo(append(dst, '.'), f/10_000), f/100%100), f%100)
	for dst[len(dst)-1] == '0' {
		dst = dst[:len(dst)-1]
	}
	return dst
}

func appendOffset(dst []byte, east int) []byte {
	sign := byte('+')
	if east < 0 {
		sign, east = '-', -east
	}
	dst = appendTwo(append(dst, sign), east/3600)
	if east%3600 == 0 {
		return dst
	}
	dst = appendTwo(append(dst, ':'), east/60%60)
	if east%60 == 0 {
		return dst
	}
	return appendTwo(append(dst, ':'), east%60)
}

func (c *Codec) recvTemporal(v *table.Vec, b []byte) error {
	if c.form == formDate {
		return c.recvDate(v, b)
	}
	if err := checkLength(b, 8); err != nil {
		return err
	}
	m := moment(binary.BigEndian.Uint64(b))
	switch {
	case c.form == formTime:
		if m < 0 || m > usDay {
			return &Error{Code: "22008", Message: "time out of range"}
		}
	case m == never || m == forever:
	case m < firstUS || m >= endUS:
		return &Error{Code: "22008", Message: "timestamp out of range"}
	}
	c.storeMoment(v, roundUS(m, c.limit))
	return nil
}

func (c *Codec) recvDate(v *table.Vec, b []byte) error {
	if err := checkLength(b, 4); err != nil {
		return err
	}
	m := moment(int32(binary.BigEndian.Uint32(b)))
	switch {
	case m == math.MinInt32:
		m = never
	case m == math.MaxInt32:
		m = forever
	case m < firstDay || m >= endDay:
		return &Error{Code: "22008", Message: "date out of range"}
	}
	c.storeMoment(v, m)
	return nil
}

func (c *Codec) temporalBinary(dst []byte, v *table.Vec, i int) ([]byte, error) {
	m, err := c.momentAt(v, i)
	if err != nil {
		return dst, err
	}
	if c.form == formDate {
		return binary.BigEndian.AppendUint32(dst, uint32(dateBits(m))), nil
	}
	return binary.BigEndian.AppendUint64(dst, uint64(m)), nil
}

func dateBits(m moment) int32 {
	switch m {
	case never:
		return math.MinInt32
	case forever:
		return math.MaxInt32
	}
	return int32(m)
}
