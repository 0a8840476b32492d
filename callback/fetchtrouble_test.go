package callback

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/resourcesync"
)

// What cannot be taken is said in the log, without a URL, and nothing of it is
// published.
func TestFetchRefuses(t *testing.T) {
	says := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
	}
	for _, test := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
	}{
		{"no datetime", says(listOf("", "a created 1", "b created")), "entry 2 (https://example.org/b): datetime is missing"},
		{"the future", says(strings.Replace(listOf("", "a created 1"), "2026", "2226", 1)), "datetime lies in the future"},
		{"no change", says(strings.Replace(listOf("", "a created 1"), `change="created"`, "", 1)), "entry 1 (https://example.org/a): change is missing"},
		{"a page", says("<!doctype html><title>x</title>"), "no document of ResourceSync"},
		{"nothing", says(""), "no document of ResourceSync"},
		{"another document", says(strings.Replace(listOf(""), "changelist", "resourcelist", 1)), `its capability is \"resourcelist\"`},
		{"half of it", says(listOf("", "a created 1")[:200]), "no document of ResourceSync"},
		{"1 GiB", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "1073741824") }, "the answer has 1073741824 bytes"},
		{"not found", http.NotFound, "the answer is 404: Not Found"},
		{"a redirect to metadata", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/latest/meta-data/", http.StatusFound)
		}, "a redirect (302), which the hub does not follow"},
		{"packed", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Encoding", "br") }, "Content-Encoding"},
		{"closed", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "the connection was closed"},
		{"closed within", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(listOf("", "a created 1")[:200]))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, "the connection was closed"},
		{"an index of lists on this hub", says(indexOf(base, "/sets/demo/changelist.xml")), "list 1 of the index: the rules for callbacks forbid its URL"},
		{"an index of metadata", says(indexOf("http://169.254.169.254", "/latest")), "list 1 of the index: the rules for callbacks forbid its URL"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := httptest.NewServer(test.answer)
			defer s.Close()
			f := newFetching(t, openLog(t), here)
			f.describe("demo", s.URL+"/list?key=SECRET")
			f.fails("demo")
			f.has("demo")
			if got := f.said.String(); !strings.Contains(got, test.want) || strings.Contains(got, "SECRET") || !strings.Contains(got, strings.TrimPrefix(s.URL, "http://")) {
				t.Errorf("it says %s\nwant %s", got, test.want)
			}
		})
	}
	t.Run("an index in an index", func(t *testing.T) {
		o := newOrigin(t)
		o.put("/list", indexOf(o.url, "/list"))
		f := newFetching(t, openLog(t), here)
		f.describe("demo", o.url+"/list")
		f.fails("demo")
		if s := f.said.String(); !strings.Contains(s, "list 1 of the index: it is an index again") {
			t.Errorf("it says %s", s)
		}
	})
}

// A list is fetched from where callbacks may be, and from nowhere else.
func TestFetchAddress(t *testing.T) {
	o := newOrigin(t)
	o.put("/list", listOf("", "a created 1"))
	f := newFetching(t, openLog(t), nil)
	f.describe("demo", o.url+"/list")
	if err := f.Ping(t.Context(), "demo"); !errors.Is(err, resourcesync.ErrInvalid) || !strings.Contains(err.Error(), "set demo: a changelist at 127.0.0.1 is not allowed") {
		t.Errorf("loopback: %v", err)
	}
	f.describe("demo", strings.Replace(o.url, "127.0.0.1", "localhost", 1)+"/list")
	f.fails("demo")
	if s := f.said.String(); !strings.Contains(s, "the address is not allowed") || len(o.requests()) > 0 {
		t.Errorf("a name of loopback: %s", s)
	}
}

// A list that comes slowly is given up, tried again some times, and delays no
// other set.
func TestFetchSlow(t *testing.T) {
	long(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		f := NewFetcher(w.engine, w.log, w.hub.Publish)
		defer f.Close()
		slow, good := w.listen("slow.example"), w.listen("good.example")
		slow.agrees(func(w http.ResponseWriter, r *http.Request) {
			for {
				if _, err := w.Write([]byte(" ")); err != nil || http.NewResponseController(w).Flush() != nil {
					return
				}
				select {
				case <-time.After(time.Second):
				case <-r.Context().Done():
					return
				}
			}
		})
		good.agrees(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(strings.Replace(listOf("", "a created 1"), "2026", "1999", 1))) // fake time begins in 2000
		})
		for set, list := range map[string]string{"slow": slow.url, "good": good.url} {
			if err := w.hub.Describe(t.Context(), set, changelog.Description{ChangeList: list}); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Ping(t.Context(), "slow"); err != nil {
			t.Fatal(err)
		}
		w.settled()
		if err := f.Ping(t.Context(), "good"); err != nil {
			t.Fatal(err)
		}
		w.settled()
		if took, _ := w.engine.metrics.tally(forFetch); took != 1 {
			t.Errorf("behind a slow list %d others were fetched", took)
		}
		time.Sleep(listTime + time.Second)
		w.settled()
		if _, failed := w.engine.metrics.tally(forFetch); failed != 1 || slow.questions() != 1 {
			t.Errorf("%d fetches failed, %d requests", failed, slow.questions())
		}
		time.Sleep(time.Hour)
		w.settled()
		if _, failed := w.engine.metrics.tally(forFetch); failed != 1+len(fetchAgain) || slow.questions() != 1+len(fetchAgain) {
			t.Errorf("%d fetches failed, %d requests", failed, slow.questions())
		}
	})
}
