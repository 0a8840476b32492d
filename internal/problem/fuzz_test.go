package problem

import (
	"io"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rshub/rshub/feed"
)

// Whatever a callback or a hub responds, a client waits for a sensible time, and shows nothing that
// a terminal would interpret.
func FuzzRead(f *testing.F) {
	for _, retry := range []string{"", "7", " 7 ", "-7", "99999999999999999999", "+3", "0x10", "1_000", "1e9", "Tue, 03 Feb 2026 04:06:06 GMT", "Tue, 03 Feb 9999 04:06:06 GMT", "Tue, 03 Feb 0001 04:06:06 GMT", "soon"} {
		f.Add(retry, `{"type":"x","title":"a\u001b[31m","detail":"b\r\nc","status":200,"entry":3}`, uint16(429))
	}
	f.Add("1", `{"type":"https://github.com/rshub/rshub/terms/problems/gone"}`, uint16(410))
	f.Add("1", `[]`, uint16(599))
	now := time.Date(2026, 2, 3, 4, 5, 6, 500, time.UTC)
	f.Fuzz(func(t *testing.T, retry, body string, status uint16) {
		h := http.Header{"Retry-After": {retry}, "Content-Type": {"application/problem+json"}}
		after := RetryAfter(h, now)
		if after < 0 || after > 1e9*time.Second {
			t.Errorf("RetryAfter(%q) = %v", retry, after)
		}
		if text := strings.TrimSpace(retry); strings.Trim(text, "0123456789") == "" && text != "" {
			n, _ := new(big.Int).SetString(text, 10)
			want := int64(1e9)
			if n.IsInt64() {
				want = min(n.Int64(), want)
			}
			if len(text) <= 18 && after != time.Duration(want)*time.Second {
				t.Errorf("RetryAfter(%q) = %v, want %d s", retry, after, want)
			}
		} else if at, err := http.ParseTime(text); err == nil && after != min(max(at.Sub(now), 0), 1e9*time.Second) {
			t.Errorf("RetryAfter(%q) = %v", retry, after)
		}
		p, err := Read(&http.Response{StatusCode: int(status), Header: h, Body: io.NopCloser(strings.NewReader(body))}, now)
		if err != nil {
			t.Fatal(err)
		}
		if p.Status != int(status) || time.Duration(p.RetryAfter)*time.Second < after || time.Duration(p.RetryAfter-1)*time.Second >= after && after > 0 {
			t.Errorf("Read(status %d, Retry-After %v) = %+v", status, after, p)
		}
		for _, text := range []string{p.Title, p.Detail, p.Loc, p.Error()} {
			if n := utf8.RuneCountInString(text); n > 2*maxText+10 || strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }) {
				t.Errorf("text of %q has %d characters: %q", body, n, text)
			}
		}
		if e, ok := p.Err.(*feed.Error); p.Err != nil && (!ok || !strings.HasSuffix(p.Type, e.Code)) {
			t.Errorf("error of %q = %v", body, p.Err)
		}
	})
}
