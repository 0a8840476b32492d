package poll

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/internal/testutil"
)

// A poll is canceled when its set gets another source. Otherwise it would publish
// resources that the set does not have, and hold a quick slot for hours.
func TestPollOfReplacedSourceIsCanceled(t *testing.T) {
	for name, change := range map[string]func(*world){
		"another source": func(w *world) { w.describe("a", "http://b.example/", time.Hour) },
		"no source":      func(w *world) { w.describe("a", "", 0) },
		"recreated set": func(w *world) {
			w.set(func() { st := w.sets["a"]; st.Begin = 2; w.sets["a"] = st })
		},
		"deleted set": func(w *world) { w.set(func() { delete(w.sets, "a") }) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, canceled := newWorld(), make(chan struct{})
				w.describe("a", "http://a.example/", time.Hour)
				p := New(w, DiskOutcomes(&testutil.Map{}), func(ctx context.Context, _ string, out *Outcome) error {
					if out.Source == "http://a.example/" && out.Begin == 1 {
						<-ctx.Done()
						close(canceled)
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
				case <-canceled:
				default:
					t.Error("poll was not canceled")
				}
				stop()
				<-done
			})
		})
	}
}
