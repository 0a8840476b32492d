package callback_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/callback/websub"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/internal/testutil"
)

// An api serves subscribers and operators, who use the engine of a world.
type api struct {
	w      *world
	errors problem.Adapter
	server *websub.Server
	caller string        // default: alice
	rights access.Rights // default: all
}

func (w *world) api(o websub.Options) *api {
	check := outbound.New(outbound.Options{Self: base}).Check
	write := func(w http.ResponseWriter, r *http.Request, err error) *feed.Problem {
		if r.URL.Path == "/hub" {
			return problem.WriteText(w, err)
		}
		return problem.Write(w, r, err)
	}
	logger := w.opts.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	server := websub.NewServer(w.engine, w.registry, w.log, check, base, o)
	return &api{w, problem.Adapter{Logger: logger, Write: write}, server, "alice", access.All()}
}

// call serves a request, and settles.
func (a *api) call(method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	w := httptest.NewRecorder()
	a.errors.Handle(func(w http.ResponseWriter, r *http.Request) error {
		switch parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/"); {
		case parts[0] == "hub":
			return a.server.ServeHub(w, r)
		case parts[0] == "subscriptions":
			return a.server.ServeStatus(w, r, parts[1])
		case len(parts) == 3:
			return a.server.ServeSubscriptions(w, r, parts[1])
		default:
			return a.server.ServeSubscription(w, r, parts[1], parts[3], strings.Join(parts[4:], "/"))
		}
	})(w, r.WithContext(access.NewContext(r.Context(), access.Caller{Name: a.caller, Rights: a.rights})))
	a.w.settle()
	return w
}

// apiSecret is the secret in all requests for subscriptions.
const apiSecret = "very-secret"

// subscribe requests a subscription to the set demo. Each pair of a parameter and its value replaces one of
// the request.
func (a *api) subscribe(callback string, pairs ...string) *httptest.ResponseRecorder {
	q := url.Values{
		"hub.mode": {"subscribe"}, "hub.topic": {topic("demo")}, "hub.callback": {callback}, "hub.secret": {apiSecret},
	}
	for i := 0; i < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return a.call(http.MethodPost, "/hub", q.Encode())
}

func topic(set string) string { return base + "/sets/" + set + "/changes" }

// A request to continue after a cursor that the log has lost is accepted, and the first delivery reports the
// loss.
func TestSinceLostTail(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		a := w.api(websub.Options{})
		lost := w.publish("a", 3)
		lost.Position += 2
		lost.Micros++
		c := w.receiver("a.example")
		subscribe := func() *httptest.ResponseRecorder { return a.subscribe(c.url, "rs.since", lost.String()) }
		move := func() *httptest.ResponseRecorder {
			path := "/sets/demo/subscriptions/" + subscription.NewID("demo", "", c.url).String() + "/cursor"
			return a.call("PUT", path, fmt.Sprintf(`{"cursor":%q}`, lost))
		}
		for _, tt := range []struct {
			name string
			call func() *httptest.ResponseRecorder
		}{{"subscription", subscribe}, {"move", move}, {"renewal", subscribe}} {
			before := c.posts.len()
			if got := tt.call(); got.Code != 202 {
				t.Fatalf("%s: status = %d, want 202: %s", tt.name, got.Code, got.Body)
			}
			if got := c.posts.all()[before].interval(); !strings.HasPrefix(got, "0-") || !strings.HasSuffix(got, " diverged") {
				t.Errorf("%s: got interval %s, want 0-, diverged", tt.name, got)
			}
			w.publish("b", 1)
			if got := c.last().interval(); strings.Contains(got, "diverged") {
				t.Errorf("%s: got interval %s after a success", tt.name, got)
			}
			lost.Position++
		}
	})
}

// During the life of a subscription, no response has its secret, and no line of the log has that or the path
// of its callback.
func TestDiscretion(t *testing.T) {
	log := &testutil.Log{}
	inWorld(t, callback.Options{Logger: log.Logger(slog.LevelDebug)}, func(t *testing.T, w *world) {
		a := w.api(websub.Options{})
		call := func(method, path string, status int, text string) {
			t.Helper()
			r := a.call(method, path, "")
			if body := r.Body.String(); r.Code != status || !strings.Contains(body, text) || strings.Contains(body, apiSecret) {
				t.Errorf("%s %s: status = %d, want %d with %s and no secret: %s", method, path, r.Code, status, text, body)
			}
		}
		w.publish("a", 1)
		c := w.receiver("callback.example")
		c.url += "/path-of-it"
		if r := a.subscribe(c.url); r.Code != 202 {
			t.Fatalf("subscribe: status = %d, want 202: %s", r.Code, r.Body)
		}
		id := subscription.NewID("demo", "", c.url)
		path, statusPath := "/sets/demo/subscriptions/"+id.String(), "/subscriptions/"+id.String()+"."+w.record(id).Token
		c.wantQuery(map[string]string{"rs.status": base + statusPath})

		c.respond(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, apiSecret, 500) })
		w.publish("b", 1)
		w.pass(2 * time.Second) // the second attempt has failed, and the third is not due
		call("GET", statusPath, 200, `"failed":2`)
		call("GET", path, 200, `"state":"waiting"`)
		call("GET", "/sets/demo/subscriptions", 200, id.String())
		c.respond(accept)
		call("POST", path+"/retry", 202, "")
		w.pass(saveEvery)
		call("GET", path, 200, `"state":"current"`)
		call("DELETE", path, 202, "")
		call("GET", statusPath, 404, "")
		for text, want := range map[string]bool{"callback.example": true, "path-of-it": false, apiSecret: false} {
			if strings.Contains(log.String(), text) != want {
				t.Errorf("log has %s: %t, want %t:\n%s", text, !want, want, log)
			}
		}
	})
}
