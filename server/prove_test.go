package server

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redistest"
	"github.com/rshub/rshub/internal/running"
	"github.com/rshub/rshub/internal/until"
	"github.com/rshub/rshub/inventory"
	"github.com/rshub/rshub/inventory/audit"
	"github.com/rshub/rshub/inventory/digest"
	"github.com/rshub/rshub/resourcesync"
)

// A destination that is called proves that it holds what the hub holds. Its status and the
// operators' list show when, and which cursor, also after a restart of the hub.
func TestProve(t *testing.T) {
	for name, config := range map[string]func(t *testing.T) Config{
		"disk": func(t *testing.T) Config { return Config{Data: t.TempDir()} },
		"Redis": func(t *testing.T) Config {
			return Config{RedisURL: "redis://" + redistest.Start(t).Addr, BaseURL: "https://hub.example.org"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := config(t)
			c.CallbackAllow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
			h := start(t, c)
			h.Publish("demo")
			var status atomic.Value
			callback := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if q := r.URL.Query(); r.Method == http.MethodGet {
					status.Store(q.Get("rs.status"))
					_, _ = io.WriteString(w, q.Get("hub.challenge"))
				}
			}))
			defer callback.Close()
			form := url.Values{"hub.mode": {"subscribe"}, "hub.topic": {cmp.Or(c.BaseURL, h.URL) + "/sets/demo/changes"}, "hub.callback": {callback.URL}, "rs.prefix": {"https://example.org/1"}}
			if resp, body := running.Do(t, "POST", h.URL+"/hub", form.Encode(), asForm...); resp.StatusCode != http.StatusAccepted {
				t.Fatalf("%d %s", resp.StatusCode, body)
			}
			list := func(hub string) string {
				t.Helper()
				resp, body := running.Do(t, "GET", hub+"/sets/demo/subscriptions", "")
				if resp.StatusCode != http.StatusOK {
					t.Fatalf("%d %s", resp.StatusCode, body)
				}
				return body
			}
			until.Done(t, "there is a subscription", func() bool { return strings.Contains(list(h.URL), callback.URL) })
			here := h.URL + "/subscriptions/" + status.Load().(string)[strings.LastIndexByte(status.Load().(string), '/')+1:]
			if strings.Contains(list(h.URL), `"proved"`) {
				t.Errorf("it is proved at once: %s", list(h.URL))
			}

			// The destination holds what the hub has within the prefix. An audit shows it, and so
			// does the hub.
			const one = `{"loc":"https://example.org/1","change":"updated","hash":"md5:1584abdf8ebdc9802ac0c6a7402c03b6"}`
			if resp, body := running.Do(t, "POST", h.URL+"/sets/demo/changes", `{"changes":[`+one+`,{"loc":"https://elsewhere.example/1","change":"updated"}]}`, asJSON...); resp.StatusCode != http.StatusOK {
				t.Fatalf("%d %s", resp.StatusCode, body)
			}
			hub, err := client.New(h.URL, client.Options{})
			if err != nil {
				t.Fatal(err)
			}
			own, err := inventory.Collect(t.Context(), inventory.NewMemory(nil), "own", audit.List(strings.NewReader(one+"\n")))
			if err != nil {
				t.Fatal(err)
			}
			var look audit.Look
			o := client.AuditOptions{Prefix: "https://example.org/1", By: digest.ByContent, Look: func(l audit.Look) { look = l }}
			for d, err := range hub.Audit(t.Context(), "demo", client.Always(own), o) {
				t.Fatalf("%+v, %v", d, err)
			}
			p, err := hub.Prove(t.Context(), here, look, digest.ByContent)
			if err != nil || !p.Equal || p.Complete || p.At != look.Cursor || time.Since(p.Time) > time.Minute {
				t.Fatalf("the proof is %+v, %v", p, err)
			}
			want := fmt.Sprintf(`"proved":{"time":"%s","at":"%v","by":"content","complete":false}`, p.Time.Format(time.RFC3339Nano), look.Cursor)
			until.Done(t, "the proof is shown", func() bool { return strings.Contains(list(h.URL), want) })
			if _, body := running.Do(t, "GET", here, ""); !strings.Contains(body, want) {
				t.Errorf("its status is %s", body)
			}

			// What differs is not proved, and the answer says where to go on.
			other := look
			other.Count++
			if p, err := hub.Prove(t.Context(), here, other, digest.ByContent); err != nil || p.Equal || !p.Time.IsZero() {
				t.Errorf("one resource more: %+v, %v", p, err)
			}
			other.Cursor.Micros++
			if p, err := hub.Prove(t.Context(), here, other, digest.ByContent); !errors.Is(err, feed.ErrGone) {
				t.Errorf("a cursor of another log: %+v, %v", p, err)
			}
			for _, bad := range []string{"", h.URL, h.URL + "/subscriptions/", h.URL + "/sets/demo/audit", "https://elsewhere.example/subscriptions/1.x", here + "?x=1"} {
				if _, err := hub.Prove(t.Context(), bad, look, digest.ByContent); !errors.Is(err, resourcesync.ErrInvalid) {
					t.Errorf("the status at %q: %v", bad, err)
				}
			}

			h.Stop()
			again := start(t, c)
			if !strings.Contains(list(again.URL), want) {
				t.Errorf("after a restart: %s", list(again.URL))
			}
		})
	}
}
