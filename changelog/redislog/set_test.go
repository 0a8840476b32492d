package redislog

import (
	"fmt"
	"testing"

	"github.com/rshub/rshub/feed"
)

func TestManySets(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make prove PART=stores")
	}
	t.Parallel()
	l := start(t, shared.url(), Options{})
	const n = 2500 // several pipelines
	for i := range n {
		ok(t, l.Make(t.Context(), fmt.Sprintf("set-%04d", i), feed.Description{}, 10))
	}
	sets, err := l.Sets(t.Context())
	ok(t, err)
	if len(sets) != n || sets[0].Set != "set-0000" || sets[n-1].Set != fmt.Sprintf("set-%04d", n-1) {
		t.Errorf("%d sets", len(sets))
	}
}
