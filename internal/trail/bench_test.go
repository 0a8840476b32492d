package trail

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkRecord is all that the audit log costs one request: its record, and its line, which
// another goroutine makes and writes.
func BenchmarkRecord(b *testing.B) {
	l := &Log{path: filepath.Join(b.TempDir(), "audit"), log: slog.New(slog.DiscardHandler), floods: map[flood]uint64{}}
	if err := l.open(); err != nil {
		b.Fatal(err)
	}
	defer l.file.Close()
	client := netip.MustParseAddr("198.51.100.7")
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		r := &Record{RequestID: "SRLK2XA5TX4CWMCZP5ZQZP5ZQ4", Client: client, Method: "POST", Path: "/sets/demo/changes"}
		ctx := NewContext(context.Background(), r)
		From(ctx).As("my-repository")
		From(ctx).Begin(Publish, "demo")
		From(ctx).Published(1, published("demo").Cursor, false)
		l.Add(r, http.StatusOK)
		if n++; n%1000 == 0 { // as many as come in a fifth of a second, at 5,000 publishes a second
			l.write()
		}
	}
	if l.Lost() > 0 || time.Duration(b.N) == 0 {
		b.Error("lines are missing")
	}
}
