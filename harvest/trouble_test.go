package harvest

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/memorytest"
	"github.com/rshub/rshub/internal/pipenet"
	"github.com/rshub/rshub/resourcesync"
)

// A list that cannot be taken is named in the log, without its URL. Nothing of it
// is published.
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
		{"a page", says("<!doctype html><title>x</title>"), "not a ResourceSync document"},
		{"nothing", says(""), "not a ResourceSync document"},
		{"another document", says(strings.Replace(listOf(""), "changelist", "resourcelist", 1)), `its capability is \"resourcelist\"`},
		{"half of it", says(listOf("", "a created 1")[:200]), "not a ResourceSync document"},
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
			f := newFetching(t, memorytest.Open(t), here)
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
		f := newFetching(t, memorytest.Open(t), here)
		f.describe("demo", o.url+"/list")
		f.fails("demo")
		if s := f.said.String(); !strings.Contains(s, "list 1 of the index: it is an index again") {
			t.Errorf("it says %s", s)
		}
	})
}

// A list is fetched only from addresses where callbacks may be.
func TestFetchAddress(t *testing.T) {
	o := newOrigin(t)
	o.put("/list", listOf("", "a created 1"))
	f := newFetching(t, memorytest.Open(t), nil)
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

// A fetch that takes too long is given up and tried again a few times. It delays
// no other set.
func TestFetchSlow(t *testing.T) {
	if testing.Short() {
		t.Skip("a long test")
	}
	synctest.Test(t, func(t *testing.T) {
		var network pipenet.Network
		defer network.Close()
		log := memorytest.Open(t)
		f := newFetchingBy(t, log, &http.Client{Transport: network.Transport()}, nil)
		var asked atomic.Int64 // for the slow list
		network.Serve("slow.example:80", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
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
		}))
		network.Serve("good.example:80", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(strings.Replace(listOf("", "a created 1"), "2026", "1999", 1))) // fake time begins in 2000
		}))
		for set, list := range map[string]string{"slow": "http://slow.example/", "good": "http://good.example/"} {
			if err := f.hub.Describe(t.Context(), set, feed.Description{ChangeList: list}); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Ping(t.Context(), "slow"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := f.Ping(t.Context(), "good"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if took := f.took.Load(); took != 1 {
			t.Errorf("behind a slow list %d others were fetched", took)
		}
		time.Sleep(quickTime + paceTime + time.Second)
		synctest.Wait()
		if failed := f.failed.Load(); failed != 1 || asked.Load() != 2 || !strings.Contains(f.said.String(), "too slowly") {
			t.Errorf("%d fetches failed, %d requests: %s", failed, asked.Load(), f.said)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if failed := f.failed.Load(); int(failed) != 1+len(fetchAgain) || int(asked.Load()) != 2*(1+len(fetchAgain)) {
			t.Errorf("%d fetches failed, %d requests", failed, asked.Load())
		}
	})
}
