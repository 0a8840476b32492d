package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/discovery"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/until"
)

// A list that breaks, in whatever way, deletes nothing and ends nothing: the mirror looks
// again until the list is right.
func TestListBreaks(t *testing.T) {
	b := newBench(t)
	entries := func(n int) (all []string) {
		for i := range n {
			name := fmt.Sprintf("/f%d", i)
			b.set(name, name)
			all = append(all, fmt.Sprintf(`<url><loc>%s%s</loc><rs:md hash="%s"/></url>`, b.URL, name, sumOf(name)))
		}
		return all
	}
	b.set("/list.xml", document("resourcelist", `at="2026-01-04T00:00:00Z"`, entries(20)...))
	source := &discovery.Source{ResourceList: b.URL + "/list.xml"}
	b.right(source)

	var broken atomic.Pointer[http.HandlerFunc]
	var looks atomic.Int32
	b.answers(func(w http.ResponseWriter, r *http.Request) {
		if f := broken.Load(); f != nil && r.URL.Path == "/list.xml" {
			defer looks.Add(1)
			(*f)(w, r)
			return
		}
		b.serve(w, r)
	})
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	says := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
	}
	half := document("resourcelist", "", entries(3)...)
	never := status(http.StatusNotFound)
	broken.Store(&never)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	m := New(b.home, source, b.Directory, Options{HTTP: b.Client(), Every: time.Millisecond})
	m.lister.Getter.Tries = 1
	ended := make(chan struct{})
	wg.Go(func() {
		defer close(ended)
		if _, err := m.Run(ctx, false); err != nil {
			t.Error(err)
		}
	})
	defer wg.Wait()
	defer cancel()
	for _, f := range []http.HandlerFunc{
		status(404), status(410), status(500), says(""), says(half[:len(half)-10]), says("<html>"), says(document("changelist", "")),
		func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/list.xml", http.StatusFound) },
		func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100000")
			_, _ = io.WriteString(w, half)
		},
		func(w http.ResponseWriter, _ *http.Request) { // it does not end
			for {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		},
	} {
		broken.Store(&f)
		before := looks.Load()
		until.Done(t, "the list was looked at", func() bool {
			select {
			case <-ended:
				t.Fatal("it has ended")
			default:
			}
			return looks.Load() >= before+2
		})
		if n := b.home.Ledger.Counts().Files; n != 20 {
			t.Fatalf("there are %d files", n)
		}
	}
	b.set("/f20", "new")
	b.set("/list.xml", document("resourcelist", `at="2026-01-05T00:00:00Z"`, append(entries(19), fmt.Sprintf(`<url><loc>%s/f20</loc><rs:md hash="%s"/></url>`, b.URL, sumOf("new")))...))
	broken.Store(nil)
	until.Done(t, "the mirror is right again", func() bool {
		_, had, err := b.home.Ledger.File(b.URL + "/f19")
		_, has, err2 := b.home.Ledger.File(b.URL + "/f20")
		return err == nil && err2 == nil && !had && has
	})
}

// A sink that is cut off: it has taken what Apply brought, and nobody knows that.
type cutOff struct {
	Sink
	cut bool
}

var errCutOff = errors.New("cut off")

func (c *cutOff) Apply(ctx context.Context, entries []feed.Entry) error {
	err := c.Sink.Apply(ctx, entries)
	if err == nil && c.cut {
		err = errCutOff
	}
	return err
}

// A look that is cut off leaves nothing behind that the next one takes for what it has seen.
func TestCutOff(t *testing.T) {
	b := newBench(t)
	entry := func(name, text string) string {
		b.set(name, text)
		return fmt.Sprintf(`<url><loc>%s%s</loc><rs:md hash="%s"/></url>`, b.URL, name, sumOf(text))
	}
	source := &discovery.Source{ResourceList: b.URL + "/list.xml", ChangeList: b.URL + "/changes.xml"}
	sink := &cutOff{Sink: b.Directory}
	look := func(at int, list string, changes ...string) error {
		b.set("/list.xml", document("resourcelist", fmt.Sprintf(`at="2026-01-%02dT00:00:00Z"`, at), list))
		b.set("/changes.xml", document("changelist", fmt.Sprintf(`from="2026-01-%02dT00:00:00Z"`, at), changes...))
		_, err := New(b.home, source, sink, Options{HTTP: b.Client()}).Run(t.Context(), true)
		return err
	}
	change := func(at int, name, what, text string) string {
		if b.set(name, text); text == "" {
			return fmt.Sprintf(`<url><loc>%s%s</loc><rs:md change="%s" datetime="2026-01-%02dT00:00:00Z"/></url>`, b.URL, name, what, at)
		}
		return fmt.Sprintf(`<url><loc>%s%s</loc><rs:md change="%s" datetime="2026-01-%02dT00:00:00Z" hash="%s"/></url>`, b.URL, name, what, at, sumOf(text))
	}

	// The first look at the list is cut off, and a resource goes before the second one.
	m := New(b.home, source, sink, Options{HTTP: b.Client()})
	m.lister.Getter.Tries = 1
	whole := document("resourcelist", `at="2026-01-01T00:00:00Z"`, entry("/gone", "one")+entry("/a", "one"))
	b.set("/list.xml", whole[:len(whole)-5])
	b.set("/changes.xml", document("changelist", `from="2026-01-01T00:00:00Z"`))
	if _, err := m.Run(t.Context(), true); err == nil {
		t.Fatal("a list that breaks off is a list")
	}
	b.has("gone", "one")
	if err := look(2, entry("/a", "one")+entry("/b", "one")); err != nil {
		t.Fatal(err)
	}
	b.has("a", "one")
	b.has("gone", "")

	// Changes are cut off, and undone before the Change List is cut, too.
	sink.cut = true
	if err := look(2, "", change(3, "/a", "updated", "two"), change(3, "/b", "deleted", "")); !errors.Is(err, errCutOff) {
		t.Fatal(err)
	}
	b.has("a", "two")
	b.has("b", "")
	sink.cut = false
	if err := look(5, entry("/a", "one")+entry("/b", "one")); err != nil {
		t.Fatal(err)
	}
	b.has("a", "one")
	b.has("b", "one")
}

// A source renews its lists while they are read, and then they begin after what was read.
func TestRenewed(t *testing.T) {
	b := newBench(t)
	publish := func(day int, names ...string) {
		var all []string
		for _, name := range names {
			b.set(name, name)
			all = append(all, fmt.Sprintf(`<url><loc>%s%s</loc><rs:md hash="%s"/></url>`, b.URL, name, sumOf(name)))
		}
		b.set("/list.xml", document("resourcelist", fmt.Sprintf(`at="2026-01-%02dT00:00:00Z"`, day), all...))
		b.set("/changes.xml", document("changelist", fmt.Sprintf(`from="2026-01-%02dT00:00:00Z"`, day)))
	}
	source := &discovery.Source{ResourceList: b.URL + "/list.xml", ChangeList: b.URL + "/changes.xml"}
	publish(1, "/a")
	b.right(source)

	publish(2, "/a", "/b")
	var read atomic.Int32
	b.answers(func(w http.ResponseWriter, r *http.Request) {
		b.serve(w, r)
		if r.URL.Path == "/list.xml" && read.Add(1) == 2 { // the first time it is asked for its time
			publish(3, "/b", "/c")
		}
	})
	b.right(source)
	b.has("a", "")
	b.has("c", "/c")
}
