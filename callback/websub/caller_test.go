package websub

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/outbound"
)

// loopback allows callbacks on this machine.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// Over real sockets with TLS: nothing is delivered to a host that is not trusted, or to an address that is not allowed.
func TestRealCallbacks(t *testing.T) {
	var got atomic.Int64
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.Add(1)
		if kind, link := r.Header.Get("Content-Type"), r.Header.Get("Link"); kind != "application/atom+xml" || !strings.HasPrefix(link, "<"+base+`/sets/demo/atom.xml>; rel="self"`) {
			t.Errorf("got Content-Type %s and Link %s", kind, link)
		}
	})
	plain, secure := httptest.NewServer(handler), httptest.NewUnstartedServer(handler)
	secure.StartTLS()
	defer plain.Close()
	defer secure.Close()
	cas := secure.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	for _, tt := range []struct {
		name, callback string
		options        outbound.Options
		want           string // error; empty means delivered
	}{
		{"allowed", plain.URL, outbound.Options{Allow: loopback}, ""},
		{"not allowed", plain.URL, outbound.Options{}, "not allowed"},
		{"known CA", secure.URL, outbound.Options{Allow: loopback, CAs: cas}, ""},
		{"unknown CA", secure.URL, outbound.Options{Allow: loopback}, "TLS"},
		{"HTTPS to HTTP", strings.Replace(plain.URL, "http:", "https:", 1), outbound.Options{Allow: loopback}, "TLS"},
		{"HTTP to HTTPS", strings.Replace(secure.URL, "https:", "http:", 1), outbound.Options{Allow: loopback}, "unsuccessful response"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got.Store(0)
			client := outbound.New(tt.options)
			defer client.Close()
			v := NewCaller(client, base, CallerOptions{}).Deliver(t.Context(), &outlet.Delivery{
				To: &subscription.Subscription{Set: "demo", Form: "atom.xml", Callback: tt.callback}, Body: [][]byte{[]byte("<feed/>")},
				Format: &outlet.Format{Batch: &feed.Format{MediaType: "application/atom+xml"}}, Changes: 1, Attempt: 1,
			})
			decision, requests := outlet.Done, int64(1)
			if tt.want != "" {
				decision, requests = outlet.Again, 0
			}
			if v.Decision != decision || got.Load() != requests || !strings.Contains(v.Error, tt.want) || (v.Error == "") != (tt.want == "") {
				t.Errorf("Deliver() = %+v after %d requests, want %q", v, got.Load(), tt.want)
			}
			if strings.Contains(v.Error, "127.0.0.1") {
				t.Errorf("Deliver() = %q, which has an address", v.Error)
			}
		})
	}
}

func TestConfirm(t *testing.T) {
	const verifyToken, statusToken = "v&é token", "STATUSTOKEN"
	long := strings.Repeat("x", 100)
	for _, tt := range []struct{ name, body, want string }{ // CHALLENGE is the challenge; want is empty if confirmed
		{"challenge", "CHALLENGE", ""},
		{"challenge and newline", "CHALLENGE\n", `got "CHALLENGE\n", want the challenge`},
		{"long challenge", "CHALLENGE" + long, `got "CHALLENGE` + long[:14] + `…" (first 40 bytes), want the challenge`},
		{"nothing", "", `got "", want the challenge`},
		{"short", "ok", `got "ok", want the challenge`},
		{"40 bytes", long[:40], `got "` + long[:40] + `", want the challenge`},
		{"41 bytes", long[:41], `got "` + long[:40] + `…" (first 40 bytes), want the challenge`},
		{"page", "<html>" + long, `got "<html>` + long[:34] + `…" (first 40 bytes), want the challenge`},
		{"control characters", "a\x00\x1b[31m\r\n\"\\\u202e", `got "a\x00\x1b[31m\r\n\"\\\u202e", want the challenge`},
		{"invalid UTF-8", "a\xff", `got "a\xff", want the challenge`},
		{"cut character", long[:39] + "éé", `got "` + long[:39] + `…" (first 39 bytes), want the challenge`},
		{"verify token", "got=" + verifyToken, `got "got=…" (first 4 bytes), want the challenge`},
		{"escaped verify token", "got=" + url.QueryEscape(verifyToken), `got "got=…" (first 4 bytes), want the challenge`},
		{"only the verify token", verifyToken, `got "…" (first 0 bytes), want the challenge`},
		{"status token", "s=" + statusToken, `got "s=…" (first 2 bytes), want the challenge`},
		{"start of the status token", long[:34] + statusToken, `got "` + long[:34] + `…" (first 34 bytes), want the challenge`},
		{"secret", "s=" + secret, `got "s=…" (first 2 bytes), want the challenge`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var challenge string
			callback := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				challenge = r.URL.Query().Get("hub.challenge")
				_, _ = io.WriteString(w, strings.ReplaceAll(tt.body, "CHALLENGE", challenge))
			}))
			defer callback.Close()
			client := outbound.New(outbound.Options{Allow: loopback})
			defer client.Close()
			v := NewCaller(client, base, CallerOptions{}).Confirm(t.Context(), &outlet.Question{
				Request: &subscription.Request{Mode: subscription.Subscribe, Set: "demo", Callback: callback.URL, VerifyToken: verifyToken},
				Token:   statusToken, Keys: outlet.Keys{Secret: secret},
			})
			want := tt.want
			if want != "" {
				want = "response body: " + strings.ReplaceAll(want, "CHALLENGE", challenge)
			}
			if v.Error != want || (v.Decision == outlet.Done) != (want == "") {
				t.Errorf("Confirm() = %+v, want %q", v, want)
			}
		})
	}
}

// The signature covers all parts of a body. The vectors are shared with the receivers in clients and examples.
func TestSignature(t *testing.T) {
	text, err := os.ReadFile("testdata/signature.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Name, Secret, Body string
		Signatures         map[string]string
	}
	if err := json.Unmarshal(text, &vectors); err != nil || len(vectors) == 0 {
		t.Fatalf("%d vectors, %v", len(vectors), err)
	}
	for _, v := range vectors {
		body := []byte(v.Body)
		third := len(body) / 3
		for _, parts := range [][][]byte{{body}, {body[:third], body[third : 2*third], body[2*third:]}} {
			if got := signature(v.Secret, parts); got != v.Signatures["sha256"] {
				t.Errorf("%s: signature() of %d parts = %s, want %s", v.Name, len(parts), got, v.Signatures["sha256"])
			}
		}
	}
}

func TestAddQuery(t *testing.T) {
	q := url.Values{"a.b": {"x y&z"}, "c": {"%"}}
	for callback, want := range map[string]string{
		"http://h/p":     "http://h/p?a.b=x+y%26z&c=%25",
		"http://h":       "http://h?a.b=x+y%26z&c=%25",
		"http://h/p?":    "http://h/p?a.b=x+y%26z&c=%25",
		"http://h/p?a=1": "http://h/p?a=1&a.b=x+y%26z&c=%25",
		"http://h/p?a&":  "http://h/p?a&a.b=x+y%26z&c=%25",
		"http://h/p&":    "http://h/p&?a.b=x+y%26z&c=%25",
	} {
		if got := addQuery(callback, q); got != want {
			t.Errorf("addQuery(%q) = %q, want %q", callback, got, want)
		}
	}
}
