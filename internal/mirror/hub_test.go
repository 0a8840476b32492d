package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/source/discovery"
	"github.com/rshub/rshub/internal/source/harvest"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/localhub"
	"github.com/rshub/rshub/internal/testutil/servertest"
	"github.com/rshub/rshub/resourcesync"
)

// A hubFixture is a set of a real hub, and a fixture that mirrors the part of it at its origin.
type hubFixture struct {
	*fixture
	*client.Client
	hub    string
	source *discovery.Source
}

func newHubFixture(t *testing.T) *hubFixture {
	t.Helper()
	f := &hubFixture{fixture: newFixture(t), hub: localhub.Start(t).URL}
	var err error
	if f.Client, err = client.New(f.hub, client.Options{}); err != nil {
		t.Fatal(err)
	}
	f.publish("/new", "new")
	f.source, err = discovery.Find(t.Context(), &harvest.Getter{Client: http.DefaultClient}, f.hub+"/sets/demo/changes")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// publish sets a file of the origin, and publishes the change.
func (f *hubFixture) publish(name, text string) {
	f.t.Helper()
	c := resourcesync.Change{Loc: f.URL + name, Change: resourcesync.Deleted}
	if text != "" {
		f.set(name, text)
		c.Change, c.Hash = resourcesync.Updated, hashOf(text)
	}
	f.publishChanges(c)
}

func (f *hubFixture) publishChanges(changes ...resourcesync.Change) {
	f.t.Helper()
	if _, err := f.Publish(f.t.Context(), "demo", "", changes); err != nil {
		f.t.Error(err)
	}
}

// mirror mirrors once, and audits the mirror.
func (f *hubFixture) mirror() {
	f.t.Helper()
	m := New(f.home, f.source, f.Directory, Options{HTTP: f.fixture.Client(), SourceTimeout: time.Minute, Prefix: f.URL})
	if left, err := m.Run(f.t.Context(), true); err != nil || left.Resources > 0 {
		f.t.Fatalf("Run() = %+v, %v, want an empty backlog", left, err)
	}
	for p, err := range m.Audit(f.t.Context(), f.Directory, AuditOptions{}) {
		f.t.Fatalf("Audit() yields %+v, %v, want nothing", p, err)
	}
}

// list publishes the source's own list.
func (f *hubFixture) list(names ...string) {
	var entries []string
	for _, name := range names {
		entries = append(entries, `<url><loc>`+f.URL+name+`</loc></url>`)
	}
	f.set("/list.xml", document("resourcelist", `at="2026-01-04T00:00:00Z"`, entries...))
	f.source.ResourceList = f.URL + "/list.xml"
}

// Only an audit of a mirror that is in sync submits a proof to the hub.
func TestAuditSubmitsProof(t *testing.T) {
	t.Parallel()
	f := newHubFixture(t)
	f.mirror()
	audit := func(o AuditOptions, want string) {
		t.Helper()
		var noted []string
		m := New(f.home, f.source, f.Directory, Options{HTTP: f.fixture.Client(), SourceTimeout: time.Minute, Logf: func(format string, args ...any) { noted = append(noted, fmt.Sprintf(format, args...)) }})
		for _, err := range m.Audit(t.Context(), f.Directory, o) {
			if err != nil {
				t.Fatal(err)
			}
		}
		var answer struct {
			Proofs []struct{ Name, Compared string }
		}
		_, body := servertest.Do(t, http.MethodGet, f.hub+"/sets/demo/proofs", "")
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, p := range answer.Proofs {
			got += p.Name + " " + p.Compared + ";"
		}
		if got != want || len(noted) > 0 {
			t.Errorf("proofs of the hub = %q, want %q; log: %q", got, want, noted)
		}
	}
	audit(AuditOptions{}, "")
	audit(AuditOptions{Name: "quick", Quick: true}, "")
	audit(AuditOptions{Name: "first"}, "first position;")
	if err := os.WriteFile(filepath.Join(f.dir, "new"), []byte("bad"), 0o666); err != nil {
		t.Fatal(err)
	}
	audit(AuditOptions{Name: "damaged"}, "first position;")
	audit(AuditOptions{Name: "repaired", Repair: true}, "repaired position;first position;")
}

// A failingSink is a Sink that makes the next request to the hub fail.
type failingSink struct{ next atomic.Bool }

func (b *failingSink) Apply(context.Context, []feed.Entry) error {
	b.next.Store(true)
	return nil
}

func (*failingSink) Retry(context.Context, bool) (Backlog, error) { return Backlog{}, nil }

func (b *failingSink) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.next.Swap(false) {
		return nil, errors.New("broken")
	}
	return http.DefaultTransport.RoundTrip(r)
}

// The SourceTimeout starts at the first failure of the hub, however long an update has taken
// before.
func TestSourceTimeoutStartsAtFailure(t *testing.T) {
	t.Parallel()
	f := newHubFixture(t)
	b := &failingSink{}
	hub := &http.Client{Transport: b}
	noted := 0
	o := Options{HTTP: hub, SourceTimeout: time.Nanosecond, Hub: client.Options{HTTP: hub, OnRetry: func(error, time.Duration) { noted++ }}}
	if _, err := New(f.home, f.source, b, o).Run(t.Context(), true); err != nil || noted == 0 {
		t.Errorf("Run() = %v after %d failures, want nil after at least one", err, noted)
	}
}

// An audit waits SourceTimeout for an unavailable hub.
func TestSourceTimeoutOfAudit(t *testing.T) {
	t.Parallel()
	f := newHubFixture(t)
	f.mirror()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	hub := &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) { return nil, errors.New("away") })}
	o := Options{HTTP: hub, SourceTimeout: time.Nanosecond, Hub: client.Options{HTTP: hub}}
	var failed error
	for _, err := range New(f.home, f.source, f.Directory, o).Audit(ctx, f.Directory, AuditOptions{}) {
		failed = err
	}
	if _, ok := errors.AsType[*SourceError](failed); !ok || ctx.Err() != nil {
		t.Errorf("Audit() = %v, want a SourceError", failed)
	}
}

// A resource that is deleted while the source's list is read is in no baseline of a hub that
// does not know all resources.
func TestDeletedWhileListIsRead(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(f *hubFixture){
		"deletion is in the log": func(f *hubFixture) {
			f.publish("/old", "")
			var others []resourcesync.Change // enough for a baseline at a later cursor
			for i := range 3_000 {
				others = append(others, resourcesync.Change{Loc: fmt.Sprint("urn:", i), Change: resourcesync.Updated})
			}
			f.publishChanges(others...)
			testutil.Until(f.t, "the baseline has the changes", func() bool {
				for page, err := range f.Baseline(f.t.Context(), "demo", client.BaselineOptions{Limit: 1}) {
					return err == nil && page.Next.Position > 3_000
				}
				return false
			})
		},
		"log is lost": func(f *hubFixture) {
			servertest.Do(f.t, http.MethodDelete, f.hub+"/sets/demo", "")
			f.publish("/newer", "newer")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newHubFixture(t)
			f.set("/old", "old")
			f.set("/same", "same")
			f.list("/old", "/same")
			f.source.ChangeList = "" // without changes, so the list is read once
			var once sync.Once
			f.handle(func(w http.ResponseWriter, r *http.Request) {
				f.serve(w, r)
				if r.URL.Path != "/list.xml" {
					return
				}
				once.Do(func() {
					f.list("/same")
					meanwhile(f)
				})
			})
			f.mirror()
			f.wantFile("same", "same")
			f.wantFile("old", "")
			if _, lost := f.files["/newer"]; lost {
				f.wantFile("newer", "newer")
				f.publish("/new", "new")
				f.mirror()
			}
			f.wantFile("new", "new")
		})
	}
}

// If the log starts after the mirror's cursor, a hub that does not know all resources cannot
// name the deletions: the source's list is read again, even after a crash before that.
func TestListIsReadAfterGap(t *testing.T) {
	t.Parallel()
	for name, killed := range map[string]bool{"immediately": false, "after a crash": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newHubFixture(t)
			f.set("/old", "old")
			f.set("/same", "same")
			f.list("/old", "/same")
			f.source.ChangeList = ""
			f.publish("/known", "known")
			f.mirror()
			f.wantFile("old", "old")
			f.wantFile("known", "known")
			f.publish("/old", "")
			f.publish("/known", "")
			f.list("/same")
			f.set("/list.xml", strings.Replace(f.files["/list.xml"], "2026-01-04T00:00:00Z", time.Now().UTC().Format(time.RFC3339Nano), 1))
			servertest.Do(t, http.MethodDelete, f.hub+"/sets/demo", "") // the deletion is lost with the log
			f.publish("/new", "new")
			f.requestCount("/list.xml")
			if killed {
				f.crashAt("baseline is complete")
				f.wantFile("new", "new")
			}
			f.mirror()
			f.wantFile("old", "")
			f.wantFile("known", "")
			f.wantFile("same", "same")
			f.wantFile("new", "new")
			f.requestCount("/list.xml")
			f.mirror()
			if n := f.requestCount("/list.xml"); n != 0 {
				t.Errorf("got %d requests for the list, want 0", n)
			}
		})
	}
}

// crashAt mirrors until a log message starts with a prefix, and then panics.
func (f *hubFixture) crashAt(words string) {
	f.t.Helper()
	defer func() {
		if recover() != words {
			f.t.Errorf("the mirror did not log %q", words)
		}
	}()
	note := func(format string, _ ...any) {
		if strings.HasPrefix(format, words) {
			panic(words)
		}
	}
	_, err := New(f.home, f.source, f.Directory, Options{HTTP: f.fixture.Client(), Prefix: f.URL, Logf: note}).Run(f.t.Context(), true)
	f.t.Error("Run() returned", err)
}
