package websub

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/outbound"
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
		"TLS wanted":  {strings.Replace(secure.URL, "https:", "http:", 1), outbound.Options{Allow: loopback}, "unsuccessful response"},
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

func TestConfirm(t *testing.T) {
	const verifyToken, statusToken = "v&é token", "STATUSTOKEN"
	echo := func(name string) func(url.Values) string { return func(q url.Values) string { return q.Get(name) } }
	says := func(text string) func(url.Values) string { return func(url.Values) string { return text } }
	for _, tt := range []struct {
		name   string
		answer func(url.Values) string
		want   string // error; empty means confirmed
	}{
		{"challenge", echo("hub.challenge"), ""},
		{"challenge and newline", func(q url.Values) string { return q.Get("hub.challenge") + "\n" }, `got "CHALLENGE\n", want the challenge`},
		{"challenge twice", func(q url.Values) string { return q.Get("hub.challenge") + q.Get("hub.challenge") }, `got "CHALLENGEREST…" (first 40 bytes), want the challenge`},
		{"nothing", says(""), `got "", want the challenge`},
		{"short", says("ok"), `got "ok", want the challenge`},
		{"40 bytes", says(strings.Repeat("x", 40)), `got "` + strings.Repeat("x", 40) + `", want the challenge`},
		{"41 bytes", says(strings.Repeat("x", 41)), `got "` + strings.Repeat("x", 40) + `…" (first 40 bytes), want the challenge`},
		{"page", says("<html>" + strings.Repeat("y", 1000)), `got "<html>` + strings.Repeat("y", 34) + `…" (first 40 bytes), want the challenge`},
		{"control characters", says("a\x00\x1b[31m\r\n\"\\\u202e"), `got "a\x00\x1b[31m\r\n\"\\\u202e", want the challenge`},
		{"invalid UTF-8", says("a\xff"), `got "a\xff", want the challenge`},
		{"cut in a character", says(strings.Repeat("x", 39) + "éé"), `got "` + strings.Repeat("x", 39) + `…" (first 39 bytes), want the challenge`},
		{"verify token", says("got=" + verifyToken), `got "got=…" (first 4 bytes), want the challenge`},
		{"escaped verify token", says("got=" + url.QueryEscape(verifyToken)), `got "got=…" (first 4 bytes), want the challenge`},
		{"status", says("s=" + statusToken), `got "s=…" (first 2 bytes), want the challenge`},
		{"start of the status token", says(strings.Repeat("x", 34) + statusToken), `got "` + strings.Repeat("x", 34) + `…" (first 34 bytes), want the challenge`},
		{"secret", says("s=" + secret), `got "s=…" (first 2 bytes), want the challenge`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var asked url.Values
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked = r.URL.Query()
				_, _ = io.WriteString(w, tt.answer(asked))
			}))
			defer s.Close()
			client := outbound.New(outbound.Options{Allow: loopback})
			defer client.Close()
			v := NewCaller(client, base, CallerOptions{}).Confirm(t.Context(), &outlet.Question{
				Request: &subscription.Request{Mode: subscription.Subscribe, Set: "demo", Callback: s.URL, VerifyToken: verifyToken},
				Token:   statusToken, Keys: outlet.Keys{Secret: secret},
			})
			challenge := asked.Get("hub.challenge")
			want := strings.NewReplacer("CHALLENGE", challenge, "REST", (challenge + challenge)[len(challenge):40]).Replace(tt.want)
			if want != "" {
				want = "response body: " + want
			}
			if v.Error != want || (v.Decision == outlet.Done) != (want == "") {
				t.Errorf("Confirm() = %+v, want %q", v, want)
			}
		})
	}
}

func TestVerifyToken(t *testing.T) {
	for _, tt := range []struct {
		name, callback, token string
		mode                  subscription.Mode
		want                  []string
	}{
		{"subscribe", "", "subscribeX", subscription.Subscribe, []string{"subscribeX"}},
		{"unsubscribe", "", "subscribeX", subscription.Unsubscribe, []string{"subscribeX"}},
		{"escaped", "", " a&b=%\x00é", subscription.Subscribe, []string{" a&b=%\x00é"}},
		{"none", "", "", subscription.Subscribe, nil},
		{"none, to unsubscribe", "", "", subscription.Unsubscribe, nil},
		{"callback has one", "?hub.verify_token=own", "x", subscription.Subscribe, []string{"own", "x"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var asked []url.Values
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked = append(asked, r.URL.Query())
				_, _ = io.WriteString(w, r.URL.Query().Get("hub.challenge"))
			}))
			defer s.Close()
			client := outbound.New(outbound.Options{Allow: loopback})
			defer client.Close()
			c := NewCaller(client, base, CallerOptions{})
			r := &subscription.Request{Mode: tt.mode, Set: "demo", Callback: s.URL + tt.callback, VerifyToken: tt.token}
			if v := c.Confirm(t.Context(), &outlet.Question{Request: r}); v.Decision != outlet.Done {
				t.Errorf("Confirm() = %+v, want it done", v)
			}
			if v := c.Deny(t.Context(), &outlet.Denial{Set: "demo", Callback: r.Callback, VerifyToken: tt.token}); v.Decision != outlet.Done {
				t.Errorf("Deny() = %+v, want it done", v)
			}
			for _, q := range asked {
				if got := q["hub.verify_token"]; !slices.Equal(got, tt.want) {
					t.Errorf("hub.mode=%s has hub.verify_token = %q, want %q", q.Get("hub.mode"), got, tt.want)
				}
			}
			if len(asked) != 2 {
				t.Errorf("got %d requests, want 2", len(asked))
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
