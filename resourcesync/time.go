package resourcesync

import (
	"fmt"
	"strconv"
	"time"
)

// ParseTime reads a W3C datetime in the forms that the standard allows (core section
// 7): YYYY, YYYY-MM, YYYY-MM-DD, or a date with a time of day. In a time of day, the
// seconds and their fraction may be missing. The zone, "Z" or ±hh:mm, must be there.
// The result is in UTC. A date without a time is its first second. Digits finer than a
// nanosecond are cut off. An error is an *Error with ErrInvalid.
func ParseTime(s string) (time.Time, error) {
	t, rule := parseTime(s)
	if rule != "" {
		return time.Time{}, &Error{Err: ErrInvalid, Rule: fmt.Sprintf("%s is not a datetime: %s", quote(s), rule)}
	}
	return t, nil
}

// parseTime is ParseTime, but says in rule what is wrong with s; "" if nothing is.
func parseTime(s string) (t time.Time, rule string) {
	const shape = "it has the form YYYY-MM-DDThh:mm:ssZ"
	year, s, ok := digits(s, 4)
	if !ok {
		return t, shape
	}
	month, day, hour, minute, second, nano := 1, 1, 0, 0, 0, 0
	var offset time.Duration
	if s != "" {
		if month, s, ok = after(s, '-'); !ok {
			return t, shape
		}
	}
	hasDay := s != ""
	if hasDay {
		if day, s, ok = after(s, '-'); !ok {
			return t, shape
		}
	}
	if s != "" {
		if s[0] != 'T' {
			return t, "a time of day follows the date after the letter T"
		}
		if hour, s, ok = digits(s[1:], 2); !ok {
			return t, shape
		}
		if minute, s, ok = after(s, ':'); !ok {
			return t, shape
		}
		if s != "" && s[0] == ':' {
			if second, s, ok = after(s, ':'); !ok {
				return t, shape
			}
			if s != "" && s[0] == '.' {
				if nano, s, ok = fraction(s[1:]); !ok {
					return t, "digits follow the decimal point"
				}
			}
		}
		if offset, rule = zone(s); rule != "" {
			return t, rule
		}
	}
	switch {
	case month < 1 || month > 12:
		return t, "the month is 01 to 12"
	case day < 1 || day > daysIn(year, month):
		return t, "the month has no such day"
	case hour > 23 || minute > 59 || second > 59:
		return t, "the time of day is 00:00:00 to 23:59:59"
	}
	t = time.Date(year, time.Month(month), day, hour, minute, second, nano, time.UTC).Add(-offset)
	if !inYears(t) {
		return time.Time{}, "the year is 0001 to 9999"
	}
	return t, ""
}

// inYears reports whether the year of t has at most four digits, and t is not the zero
// time, which means absent.
func inYears(t time.Time) bool {
	const first, last = -62135596800, 253402300799 // 0001-01-01T00:00:00Z, 9999-12-31T23:59:59Z
	seconds := t.Unix()
	return !t.IsZero() && first <= seconds && seconds <= last
}

func zone(s string) (offset time.Duration, rule string) {
	switch {
	case s == "":
		return 0, `a time of day ends with its zone, best "Z"`
	case s == "Z":
		return 0, ""
	case s[0] != '+' && s[0] != '-':
		return 0, `the zone is "Z" or ±hh:mm`
	}
	h, rest, ok := digits(s[1:], 2)
	if !ok {
		return 0, `the zone is "Z" or ±hh:mm`
	}
	m, rest, ok := after(rest, ':')
	if !ok || rest != "" || h > 23 || m > 59 {
		return 0, `the zone is "Z" or ±hh:mm`
	}
	offset = time.Duration(h)*time.Hour + time.Duration(m)*time.Minute
	if s[0] == '-' {
		offset = -offset
	}
	return offset, ""
}

// digits reads n digits at the beginning of s, and returns what follows them.
func digits(s string, n int) (v int, rest string, ok bool) {
	if len(s) < n {
		return 0, s, false
	}
	for i := range n {
		if s[i] < '0' || s[i] > '9' {
			return 0, s, false
		}
		v = v*10 + int(s[i]-'0')
	}
	return v, s[n:], true
}

// after reads sep and two digits at the beginning of s, and returns what follows them.
func after(s string, sep byte) (v int, rest string, ok bool) {
	if s == "" || s[0] != sep {
		return 0, s, false
	}
	return digits(s[1:], 2)
}

func fraction(s string) (nano int, rest string, ok bool) {
	unit := 100_000_000
	i := 0
	for ; i < len(s) && '0' <= s[i] && s[i] <= '9'; i++ {
		nano += int(s[i]-'0') * unit
		unit /= 10
	}
	return nano, s[i:], i > 0
}

func daysIn(year, month int) int {
	switch month {
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

// AppendTime appends t as a W3C datetime. It is in UTC with "Z", because a client in
// use misreads any other zone. The fraction of the second has up to nine digits and no
// trailing zeros, and is left out if it is 0.
func AppendTime(dst []byte, t time.Time) []byte {
	t = t.UTC()
	dst = appendSeconds(dst, t)
	if nano := t.Nanosecond(); nano > 0 {
		dst = append(dst, '.')
		for unit := 100_000_000; nano > 0; unit /= 10 {
			dst = append(dst, '0'+byte(nano/unit))
			nano %= unit
		}
	}
	return append(dst, 'Z')
}

// AppendTimeMicro appends a time, given in microseconds since 1970, in the form of the
// hub's own datetimes: always with six digits after the second, and with "Z". Texts of
// this form sort like the times.
func AppendTimeMicro(dst []byte, micros int64) []byte {
	t := time.UnixMicro(micros).UTC()
	dst = appendSeconds(dst, t)
	micro := t.Nanosecond() / 1000
	dst = append(dst, '.')
	dst = append2(dst, micro/10_000)
	dst = append2(dst, micro/100%100)
	dst = append2(dst, micro%100)
	return append(dst, 'Z')
}

func appendSeconds(dst []byte, t time.Time) []byte {
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	if 0 <= year && year <= 9999 {
		dst = append2(dst, year/100)
		dst = append2(dst, year%100)
	} else {
		dst = strconv.AppendInt(dst, int64(year), 10) // this is no valid datetime, but a wrong year would be worse
	}
	dst = append2(append(dst, '-'), int(month))
	dst = append2(append(dst, '-'), day)
	dst = append2(append(dst, 'T'), hour)
	dst = append2(append(dst, ':'), minute)
	return append2(append(dst, ':'), second)
}

func append2(dst []byte, v int) []byte {
	return append(dst, '0'+byte(v/10), '0'+byte(v%10))
}
