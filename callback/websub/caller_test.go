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
	"github.com/rshub/rshub/outbound"
)

// loopback lets callbacks lead to this machine.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// Over real sockets with TLS: nothing is delivered to a host that is not trusted,
// or to an address that is not allowed.
func TestRealCallbacks(t *testing.T) {
	var got atomic.Int64
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			got.Add(1)
			if kind, link := r.Header.Get("Content-Type"), r.Header.Get("Link"); kind != "application/atom+xml" || !strings.HasPrefix(link, "<"+base+`/sets/demo/atom.xml>; rel="self"`) {
				t.Errorf("a feed is sent as %s, Link: %s", kind, link)
			}
		}
		_, _ = io.WriteString(w, r.URL.Query().Get("hub.challenge"))
	})
	plain, secure := httptest.NewServer(handler), httptest.NewUnstartedServer(handler)
	secure.Config.ErrorLog = nil
	secure.StartTLS()
	defer plain.Close()
	defer secure.Close()
	for name, test := range map[string]struct {
		callback string
		o        outbound.Options
		reason   string // empty: delivered
	}{
		"allowed":     {plain.URL, outbound.Options{Allow: loopback}, ""},
		"not allowed": {plain.URL, outbound.Options{}, "not allowed"},
		"own CA":      {secure.URL, outbound.Options{Allow: loopback, CAs: secure.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}, ""},
		"unknown CA":  {secure.URL, outbound.Options{Allow: loopback}, "TLS"},
		"no TLS":      {strings.Replace(plain.URL, "http:", "https:", 1), outbound.Options{Allow: loopback}, "TLS"},
		"TLS wanted":  {strings.Replace(secure.URL, "https:", "http:", 1), outbound.Options{Allow: loopback}, "no success"},
	} {
		t.Run(name, func(t *testing.T) {
			got.Store(0)
			client := outbound.New(test.o)
			defer client.Close()
			v := NewCaller(client, base, CallerOptions{}).Deliver(t.Context(), &outlet.Delivery{
				To: &subscription.Subscription{Set: "demo", Form: "atom.xml", Callback: test.callback}, Body: [][]byte{[]byte("<feed/>")},
				Format: &outlet.Format{Batch: &feed.Format{MediaType: "application/atom+xml"}}, Changes: 1, Attempt: 1,
			})
			switch {
			case test.reason == "" && (v.Decision != outlet.Done || v.Error != "" || got.Load() != 1):
				t.Errorf("%+v", v)
			case test.reason != "" && (v.Decision != outlet.Again || !strings.Contains(v.Error, test.reason) || got.Load() != 0):
				t.Errorf("%+v, want %q", v, test.reason)
			case strings.Contains(v.Error, "127.0.0.1"):
				t.Errorf("the error shows an address: %s", v.Error)
			}
		})
	}
}

// The signature covers the whole body, which a large delivery has in several parts. The
// vectors are shared with the receivers in clients and examples.
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
				t.Errorf("%s, in %d parts: %s, want %s", v.Name, len(parts), got, v.Signatures["sha256"])
			}
		}
	}
}

func TestAddQuery(t *testing.T) {
	q := []param{{"a.b", "x y&z"}, {"c", "%"}}
	for callback, want := range map[string]string{
		"http://h/p":     "http://h/p?a.b=x+y%26z&c=%25",
		"http://h":       "http://h?a.b=x+y%26z&c=%25",
		"http://h/p?":    "http://h/p?a.b=x+y%26z&c=%25",
		"http://h/p?a=1": "http://h/p?a=1&a.b=x+y%26z&c=%25",
		"http://h/p?a&":  "http://h/p?a&a.b=x+y%26z&c=%25",
		"http://h/p&":    "http://h/p&?a.b=x+y%26z&c=%25",
	} {
		got := addQuery(callback, q)
		if got != want {
			t.Errorf("%s: %s, want %s", callback, got, want)
		}
		if _, err := url.Parse(got); err != nil {
			t.Error(err)
		}
	}
}
