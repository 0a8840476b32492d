package poll_test

import (
	"testing"

	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/internal/source/poll"
	"github.com/rshub/rshub/internal/testutil/conntest"
	"github.com/rshub/rshub/internal/testutil/memorytest"
	"github.com/rshub/rshub/internal/testutil/redistest"
)

// TestOutcomes keeps outcomes in both stores.
func TestOutcomes(t *testing.T) {
	log := memorytest.Open(t)
	conn := conntest.Open(t, redistest.Start(t).Addr, redisconn.Options{})
	for name, o := range map[string]poll.Outcomes{"disk": poll.OnDisk(log.Bucket("sources")), "Redis": poll.InRedis(conn, "p")} {
		want := func(set, text string) {
			t.Helper()
			if got, err := o.Get(t.Context(), set); err != nil || string(got) != text || (got == nil) != (text == "") {
				t.Errorf("%s: of set %s it has %q, %v; want %q", name, set, got, err, text)
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
	}
}
