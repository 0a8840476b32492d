package server

import (
	"testing"

	"github.com/rshub/rshub/internal/activity"
	"github.com/rshub/rshub/internal/sets"
	"github.com/rshub/rshub/internal/testutil"
)

// Details say what the hub knows of a set besides its log.
func TestDetails(t *testing.T) {
	t.Parallel()
	h := start(t, Config{})
	h.Publish("demo")
	get := func(path string) sets.View {
		var v struct {
			sets.View
			Sets []sets.View
		}
		if h.reads(&v, path); len(v.Sets) > 0 {
			return v.Sets[0]
		}
		return v.View
	}
	if v := get("/sets"); v.Followers != nil || v.Resources != nil {
		t.Errorf("nobody asked for details: %+v", v)
	}
	for _, path := range []string{"/sets?details=1", "/sets/demo?details=1"} {
		testutil.Until(t, path+" has details", func() bool {
			v := get(path)
			return v.Resources != nil && *v.Resources == 1 && v.Followers != nil && *v.Followers == 0
		})
	}
	if v := get("/sets?details=1&prefix=x"); v.Set != "" {
		t.Errorf("a set that does not begin with x is there: %+v", v)
	}
	// An hour of what happens is shown, in one set and in all of them.
	for _, path := range []string{"/activity", "/sets/demo/activity"} {
		var hour activity.HourView
		if h.reads(&hour, path); len(hour.Changes) == 0 || len(hour.Changes) != len(hour.Deliveries) || hour.Step != 10 {
			t.Errorf("%s is %+v", path, hour)
		}
	}
}
