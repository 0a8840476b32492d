package resourcesync

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestParseTime(t *testing.T) {
	at := func(month time.Month, day, hour, minute, second, nano int) time.Time {
		return time.Date(2013, month, day, hour, minute, second, nano, time.UTC)
	}
	for _, test := range []struct {
		in   string
		want time.Time
	}{
		{"2013", at(1, 1, 0, 0, 0, 0)},
		{"2013-02", at(2, 1, 0, 0, 0, 0)},
		{"2013-02-03", at(2, 3, 0, 0, 0, 0)},
		{"2013-02-03T04:05Z", at(2, 3, 4, 5, 0, 0)},
		{"2013-02-03T04:05:06Z", at(2, 3, 4, 5, 6, 0)},
		{"2013-02-03T04:05:06.7Z", at(2, 3, 4, 5, 6, 700_000_000)},
		{"2013-02-03T04:05:06.000001Z", at(2, 3, 4, 5, 6, 1000)},
		{"2013-02-03T04:05:06.1234567899Z", at(2, 3, 4, 5, 6, 123_456_789)},
		{"2013-02-03T04:05:06+01:00", at(2, 3, 3, 5, 6, 0)},
		{"2013-02-03T04:05:06-05:30", at(2, 3, 9, 35, 6, 0)},
		{"2013-02-03T04:05-00:00", at(2, 3, 4, 5, 0, 0)},
		{"2013-01-01T00:00:00+01:00", time.Date(2012, 12, 31, 23, 0, 0, 0, time.UTC)},
		{"2012-02-29", time.Date(2012, 2, 29, 0, 0, 0, 0, time.UTC)},
		{"2000-02-29", time.Date(2000, 2, 29, 0, 0, 0, 0, time.UTC)},
		{"0001-01-02", time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC)},
		{"9999-12-31T23:59:59.999999999Z", time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC)},
	} {
		t.Run(test.in, func(t *testing.T) {
			if got, err := ParseTime(test.in); err != nil || got != test.want {
				t.Errorf("ParseTime(%q) = %v, %v, want %v", test.in, got, err, test.want)
			}
		})
	}
}

func TestParseTimeErrors(t *testing.T) {
	for _, test := range []struct{ in, msg string }{
		{"", "want YYYY-MM-DDThh:mm:ssZ"},
		{"yesterday", "want YYYY-MM-DDThh:mm:ssZ"},
		{"13", "want YYYY-MM-DDThh:mm:ssZ"},
		{"2013-", "want YYYY-MM-DDThh:mm:ssZ"},
		{"2013-1", "want YYYY-MM-DDThh:mm:ssZ"},
		{"20130102", "want YYYY-MM-DDThh:mm:ssZ"},
		{"2013-01-02-03", "want YYYY-MM-DDThh:mm:ssZ"},
		{"2013-01-02Z", "want YYYY-MM-DDThh:mm:ssZ"},
		{"2013-01-02 03:04:05Z", "want YYYY-MM-DDThh:mm:ssZ"},
		{"2013-01-02t03:04:05Z", "want YYYY-MM-DDThh:mm:ssZ"},
		{"2013-01T03:04:05Z", "want YYYY-MM-DDThh:mm:ssZ"},
		{"2013-01-02T", "want YYYY-MM-DDThh:mm:ssZ"},
		{"2013-01-02T03Z", "want YYYY-MM-DDThh:mm:ssZ"},
		{"2013-01-02T03:04:Z", "want YYYY-MM-DDThh:mm:ssZ"},
		{"2013-01-02T03:04:05.Z", "want YYYY-MM-DDThh:mm:ssZ"},
		{"2013-01-02T03:04:05,5Z", "as the zone"},
		{"2013-01-02T03:04:05", "as the zone"},
		{"2013-01-02T03:04", "as the zone"},
		{"2013-01-02T03:04:05z", "as the zone"},
		{"2013-01-02T03:04:05ZZ", "extra text"},
		{"2013-01-02T03:04:05 Z", "as the zone"},
		{"2013-01-02T03:04:05+01", "as the zone"},
		{"2013-01-02T03:04:05+0100", "as the zone"},
		{"2013-01-02T03:04:05+24:00", "as the zone"},
		{"2013-01-02T03:04:05+01:60", "as the zone"},
		{"2013-01-02T03:04:05 Europe/Zurich", "as the zone"},
		{"2013-00-01", "month out of range"},
		{"2013-13-01", "month out of range"},
		{"2013-01-00", "day out of range"},
		{"2013-02-29", "day out of range"},
		{"1900-02-29", "day out of range"},
		{"2013-04-31", "day out of range"},
		{"2013-01-02T24:00:00Z", "hour out of range"},
		{"2013-01-02T03:60:00Z", "minute out of range"},
		{"2013-01-02T03:04:60Z", "second out of range"},
		{"0000-01-01", "want a year from 0001 to 9999"},
		{"0001-01-01T00:00:00Z", "want a year from 0001 to 9999"}, // the zero time.Time would mean an absent time
		{"9999-12-31T23:59:59-01:00", "want a year from 0001 to 9999"},
		{"२०१३-०१-०२", "want YYYY-MM-DDThh:mm:ssZ"},
	} {
		t.Run(test.in, func(t *testing.T) {
			got, err := ParseTime(test.in)
			if !errors.Is(err, ErrInvalid) || !got.IsZero() {
				t.Errorf("ParseTime(%q) = %v, %v, want zero time, ErrInvalid", test.in, got, err)
			} else if !strings.Contains(err.Error(), test.msg) {
				t.Errorf("ParseTime(%q) = %q, want substring %q", test.in, err, test.msg)
			}
		})
	}
}

func TestAppendTime(t *testing.T) {
	for _, test := range []struct {
		in   time.Time
		want string
	}{
		{time.Date(2013, 1, 3, 0, 7, 22, 0, time.UTC), "2013-01-03T00:07:22Z"},
		{time.Date(2013, 1, 3, 0, 7, 22, 500_000_000, time.UTC), "2013-01-03T00:07:22.5Z"},
		{time.Date(2013, 1, 3, 0, 7, 22, 120_000, time.UTC), "2013-01-03T00:07:22.00012Z"},
		{time.Date(2013, 1, 3, 0, 7, 22, 1, time.UTC), "2013-01-03T00:07:22.000000001Z"},
		{time.Date(2013, 1, 3, 0, 7, 22, 0, time.FixedZone("", 3600)), "2013-01-02T23:07:22Z"},
		{time.Date(12, 1, 3, 0, 0, 0, 0, time.UTC), "0012-01-03T00:00:00Z"},
	} {
		t.Run(test.want, func(t *testing.T) {
			if got := string(AppendTime([]byte("x"), test.in)); got != "x"+test.want {
				t.Errorf("AppendTime(%v) = %q, want %q", test.in, got, "x"+test.want)
			}
		})
	}
}

func TestAppendTimeMicro(t *testing.T) {
	for _, test := range []struct {
		in   int64
		want string
	}{
		{0, "1970-01-01T00:00:00.000000Z"},
		{1, "1970-01-01T00:00:00.000001Z"},
		{-1, "1969-12-31T23:59:59.999999Z"},
		{1_357_171_642_120_000, "2013-01-03T00:07:22.120000Z"},
		{253_402_300_799_999_999, "9999-12-31T23:59:59.999999Z"},
	} {
		t.Run(test.want, func(t *testing.T) {
			got := string(AppendTimeMicro(nil, test.in))
			if got != test.want {
				t.Errorf("AppendTimeMicro(%d) = %q, want %q", test.in, got, test.want)
			}
			if back, err := ParseTime(got); err != nil || back.UnixMicro() != test.in {
				t.Errorf("ParseTime(%q) = %v, %v, want %d µs", got, back, err, test.in)
			}
		})
	}
	for _, micros := range []int64{-1 << 63, 1<<63 - 1} { // outside the range of a datetime, but must not panic
		AppendTimeMicro(nil, micros)
		AppendTime(nil, time.UnixMicro(micros))
	}
}
