package callback_test

import (
	"context"
	"testing"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
)

// A secret that is not encrypted with the first key is stored again even if that fails at first, and a delivery
// is in flight then.
func TestResealDuringDelivery(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, id := w.subscriber()
		w.crash()
		r := w.record(id)
		r.Stale = true
		w.store.onLoad(func(shard int) recordsFunc {
			return func(yield func(subscription.Record, error) bool) {
				if shard == id.Shard() {
					yield(r, nil)
				}
			}
		})
		w.store.onCommit(noCommits)
		w.start()
		w.pass(58 * time.Second)
		w.store.onCommit(func(_ context.Context, _ int, _ subscription.Changes, commit func() error) error {
			time.Sleep(2 * time.Second) // fake time
			return commit()
		})
		c.respond(hang)
		w.pass(3 * time.Second) // the second attempt is after a minute
		w.publish("a", 1)
		w.pass(1500 * time.Millisecond)
		if calls, stale := w.metric("in_flight"), w.metric("stale_secrets"); calls != 1 || stale != 1 {
			t.Errorf("got %d calls and %d stale secrets during a delivery, want 1 and 1", calls, stale)
		}
		w.store.onCommit(nil)
		c.respond(accept)
		w.pass(30 * time.Second)
		if n := w.metric("stale_secrets"); n != 0 {
			t.Errorf("got %d stale secrets, want 0", n)
		}
	})
}

// After a renewal with another secret both sign for a day. Verifications and denials are signed, too, and
// dated.
func TestTwoSecrets(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.receiver("a.example")
		c.url += "?own=1"
		wantGet := func(mode, secret, former string) {
			t.Helper()
			gets := c.gets.all()
			r := gets[len(gets)-1]
			q, query := r.URL.Query(), []byte(r.URL.RawQuery)
			for name, want := range map[string]string{
				"Rs-Signature": signature(secret, query), "Rs-Former-Signature": signature(former, query), "X-Hub-Signature": "",
			} {
				if got := r.Header.Get(name); got != want {
					t.Errorf("%s: %s = %q, want %q", mode, name, got, want)
				}
			}
			if q.Get("hub.mode") != mode || q.Get("own") != "1" {
				t.Errorf("query = %s, want mode %s", query, mode)
			}
			at, err := time.Parse(time.RFC3339, q.Get("rs.time"))
			if q.Has("rs.time") != (secret != "") || secret != "" && (err != nil || time.Since(at).Abs() > 2*time.Second) {
				t.Errorf("%s: rs.time = %q, want now if there is a secret", mode, q.Get("rs.time"))
			}
		}
		wantPost := func(secret, former string) {
			t.Helper()
			w.publish("x", 1)
			p := c.last()
			p.wantSignature(t, secret)
			want := 1
			if former == "" {
				want = 0
			}
			if got := p.header.Values("Rs-Former-Signature"); len(got) != want || want > 0 && got[0] != signature(former, p.body) {
				t.Errorf("Rs-Former-Signature = %q, want that of secret %q", got, former)
			}
		}
		subscribe := func(s string) {
			t.Helper()
			w.request(c, subscription.Request{Terms: secret(s), Start: w.head(), Lease: 72 * time.Hour})
		}
		subscribe("")
		wantGet("subscribe", "", "")
		wantPost("", "")
		subscribe("one")
		wantGet("subscribe", "one", "")
		wantPost("one", "")
		c.verify(status(404))
		subscribe("never")
		wantGet("subscribe", "never", "one")
		wantPost("one", "")
		c.verify(confirm)
		subscribe("two")
		wantGet("subscribe", "two", "one")
		wantPost("two", "one")
		subscribe("three")
		wantPost("three", "two")
		w.request(c, subscription.Request{Mode: subscription.Unsubscribe, Terms: secret("wrong")})
		wantGet("unsubscribe", "three", "two")
		subscribe("four")
		wantGet("subscribe", "four", "")
		w.do(subscription.Remove, c)
		wantGet("denied", "four", "")
	})
}
