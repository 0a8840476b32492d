package redislog

import (
	"maps"
	"testing"
)

func TestExchangeRequests(t *testing.T) {
	t.Parallel()
	p := prefix()
	one, other := start(t, shared.url(), Options{Prefix: p}), start(t, shared.url(), Options{Prefix: p})
	for _, test := range []struct {
		name string
		hub  *Log
		done []string
		add  map[string]bool
		want map[string]bool
	}{
		{"none", one, nil, nil, map[string]bool{}},
		{"add", one, nil, map[string]bool{"a": false, "b": true}, map[string]bool{"a": false, "b": true}},
		{"damage found by another hub", other, nil, map[string]bool{"a": true}, map[string]bool{"a": true, "b": true}},
		{"damage is not forgotten", one, nil, map[string]bool{"a": false}, map[string]bool{"a": true, "b": true}},
		{"done", other, []string{"a", "c"}, map[string]bool{"d": false}, map[string]bool{"b": true, "d": false}},
		{"all done", one, []string{"b", "d"}, nil, map[string]bool{}},
	} {
		got, err := test.hub.ExchangeRequests(t.Context(), test.done, test.add)
		if err != nil || !maps.Equal(got, test.want) {
			t.Errorf("%s: ExchangeRequests() = %v, %v, want %v", test.name, got, err, test.want)
		}
	}
}
