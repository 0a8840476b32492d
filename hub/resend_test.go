package hub

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/changelog/redislog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/internal/testutil/redistest"
)

// A stream that is resent after the key of its first batch expired is appended again as a
// whole: the log ends with the stream's last line.
func TestStreamResentAfterItsFirstKeyExpired(t *testing.T) {
	for _, tt := range []struct {
		name string
		long bool
		// open returns a memory, and what makes it forget the key of the first batch.
		open func(t *testing.T) (changelog.Log, func())
	}{
		{"disk, by age", false, func(t *testing.T) (changelog.Log, func()) {
			now, step := time.Now(), 10*time.Second
			log := openDisk(t, disklog.Options{Now: func() time.Time { now = now.Add(step); return now }})
			return log, func() {
				step = time.Millisecond
				oldest, err := log.At(t.Context(), "demo", 1000)
				if err != nil {
					t.Fatal(err)
				}
				now = oldest.Time().Add(changelog.KeyAge + 5*time.Second)
			}
		}},
		{"disk, by number", true, func(t *testing.T) (changelog.Log, func()) {
			log := openDisk(t, disklog.Options{})
			return log, func() { useKeys(t, log, changelog.KeyCount-2) }
		}},
		{"Redis, by age", false, func(t *testing.T) (changelog.Log, func()) {
			log, server := openRedis(t)
			// Redis' clock cannot be set, so the test removes what retention would remove.
			return log, func() {
				c := server.Client()
				keys, err := c.HGetAll(t.Context(), "rshub:{demo}:numbers").Result()
				if err != nil || len(keys) != 3 {
					t.Fatalf("HGETALL: got %d keys, %v; want 3", len(keys), err)
				}
				for key, number := range keys {
					if number == "1" && c.HDel(t.Context(), "rshub:{demo}:numbers", key).Err() == nil {
						return
					}
				}
				t.Fatal("the first key is missing")
			}
		}},
		{"Redis, by number", true, func(t *testing.T) (changelog.Log, func()) {
			log, _ := openRedis(t)
			return log, func() { useKeys(t, log, changelog.KeyCount-2) }
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.long && testing.Short() {
				t.Skip("appends 100,000 publishes")
			}
			log, expire := tt.open(t)
			h := New(log, Options{Base: base})
			defer h.Close()
			const x = "https://example.org/x"
			body := `{"loc":"` + x + `","change":"created"}` + "\n" + numbered(2500) + `{"loc":"` + x + `","change":"deleted"}` + "\n"
			send := func() feed.Receipt {
				t.Helper()
				r := receiptOf(t, post(h, body, "Content-Type", "application/x-ndjson", "Idempotency-Key", "load"))
				first, ferr := feed.ParseCursor(r.First)
				last, lerr := feed.ParseCursor(r.Cursor)
				if ferr != nil || lerr != nil || first.Position >= last.Position || r.Count != 2502 {
					t.Errorf("receipt = %+v, want its first before its cursor, and 2502 changes", r)
				}
				return r
			}
			send()
			if !send().Replayed {
				t.Error("a retry was appended again")
			}
			before := mustState(t, log, "demo").Head.Position
			expire()
			if r := send(); r.Replayed {
				t.Errorf("receipt = %+v, want it appended again", r)
			}
			if got := mustState(t, log, "demo").Head.Position; got < before+2502 {
				t.Errorf("the log grew from %d to %d, want all 2502 lines again", before, got)
			}
			newest, err := log.At(t.Context(), "demo", mustState(t, log, "demo").Head.Position-1)
			if err != nil {
				t.Fatal(err)
			}
			b, err := log.Since(t.Context(), "demo", newest, 1)
			if err != nil {
				t.Fatal(err)
			}
			if c := b.Entries[0].Change; c.Loc != x || c.Change != "deleted" {
				t.Errorf("newest entry = %s %s, want %s deleted", c.Loc, c.Change, x)
			}
			if !send().Replayed {
				t.Error("a retry of the second run was appended again")
			}
		})
	}
}

func openDisk(t *testing.T, o disklog.Options) changelog.Log {
	t.Helper()
	log, err := disklog.Open(t.Context(), t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	return log
}

func openRedis(t *testing.T) (changelog.Log, *redistest.Server) {
	t.Helper()
	server := redistest.Start(t, "--appendfsync", "no")
	conn, err := redisconn.Open("redis://"+server.Addr, redisconn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	log, err := redislog.Open(t.Context(), conn, redislog.Options{Prefix: "rshub"})
	if err != nil {
		t.Fatal(err)
	}
	return log, server
}

// useKeys appends n publishes to the set demo, each with its own key.
func useKeys(t *testing.T, log changelog.Log, n int) {
	t.Helper()
	for used := 0; used < n; {
		publishes := make([]changelog.Publish, min(10_000, n-used))
		for i := range publishes {
			publishes[i] = changelog.Publish{Key: fmt.Sprint("n", used+i), Changes: changes("n", 1)}
		}
		if _, err := log.Append(t.Context(), "demo", publishes...); err != nil {
			t.Fatal(err)
		}
		used += len(publishes)
	}
}

// A receipt never combines batches of two logs: if the set was deleted during a stream, the
// earlier batches are lost, and the error asks for the whole stream again.
func TestStreamWhileSetIsDeleted(t *testing.T) {
	h, log := newHub(t, Options{})
	calls := 0
	log.onAppend = func(ctx context.Context, _ []changelog.Publish) error {
		if calls++; calls == 4 { // the first found no set; this is the third batch
			if err := log.Log.Delete(ctx, "demo"); err != nil {
				return err
			}
			return log.Log.Make(ctx, "demo", feed.Description{}, 100)
		}
		return nil
	}
	send := func() (int, string) {
		w := post(h, numbered(2500), "Content-Type", "application/x-ndjson", "Idempotency-Key", "load")
		return w.Code, w.Body.String()
	}
	code, text := send()
	if code != 503 || !strings.Contains(text, `"accepted":{"count":0,"line":0}`) {
		t.Errorf("got %d %s, want 503 and nothing accepted", code, text)
	}
	if code, text = send(); code != 200 {
		t.Errorf("got %d %s, want 200", code, text)
	}
	if got := locs(t, log, "demo"); len(got) != 3000 || got[2999] != "https://example.org/2500" {
		t.Errorf("the log has %d entries, want the last batch and the whole stream", len(got))
	}
}
