package hubmirror

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/mirror/home"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/servertest"
)

// TestRunOnce checks that Run with Once mirrors all sets, and that the next one sends requests only
// for sets that have changed.
func TestRunOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for i := range 20 {
		f.publish(fmt.Sprintf("/s%d/a", i), "text")
	}
	want := Totals{Sets: 20, Files: 20, Bytes: 80}
	if got := f.runOnce(); got != want || !f.isMirrored() {
		t.Errorf("Run() = %+v, want %+v; files %v", got, want, f.mirrored())
	}
	f.takeRequests()
	f.publish("/s7/b", "more")
	want.Files, want.Bytes = 21, 84
	if got := f.runOnce(); got != want || !f.isMirrored() {
		t.Errorf("Run() after a change = %+v, want %+v; files %v", got, want, f.mirrored())
	}
	others := slices.DeleteFunc(f.takeRequests(), func(path string) bool {
		return path == "/changes" || strings.HasPrefix(path, "/sets/s7/") || !strings.HasPrefix(path, "/sets/")
	})
	if len(others) > 0 {
		t.Errorf("got requests for %q, want only for set s7", others)
	}
}

// TestRunLive checks that the changes of a mirror that has caught up arrive without a request.
func TestRunLive(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.publish("/a/1", "1")
	var m *Mirrors
	f.start(func(started *Mirrors) { m = started })
	f.awaitMirrored("at the start")
	f.publish("/new/1", "1")
	f.awaitMirrored("with a new set")
	testutil.Until(t, "no mirror catches up", func() bool { return len(m.catchUps) == 0 })
	f.takeRequests()
	for i := range 10 {
		f.publish("/a/1", fmt.Sprint("a", i))
		f.publish("/new/2", fmt.Sprint("new", i))
		f.awaitMirrored("after a change")
	}
	f.publish("/a/1", "")
	f.awaitMirrored("after a deletion")
	if got := f.takeRequests(); len(got) > 0 {
		t.Errorf("got requests %q, want none", got)
	}
	testutil.Until(t, "the mirrors are closed", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return !m.sets["a"].running && !m.sets["new"].running
	})
	for name, s := range m.sets {
		if s.opening.open != nil || s.opening.stop != nil {
			t.Errorf("set %s retains its closed mirror", name)
		}
	}
}

// TestRunRandom checks that the mirrors have the files of the origin after random changes, deletions
// of sets and restarts, even if few pending changes fit.
func TestRunRandom(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	random := testutil.Rand(t)
	rounds := 8
	if testing.Short() {
		rounds = 5
	}
	stop := f.start(nil)
	for round := range rounds {
		for range random.IntN(40) {
			text := fmt.Sprint("text ", random.IntN(1000))
			if random.IntN(4) == 0 {
				text = ""
			}
			f.publish(fmt.Sprintf("/s%d/%d", random.IntN(4), random.IntN(10)), text)
		}
		switch random.IntN(4) {
		case 0:
			stop()
			f.publish("/s1/a", fmt.Sprint(round))
			stop = f.start(func(m *Mirrors) { m.limits.pending = random.IntN(20) })
		case 1:
			stop()
			f.runOnce()
			if !f.isMirrored() {
				t.Fatalf("round %d, after Run with Once: got files %v, want %v", round, f.mirrored(), f.files)
			}
			stop = f.start(nil)
		case 2:
			f.publish("/s2/a", "before the deletion")
			f.awaitMirrored("before a deletion of a set")
			f.deleteSet("s2")
			for name := range f.mirrored() { // the files stay until the new set is complete
				if strings.HasPrefix(name, "/s2/") {
					f.publish(name, fmt.Sprint("new ", round))
				}
			}
		}
		f.awaitMirrored(fmt.Sprint("in round ", round))
	}
	stop()
	if totals := f.runOnce(); totals.Failed > 0 || totals.Missing > 0 || totals.Files != int64(len(f.files)) {
		t.Errorf("Run() = %+v, want %d files, and no failures", totals, len(f.files))
	}
}

// TestRunFailures checks that missing contents are fetched later, and after a restart.
func TestRunFailures(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.publish("/a/1", "1")
	f.publish("/b/1", "1")
	missing := f.set("/a/2", "2")
	f.set("/a/2", "")
	f.publishChange("a", missing)
	if got, want := f.runOnce(), (Totals{Sets: 2, Files: 2, Bytes: 2, Missing: 1}); got != want {
		t.Errorf("Run() = %+v, want %+v", got, want)
	}
	f.set("/a/2", "2")
	if got, want := f.runOnce(), (Totals{Sets: 2, Files: 3, Bytes: 3}); got != want {
		t.Errorf("Run() after the failure = %+v, want %+v", got, want)
	}

	missing = f.set("/a/3", "3")
	f.set("/a/3", "")
	f.publishChange("a", missing)
	if got, want := f.runOnce(), (Totals{Sets: 2, Files: 3, Bytes: 3, Missing: 1}); got != want {
		t.Errorf("Run() = %+v, want %+v", got, want)
	}
	stop := f.start(nil)
	missing = f.set("/b/2", "2")
	f.set("/b/2", "")
	f.publishChange("b", missing)
	testutil.Until(t, "the failures are retried", func() bool { return f.triesOf("/a/3") > 3 && f.triesOf("/b/2") > 2 })
	f.set("/a/3", "3")
	f.set("/b/2", "2")
	f.awaitMirrored("after the failures")
	stop()
	if got, want := f.runOnce(), (Totals{Sets: 2, Files: 5, Bytes: 5}); got != want {
		t.Errorf("Run() at the end = %+v, want %+v", got, want)
	}
}

// TestRunSetErrors checks that the failure of a set leaves others alone, and that the set is retried.
func TestRunSetErrors(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.publish("/good/1", "1")
	f.runOnce()
	f.publish("/foreign/1", "1")
	f.publish("/used/1", "1")
	foreign := filepath.Join(f.dir, "foreign", "1")
	if err := os.MkdirAll(filepath.Dir(foreign), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(foreign, []byte("1"), 0o666); err != nil {
		t.Fatal(err)
	}
	used, err := home.Open(filepath.Join(f.dir, "used"), false)
	if err != nil {
		t.Fatal(err)
	}
	f.start(nil)
	f.publish("/good/2", "2")
	testutil.Until(t, "both sets fail", func() bool {
		return errors.Is(f.lastError("foreign"), home.ErrForeign) && errors.Is(f.lastError("used"), home.ErrInUse)
	})
	testutil.Until(t, "the other set is mirrored", func() bool { return f.mirrored()["/good/2"] == "2" })
	if err := errors.Join(used.Close(), os.Remove(foreign)); err != nil {
		t.Fatal(err)
	}
	f.awaitMirrored("after the failures")
	if err := f.lastError("good"); err != nil {
		t.Errorf("got error %v of the other set, want none", err)
	}
}

// TestRunSetErrorsOnce checks that Run with Once counts sets that fail, and tries them once.
func TestRunSetErrorsOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.publish("/good/1", "1")
	f.runOnce()
	f.publish("/foreign/1", "1")
	foreign := filepath.Join(f.dir, "foreign", "other")
	if err := errors.Join(os.MkdirAll(filepath.Dir(foreign), 0o777), os.WriteFile(foreign, []byte("1"), 0o666)); err != nil {
		t.Fatal(err)
	}
	got, want := f.runOnce(), Totals{Sets: 2, Failed: 1, Files: 1, Bytes: 1}
	if err := f.lastError("foreign"); got != want || !errors.Is(err, home.ErrForeign) {
		t.Errorf("Run() = %+v, want %+v; error %v, want %v", got, want, err, home.ErrForeign)
	}
}

// TestRunAway checks that sets that failed because the hub was unavailable are retried when the
// connection is established again, and not only after their delay.
func TestRunAway(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.publish("/a/1", "1")
	f.publish("/b/1", "1")
	f.setAway(true)
	f.start(func(m *Mirrors) { m.limits.minDelay = time.Hour })
	testutil.Until(t, "both sets fail", func() bool { return f.lastError("a") != nil && f.lastError("b") != nil })
	f.setAway(false)
	f.cut()
	f.awaitMirrored("after the hub is available again")
}

// TestRunDeletedSet checks that the files of a deleted set stay, and that a set of the same name is
// mirrored when it is created.
func TestRunDeletedSet(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.publish("/a/1", "1")
	f.publish("/b/1", "1")
	stop := f.start(nil)
	f.awaitMirrored("at the start")
	before := f.mirrored()
	f.deleteSet("a")
	testutil.Until(t, "the deletion is logged", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return slices.ContainsFunc(f.logged, func(line string) bool { return strings.HasPrefix(line, "set a was deleted") })
	})
	f.publish("/b/2", "2")
	before["/b/2"] = "2"
	testutil.Until(t, "the other set is mirrored", func() bool { return maps.Equal(f.mirrored(), before) })
	stop()
	if got, want := f.runOnce(), (Totals{Sets: 2, Files: 3, Bytes: 3}); got != want {
		t.Errorf("Run() without the set = %+v, want %+v", got, want)
	}
	f.start(nil)
	f.publish("/a/1", "new")
	f.awaitMirrored("after the set was created again")
}

// TestRunLeftovers checks that a resource that a new set does not name is removed when the hub knows all
// resources, although nothing changes: after a while, or by the next Run.
func TestRunLeftovers(t *testing.T) {
	t.Parallel()
	for _, once := range []bool{false, true} {
		t.Run(fmt.Sprint("once ", once), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.publish("/a/1", "1")
			f.publish("/a/2", "2")
			f.runOnce()
			f.deleteSet("a")
			f.publish("/a/1", "new")
			run := func() { f.runOnce() }
			if !once {
				f.start(func(m *Mirrors) { m.limits.check = 20 * time.Millisecond })
				run = func() {
					testutil.Until(t, "the new file is mirrored", func() bool { return f.mirrored()["/a/1"] == "new" })
				}
			}
			run()
			if got, want := f.mirrored(), map[string]string{"/a/1": "new", "/a/2": "2"}; !maps.Equal(got, want) {
				t.Errorf("got files %v while the hub may not know all resources, want %v", got, want)
			}
			servertest.Do(t, http.MethodPut, f.hub+"/sets/a", `{"complete":true}`)
			run()
			f.awaitMirrored("when the hub knows all resources")
		})
	}
}

// TestRunRefused checks that Run ends if the URL does not name a hub.
func TestRunRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.hub = f.origin.URL
	m, closed := f.mirrors(false)
	defer closed()
	if _, err := m.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("Run() = %v, want status 404", err)
	}
}

// TestRunPolls checks that a set without an inventory at the hub is polled: its own list first, then the
// changes.
func TestRunPolls(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	listed := f.set("/a/1", "1").Loc
	f.set("/list.xml", `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">`+
		`<rs:md capability="resourcelist"/><url><loc>`+listed+`</loc></url></urlset>`)
	body := fmt.Sprintf(`{"inventory":"off","resourcelist":%q}`, f.origin.URL+"/list.xml")
	if resp, text := servertest.Do(t, http.MethodPut, f.hub+"/sets/a", body); resp.StatusCode >= 300 {
		t.Fatalf("PUT of the set: %d %s", resp.StatusCode, text)
	}
	f.start(func(m *Mirrors) { m.opts.PollInterval = 50 * time.Millisecond })
	for path, text := range map[string]string{"/a/1": "1", "/a/2": "2"} {
		if path != "/a/1" {
			f.publish(path, text)
		}
		testutil.Until(t, "the mirror has "+path, func() bool { return f.mirrored()[path] == text })
	}
}
