package resourcesync

import (
	"errors"
	"fmt"
	"strings"
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
		return time.Time{}, &Error{Err: ErrInvalid, Msg: fmt.Sprintf("%s is not a datetime: %s", quote(s), rule)}
	}
	return t, nil
}

// parseTime is ParseTime, but says in rule what is wrong with s; "" if nothing is.
func parseTime(s string) (t time.Time, rule string) {
	const form = `it has the form YYYY-MM-DDThh:mm:ssZ, where "Z" is the zone, or ±hh:mm`
	switch n := len(s); {
	case n == len("2006"):
		s += "-01-01T00:00:00Z"
	case n == len("2006-01"):
		s += "-01T00:00:00Z"
	case n == len("2006-01-02"):
		s += "T00:00:00Z"
	case n > len("2006-01-02T15:04") && s[16] != ':':
		s = s[:16] + ":00" + s[16:]
	}
	if !isStrict(s) {
		return t, form
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		if parse, ok := errors.AsType[*time.ParseError](err); ok && parse.Message != "" {
			return time.Time{}, strings.TrimPrefix(parse.Message, ": ")
		}
		return time.Time{}, form
	}
	if t = t.UTC(); !inYears(t) {
		return time.Time{}, "the year is 0001 to 9999"
	}
	return t, ""
}

// isStrict reports whether s has none of what time.Parse lets pass beyond RFC 3339: an hour of
// one digit, a decimal comma, and a zone beyond 23:59.
func isStrict(s string) bool {
	n := len(s)
	return n > len("2006-01-02T15:04:05") && s[len("2006-01-02T15")] == ':' && s[len("2006-01-02T15:04:05")] != ',' &&
		(s[n-1] == 'Z' || s[n-len("07:00"):n-len(":00")] < "24" && s[n-len("00"):] < "60")
}

// inYears reports whether the year of t has at most four digits, and t is not the zero
// time, which means absent.
func inYears(t time.Time) bool {
	year := t.UTC().Year()
	return !t.IsZero() && 1 <= year && year <= 9999
}

// AppendTime appends t as a W3C datetime. It is in UTC with "Z", because a client in
// use misreads any other zone. The fraction of the second has up to nine digits and no
// trailing zeros, and is left out if it is 0.
func AppendTime(dst []byte, t time.Time) []byte {
	return t.UTC().AppendFormat(dst, time.RFC3339Nano)
}

// AppendTimeMicro appends a time, given in microseconds since 1970, in the form of the
// hub's own datetimes: always with six digits after the second, and with "Z". Texts of
// this form sort like the times.
func AppendTimeMicro(dst []byte, micros int64) []byte {
	t := time.UnixMicro(micros).UTC()
	dst = t.AppendFormat(dst, time.RFC3339) // this layout is much faster than one with a fraction
	dst[len(dst)-1] = '.'                   // in place of the Z
	for unit := 100_000_000; unit >= 1000; unit /= 10 {
		dst = append(dst, '0'+byte(t.Nanosecond()/unit%10))
	}
	return append(dst, 'Z')
}
