package mirror

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestKilled kills rsmirror repeatedly while changes arrive and the origin fails.
func TestKilled(t *testing.T) {
	t.Parallel()
	h, o, dir := hubtest.StartHub(t), newOrigin(t), t.TempDir()
	r := hubtest.Random(t)
	var lines [][]byte
	name := func() string { return fmt.Sprintf("/d%d/f%d", r.IntN(9), r.IntN(99)) }
	for range 300 {
		lines = append(lines, o.set(name(), random(r, r.IntN(20_000)), nil))
	}
	publish(t, h, lines...)
	complete(t, h)
	for range 6 {
		p := hubtest.Start(t, nil, nil, hubtest.Rsmirror, "-strip", o.URL, "-max-delete", "all", "-q", h.Topic("demo"), dir)
		requests := func() (n int) {
			o.mu.Lock()
			defer o.mu.Unlock()
			for _, c := range o.requests {
				n += c
			}
			return n
		}
		before, least := requests(), 1+r.IntN(40)
		lines = nil
		for range 100 {
			switch n, f := name(), fault(nil); r.IntN(5) {
			case 0:
				if o.has(n) {
					lines = append(lines, o.set(n, nil, nil))
				}
			case 1:
				f = []fault{truncate, status(500), first(1, reply("?")), first(1, status(429, "Retry-After", "1"))}[r.IntN(4)]
				fallthrough
			default:
				lines = append(lines, o.set(n, random(r, 1+r.IntN(50_000)), f))
			}
		}
		publish(t, h, lines...)
		hubtest.Until(t, "the origin gets requests", func() error {
			if n := requests() - before; n < least && !p.Exited() {
				return fmt.Errorf("got %d", n)
			}
			return nil
		})
		p.Kill()
		p.Wait()
	}
	o.mu.Lock()
	clear(o.faults)
	o.mu.Unlock()
	rsmirror(t, 0, "-once", "-strip", o.URL, "-max-delete", "all", h.Topic("demo"), dir)
	if err := o.same(dir); err != nil {
		t.Error(err)
	}
	rsmirror(t, 0, "audit", dir)
}

func (o *origin) has(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.files[name] != nil
}

// auditRunning audits a running mirror: it finds damage, but not concurrent changes.
func auditRunning(t *testing.T, h *hubtest.Hub, o *origin, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "f9"), []byte("damaged!!!"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "stranger"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var changing sync.WaitGroup
	changing.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			name, content := fmt.Sprintf("/hot%d", n%20), fmt.Appendf(nil, "%d", n)
			if n%7 == 6 {
				content = nil
			}
			publish(t, h, o.set(name, content, nil))
		}
	})
	for _, quick := range []string{"-quick=false", "-quick"} {
		stdout, _ := rsmirror(t, 1, "audit", quick, dir)
		if got := slices.Sorted(slices.Values(problems(t, o, stdout))); !slices.Equal(got, []string{"damaged file /f9", "extra file stranger"}) {
			t.Errorf("problems of a running mirror = %q, want the damaged and the extra file", got)
		}
	}
	cancel()
	changing.Wait()
	if _, stderr := rsmirror(t, 3, "audit", "-repair", dir); !strings.Contains(stderr, "stop the other rsmirror") {
		t.Errorf("repair of a running mirror: got %q, want an error about the other rsmirror", stderr)
	}
	publish(t, h, o.set("/f9", []byte("right again"), nil))
	if err := os.Remove(filepath.Join(dir, "stranger")); err != nil {
		t.Fatal(err)
	}
	hubtest.Until(t, "the mirror is repaired", func() error { return o.same(dir) })
	rsmirror(t, 0, "audit", dir)
}

// TestFollow follows a hub by push, finds planted damage, and repairs it.
func TestFollow(t *testing.T) {
	t.Parallel()
	h, o, dir := hubtest.StartHub(t), newOrigin(t), t.TempDir()
	fill(t, h, o, 30)
	p := hubtest.Start(t, nil, nil, hubtest.Rsmirror, "-max-delete", "all", "-strip", o.URL, h.Topic("demo"), dir)
	hubtest.Until(t, "the mirror has all files", func() error { return o.same(dir) })
	publish(t, h, o.set("/f1", []byte("newer"), nil), o.set("/f2", nil, nil), o.set("/new", []byte("new"), first(2, status(500))))
	hubtest.Until(t, "the mirror has the changes", func() error { return o.same(dir) })
	auditRunning(t, h, o, dir)
	p.Signal(syscall.SIGTERM)
	if code := p.Wait(); code != 0 {
		t.Errorf("exit status = %d, want 0: %s", code, p.Stderr)
	}

	for name, content := range map[string]string{"f3": "damaged", "f4": "longer than it was", "foreign": "x"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "f5")); err != nil {
		t.Fatal(err)
	}
	found := []string{"damaged file /f3", "damaged file /f4", "extra file foreign", "missing file /f5"}
	stdout, _ := rsmirror(t, 1, "audit", dir)
	if got := slices.Sorted(slices.Values(problems(t, o, stdout))); !slices.Equal(got, found) {
		t.Errorf("problems = %q, want %q", got, found)
	}
	stdout, _ = rsmirror(t, 1, "audit", "-repair", "-quick", dir)
	repaired := []string{"damaged file /f3 repaired", "damaged file /f4 repaired", "extra file foreign", "missing file /f5 repaired"}
	if got := slices.Sorted(slices.Values(problems(t, o, stdout))); !slices.Equal(got, repaired) {
		t.Errorf("problems with -repair = %q, want %q", got, repaired)
	}
	rsmirror(t, 0, "audit", "-repair", "-remove-extra", dir)
	if err := o.same(dir); err != nil {
		t.Error(err)
	}
}
