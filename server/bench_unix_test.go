//go:build unix

package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/internal/logged"
	"github.com/rshub/rshub/internal/running"
	"github.com/rshub/rshub/limit"
)

// What a publish of ten changes costs the processor, from the front's handler to the disk: where there are
// no tokens, by an operator (rights and no limits), and by a caller (both).
func BenchmarkPublish(b *testing.B) {
	file, texts := running.Tokens("publish:*", "publish:* operate")
	known, err := access.ReadTokens(strings.NewReader(file))
	if err != nil {
		b.Fatal(err)
	}
	change := `{"loc":"https://example.org/a/resource/of/some/length","change":"updated"},`
	body := `{"changes":[` + strings.Repeat(change, 9) + strings.TrimSuffix(change, ",") + `]}`
	for _, test := range []struct {
		name, token string
		callers     access.Authenticator
	}{{"floor", "", nil}, {"operator", texts[1], known}, {"caller", texts[0], known}} {
		b.Run(test.name, func(b *testing.B) {
			s, err := New(Config{Listen: "127.0.0.1:0", Data: b.TempDir(), Callers: test.callers})
			if err != nil {
				b.Fatal(err)
			}
			s.callers.limiter = limit.New(limit.Options{Caller: limits(b, "requests:1000000000/s,publishes:1000000000/s,changes:1000000000/s,bytes:1000GiB/s,sets:9/h,connections:99")})
			running.Start(b, s, &logged.Log{})
			publish := func() {
				r := httptest.NewRequest(http.MethodPost, "http://localhost/sets/demo/changes", strings.NewReader(body))
				r.Header.Set("Content-Type", "application/json")
				if test.token != "" {
					r.Header.Set("Authorization", "Bearer "+test.token)
				}
				w := httptest.NewRecorder()
				s.front.publicDoor.ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					b.Fatalf("%d %s", w.Code, w.Body)
				}
			}
			publish()
			before := processor(b)
			for b.Loop() {
				publish()
			}
			b.ReportMetric(float64(processor(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// processor returns how much time processors have worked for this process.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
