package callback_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/callback/websub"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/internal/problem"
)

// A desk is where subscribers and operators ask a world's engine for something.
type desk struct {
	t      testing.TB
	errors problem.Adapter
	server *websub.Server
	caller string         // who asks
	rights *access.Rights // what the caller may; nil: everything
}

func (w *world) desk(o websub.Options) *desk {
	check := outbound.New(outbound.Options{Self: base}).Check
	write := func(w http.ResponseWriter, r *http.Request, err error) *feed.Problem {
		if r.URL.Path == "/hub" {
			return problem.WriteText(w, err)
		}
		return problem.Write(w, r, err)
	}
	return &desk{w.t, problem.Adapter{Logger: w.logger, Write: write},
		websub.NewServer(w.engine, w.registry, w.log, check, base, o), "alice", nil}
}

// answer answers a request of a caller who may do everything.
func (d *desk) answer(method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	w := httptest.NewRecorder()
	rights := access.All()
	if d.rights != nil {
		rights = *d.rights
	}
	d.errors.Handle(func(w http.ResponseWriter, r *http.Request) error {
		switch parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/"); {
		case parts[0] == "hub":
			return d.server.ServeHub(w, r)
		case parts[0] == "subscriptions":
			return d.server.ServeStatus(w, r, parts[1])
		case len(parts) == 3:
			return d.server.ServeSubscriptions(w, r, parts[1])
		default:
			return d.server.ServeSubscription(w, r, parts[1], parts[3], strings.Join(parts[4:], "/"))
		}
	})(w, r.WithContext(access.NewContext(r.Context(), access.Caller{Name: d.caller, Rights: rights})))
	return w
}

// hushed must not be found in anything but the registry.
const hushed = "very-secret"

// post answers a form.
func (d *desk) post(form string) *httptest.ResponseRecorder {
	return d.answer(http.MethodPost, "/hub", form)
}

// asking returns a good form of a request to subscribe. Each pair of a parameter and its
// value replaces what the form has of its own.
func asking(pairs ...string) string {
	q := url.Values{
		"hub.mode": {"subscribe"}, "hub.topic": {base + "/sets/demo/changes"}, "hub.callback": {"https://callback.example/cb"},
		"hub.secret": {hushed},
	}
	for i := 0; i < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return q.Encode()
}

// A shown is what operators and subscribers see of a subscription.
type shown struct {
	State    string
	Failed   int
	Next     time.Time
	Attempts []struct{ Error string }
}

// see asks for a subscription.
func (d *desk) see(path string) (v shown) {
	d.t.Helper()
	w := d.answer(http.MethodGet, path, "")
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil || w.Code != http.StatusOK {
		d.t.Fatalf("%s is answered %d: %s (%v)", path, w.Code, w.Body, err)
	}
	return v
}
