package poll_test

import (
	"testing"

	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/internal/source/poll"
	"github.com/rshub/rshub/internal/testutil/conntest"
	"github.com/rshub/rshub/internal/testutil/memorytest"
	"github.com/rshub/rshub/internal/testutil/redistest"
)

// Both stores return what was put.
func TestOutcomes(t *testing.T) {
	log := memorytest.Open(t)
	conn := conntest.Open(t, redistest.Start(t).Addr, redisconn.Options{})
	for name, o := range map[string]poll.Outcomes{"disk": poll.DiskOutcomes(log.Bucket("sources")), "Redis": poll.RedisOutcomes(conn, "p")} {
		t.Run(name, func(t *testing.T) {
			want := func(set, text string) {
				t.Helper()
				if got, err := o.Get(t.Context(), set); err != nil || string(got) != text || (got == nil) != (text == "") {
					t.Errorf("Get(%q) = %q, %v, want %q", set, got, err, text)
				}
			}
			want("a", "")
			for _, text := range []string{"1", "22", "1"} {
				if err := o.Put(t.Context(), "a", []byte(text)); err != nil {
					t.Fatal(err)
				}
				want("a", text)
				want("b", "")
			}
			for range 2 {
				if err := o.Put(t.Context(), "a", nil); err != nil {
					t.Fatal(err)
				}
				want("a", "")
			}
		})
	}
}
