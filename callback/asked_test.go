package callback_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/callback/websub"
	"github.com/rshub/rshub/internal/testutil"
)

// A request to go on behind a cursor that the log has lost is taken, and the first
// delivery says that the log was lost: for a new subscription, an operator's move, and
// a renewal.
func TestSinceLostTail(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		d := w.desk(websub.Options{})
		w.publish("a", 3)
		lost := w.head()
		lost.Position += 2
		lost.Micros++
		c := w.listen("a.example")
		id := subscription.NewID("demo", "", c.url)
		subscribe := func() *httptest.ResponseRecorder {
			return d.post(asking("hub.callback", c.url, "rs.since", lost.String()))
		}
		move := func() *httptest.ResponseRecorder {
			return d.answer("PUT", "/sets/demo/subscriptions/"+id.String()+"/cursor", fmt.Sprintf(`{"cursor":%q}`, lost))
		}
		for i, ask := range []func() *httptest.ResponseRecorder{subscribe, move, subscribe} { // the last is a renewal
			before, _, _ := c.counts()
			if a := ask(); a.Code != 202 {
				t.Fatalf("request %d is answered %d: %s", i, a.Code, a.Body)
			}
			w.settled()
			if h := c.tries[before].header; h.Get("RS-Diverged") != "true" || h.Get("RS-Previous") != "0" {
				t.Errorf("request %d: delivered is %v", i, h)
			}
			w.published("b", 1)
			if c.last().header.Get("RS-Diverged") != "" {
				t.Errorf("request %d: RS-Diverged is said once too often", i)
			}
			lost.Position++
		}
	})
}

// A subscription is made, fails, is shown and ends: its secret is shown to nobody, and
// the path of its callback is not logged.
func TestDiscretion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &testutil.Log{}
		discreet := func(what, text string) {
			t.Helper()
			if strings.Contains(text, hushed) {
				t.Errorf("%s has the secret: %s", what, text)
			}
		}
		w := newWorld(t, callback.Options{Logger: log.Logger(slog.LevelDebug)})
		c := w.listen("callback.example")
		d := w.desk(websub.Options{})
		look := func(path string) shown {
			t.Helper()
			discreet("an answer", d.answer("GET", path, "").Body.String())
			return d.see(path)
		}
		w.publish("a", 1)
		c.url += "/path-of-it"
		if a := d.post(asking("hub.callback", c.url)); a.Code != 202 {
			t.Fatalf("it is answered %d: %s", a.Code, a.Body)
		}
		w.settled()
		id := subscription.NewID("demo", "", c.url)
		url := c.asked[0].URL.Query().Get("rs.status")
		if want := base + "/subscriptions/" + id.String() + "." + w.saved(id).Token; url != want {
			t.Errorf("the status is at %s, want %s", url, want)
		}
		status := strings.TrimPrefix(url, base)
		c.says(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, hushed, 500) })
		w.publish("b", 1)
		w.pass(2 * time.Second) // the second attempt has failed, and the third is not due
		if v := look(status); v.State != "waiting" || v.Failed < 2 || len(v.Attempts) < 3 || !v.Next.After(time.Now()) {
			t.Errorf("a failing subscription is shown as %+v", v)
		}
		discreet("a list", d.answer("GET", "/sets/demo/subscriptions", "").Body.String())
		c.says(nil)
		one := "/sets/demo/subscriptions/" + id.String()
		d.answer("POST", one+"/retry", "")
		w.settled()
		w.pass(saveEvery)
		if v := look(one); v.State != "current" || v.Failed != 0 {
			t.Errorf("after the retry it is shown as %+v", v)
		}
		d.answer("DELETE", one, "")
		w.settled()
		if a := d.answer("GET", status, ""); a.Code != 404 {
			t.Errorf("after its end its status is answered %d", a.Code)
		}
		text := log.String()
		discreet("the log", text)
		if !strings.Contains(text, "callback.example") || strings.Contains(text, "path-of-it") {
			t.Errorf("logged is %s", text)
		}
	})
}
