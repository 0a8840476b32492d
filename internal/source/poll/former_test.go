package poll

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/internal/testutil"
)

// A look ends when its source is not that of the set any more. Otherwise it would publish what
// the set does not have, and keep a place among the quick looks for hours.
func TestLookOfAFormerSource(t *testing.T) {
	for name, change := range map[string]func(*world){
		"another source": func(w *world) { w.describe("a", "http://b.example/", time.Hour) },
		"no source":      func(w *world) { w.describe("a", "", 0) },
		"set made anew": func(w *world) {
			w.set(func() { st := w.sets["a"]; st.Begin = 2; w.sets["a"] = st })
		},
		"set deleted": func(w *world) { w.set(func() { delete(w.sets, "a") }) },
	} {
		synctest.Test(t, func(t *testing.T) {
			w, ended := newWorld(), make(chan struct{})
			w.describe("a", "http://a.example/", time.Hour)
			p := New(w, OnDisk(&testutil.Map{}), func(ctx context.Context, _ string, out *Outcome) error {
				if out.Source == "http://a.example/" && out.Begin == 1 {
					<-ctx.Done()
					close(ended)
				}
				return ctx.Err()
			}, Options{})
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { p.Run(ctx); close(done) }()
			time.Sleep(time.Minute)
			change(w)
			time.Sleep(2 * scanEvery)
			synctest.Wait()
			select {
			case <-ended:
			default:
				t.Errorf("%s: the look goes on", name)
			}
			stop()
			<-done
		})
	}
}
