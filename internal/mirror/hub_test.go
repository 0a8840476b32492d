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

// A followed is a set of a real hub, and a bench that mirrors what begins with its origin.
type followed struct {
	*bench
	*client.Client
	hub    string
	source *discovery.Source
}

func newFollowed(t *testing.T) *followed {
	t.Helper()
	f := &followed{bench: newBench(t), hub: localhub.Start(t).URL}
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

// publish gives the origin a file, and publishes that.
func (f *followed) publish(name, text string) {
	f.t.Helper()
	c := resourcesync.Change{Loc: f.URL + name, Change: resourcesync.Deleted}
	if text != "" {
		f.set(name, text)
		c.Change, c.Hash = resourcesync.Updated, sumOf(text)
	}
	f.tell(c)
}

func (f *followed) tell(changes ...resourcesync.Change) {
	f.t.Helper()
	if _, err := f.Publish(f.t.Context(), "demo", "", changes); err != nil {
		f.t.Error(err)
	}
}

// mirror mirrors once, and proves it.
func (f *followed) mirror() {
	f.t.Helper()
	m := New(f.home, f.source, f.Directory, Options{HTTP: f.bench.Client(), SourceTimeout: time.Minute, Prefix: f.URL})
	if left, err := m.Run(f.t.Context(), true); err != nil || left.Resources > 0 {
		f.t.Fatalf("%+v is left, %v", left, err)
	}
	for p, err := range m.Audit(f.t.Context(), f.Directory, AuditOptions{}) {
		f.t.Fatalf("an audit finds %+v, %v", p, err)
	}
}

// list makes the source's own list.
func (f *followed) list(names ...string) {
	var entries []string
	for _, name := range names {
		entries = append(entries, `<url><loc>`+f.URL+name+`</loc></url>`)
	}
	f.set("/list.xml", document("resourcelist", `at="2026-01-04T00:00:00Z"`, entries...))
	f.source.ResourceList = f.URL + "/list.xml"
}

// The hub is told of a mirror that is right, and of no other.
func TestTold(t *testing.T) {
	t.Parallel()
	f := newFollowed(t)
	f.mirror()
	audit := func(o AuditOptions, want string) {
		t.Helper()
		var noted []string
		m := New(f.home, f.source, f.Directory, Options{HTTP: f.bench.Client(), SourceTimeout: time.Minute, Logf: func(format string, args ...any) { noted = append(noted, fmt.Sprintf(format, args...)) }})
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
			t.Errorf("the hub has the proofs %q, want %q; noted is %q", got, want, noted)
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

// A breaking is a Sink that breaks the next request to the hub.
type breaking struct{ next atomic.Bool }

func (b *breaking) Apply(context.Context, []feed.Entry) error {
	b.next.Store(true)
	return nil
}

func (*breaking) Retry(context.Context, bool) (Backlog, error) { return Backlog{}, nil }

func (b *breaking) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.next.Swap(false) {
		return nil, errors.New("broken")
	}
	return http.DefaultTransport.RoundTrip(r)
}

// However long the work on an update takes, the hub may fail once after it.
func TestPatienceBeginsWithAFailure(t *testing.T) {
	t.Parallel()
	f := newFollowed(t)
	b := &breaking{}
	hub := &http.Client{Transport: b}
	noted := 0
	o := Options{HTTP: hub, SourceTimeout: time.Nanosecond, Hub: client.Options{HTTP: hub, OnRetry: func(error, time.Duration) { noted++ }}}
	if _, err := New(f.home, f.source, b, o).Run(t.Context(), true); err != nil || noted == 0 {
		t.Errorf("Run = %v after %d failures", err, noted)
	}
}

// An audit waits as long as Patience for a hub that is away.
func TestPatienceOfAnAudit(t *testing.T) {
	t.Parallel()
	f := newFollowed(t)
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
		t.Errorf("Audit = %v", failed)
	}
}

// What is deleted while the source's list is read is in no baseline of a hub that does not
// know all resources.
func TestDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(f *followed){
		"the log has it": func(f *followed) {
			f.publish("/old", "")
			var others []resourcesync.Change // so many that the next baseline is as of a later cursor
			for i := range 3_000 {
				others = append(others, resourcesync.Change{Loc: fmt.Sprint("urn:", i), Change: resourcesync.Updated})
			}
			f.tell(others...)
			testutil.Until(f.t, "a baseline has it", func() bool {
				for page, err := range f.Baseline(f.t.Context(), "demo", client.BaselineOptions{Limit: 1}) {
					return err == nil && page.Next.Position > 3_000
				}
				return false
			})
		},
		"the log was lost": func(f *followed) {
			servertest.Do(f.t, http.MethodDelete, f.hub+"/sets/demo", "")
			f.publish("/newer", "newer")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFollowed(t)
			f.set("/old", "old")
			f.set("/same", "same")
			f.list("/old", "/same")
			f.source.ChangeList = "" // the list is read once
			var once sync.Once
			f.answers(func(w http.ResponseWriter, r *http.Request) {
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
			f.has("same", "same")
			f.has("old", "")
			if _, lost := f.files["/newer"]; lost {
				f.has("newer", "newer")
				f.publish("/new", "new")
				f.mirror()
			}
			f.has("new", "new")
		})
	}
}

// A hub that does not know all resources, and whose log does not reach back to the mirror any
// more, cannot say what was deleted meanwhile: the source's list is read again, also by a mirror
// that was killed when it should have begun to.
func TestListIsReadAfterAGap(t *testing.T) {
	t.Parallel()
	for name, killed := range map[string]bool{"at once": false, "after a kill": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFollowed(t)
			f.set("/old", "old")
			f.set("/same", "same")
			f.list("/old", "/same")
			f.source.ChangeList = ""
			f.publish("/known", "known")
			f.mirror()
			f.has("old", "old")
			f.has("known", "known")
			f.publish("/old", "")
			f.publish("/known", "")
			f.list("/same")
			f.set("/list.xml", strings.Replace(f.files["/list.xml"], "2026-01-04T00:00:00Z", time.Now().UTC().Format(time.RFC3339Nano), 1))
			servertest.Do(t, http.MethodDelete, f.hub+"/sets/demo", "") // the log is lost, and with it the deletion
			f.publish("/new", "new")
			f.requests("/list.xml")
			if killed {
				f.killedAt("the baseline is complete")
				f.has("new", "new")
			}
			f.mirror()
			f.has("old", "")
			f.has("known", "")
			f.has("same", "same")
			f.has("new", "new")
			f.requests("/list.xml")
			f.mirror()
			if n := f.requests("/list.xml"); n != 0 {
				t.Errorf("the list was asked for %d times although nothing is missing", n)
			}
		})
	}
}

// killedAt mirrors until a note begins with some words, and does nothing after that.
func (f *followed) killedAt(words string) {
	f.t.Helper()
	defer func() {
		if recover() != words {
			f.t.Errorf("the mirror never notes %q", words)
		}
	}()
	note := func(format string, _ ...any) {
		if strings.HasPrefix(format, words) {
			panic(words)
		}
	}
	_, err := New(f.home, f.source, f.Directory, Options{HTTP: f.bench.Client(), Prefix: f.URL, Logf: note}).Run(f.t.Context(), true)
	f.t.Error("Run ended:", err)
}
