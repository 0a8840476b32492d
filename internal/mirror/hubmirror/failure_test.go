package hubmirror

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/internal/mirror"
	"github.com/rshub/rshub/internal/mirror/fetch"
	"github.com/rshub/rshub/internal/mirror/home"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/resourcesync"
)

// TestRunUnstartable checks that a set that the hub cannot start to follow leaves others alone.
func TestRunUnstartable(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.publish("/a/1", "1")
	f.damaged = "bad"
	got, want := f.runOnce(), Totals{Sets: 2, Failed: 1, Files: 1, Bytes: 1}
	if err := f.lastError("bad"); got != want || err == nil {
		t.Errorf("Run() with Once = %+v, want %+v; error %v, want one", got, want, err)
	}
	f.errors = map[string]error{}
	f.start(func(m *Mirrors) { m.limits.follow = 10 * time.Millisecond })
	testutil.Until(t, "the set fails", func() bool { return f.lastError("bad") != nil })
	f.publish("/a/2", "2")
	f.awaitMirrored("although a set fails")
	f.mu.Lock()
	f.damaged = ""
	f.mu.Unlock()
	f.publish("/bad/1", "1")
	f.awaitMirrored("when the hub can follow the set")
}

// TestListSets checks that sets are listed even if the hub cannot start to follow them.
func TestListSets(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.publish("/a/1", "1")
	f.damaged = "bad"
	c, err := client.New(f.hub, client.Options{HTTP: &http.Client{Transport: f}})
	if err != nil {
		t.Fatal(err)
	}
	if sets, err := ListSets(t.Context(), c); err != nil || len(sets) != 2 || !sets["a"] || !sets["bad"] {
		t.Errorf("ListSets() = %v, %v, want a and bad", sets, err)
	}
}

// TestRunDamaged checks that damage to the mirror of a set leaves others alone.
func TestRunDamaged(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(replica string) error{
		"damaged": func(replica string) error {
			manifests, err := filepath.Glob(replica + "/MANIFEST-*")
			for _, path := range manifests {
				err = errors.Join(err, os.WriteFile(path, []byte("damaged"), 0o666))
			}
			return err
		},
		"obstacle": func(replica string) error {
			return errors.Join(os.RemoveAll(replica), os.WriteFile(replica, nil, 0o666))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.publish("/a/1", "1")
			f.publish("/b/1", "1")
			f.runOnce()
			if err := damage(filepath.Join(f.dir, "a", ".rsmirror", "replica")); err != nil {
				t.Fatal(err)
			}
			f.publish("/a/2", "2")
			f.publish("/b/2", "2")
			if got := f.runOnce(); got.Failed != 1 || f.lastError("a") == nil || f.mirrored()["/b/2"] != "2" {
				t.Errorf("Run() = %+v, error %v; files %v, want an error of set a only", got, f.lastError("a"), f.mirrored())
			}
		})
	}
}

// TestCopyDuringRetry checks that a process that audits a mirror gets its whole bookkeeping while the
// mirror is open only for a retry.
func TestCopyDuringRetry(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.publish("/a/1", "1")
	f.publishMissing("/a/2")
	f.runOnce()
	waiting := f.hold("/a/2")
	f.start(nil)
	<-waiting
	h, err := home.OpenOrCopy(t.Context(), filepath.Join(f.dir, "a"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	sink, err := mirror.NewDirectory(h, mirror.DirectoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	source, err := f.find("a")
	if err != nil {
		t.Fatal(err)
	}
	for p, err := range mirror.New(h, source, sink, mirror.Options{}).Audit(t.Context(), sink, mirror.AuditOptions{}) {
		if err != nil || p.Loc != f.origin.URL+"/a/2" {
			t.Errorf("Audit yields %+v, %v, want the missing file", p, err)
		}
	}
}

// TestPendingLimit checks that the entries of sets that wait for others count toward the limit.
func TestPendingLimit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const sets, entries = 30, 20
	for i := range sets {
		f.publish(fmt.Sprintf("/s%d/first", i), "1")
	}
	f.runOnce()
	var m *Mirrors
	f.start(func(started *Mirrors) {
		m = started
		m.limits.pending = 2 * entries
		for range batchSlots {
			m.batches <- struct{}{}
		}
	})
	for i := range sets {
		var changes []resourcesync.Change
		for k := range entries {
			changes = append(changes, f.set(fmt.Sprintf("/s%d/%d", i, k), "text"))
		}
		if _, err := f.client.Publish(t.Context(), fmt.Sprint("s", i), "", changes); err != nil {
			t.Fatal(err)
		}
	}
	testutil.Until(t, "all sets have changes", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.pending > m.limits.pending {
			t.Errorf("got %d pending entries, want at most %d", m.pending, m.limits.pending)
		}
		for i := range sets {
			if s := m.sets[fmt.Sprint("s", i)]; s == nil || !s.started {
				return false
			}
		}
		return true
	})
	for range batchSlots {
		<-m.batches
	}
	f.awaitMirrored("when there are free slots")
	testutil.Until(t, "nothing is pending", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.pending == 0
	})
}

// TestRetrySlots checks that slow contents of a few sets do not delay the retries of others.
func TestRetrySlots(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const slow = 8
	f.publishMissing("/z/1")
	for i := range slow {
		f.publishMissing(fmt.Sprintf("/s%d/slow", i))
	}
	f.runOnce()
	for i := range slow {
		f.hold(fmt.Sprintf("/s%d/slow", i))
	}
	f.set("/z/1", "missing")
	f.start(nil)
	testutil.Until(t, "the content of another set is fetched", func() bool { return f.mirrored()["/z/1"] != "" })
}

// TestRunHiddenSet checks that missing contents of a deleted set are neither retried, which would create
// its directory again, nor counted.
func TestRunHiddenSet(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.publish("/b/1", "1")
	f.publishMissing("/a/1")
	f.runOnce()
	var m *Mirrors
	stop := f.start(func(started *Mirrors) { m = started })
	testutil.Until(t, "the failure is retried", func() bool { return f.triesOf("/a/1") > 2 })
	f.deleteSet("a")
	testutil.Until(t, "the deletion is known, and no retry runs", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.sets["a"].hidden && !m.sets["a"].retrying
	})
	if m.sets["a"].retryTimer != nil {
		t.Error("the failures of a deleted set will be retried, want no retry")
	}
	stop()
	if got, want := f.runOnce(), (Totals{Sets: 2, Files: 1, Bytes: 1}); got != want {
		t.Errorf("Run() = %+v, want %+v", got, want)
	}
}

// TestRunReappears checks that a set that was deleted while its next attempt was delayed is mirrored
// immediately when it is created again.
func TestRunReappears(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.publish("/a/1", "1")
	f.setAway(true)
	var m *Mirrors
	f.start(func(started *Mirrors) { m, started.limits.minDelay = started, time.Hour })
	testutil.Until(t, "the set fails", func() bool { return f.lastError("a") != nil })
	f.setAway(false)
	f.deleteSet("a")
	testutil.Until(t, "the deletion is known", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.sets["a"].hidden
	})
	f.publish("/a/1", "new")
	f.awaitMirrored("after the set was created again")
}

// TestRunReplacedMirror checks that a mirror that another process has created again, and not finished, is
// not taken for complete.
func TestRunReplacedMirror(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.publish("/a/1", "1")
	f.runOnce()
	if err := os.RemoveAll(filepath.Join(f.dir, "a")); err != nil {
		t.Fatal(err)
	}
	open, err := f.openSet("a", http.DefaultClient, fetch.New(fetch.Options{}))
	if err == nil {
		err = open.Home.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := f.runOnce(); !f.isMirrored() {
		t.Errorf("Run() = %+v, with files %v, want %v", got, f.mirrored(), f.files)
	}
}

// TestRunRemovedDirectory checks that a mirror whose directory is removed while the program runs is
// complete when the mirror is opened again.
func TestRunRemovedDirectory(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.publish("/a/1", "1")
	f.publishMissing("/a/2")
	f.runOnce()
	f.start(func(m *Mirrors) { m.limits.retry = 100 * time.Millisecond })
	testutil.Until(t, "the failure is retried", func() bool { return f.triesOf("/a/2") > 2 })
	testutil.Until(t, "the directory is removed", func() bool { return os.RemoveAll(filepath.Join(f.dir, "a")) == nil })
	f.awaitMirrored("after the directory was removed")
}
