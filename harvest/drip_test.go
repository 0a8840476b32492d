package harvest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/memorytest"
	"github.com/rshub/rshub/internal/pipenet"
)

// drips answers with a few bytes each second, for ever.
func drips(piece string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for {
			if _, err := w.Write([]byte(piece)); err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
			select {
			case <-time.After(time.Second):
			case <-r.Context().Done():
				return
			}
		}
	}
}

// Sources that drip delay the fetch of another list by two seconds at most, also those
// that send just as much as they must, and many lists of one machine.
func TestFetchBehindDrips(t *testing.T) {
	for name, test := range map[string]struct {
		lists int
		host  func(i int) string
		piece string
		most  time.Duration
	}{
		"four":             {4, func(i int) string { return fmt.Sprintf("slow%d.example", i) }, " ", quickTime},
		"four at the pace": {4, func(i int) string { return fmt.Sprintf("slow%d.example", i) }, strings.Repeat(" ", paceBytes/9), quickTime},
		"of one machine":   {40, func(i int) string { return fmt.Sprintf("slow%d.drip.example", i) }, " ", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var network pipenet.Network
				defer network.Close()
				f := newFetchingBy(t, memorytest.Open(t), &http.Client{Transport: network.Transport()}, nil)
				describe := func(set, host string) {
					if err := f.hub.Describe(t.Context(), set, feed.Description{ChangeList: "http://" + host + "/"}); err != nil {
						t.Fatal(err)
					}
					if err := f.Ping(t.Context(), set); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				for i := range test.lists {
					network.Serve(test.host(i)+":80", drips(test.piece))
					describe(fmt.Sprint("slow", i), test.host(i))
				}
				network.Serve("good.example:80", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					_, _ = w.Write([]byte(strings.Replace(listOf("", "a created 1"), "2026", "1999", 1))) // fake time begins in 2000
				}))
				begin := time.Now()
				describe("good", "good.example")
				for f.took.Load() == 0 && time.Since(begin) < 10*time.Minute {
					time.Sleep(100 * time.Millisecond)
					synctest.Wait()
				}
				if waited := time.Since(begin); waited > test.most+200*time.Millisecond {
					t.Errorf("the fetch waited for %v", waited)
				}
			})
		})
	}
}

func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(3, 2)
		in := make(chan string, 10)
		enter := func(place string) {
			go func() {
				if r.enter(t.Context(), place) {
					in <- place
				}
			}()
			synctest.Wait()
		}
		got := func() (all string) {
			synctest.Wait()
			for len(in) > 0 {
				all += <-in
			}
			return all
		}
		for _, place := range []string{"a", "a", "a", "b", "b"} {
			enter(place)
		}
		if all := got(); all != "aab" {
			t.Errorf("in are %s", all)
		}
		r.leave("b")
		if all := got(); all != "b" {
			t.Errorf("then comes %s", all)
		}
		r.leave("a")
		if all := got(); all != "a" {
			t.Errorf("then comes %s", all)
		}
		r.leave("a")
		r.leave("a")
		r.leave("b")
		if r.taken != 0 || len(r.at) != 0 || len(r.waiting) != 0 {
			t.Errorf("left are %d, %v, %v", r.taken, r.at, r.waiting)
		}
	})
}
