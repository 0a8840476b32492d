package websub

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/callback/subscription/registrytest"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/resourcesync"
)

// A refused form stores nothing. The response names the invalid parameter.
func TestInvalidForms(t *testing.T) {
	f, _ := newFront(t, Options{}, 3)
	for _, tt := range []struct {
		name, form string
		status     int
		want       string
	}{
		{"empty", "", 400, "hub.mode is missing"},
		{"no mode", formWith("hub.mode", "-"), 400, "hub.mode"},
		{"unknown mode", formWith("hub.mode", "SUBSCRIBE"), 400, "hub.mode"},
		{"mode of operators", formWith("hub.mode", "remove"), 400, "hub.mode"},
		{"two modes", formWith() + "&hub.mode=subscribe", 400, "hub.mode"},
		{"no topic", formWith("hub.topic", "-"), 400, "hub.topic"},
		{"two topics", formWith() + "&hub.topic=" + topic, 400, "hub.topic"},
		{"URL of the hub as topic", formWith("hub.topic", base), 404, "hub.topic"},
		{"topic of another hub", formWith("hub.topic", "https://other.example/sets/demo/changes"), 404, "hub.topic"},
		{"document without a format", formWith("hub.topic", base+"/sets/demo/changelist.xml"), 404, "hub.topic"},
		{"topic with a slash", formWith("hub.topic", topic+"/"), 404, "hub.topic"},
		{"topic with a query", formWith("hub.topic", topic+"?since=start"), 404, "hub.topic"},
		{"topic in capitals", formWith("hub.topic", base+"/sets/DEMO/changes"), 404, "hub.topic"},
		{"topic of another scheme", formWith("hub.topic", "http"+strings.TrimPrefix(topic, "https")), 404, "hub.topic"},
		{"nonexistent set", formWith("hub.topic", base+"/sets/other/changes"), 404, "no such set"},
		{"no callback", formWith("hub.callback", "-"), 400, "hub.callback"},
		{"two callbacks", formWith() + "&hub.callback=https://b.example/", 400, "hub.callback"},
		{"relative callback", formWith("hub.callback", "/cb"), 400, "hub.callback"},
		{"callback in this network", formWith("hub.callback", "http://127.0.0.1/cb"), 400, "hub.callback"},
		{"callback at the hub", formWith("hub.callback", topic), 400, "hub.callback"},
		{"callbackURI", formWith("hub.callback", "-") + "&callbackURI=ftp://a.example/", 400, "callbackURI"},
		{"secret of 200 bytes", formWith("hub.secret", strings.Repeat("s", 200)), 400, "hub.secret: got 200 bytes"},
		{"secret of 100 characters", formWith("hub.secret", strings.Repeat("é", 100)), 400, "hub.secret: got 200 bytes"},
		{"two secrets", formWith() + "&hub.secret=" + secret, 400, "hub.secret"},
		{"lease in hours", formWith("hub.lease_seconds", "1h"), 400, "hub.lease_seconds"},
		{"negative lease", formWith("hub.lease_seconds", "-1"), 400, "hub.lease_seconds"},
		{"negative zero lease", formWith("hub.lease_seconds", "-0"), 400, "hub.lease_seconds"},
		{"fractional lease", formWith("hub.lease_seconds", "0.5"), 400, "hub.lease_seconds"},
		{"long verify token", formWith("hub.verify_token", strings.Repeat("t", 2049)), 400, "hub.verify_token: got 2049 bytes, want at most 2048"},
		{"long verify token, unsubscribe", formWith("hub.mode", "unsubscribe", "hub.verify_token", strings.Repeat("t", 2049)), 400, "hub.verify_token: got 2049 bytes"},
		{"two verify tokens", formWith("hub.verify_token", "a") + "&hub.verify_token=b", 400, "hub.verify_token: got 2 values"},
		{"two prefixes", formWith() + "&rs.prefix=a&rs.prefix=b", 400, "rs.prefix"},
		{"long prefix", formWith("rs.prefix", strings.Repeat("p", 2049)), 400, "rs.prefix"},
		{"unknown change", formWith("rs.change", "created,moved"), 400, "rs.change"},
		{"relative collection", formWith("rs.collection", "c"), 400, "rs.collection"},
		{"invalid type", formWith("rs.type", "text"), 400, "rs.type"},
		{"interval below a second", formWith("rs.every", "999ms"), 400, "rs.every"},
		{"interval of days", formWith("rs.every", "48h"), 400, "rs.every"},
		{"interval without a unit", formWith("rs.every", "60"), 400, "rs.every"},
		{"two starts", formWith() + "&rs.since=start&rs.since=now", 400, "rs.since"},
		{"start before the log", formWith("rs.since", "2001-01-01"), 410, "use rs.since=start"},
		{"unsubscribe without a subscription", formWith("hub.mode", "unsubscribe"), 404, "no subscription"},
		{"ping", "hub.mode=publish&hub.url=" + topic, 400, "hub.mode=publish"},
		{"ping without a topic", "hub.mode=publish", 400, "hub.topic"},
		{"invalid escape", formWith() + "&a=%GG", 400, "%GG"},
		{"semicolon", formWith() + "&a=1;b=2", 400, "semicolon"},
		{"secret in Latin-1", formWith("hub.secret", "-") + "&hub.secret=%E9", 400, "hub.secret"},
		{"character in two values", formWith() + "&a=%C3&a=%A9", 400, "UTF-8"},
		{"name in Latin-1", formWith() + "&%E9=1", 400, "UTF-8"},
		{"more than 64 KiB", formWith() + "&a=" + strings.Repeat("a", maxForm), 413, "the form exceeds 65536 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if w := f.postAs(t, alice, tt.form, tt.status, tt.want); w.Body.Len() > 600 {
				t.Errorf("got %d bytes, want at most 600", w.Body.Len())
			}
		})
	}
	if all := f.pending(t); len(all) > 0 {
		t.Errorf("got %d pending requests, want none", len(all))
	}
}

// A valid form is stored exactly. A secret for an http callback is accepted with a warning.
func TestValidForms(t *testing.T) {
	const day = 24 * time.Hour
	f, b := newFront(t, Options{}, 3)
	url := func(u string) func(*subscription.Request) { return func(r *subscription.Request) { r.Callback = u } }
	key := func(s string) func(*subscription.Request) { return func(r *subscription.Request) { r.Secret = s } }
	token := func(s string) func(*subscription.Request) {
		return func(r *subscription.Request) { r.VerifyToken = s }
	}
	lease := func(d time.Duration) func(*subscription.Request) {
		return func(r *subscription.Request) { r.Lease = d }
	}
	same := func(*subscription.Request) {}
	filtered := func(r *subscription.Request) {
		r.Filter = feed.Filter{Prefix: "https://example.org/é", Changes: []resourcesync.ChangeType{"created", "updated"}, Types: []string{"text/*"}}
	}
	odd, short, wide := " \x00\n&=+%é𝄞", strings.Repeat("s", 199), strings.Repeat("é", 99)
	long := "https://callback.example/" + strings.Repeat("a", outbound.MaxURL-len("https://callback.example/"))
	query := "https://callback.example/a%2Fb?c=d&e=%20f"
	for _, tt := range []struct {
		name, form string
		want       func(r *subscription.Request)
	}{
		{"minimal", formWith("hub.secret", "-"), key("")},
		{"unknown parameters, twice", formWith() + "&foo=1&foo=2&hub.verify=sync", same},
		{"64 KiB", formWith() + "&a=" + strings.Repeat("a", maxForm-len(formWith()+"&a=")), same},
		{"secret of 199 bytes", formWith("hub.secret", short), key(short)},
		{"secret of 99 characters", formWith("hub.secret", wide), key(wide)},
		{"secret of odd characters", formWith("hub.secret", odd), key(odd)},
		{"empty secret", formWith("hub.secret", ""), key("")},
		{"secret over HTTP", formWith("hub.callback", "http://callback.example/"), url("http://callback.example/")},
		{"no secret over HTTP", formWith("hub.callback", "http://a.example/", "hub.secret", ""), func(r *subscription.Request) { r.Callback, r.Secret = "http://a.example/", "" }},
		{"lease of an hour", formWith("hub.lease_seconds", "3600"), lease(time.Hour)},
		{"empty lease", formWith("hub.lease_seconds", ""), same},
		{"zero lease", formWith("hub.lease_seconds", "0"), lease(31 * day)},
		{"zero lease in two digits", formWith("hub.lease_seconds", "00"), lease(31 * day)},
		{"lease of a second", formWith("hub.lease_seconds", "1"), lease(300 * time.Second)},
		{"lease above the minimum", formWith("hub.lease_seconds", "301"), lease(301 * time.Second)},
		{"longest lease", formWith("hub.lease_seconds", "2678400"), lease(31 * day)},
		{"lease beyond a Duration", formWith("hub.lease_seconds", "9223372037"), lease(31 * day)},
		{"lease beyond 64 bits", formWith("hub.lease_seconds", strings.Repeat("9", 40)), lease(31 * day)},
		{"verify token", formWith("hub.verify_token", odd), token(odd)},
		{"verify token of 2,048 bytes", formWith("hub.verify_token", strings.Repeat("t", 2048)), token(strings.Repeat("t", 2048))},
		{"empty verify token", formWith("hub.verify_token", ""), same},
		{"callback with a query", formWith("hub.callback", query), url(query)},
		{"callback of 2,048 bytes", formWith("hub.callback", long), url(long)},
		{"collection", formWith("rs.collection", "https://example.org/c?a=1"), func(r *subscription.Request) { r.Filter.Collection = "https://example.org/c?a=1" }},
		{"interval", formWith("rs.every", "1h30m"), func(r *subscription.Request) { r.Every = 90 * time.Minute }},
		{"filters", formWith("rs.prefix", "https://example.org/é", "rs.change", "updated, created", "rs.type", "text/*"), filtered},
		{"repeated filters", formWith("rs.prefix", "https://example.org/é", "rs.type", "Text/*") + "&rs.change=created&rs.change=updated,created", filtered},
		{"since now", formWith("rs.since", "now"), func(r *subscription.Request) { r.Move = true }},
		{"empty since", formWith("rs.since", ""), same},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := subscription.Request{
				Mode: subscription.Subscribe, Set: "demo", Callback: "https://callback.example/cb", Terms: subscription.Terms{Secret: secret},
				Lease: 10 * day, Start: b[0].Cursor, By: subscription.ByToken("alice"), At: now,
			}
			tt.want(&want)
			w := f.postAs(t, alice, tt.form, 202, "accepted")
			if warned := strings.Contains(w.Body.String(), "use https"); warned != (strings.HasPrefix(want.Callback, "http:") && want.Secret != "") {
				t.Errorf("got %q", w.Body)
			}
			got := f.newest(t)
			want.Number = got.Number
			if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// An accepted request is complete, and comes from the form.
func FuzzForm(f *testing.F) {
	for _, seed := range []string{
		"", formWith(), formWith("hub.lease_seconds", "99999999999999999999"), formWith("rs.since", "start", "rs.change", "created,updated"),
		formWith("hub.secret", strings.Repeat("é", 99)), "callbackURI=https://callback.example/cb", "hub.mode=publish&hub.url=" + topic,
		formWith("hub.mode", "unsubscribe"), formWith("rs.prefix", "a&b", "rs.type", "text/*"), "hub%2Emode=subscribe&a=%", "a=%FF;",
	} {
		f.Add(seed)
	}
	log, err := disklog.Open(f.Context(), f.TempDir(), disklog.Options{})
	if err == nil {
		err = log.Make(f.Context(), "demo", feed.Description{}, 100)
	}
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = log.Close() })
	f.Fuzz(func(t *testing.T, body string) {
		registry := registrytest.OpenDisk(t, &testutil.Map{})
		sent := &recordingEngine{stoppedEngine: stoppedEngine{registry}}
		server := NewServer(sent, registry, log, outbound.New(outbound.Options{}).Check, base, Options{})
		w := httptest.NewRecorder()
		(&front{logged: &testutil.Log{}, server: server}).serve(w, httptest.NewRequest(http.MethodPost, "/hub", strings.NewReader(body)), alice)
		if w.Code >= 500 || w.Body.Len() > 3000 || strings.Count(w.Body.String(), "\n") != 1 {
			t.Fatalf("got %d %q, want one line", w.Code, w.Body)
		}
		if (w.Code == 202) != (len(sent.all) == 1) {
			t.Fatalf("got %d, and sent %d requests", w.Code, len(sent.all))
		}
		for _, r := range sent.all {
			stored, err := registry.Inbox(t.Context(), r.ID().Shard(), 0, 1)
			if err != nil || len(stored) != 1 {
				t.Fatalf("Inbox() = %v, %v, want one request", stored, err)
			}
			stored[0].Number, r.At = 0, r.At.Truncate(time.Microsecond).UTC()
			if fmt.Sprintf("%+v", stored[0]) != fmt.Sprintf("%+v", r) {
				t.Fatalf("stored %+v, want %+v", stored[0], r)
			}
			form, err := url.ParseQuery(body)
			subscribes := r.Mode == subscription.Subscribe
			if err != nil || r.Set != "demo" || !slices.Contains(append(form["hub.callback"], form["callbackURI"]...), r.Callback) ||
				len(r.Secret) > maxSecret || subscribes && form.Get("hub.secret") != r.Secret ||
				subscribes && (r.Lease < server.opts.LeaseMin || r.Lease > server.opts.LeaseMax) {
				t.Fatalf("%q became %+v, %v", body, r, err)
			}
		}
	})
}

// A recordingEngine records the requests that are sent to it.
type recordingEngine struct {
	stoppedEngine
	all []subscription.Request
}

func (e *recordingEngine) Send(ctx context.Context, r subscription.Request) error {
	e.all = append(e.all, r)
	return e.stoppedEngine.Send(ctx, r)
}
