package websub

import (
	"fmt"
	"io"
	"log/slog"
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
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/memorytest"
	"github.com/rshub/rshub/resourcesync"
)

const (
	base   = "https://hub.example.org"
	topic  = base + "/sets/demo/changes"
	secret = "very-secret" // must be nowhere but in the registry
)

var (
	now   = time.Date(2026, 3, 4, 5, 6, 0, 0, time.UTC) // time of a front's clock
	alice = access.Caller{Name: "alice", Rights: access.All()}
)

// A stoppedEngine stores requests, but does not execute them.
type stoppedEngine struct{ subscription.Registry }

func (stoppedEngine) Count(*subscription.Request, string) subscription.Count {
	return subscription.Count{}
}

// A front is a Server on a real disk. Its requests remain in the inboxes, where tests can read them.
type front struct {
	log      *disklog.Log
	registry registrytest.Disk
	server   *Server
	logged   *testutil.Log
}

// newFront returns a front whose log has the set demo, with the changes.
func newFront(t *testing.T, o Options, changes ...int) (*front, []*feed.Batch) {
	t.Helper()
	f := &front{log: memorytest.Open(t), logged: &testutil.Log{}}
	f.registry = registrytest.OpenDisk(t, f.log.Bucket("callback"))
	o.Now = func() time.Time { return now }
	f.server = NewServer(stoppedEngine{f.registry}, f.registry, f.log, outbound.New(outbound.Options{Self: base}).Check, base, o)
	t.Cleanup(func() { checkNoSecret(t, "log", f.logged.String()) })
	publishes := make([][]resourcesync.Change, len(changes))
	for i, n := range changes {
		publishes[i] = memorytest.Changes(fmt.Sprint(i), n)
	}
	return f, memorytest.Fill(t, f.log, "demo", publishes...)
}

func checkNoSecret(t *testing.T, name, text string) {
	t.Helper()
	if strings.Contains(text, secret) {
		t.Errorf("%s has the secret: %s", name, text)
	}
}

// serve handles a request to any URL of the Server, including its errors.
func (f *front) serve(w http.ResponseWriter, r *http.Request, caller access.Caller) {
	write := func(w http.ResponseWriter, r *http.Request, err error) *feed.Problem {
		if r.URL.Path == "/hub" {
			return problem.WriteText(w, err)
		}
		return problem.Write(w, r, err)
	}
	adapter := problem.Adapter{Logger: f.logged.Logger(slog.LevelDebug), Write: write}
	adapter.Handle(func(w http.ResponseWriter, r *http.Request) error {
		switch parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/"); {
		case parts[0] == "hub":
			return f.server.ServeHub(w, r)
		case parts[0] == "subscriptions":
			return f.server.ServeStatus(w, r, parts[1])
		case len(parts) == 3:
			return f.server.ServeSubscriptions(w, r, parts[1])
		default:
			return f.server.ServeSubscription(w, r, parts[1], parts[3], strings.Join(parts[4:], "/"))
		}
	})(w, r.WithContext(access.NewContext(r.Context(), caller)))
}

// call makes a request. It checks that the response has the status, that its body contains text, and the rules for all
// responses.
func (f *front) call(t *testing.T, caller access.Caller, method, path string, body io.Reader, status int, text string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	f.serve(w, httptest.NewRequest(method, path, body), caller)
	got, h := w.Body.String(), w.Header()
	if w.Code != status || !strings.Contains(got, text) {
		t.Errorf("%s %.200s: got %d %q, want %d %q", method, path, w.Code, got, status, text)
	}
	checkNoSecret(t, "response", got)
	if h.Get("Cache-Control") != "no-store" {
		t.Errorf("%s %.200s: got header %v, want no-store", method, path, h)
	}
	line := h.Get("Content-Type") == "text/plain; charset=utf-8" && strings.Index(got, "\n") == len(got)-1 && len(got) > 4
	if strings.HasPrefix(path, "/hub") && status != http.StatusNoContent && !line {
		t.Errorf("%s %.200s: got %q with header %v, want one line of text", method, path, got, h)
	}
	return w
}

// postAs POSTs a form to the hub's URL.
func (f *front) postAs(t *testing.T, caller access.Caller, form string, status int, text string) *httptest.ResponseRecorder {
	t.Helper()
	return f.call(t, caller, http.MethodPost, "/hub", strings.NewReader(form), status, text)
}

// post is postAs for alice.
func (f *front) post(t *testing.T, form string, status int, text string) {
	t.Helper()
	f.postAs(t, alice, form, status, text)
}

// operate makes an operator's request about subscriptions, or a subscriber's to the URL of its status. It returns the
// body of the response.
func (f *front) operate(t *testing.T, method, path, body string, status int, text string) string {
	t.Helper()
	return f.call(t, alice, method, path, strings.NewReader(body), status, text).Body.String()
}

// pending returns the requests in all inboxes, oldest first.
func (f *front) pending(t *testing.T) (all []subscription.Request) {
	t.Helper()
	for shard := range subscription.Shards {
		some, err := f.registry.Inbox(t.Context(), shard, 0, subscription.InboxMax)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, some...)
	}
	slices.SortFunc(all, func(a, b subscription.Request) int { return int(a.Number) - int(b.Number) })
	return all
}

// newest returns the newest pending request.
func (f *front) newest(t *testing.T) subscription.Request {
	t.Helper()
	all := f.pending(t)
	if len(all) == 0 {
		t.Fatal("got no pending request")
	}
	return all[len(all)-1]
}

// commit makes changes to the shard of a subscription.
func (f *front) commit(t *testing.T, id subscription.ID, changes subscription.Changes) {
	t.Helper()
	claims, err := f.registry.Acquire(t.Context(), []int{id.Shard()})
	if err == nil {
		err = f.registry.Commit(t.Context(), claims[0], changes)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// put stores subscriptions.
func (f *front) put(t *testing.T, records ...subscription.Record) {
	t.Helper()
	for _, r := range records {
		f.commit(t, r.ID(), subscription.Changes{Put: []subscription.Record{r}})
	}
}

// record returns a subscription to the set demo, with a secret and a token.
func record(n int, cursor feed.Cursor) subscription.Record {
	return subscription.Record{
		Subscription: subscription.Subscription{
			Set: "demo", Callback: fmt.Sprintf("https://callback.example/%d", n), Terms: subscription.Terms{Secret: secret},
			LeaseEnd: now.Add(time.Hour), Token: fmt.Sprint("token", n), Made: now.Add(-time.Hour),
		},
		Progress: subscription.Progress{Cursor: cursor},
	}
}

// formWith returns the form of a valid request to subscribe. Each pair of a parameter and its value replaces a
// parameter; the value "-" removes it.
func formWith(pairs ...string) string {
	q := url.Values{"hub.mode": {"subscribe"}, "hub.topic": {topic}, "hub.callback": {"https://callback.example/cb"}, "hub.secret": {secret}}
	for i := 0; i < len(pairs); i += 2 {
		if q.Set(pairs[i], pairs[i+1]); pairs[i+1] == "-" {
			q.Del(pairs[i])
		}
	}
	return q.Encode()
}

// rights returns a caller with the rights.
func rights(t *testing.T, text string) access.Caller {
	t.Helper()
	r, err := access.ParseRights(text)
	if err != nil {
		t.Fatal(err)
	}
	return access.Caller{Name: "alice", Rights: r}
}
