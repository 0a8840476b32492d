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
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/memorytest"
	"github.com/rshub/rshub/resourcesync"
)

// The answer to a refused request names the parameter that is wrong. Nothing of the
// request is kept.
func TestRefusedForms(t *testing.T) {
	f := newFront(t, Options{})
	memorytest.Fill(t, f.log, "demo", memorytest.Changes("a", 3))
	topic := base + "/sets/demo/changes"
	for name, test := range map[string]struct {
		form   string
		status int
		says   string
	}{
		"nothing":                   {"", 400, "hub.mode is missing"},
		"no mode":                   {asking("hub.mode", "-"), 400, "hub.mode"},
		"another mode":              {asking("hub.mode", "SUBSCRIBE"), 400, "hub.mode"},
		"an operator's mode":        {asking("hub.mode", "remove"), 400, "hub.mode"},
		"two modes":                 {asking() + "&hub.mode=subscribe", 400, "hub.mode"},
		"no topic":                  {asking("hub.topic", "-"), 400, "hub.topic"},
		"two topics":                {asking() + "&hub.topic=" + topic, 400, "hub.topic"},
		"no topic's URL":            {asking("hub.topic", base), 404, "hub.topic"},
		"another hub's topic":       {asking("hub.topic", "https://other.example/sets/demo/changes"), 404, "hub.topic"},
		"a document":                {asking("hub.topic", base+"/sets/demo/changelist.xml"), 404, "hub.topic"},
		"a topic with a slash":      {asking("hub.topic", topic+"/"), 404, "hub.topic"},
		"a topic with a query":      {asking("hub.topic", topic+"?since=start"), 404, "hub.topic"},
		"a topic in capitals":       {asking("hub.topic", base+"/sets/DEMO/changes"), 404, "hub.topic"},
		"a topic of another scheme": {asking("hub.topic", "http"+strings.TrimPrefix(topic, "https")), 404, "hub.topic"},
		"a set that is not made":    {asking("hub.topic", base+"/sets/other/changes"), 404, "no such set"},
		"no callback":               {asking("hub.callback", "-"), 400, "hub.callback"},
		"two callbacks":             {asking() + "&hub.callback=https://b.example/", 400, "hub.callback"},
		"a relative callback":       {asking("hub.callback", "/cb"), 400, "hub.callback"},
		"a callback in this house":  {asking("hub.callback", "http://127.0.0.1/cb"), 400, "hub.callback"},
		"a callback at the hub":     {asking("hub.callback", topic), 400, "hub.callback"},
		"a bad callbackURI":         {asking("hub.callback", "-") + "&callbackURI=ftp://a.example/", 400, "callbackURI"},
		"a secret of 200 bytes":     {asking("hub.secret", strings.Repeat("s", 200)), 400, "hub.secret: got 200 bytes"},
		"100 characters, 200 bytes": {asking("hub.secret", strings.Repeat("é", 100)), 400, "hub.secret: got 200 bytes"},
		"two secrets":               {asking() + "&hub.secret=" + secret, 400, "hub.secret"},
		"no number of seconds":      {asking("hub.lease_seconds", "1h"), 400, "hub.lease_seconds"},
		"negative seconds":          {asking("hub.lease_seconds", "-1"), 400, "hub.lease_seconds"},
		"minus no seconds":          {asking("hub.lease_seconds", "-0"), 400, "hub.lease_seconds"},
		"half a second":             {asking("hub.lease_seconds", "0.5"), 400, "hub.lease_seconds"},
		"a long verify token":       {asking("hub.verify_token", strings.Repeat("t", 2049)), 400, "hub.verify_token: got 2049 bytes, want at most 2048"},
		"a long one, to end it":     {asking("hub.mode", "unsubscribe", "hub.verify_token", strings.Repeat("t", 2049)), 400, "hub.verify_token: got 2049 bytes"},
		"two verify tokens":         {asking("hub.verify_token", "a") + "&hub.verify_token=b", 400, "hub.verify_token: got 2 values"},
		"two prefixes":              {asking() + "&rs.prefix=a&rs.prefix=b", 400, "rs.prefix"},
		"a long prefix":             {asking("rs.prefix", strings.Repeat("p", 2049)), 400, "rs.prefix"},
		"an unknown change":         {asking("rs.change", "created,moved"), 400, "rs.change"},
		"a relative collection":     {asking("rs.collection", "c"), 400, "rs.collection"},
		"an unknown type":           {asking("rs.type", "text"), 400, "rs.type"},
		"an interval of no second":  {asking("rs.every", "999ms"), 400, "rs.every"},
		"an interval of days":       {asking("rs.every", "48h"), 400, "rs.every"},
		"an interval in seconds":    {asking("rs.every", "60"), 400, "rs.every"},
		"two starts":                {asking() + "&rs.since=start&rs.since=now", 400, "rs.since"},
		"a start before the log":    {asking("rs.since", "2001-01-01"), 410, "use rs.since=start"},
		"unsubscribe of nothing":    {asking("hub.mode", "unsubscribe"), 404, "no subscription"},
		"a ping":                    {"hub.mode=publish&hub.url=" + topic, 400, "hub.mode=publish"},
		"a ping of nothing":         {"hub.mode=publish", 400, "hub.topic"},
		"an escape that is none":    {asking() + "&a=%GG", 400, "%GG"},
		"a semicolon":               {asking() + "&a=1;b=2", 400, "semicolon"},
		"a secret in Latin-1":       {asking("hub.secret", "-") + "&hub.secret=%E9", 400, "hub.secret"},
		"a name in Latin-1":         {asking() + "&%E9=1", 400, "UTF-8"},
		"more than 64 KiB":          {asking() + "&a=" + strings.Repeat("a", maxForm), 413, "the form exceeds 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &front{t: t, log: f.log, registry: f.registry, server: f.server}
			status, text := f.post(test.form)
			if status != test.status || !strings.Contains(text, test.says) {
				t.Errorf("it is answered %d, %q; want %d and %q", status, text, test.status, test.says)
			}
			if len(text) > 600 {
				t.Errorf("the answer has %d bytes", len(text))
			}
		})
	}
	if all := f.waiting(); len(all) > 0 {
		t.Errorf("what was refused left %d requests", len(all))
	}
}

// An accepted request is kept exactly as the form says.
func TestTakenForms(t *testing.T) {
	const day = 24 * time.Hour
	f := newFront(t, Options{})
	head := memorytest.Fill(t, f.log, "demo", memorytest.Changes("a", 3))[0].Cursor
	long := "https://callback.example/" + strings.Repeat("a", outbound.MaxURL-len("https://callback.example/"))
	for name, test := range map[string]struct {
		form  string
		wants func(r *subscription.Request)
	}{
		"little":                      {asking("hub.secret", "-"), func(r *subscription.Request) { r.Secret = "" }},
		"all that is standard":        {asking("hub.lease_seconds", "3600"), func(r *subscription.Request) { r.Lease = time.Hour }},
		"unknown parameters, twice":   {asking() + "&foo=1&foo=2&hub.verify=sync", func(*subscription.Request) {}},
		"64 KiB":                      {asking() + "&a=" + strings.Repeat("a", maxForm-len(asking()+"&a=")), func(*subscription.Request) {}},
		"a secret of 199 bytes":       {asking("hub.secret", strings.Repeat("s", 199)), func(r *subscription.Request) { r.Secret = strings.Repeat("s", 199) }},
		"99 characters, 198 bytes":    {asking("hub.secret", strings.Repeat("é", 99)), func(r *subscription.Request) { r.Secret = strings.Repeat("é", 99) }},
		"a secret of odd characters":  {asking("hub.secret", " \x00\n&=+%é𝄞"), func(r *subscription.Request) { r.Secret = " \x00\n&=+%é𝄞" }},
		"an empty secret":             {asking("hub.secret", ""), func(r *subscription.Request) { r.Secret = "" }},
		"an empty lease":              {asking("hub.lease_seconds", ""), func(*subscription.Request) {}},
		"no seconds":                  {asking("hub.lease_seconds", "0"), func(r *subscription.Request) { r.Lease = 31 * day }},
		"no seconds, in two digits":   {asking("hub.lease_seconds", "00"), func(r *subscription.Request) { r.Lease = 31 * day }},
		"a verify token":              {asking("hub.verify_token", " a&b=\x00é"), func(r *subscription.Request) { r.VerifyToken = " a&b=\x00é" }},
		"a verify token, 2,048 bytes": {asking("hub.verify_token", strings.Repeat("t", 2048)), func(r *subscription.Request) { r.VerifyToken = strings.Repeat("t", 2048) }},
		"an empty verify token":       {asking("hub.verify_token", ""), func(*subscription.Request) {}},
		"a second":                    {asking("hub.lease_seconds", "1"), func(r *subscription.Request) { r.Lease = 300 * time.Second }},
		"just over the least":         {asking("hub.lease_seconds", "301"), func(r *subscription.Request) { r.Lease = 301 * time.Second }},
		"the most":                    {asking("hub.lease_seconds", "2678400"), func(r *subscription.Request) { r.Lease = 31 * day }},
		"more than a Duration holds":  {asking("hub.lease_seconds", "9223372037"), func(r *subscription.Request) { r.Lease = 31 * day }},
		"more than they hold":         {asking("hub.lease_seconds", strings.Repeat("9", 40)), func(r *subscription.Request) { r.Lease = 31 * day }},
		"a callback with a query":     {asking("hub.callback", "https://callback.example/a%2Fb?c=d&e=%20f"), func(r *subscription.Request) { r.Callback = "https://callback.example/a%2Fb?c=d&e=%20f" }},
		"a callback of 2,048 bytes":   {asking("hub.callback", long), func(r *subscription.Request) { r.Callback = long }},
		"a collection":                {asking("rs.collection", "https://example.org/c?a=1"), func(r *subscription.Request) { r.Filter.Collection = "https://example.org/c?a=1" }},
		"an interval":                 {asking("rs.every", "1h30m"), func(r *subscription.Request) { r.Every = 90 * time.Minute }},
		"filters":                     {asking("rs.prefix", "https://example.org/é", "rs.change", "updated, created", "rs.type", "text/*"), filtered},
		"filters, said several times": {asking("rs.prefix", "https://example.org/é", "rs.type", "Text/*") + "&rs.change=created&rs.change=updated,created", filtered},
		"from now on":                 {asking("rs.since", "now"), func(r *subscription.Request) { r.Move = true }},
		"an empty start":              {asking("rs.since", ""), func(*subscription.Request) {}},
		"from the start":              {asking("rs.since", "start"), func(r *subscription.Request) { r.Start, r.Move = feed.Cursor{Micros: r.Start.Micros}, true }},
	} {
		t.Run(name, func(t *testing.T) {
			f := &front{t: t, log: f.log, registry: f.registry, server: f.server}
			if status, text := f.post(test.form); status != 202 || !strings.Contains(text, "accepted") {
				t.Fatalf("it is answered %d: %s", status, text)
			}
			want := subscription.Request{
				Mode: subscription.Subscribe, Set: "demo", Callback: "https://callback.example/cb", Terms: subscription.Terms{Secret: secret},
				Lease: 10 * day, Start: head, By: subscription.ByToken("alice"), At: now,
			}
			got := f.newest()
			want.Number = got.Number
			if strings.Contains(test.form, "rs.since=start") {
				want.Start.Micros = got.Start.Micros // the datetime at which the log began
			}
			test.wants(&want)
			if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
				t.Errorf("kept is\n%+v, want\n%+v", got, want)
			}
		})
	}
}

func filtered(r *subscription.Request) {
	r.Filter = feed.Filter{Prefix: "https://example.org/é", Changes: []resourcesync.ChangeType{"created", "updated"}, Types: []string{"text/*"}}
}

// Whatever is POSTed, an accepted request is complete, and comes from the form.
func FuzzForm(f *testing.F) {
	for _, seed := range []string{
		"", asking(), asking("hub.lease_seconds", "99999999999999999999"), asking("rs.since", "start", "rs.change", "created,updated"),
		asking("hub.secret", strings.Repeat("é", 99)), "callbackURI=https://callback.example/cb", "hub.mode=publish&hub.url=" + base + "/sets/demo/changes",
		asking("hub.mode", "unsubscribe"), asking("rs.prefix", "a&b", "rs.type", "text/*"), "hub%2Emode=subscribe&a=%", "a=%FF;",
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
		f := &front{t: t, log: log, logged: &testutil.Log{}, registry: registry}
		sent := &noting{resting: resting{registry}}
		f.server = NewServer(sent, registry, log, outbound.New(outbound.Options{}).Check, base, Options{})
		w := httptest.NewRecorder()
		f.serveHub(w, by(httptest.NewRequest(http.MethodPost, "/hub", strings.NewReader(body)), access.All()))
		if w.Code >= 500 || w.Body.Len() > 3000 || strings.Count(w.Body.String(), "\n") != 1 {
			t.Fatalf("it is answered %d: %s", w.Code, w.Body)
		}
		if (w.Code == 202) != (len(sent.all) == 1) {
			t.Fatalf("it is answered %d, and %d requests were sent", w.Code, len(sent.all))
		}
		for _, r := range sent.all {
			kept, err := registry.Inbox(t.Context(), r.ID().Shard(), 0, 1)
			if err != nil || len(kept) != 1 {
				t.Fatalf("the inbox has %v, %v", kept, err)
			}
			kept[0].Number, r.At = 0, r.At.Truncate(time.Microsecond).UTC()
			if fmt.Sprintf("%+v", kept[0]) != fmt.Sprintf("%+v", r) {
				t.Fatalf("kept is %+v of %+v", kept[0], r)
			}
			form, err := url.ParseQuery(body)
			if err != nil || r.Set != "demo" || !slices.Contains(append(form["hub.callback"], form["callbackURI"]...), r.Callback) || form.Get("hub.secret") != r.Secret && r.Mode == subscription.Subscribe ||
				len(r.Secret) > maxSecret || r.Mode == subscription.Subscribe && (r.Lease < f.server.opts.LeaseMin || r.Lease > f.server.opts.LeaseMax) {
				t.Fatalf("%q became %+v, %v", body, r, err)
			}
		}
	})
}

// A noting is an engine that notes the requests that it gets.
type noting struct {
	resting
	all []subscription.Request
}

func (n *noting) Send(ctx context.Context, r subscription.Request) error {
	n.all = append(n.all, r)
	return n.resting.Send(ctx, r)
}
