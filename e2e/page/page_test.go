package page

import (
	"encoding/json"
	"fmt"
	"github.com/chromedp/chromedp"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/browser"
	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// fillSet publishes changes like an archive's.
func fillSet(t *testing.T, h *hubtest.Hub, set, title string, n int, headers ...string) {
	t.Helper()
	var b strings.Builder
	types := []string{"text/html", "application/pdf", "image/jpeg"}
	for i := range n {
		change := "created"
		switch {
		case i%7 == 6:
			change = "deleted"
		case i%3 == 2:
			change = "updated"
		}
		fmt.Fprintf(&b, `{"loc":"https://archive.example.org/%s/items/%05d/%s","change":%q,"type":%q,"length":%d,"lastmod":"2026-11-20T08:15:00Z"}`+"\n",
			set, i, []string{"index.html", "full.pdf", "cover.jpg"}[i%3], change, types[i%3], 1200+i*317)
	}
	hubtest.Publish(t, h, set, []byte(b.String()), headers...)
	if title != "" {
		hubtest.Must(t, http.StatusOK, http.MethodPut, h.URL+"/sets/"+set, []byte(fmt.Sprintf(`{"title":%q}`, title)), headers...)
	}
}

// TestViews checks every view on every screen.
func TestViews(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t)
	fillSet(t, h, "articles", "Articles & preprints", 120)
	fillSet(t, h, "maps", "", 30)
	b := open(t, browser.Start(t), h.URL+"/")
	b.has("Articles & preprints")
	b.checkView("overview")

	b.focus("tbody a")
	b.key("\r")
	b.has("#120")
	b.until("document.querySelector('.status.live')")
	b.checkView("changes")
	b.goTo(h.URL + "/sets/articles#follow")
	b.has("rsmirror")
	b.checkView("follow")
}

// TestTail publishes while the page shows the newest changes of a set.
func TestTail(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t)
	fillSet(t, h, "demo", "", 300)
	b := open(t, browser.Start(t), h.URL+"/sets/demo")
	b.has("#300")
	rows := func() int { return browser.Evaluate[int](t, b, "document.querySelectorAll('.tail .change').length") }
	if n := rows(); n < 50 || n > 200 {
		t.Errorf("got %d rows, want at most 200", n)
	}

	// A change is shown within a second.
	b.until("document.querySelector('.status.live')")
	hubtest.Publish(t, h, "demo", hubtest.Change("quick"))
	start := time.Now()
	b.has("#301")
	if took := time.Since(start); took > time.Second {
		t.Logf("a change was shown after %v", took)
	}

	// A pause freezes the list, and loses nothing.
	b.key("p")
	b.has("Paused")
	hubtest.Publish(t, h, "demo", hubtest.Changes("paused", 40))
	b.has("40 new changes")
	if browser.Evaluate[bool](t, b, "document.body.innerText.includes('#341')") {
		t.Error("paused list has a new change")
	}
	b.key("p")
	b.has("#341")

	// After a restart of the hub, the list continues.
	h.Stop(t)
	b.until("document.querySelector('.status.away')")
	h.Start(t)
	hubtest.Publish(t, h, "demo", hubtest.Changes("restarted", 10))
	b.has("#351")
	positions := browser.Evaluate[[]string](t, b, "[...document.querySelectorAll('.tail .position')].map(e => e.textContent)")
	for i, p := range positions {
		if want := fmt.Sprintf("#%d", 351-i); p != want {
			t.Fatalf("row %d = %s, want %s", i, p, want)
		}
	}

	// A filter selects changes, and a permalink shows one change.
	b.do(typeInto("#prefix", "https://archive.example.org/demo/items/00007"))
	b.until("document.querySelectorAll('.tail .change').length === 1")
	b.goTo(h.URL + "/sets/demo#" + strings.SplitAfter(browser.Evaluate[string](t, b, "document.querySelector('.tail .position').href"), "#")[1])
	b.do(reload())
	b.has("Change #8")
}

// TestStorm publishes very fast. The page keeps up, and stays small.
func TestStorm(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t)
	b := open(t, browser.Start(t), h.URL+"/sets/storm")
	b.has("The set does not exist")
	hubtest.Publish(t, h, "storm", hubtest.Changes("first", 1))
	b.do(reload())
	b.until("document.querySelector('.status.live')")
	const batches, size = 60, 200
	start := time.Now()
	for i := range batches {
		hubtest.Publish(t, h, "storm", hubtest.Changes(fmt.Sprint("storm", i), size))
	}
	b.has(fmt.Sprint("#", batches*size+1))
	t.Logf("%d changes were published and shown in %v", batches*size, time.Since(start))
	if n := browser.Evaluate[int](t, b, "document.querySelectorAll('.tail .change').length"); n > 200 {
		t.Errorf("got %d rows, want at most 200", n)
	}
	if n := browser.Evaluate[int](t, b, "document.querySelectorAll('*').length"); n > 2500 {
		t.Errorf("got %d elements, want at most 2500", n)
	}
}

// TestSignIn signs in and out, and has its token revoked.
func TestSignIn(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/tokens"
	owner := hubtest.NewToken(t, file, "owner", "publish:*,follow:*,operate")
	reader := hubtest.NewToken(t, file, "reader", "follow:letters")
	h := hubtest.StartHub(t, "RSHUB_TOKENS_FILE="+file)
	bearer := []string{"Authorization: Bearer " + owner}
	fillSet(t, h, "letters", "Letters", 5, bearer...)
	fillSet(t, h, "secrets", "Secrets", 5, bearer...)

	b := open(t, browser.Start(t), h.URL+"/")
	b.has("No sets are visible to you")
	b.signIn("rshub_WRONG")
	b.has("The hub refused this token")
	b.checkView("sign-in")
	b.key(reader + "\r")
	b.has("Letters")
	if browser.Evaluate[bool](t, b, "document.body.innerText.includes('secrets')") {
		t.Error("page has a set that the token may not follow")
	}
	b.goTo(h.URL + "/sets/letters")
	b.until("document.querySelector('.status.live')")
	hubtest.Publish(t, h, "letters", hubtest.Change("new"), bearer...)
	b.has("#6")
	b.goTo(h.URL + "/sets/secrets")
	b.has("does not have the right")

	// Without rights, a nonexistent set and a private one look the same.
	b.goTo(h.URL + "/sets/letters")
	b.until("document.querySelector('.status.live')")
	b.focus("#who button")
	b.key("\r")
	b.has("The set does not exist, or you may not see it")

	// A revoked token signs the user out.
	b.until(`document.querySelector("dialog[open]")`)
	b.until(`document.activeElement.id === "token"`)
	b.key(reader + "\r")
	b.until("document.querySelector('.status.live')")
	writeFile(t, file, ownerLine(t, file))
	b.has("You were signed out")
}

// TestOperator checks the views for operators, and the resources of a set.
func TestOperator(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t, "RSHUB_CALLBACK_ALLOW=127.0.0.0/8")
	fillSet(t, h, "articles", "Articles & preprints", 120)
	for i := range 12 {
		hubtest.Publish(t, h, "articles", hubtest.Changes(fmt.Sprint("later", i), 10+i*i))
	}
	closed := "http://" + hubtest.FreePort(t)
	hubtest.Must(t, http.StatusAccepted, http.MethodPost, h.URL+"/hub", []byte("hub.mode=subscribe&hub.topic="+h.Topic("articles")+"&hub.callback="+closed+"/callback"), "Content-Type: application/x-www-form-urlencoded")
	b := open(t, browser.Start(t), h.URL+"/")
	b.has("Failures")
	b.has("refused")
	b.has("in the last hour")
	b.checkView("operator")
	b.goTo(h.URL + "/sets/articles#activity")
	b.has("Largest lag of a follower")
	b.checkView("activity")
	b.goTo(h.URL + "/sets/articles#resources")
	b.has("items/00002/cover.jpg")
	b.checkView("resources")
	b.do(typeInto("#prefix", "https://archive.example.org/articles/items/0000"))
	b.has("with this prefix")
}

// TestDescription checks the description of a set, and changes it with and without the right.
func TestDescription(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/tokens"
	owner := hubtest.NewToken(t, file, "owner", "publish:*,follow:*")
	reader := hubtest.NewToken(t, file, "reader", "follow:letters")
	tokens, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, file, string(tokens)+"anyone - follow:*\n")
	h := hubtest.StartHub(t, "RSHUB_TOKENS_FILE="+file)
	bearer := "Authorization: Bearer " + owner
	fillSet(t, h, "letters", "", 5, bearer)
	const other = `{"title":"Letters & notes","changelist":"https://example.org/changes.xml","describedby":"https://example.org/about","inventory":"off","lastmod":"seconds"}`
	hubtest.Must(t, http.StatusOK, http.MethodPut, h.URL+"/sets/letters", []byte(other), bearer)
	b := open(t, browser.Start(t), h.URL+"/sets/letters#description")
	b.has("sign in with a token that may publish")
	b.until("document.querySelector('#set-lastmod').value === 'seconds' && document.querySelector('#set-lastmod').disabled")
	b.checkView("description")

	save := func(token string) {
		t.Helper()
		b.signIn(token)
		b.until("!document.querySelector('#set-push').disabled")
		b.do(chromedp.Evaluate[chromedp.Void]("Object.entries({ push: 'off', sitemap: 'true', lastmod: 'datetime' }).forEach(([name, value]) => document.querySelector('#set-' + name).value = value)"))
		b.focus("form.card button.main")
		b.key("\r")
	}
	save(reader)
	b.has("publish:letters")
	b.focus("#who button")
	b.key("\r")
	b.has("sign in with a token that may publish")
	save(owner)
	b.has("Saved.")
	b.checkView("description saved")
	got := hubtest.Get[map[string]any](t, h.URL+"/sets/letters", bearer)
	for name, want := range map[string]any{"push": "off", "sitemap": true, "lastmod": "datetime", "inventory": "off", "title": "Letters & notes", "changelist": "https://example.org/changes.xml", "describedby": "https://example.org/about"} {
		if got[name] != want {
			t.Errorf("%s = %v, want %v", name, got[name], want)
		}
	}
}

// TestManySets shows a hub with 10,000 sets.
func TestManySets(t *testing.T) {
	t.Parallel()
	names := make([]string, 10_000)
	for i := range names {
		names[i] = fmt.Sprintf("set-%05d", i)
	}
	h := hubtest.StartHub(t, "RSHUB_SETS="+strings.Join(names, ","))
	hubtest.Publish(t, h, "set-07777", hubtest.Change("one"))
	for _, n := range []int{len(names) / 2, len(names)} { // the hub creates a few hundred per second
		hubtest.Until(t, fmt.Sprint(n, " sets exist"), func() error {
			list := hubtest.Get[struct{ Sets []json.RawMessage }](t, h.URL+"/sets?limit=10000")
			if len(list.Sets) < n {
				return fmt.Errorf("got %d", len(list.Sets))
			}
			return nil
		})
	}
	b := open(t, browser.Start(t), h.URL+"/")
	b.has("set-00049")
	if n := browser.Evaluate[int](t, b, "document.querySelectorAll('tbody tr').length"); n > 100 {
		t.Errorf("got %d sets on the page, want at most 100", n)
	}
	start := time.Now()
	b.do(typeInto("#search", "set-0777"))
	b.until("document.querySelectorAll('table.sets tbody tr').length === 10")
	t.Logf("a search took %v", time.Since(start))
	b.focus("table.sets tbody a")
	b.goTo(h.URL + "/sets/set-07777")
	b.has("#1")
}

// TestDestinations checks the views of subscriptions for operators and for a subscriber.
func TestDestinations(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t, "RSHUB_CALLBACK_ALLOW=127.0.0.0/8")
	fillSet(t, h, "articles", "Articles & preprints", 20)
	status := make(chan string, 10)
	var failing atomic.Bool
	callback := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		switch {
		case r.URL.Path == "/wrong":
			_, _ = io.WriteString(w, "hello")
		case r.URL.Path == "/none":
			http.NotFound(w, r)
		case r.Method == http.MethodGet:
			status <- q.Get("rs.status")
			_, _ = io.WriteString(w, q.Get("hub.challenge"))
		case failing.Load():
			http.Error(w, "out of order", http.StatusInternalServerError)
		}
	}))
	t.Cleanup(callback.Close)
	for _, path := range []string{"/good", "/none", "/wrong"} {
		hubtest.Must(t, http.StatusAccepted, http.MethodPost, h.URL+"/hub", []byte("hub.mode=subscribe&hub.secret=s&rs.since=start&hub.topic="+h.Topic("articles")+"&hub.callback="+callback.URL+path), "Content-Type: application/x-www-form-urlencoded")
	}
	own := <-status
	summary := hubtest.Get[struct {
		Cursor, Position string
		Count            int
	}](t, h.URL+"/sets/articles/audit")
	hubtest.Must(t, http.StatusOK, http.MethodPost, h.URL+"/sets/articles/audit?name=our+mirror", fmt.Appendf(nil, `{"at":%q,"by":"position","ranges":[{"count":%d,"digest":%q}]}`, summary.Cursor, summary.Count, summary.Position), "Content-Type: application/json")
	b := open(t, browser.Start(t), h.URL+"/sets/articles#destinations")
	b.has("our mirror")
	b.has("last proved")
	b.until("document.querySelectorAll('.failure').length === 2")
	b.has("404")
	b.until("document.querySelector('.pill.current')")
	failing.Store(true)
	hubtest.Publish(t, h, "articles", hubtest.Changes("late", 5))
	b.until("document.querySelector('.pill.waiting, .pill.failing')")
	b.until("(document.activeElement.blur(), document.querySelector('details') && (document.querySelector('details').open = true))")
	b.has("500")
	b.checkView("destinations")

	// The callback recovers, and an operator retries immediately.
	failing.Store(false)
	b.do(chromedp.Evaluate[chromedp.Void]("[...document.querySelectorAll('button')].find(b => b.textContent === 'Retry').focus()"))
	b.key("\r")
	b.has("The hub carries it out")
	b.until("document.activeElement.blur() || document.querySelector('.pill.current')")

	b.goTo(own)
	b.has("Lease ends")
	b.has("status 200")
	b.checkView("subscription")

	b.goTo(h.URL + "/sets/articles#destinations")
	b.until("document.querySelector('button.danger')")
	b.do(chromedp.Evaluate[chromedp.Void]("document.querySelector('button.danger').focus()"))
	b.key("\r")
	b.until("document.querySelector('dialog[open]')")
	b.checkView("remove")
	b.focus("dialog button.main")
	b.key("\r")
	b.has("This set has no subscriptions")
}

// TestSources checks the view of a source that the hub polls.
func TestSources(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t, "RSHUB_CALLBACK_ALLOW=127.0.0.0/8")
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/sitemap.xml" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/xml")
		_, _ = io.WriteString(w, `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>http://`+r.Host+`/a</loc><lastmod>2026-01-01</lastmod></url></urlset>`)
	}))
	t.Cleanup(source.Close)
	for set, path := range map[string]string{"site": "/sitemap.xml", "lost": "/nothing.xml"} {
		hubtest.Must(t, http.StatusOK, http.MethodPut, h.URL+"/sets/"+set, []byte(fmt.Sprintf(`{"source":%q,"every":"1h"}`, source.URL+path)))
	}
	b := open(t, browser.Start(t), h.URL+"/#sources")
	b.until("document.querySelector('.pill.ok') && document.querySelector('.pill.failed')")
	b.has("1 created")
	b.checkView("sources")
	b.goTo(h.URL + "/sets/site")
	b.has("The hub polls")
	b.checkView("polled")
}

// TestDocuments checks the documents of the standard as users see them.
func TestDocuments(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t)
	fillSet(t, h, "articles", "Articles & preprints", 40)
	b := open(t, browser.Start(t), h.URL+"/sets/articles#documents")
	b.has("Capability List")
	b.checkView("documents")
	b.focus("#part a")
	b.key("\r")
	b.until("document.querySelector('h1').textContent === 'Capability List'")
	b.checkView("capabilitylist")
	b.goTo(h.URL + "/sets/articles/changelist.xml")
	b.has("items/00007/full.pdf")
	b.until("document.querySelectorAll('tbody tr').length === 40")
	b.checkView("changelist")
	b.focus("summary")
	b.key("\r")
	b.has("<urlset")
	for path, title := range map[string]string{"/.well-known/resourcesync": "Source Description", "/sets/articles/changelist-index.xml": "Change List Index", "/sets/articles/changes": "Change notification"} {
		b.goTo(h.URL + path)
		b.until(fmt.Sprintf("document.querySelector('h1').textContent === %q", title))
	}
	b.goTo(h.URL + "/sets/articles/none.xml")
	b.has("The document does not exist")
}
