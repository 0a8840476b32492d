package server

import (
	"testing"

	"github.com/rshub/rshub/internal/activity"
	"github.com/rshub/rshub/internal/sets"
	"github.com/rshub/rshub/internal/testutil"
)

// Details of a set are returned only on request.
func TestSetDetails(t *testing.T) {
	t.Parallel()
	h := start(t, Config{})
	h.Publish("demo")
	get := func(path string) sets.View {
		var v struct {
			sets.View
			Sets []sets.View
		}
		if h.getJSON(&v, path); len(v.Sets) > 0 {
			return v.Sets[0]
		}
		return v.View
	}
	if v := get("/sets"); v.Followers != nil || v.Resources != nil {
		t.Errorf("GET /sets = %+v, want no details", v)
	}
	for _, path := range []string{"/sets?details=1", "/sets/demo?details=1"} {
		testutil.Until(t, path+" returns details", func() bool {
			v := get(path)
			return v.Resources != nil && *v.Resources == 1 && v.Followers != nil && *v.Followers == 0
		})
	}
	if v := get("/sets?details=1&prefix=x"); v.Set != "" {
		t.Errorf("GET /sets?prefix=x = %+v, want no sets", v)
	}
	// The activity of the last hour is available for one set and for all.
	for _, path := range []string{"/activity", "/sets/demo/activity"} {
		var hour activity.HourView
		if h.getJSON(&hour, path); len(hour.Changes) == 0 || len(hour.Changes) != len(hour.Deliveries) || hour.Step != 10 {
			t.Errorf("GET %s = %+v, want as many steps of changes as of deliveries, of 10 seconds", path, hour)
		}
	}
}
