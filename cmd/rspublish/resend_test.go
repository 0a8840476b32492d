package main

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/problem"
)

// TestResendAfterFirstKeyExpired publishes the same inputs on two days, as a nightly job does. On
// the second day, the key of the first batch has expired, but the others have not. Batches that
// are published again must be in the order of the inputs.
func TestResendAfterFirstKeyExpired(t *testing.T) {
	const x = "https://example.org/x"
	created, deleted := `{"loc":"`+x+`","change":"created"}`+"\n", `{"loc":"`+x+`","change":"deleted"}`+"\n"
	for _, tt := range []struct {
		name   string
		key    string
		inputs []string
	}{
		{"one file", "", []string{created + lines(1, 2500) + deleted}},
		{"one file with a key", "night", []string{created + lines(1, 2500) + deleted}},
		{"three files", "", []string{created, lines(1, 100), deleted}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now, perBatch := time.Now(), 10*time.Second
			log, err := disklog.Open(t.Context(), t.TempDir(), disklog.Options{Now: func() time.Time { return now }})
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			h := hub.New(log, hub.Options{})
			defer h.Close()
			a := problem.Adapter{Logger: slog.New(slog.DiscardHandler)}
			srv := httptest.NewServer(a.Handle(func(w http.ResponseWriter, r *http.Request) error {
				r = r.WithContext(access.NewContext(r.Context(), access.Caller{Rights: access.All()}))
				defer func() { now = now.Add(perBatch) }()
				return h.ServePublish(w, r, "peps")
			}))
			defer srv.Close()
			b := newTestEnv(t)
			args := []string{"-hub", srv.URL, "-set", "peps"}
			if tt.key != "" {
				args = append(args, "-key", tt.key)
			}
			for i, input := range tt.inputs {
				args = append(args, b.write(string(rune('a'+i)), input))
			}
			publish := func() {
				t.Helper()
				p := &program{env: func(string) string { return "" }, stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard,
					cacheDir: func() (string, error) { return t.TempDir(), nil }, now: time.Now, sleep: func(context.Context, time.Duration) error { return nil }}
				if code := p.run(t.Context(), args); code != 0 {
					t.Fatalf("exit code = %d, want 0", code)
				}
			}
			first := now
			publish()
			now, perBatch = first.Add(changelog.KeyAge+5*time.Second), time.Millisecond
			publish()
			state, err := log.State(t.Context(), "peps")
			if err != nil {
				t.Fatal(err)
			}
			batch, err := log.Since(t.Context(), "peps", feed.Cursor{}, int(state.Head.Position))
			for err == nil && batch.Cursor != state.Head {
				batch, err = log.Since(t.Context(), "peps", batch.Cursor, int(state.Head.Position))
			}
			if err != nil {
				t.Fatal(err)
			}
			if c := batch.Entries[len(batch.Entries)-1].Change; c.Loc != x || c.Change != "deleted" {
				t.Errorf("newest entry = %s %s, want %s deleted", c.Loc, c.Change, x)
			}
		})
	}
}
