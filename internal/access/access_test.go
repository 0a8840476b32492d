package access

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/rshub/rshub/feed"
)

func TestRights(t *testing.T) {
	for _, test := range []struct {
		rights                   string
		set                      string
		publish, follow, operate bool
	}{
		{"publish:demo", "demo", true, false, false},
		{"publish:demo", "demo2", false, false, false},
		{"publish:demo", "dem", false, false, false},
		{"follow:demo", "demo", false, true, false},
		{"publish:demo,follow:other", "demo", true, false, false},
		{"publish:demo,follow:other", "other", false, true, false},
		{"publish:demo follow:demo", "demo", true, true, false},
		{"\tpublish:demo , operate", "demo", true, false, true},
		{"publish:*", "demo", true, false, false},
		{"follow:lib.*", "lib.a", false, true, false},
		{"follow:lib.*", "lib.", false, true, false},
		{"follow:lib.*", "lib", false, false, false},
		{"follow:lib.*", "other", false, false, false},
		{"operate", "demo", false, false, true},
		{"publish:a,publish:b", "b", true, false, false},
	} {
		t.Run(test.rights+" "+test.set, func(t *testing.T) {
			r, err := ParseRights(test.rights)
			if err != nil {
				t.Fatal(err)
			}
			if r.Publish(test.set) != test.publish || r.Follow(test.set) != test.follow || r.Operate() != test.operate {
				t.Errorf("got publish %v, follow %v, operate %v", r.Publish(test.set), r.Follow(test.set), r.Operate())
			}
		})
	}
	var none Rights
	if none.Publish("demo") || none.Follow("demo") || none.Operate() {
		t.Error("zero Rights: got a right, want none")
	}
	if all := All(); !all.Publish("demo") || !all.Follow("demo") || !all.Operate() {
		t.Error("All(): got a missing right, want all")
	}
}

func TestParseRightsInvalid(t *testing.T) {
	for _, test := range []struct{ rights, want string }{
		{"", "no right"},
		{" , ", "no right"},
		{"publish", `"publish"`},
		{"publish:", `"publish:"`},
		{"read:demo", `"read:demo"`},
		{"operate:demo", `"operate:demo"`},
		{"publish:Demo", `"publish:Demo"`},
		{"publish:a*b", `"publish:a*b"`},
		{"publish:**", `"publish:**"`},
		{"publish:a/b", `"publish:a/b"`},
		{"publish:demo,x", `"x"`},
	} {
		t.Run(test.rights, func(t *testing.T) {
			r, err := ParseRights(test.rights)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("ParseRights(%q) = %v, want an error with %s", test.rights, err, test.want)
			}
			if r.Publish("demo") || r.Operate() {
				t.Error("ParseRights(): got rights with the error")
			}
		})
	}
}

// A caller without a token gets 401, and a caller without the right gets 403.
func TestMay(t *testing.T) {
	follower, err := ParseRights("follow:demo")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name                     string
		caller                   *Caller // nil for a context without a caller
		publish, follow, operate int     // status; 0 if allowed
	}{
		{"everything", &Caller{Rights: All()}, 0, 0, 0},
		{"no caller", nil, 401, 401, 401},
		{"no name", &Caller{Rights: follower}, 401, 0, 401},
		{"a caller", &Caller{Name: "alice", Rights: follower}, 403, 0, 403},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx := context.Background()
			if test.caller != nil {
				ctx = NewContext(ctx, *test.caller)
			}
			for _, may := range []struct {
				what string
				err  error
				want int
			}{
				{"publish:demo", MayPublish(ctx, "demo"), test.publish},
				{"follow:demo", MayFollow(ctx, "demo"), test.follow},
				{"operate", MayOperate(ctx), test.operate},
			} {
				if may.want == 0 {
					if may.err != nil {
						t.Errorf("%s: %v", may.what, may.err)
					}
					continue
				}
				p, ok := errors.AsType[*feed.Problem](may.err)
				if want := "your token does not have the right " + may.what; ok && p.Status == http.StatusForbidden && p.Detail != want {
					t.Errorf("%s: detail %q, want %q", may.what, p.Detail, want)
				}
				if !ok || p.Status != may.want || !strings.Contains(p.Detail, may.what) {
					t.Errorf("%s: %v, want %d", may.what, may.err, may.want)
					continue
				}
				if got := http.Header(p.Header).Get("WWW-Authenticate"); (got != "") != (may.want == http.StatusUnauthorized) {
					t.Errorf("%s: got the WWW-Authenticate %q", may.what, got)
				}
			}
		})
	}
}

// A private set is hidden like a nonexistent one, except from callers that may publish to it. They
// know that it exists, and get the missing right.
func TestMayFollowPrivate(t *testing.T) {
	anyone, err := ParseRights("follow:*,publish:open")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, rights string
		want         error // nil for a problem with status 403
	}{
		{"publisher of the set", "publish:demo", nil},
		{"publisher of another set", "publish:other", feed.ErrNoSet},
		{"publisher like anyone", "follow:other", feed.ErrNoSet},
	} {
		t.Run(test.name, func(t *testing.T) {
			rights, err := ParseRights(test.rights)
			if err != nil {
				t.Fatal(err)
			}
			rights.anyone = &anyone
			caller := Caller{Name: "alice", Rights: rights, IsPrivate: func(_ context.Context, set string) (bool, error) {
				if set != "demo" {
					return false, feed.ErrNoSet
				}
				return true, nil
			}}
			ctx := NewContext(t.Context(), caller)
			err = MayFollow(ctx, "demo")
			p, _ := errors.AsType[*feed.Problem](err)
			if test.want != nil && !errors.Is(err, test.want) || test.want == nil && (p == nil || p.Status != http.StatusForbidden || !strings.Contains(p.Detail, "follow:demo")) {
				t.Errorf("MayFollow(demo) = %v, want %v", err, test.want)
			}
			if err := MayFollow(ctx, "absent"); !errors.Is(err, feed.ErrNoSet) {
				t.Errorf("MayFollow(absent) = %v, want ErrNoSet", err)
			}
		})
	}
}
