package redislog

import (
	"strings"
	"testing"

	"github.com/rshub/rshub/feed"
)

// TestPrefixes checks that memories with different prefixes share no key, even if one prefix starts
// with the other.
func TestPrefixes(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	var logs []*Log
	for _, p := range []string{"a", "a:b", "a:memory", "a:sets", "A"} {
		l := startSet(t, s, 10, Options{Prefix: p})
		add(t, l, p, len(logs)+1)
		logs = append(logs, l)
	}
	check := func(logs []*Log) {
		t.Helper()
		ids := make(map[string]bool)
		for _, l := range logs {
			ids[l.ID()] = true
			if got := all(t, l, feed.Cursor{}); !strings.HasSuffix(got[0].Change.Loc, "/"+l.opts.Prefix+"/0") {
				t.Errorf("prefix %s: got %v", l.opts.Prefix, got)
			}
			if sets, err := l.Sets(t.Context()); err != nil || len(sets) != 1 {
				t.Errorf("prefix %s: Sets() = %v, %v, want one set", l.opts.Prefix, sets, err)
			}
		}
		if len(ids) != len(logs) {
			t.Errorf("got identities %v", ids)
		}
	}
	check(logs)
	ok(t, logs[0].Delete(t.Context(), "set"))
	check(logs[1:])
	for _, key := range s.admin(t).Keys(t.Context(), "*").Val() {
		if !strings.HasPrefix(key, "a:") && !strings.HasPrefix(key, "A:") {
			t.Errorf("got key %q", key)
		}
	}
	for _, bad := range []string{"a{b", "}", "a b", "ü", strings.Repeat("x", 65)} {
		if _, err := openAt(t, s.url(), Options{Prefix: bad}); err == nil {
			t.Errorf("checkPrefix(%q) = nil", bad)
		}
	}
}

func TestFormat(t *testing.T) {
	l := start(t, shared.url(), Options{})
	ok(t, shared.admin(t).HSet(t.Context(), l.memoryKey(), "format", "2").Err())
	if _, err := openAt(t, shared.url(), Options{Prefix: l.opts.Prefix}); err == nil || !strings.Contains(err.Error(), `format "2"`) {
		t.Errorf("error = %v, want it to name the format", err)
	}
}
