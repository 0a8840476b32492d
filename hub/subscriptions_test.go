package hub

import (
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go"
)

func TestWantsWildcard(t *testing.T) {
	for _, tt := range []struct {
		name         string
		sets         int
		active, want bool
	}{
		{"no set", 0, false, false},
		{"below the upper number", wildcardSets - 1, false, false},
		{"at the upper number", wildcardSets, false, true},
		{"below the upper number again", wildcardSets - 1, true, true},
		{"at the lower number", singleSets, true, true},
		{"below the lower number", singleSets - 1, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := wantsWildcard(tt.sets, tt.active); got != tt.want {
				t.Errorf("wantsWildcard(%d, %v) = %v, want %v", tt.sets, tt.active, got, tt.want)
			}
		})
	}
}

// A message is delivered to the receiver of the set in its subject. Others are dropped without
// being counted.
func TestDeliver(t *testing.T) {
	count := 0
	s := newSubscriptions("my.hub", slog.New(slog.DiscardHandler), func() { count++ })
	got := map[string]string{}
	for _, set := range []string{"a", "a.b", "a.b.c-d_e", "changes"} {
		s.add(set, func(message []byte) { got[set] += string(message) })
	}
	s.remove("a")
	for _, tt := range []struct{ subject, want string }{
		{"my.hub.changes.a~b", "a.b"},
		{"my.hub.changes.a~b~c-d_e", "a.b.c-d_e"},
		{"my.hub.changes.changes", "changes"},
		{"my.hub.changes.a", ""}, // removed
		{"my.hub.changes.c", ""},
		{"my.hub.changes.", ""},
		{"my.hub.changes.~", ""},
	} {
		t.Run(tt.subject, func(t *testing.T) {
			clear(got)
			count = 0
			s.deliver(&nats.Msg{Subject: tt.subject, Data: []byte("x")})
			switch {
			case tt.want == "" && (len(got) > 0 || count > 0):
				t.Errorf("got messages %v and count %d, want none", got, count)
			case tt.want != "" && (got[tt.want] != "x" || len(got) != 1 || count != 1):
				t.Errorf("got messages %v and count %d, want one for %s", got, count, tt.want)
			case tt.want != "" && s.subject(tt.want) != tt.subject:
				t.Errorf("subject(%s) = %s, want %s", tt.want, s.subject(tt.want), tt.subject)
			}
		})
	}
}
