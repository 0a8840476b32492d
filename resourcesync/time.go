package resourcesync

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ParseTime parses a W3C datetime in the forms that the standard allows (core section
// 7): YYYY, YYYY-MM, YYYY-MM-DD, or a date with a time of day. In a time of day, the
// seconds and their fraction are optional. The zone, "Z" or ±hh:mm, is required. The
// result is in UTC. A date without a time is the first second of its period. Digits
// beyond nanoseconds are truncated. An error is an *Error that wraps ErrInvalid.
func ParseTime(s string) (time.Time, error) {
	t, msg := parseTime(s)
	if msg != "" {
		return time.Time{}, &Error{Err: ErrInvalid, Msg: fmt.Sprintf("invalid datetime %s: %s", quote(s), msg)}
	}
	return t, nil
}

// parseTime is like ParseTime, but instead of an error it returns a message of the form
// "want ...", or "" if s is valid. It does not quote s.
func parseTime(s string) (t time.Time, msg string) {
	const form = `want YYYY-MM-DDThh:mm:ssZ, with "Z" or ±hh:mm as the zone`
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
	if !isStrictRFC3339(s) {
		return t, form
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		if parse, ok := errors.AsType[*time.ParseError](err); ok && parse.Message != "" {
			return time.Time{}, "want a valid datetime: " + strings.TrimPrefix(parse.Message, ": ")
		}
		return time.Time{}, form
	}
	if t = t.UTC(); !hasValidYear(t) {
		return time.Time{}, "want a year from 0001 to 9999"
	}
	return t, ""
}

// isStrictRFC3339 reports whether s avoids the deviations from RFC 3339 that time.Parse
// accepts: an hour of one digit, a decimal comma, and a zone beyond 23:59. It does not
// check anything else.
func isStrictRFC3339(s string) bool {
	n := len(s)
	return n > len("2006-01-02T15:04:05") && s[len("2006-01-02T15")] == ':' && s[len("2006-01-02T15:04:05")] != ',' &&
		(s[n-1] == 'Z' || s[n-len("07:00"):n-len(":00")] < "24" && s[n-len("00"):] < "60")
}

// hasValidYear reports whether the year of t in UTC has at most four digits. It reports
// false for the zero time, which means absent.
func hasValidYear(t time.Time) bool {
	year := t.UTC().Year()
	return !t.IsZero() && 1 <= year && year <= 9999
}

// AppendTime appends t as a W3C datetime to dst and returns the extended buffer. The
// datetime is in UTC with "Z", because a client in use misreads any other zone. The
// fraction of the second has up to nine digits, without trailing zeros, and is omitted if
// it is 0.
func AppendTime(dst []byte, t time.Time) []byte {
	return t.UTC().AppendFormat(dst, time.RFC3339Nano)
}

// AppendTimeMicro appends a time, given in microseconds since 1970, in the form that hubs
// use for datetimes of their own: with "Z" and always with six digits after the second.
// Texts of this form sort in the order of their times. It returns the extended buffer.
func AppendTimeMicro(dst []byte, micros int64) []byte {
	t := time.UnixMicro(micros).UTC()
	dst = t.AppendFormat(dst, time.RFC3339) // much faster than a layout with a fraction
	dst[len(dst)-1] = '.'                   // replaces the Z
	for unit := 100_000_000; unit >= 1000; unit /= 10 {
		dst = append(dst, '0'+byte(t.Nanosecond()/unit%10))
	}
	return append(dst, 'Z')
}
