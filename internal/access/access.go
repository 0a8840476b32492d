// Package access decides what a caller may do: publish to a set, follow it, or operate the hub. A
// bearer token identifies the caller, and the rights of the caller are in the context of the
// request.
//
// Tokens come from a file (this package) or an identity provider (package jwt); package ticket lets
// browsers follow. The package is independent of the store. Rate limits are in package
// internal/limit.
package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/problem"
)

// Rights is the set of actions that a caller may perform. The zero Rights allow nothing.
type Rights struct {
	publish, follow []string // names of sets, or prefixes of names followed by "*"
	operate         bool
	anyone          *Rights // additional rights, which callers without a token have, or nil
}

// All returns the rights to everything.
func All() Rights {
	return Rights{publish: []string{"*"}, follow: []string{"*"}, operate: true}
}

// ParseRights parses a list of "publish:SET", "follow:SET" and "operate", separated by commas or
// spaces. SET is the name of a set, or a prefix of names followed by "*"; "*" alone means every
// set. The list must not be empty.
func ParseRights(s string) (Rights, error) {
	var r Rights
	for right := range strings.FieldsFuncSeq(s, func(c rune) bool { return c == ',' || c == ' ' || c == '\t' }) {
		action, set, ok := strings.Cut(right, ":")
		name, star := strings.CutSuffix(set, "*")
		switch {
		case right == "operate":
			r.operate = true
			continue
		case action != "publish" && action != "follow" || !ok:
			return Rights{}, fmt.Errorf("invalid right %s; want publish:SET, follow:SET or operate", quote(right))
		case !star || name != "":
			if feed.CheckSet(name) != nil {
				return Rights{}, fmt.Errorf("invalid right %s; want the name of a set, or a prefix of names and *, as SET", quote(right))
			}
		}
		if action == "publish" {
			r.publish = append(r.publish, set)
		} else {
			r.follow = append(r.follow, set)
		}
	}
	if !r.operate && r.publish == nil && r.follow == nil {
		return Rights{}, errors.New("no right; want publish:SET, follow:SET or operate")
	}
	return r, nil
}

// Publish reports whether the rights allow publishing to a set.
func (r Rights) Publish(set string) bool {
	return matchesAny(r.publish, set) || r.anyone != nil && matchesAny(r.anyone.publish, set)
}

// Follow reports whether the rights allow following a set and reading its
// documents.
func (r Rights) Follow(set string) bool {
	return matchesAny(r.follow, set) || r.anyone != nil && matchesAny(r.anyone.follow, set)
}

// FollowPrivate reports whether the rights allow following a private set. The rights of callers
// without a token do not apply to private sets.
func (r Rights) FollowPrivate(set string) bool { return matchesAny(r.follow, set) }

// MaySee reports whether the rights allow following a set, considering whether it is private.
func (r Rights) MaySee(st feed.State) bool {
	return r.FollowPrivate(st.Set) || !st.Private && r.Follow(st.Set)
}

// None reports whether the rights allow neither publishing to nor following any set.
func (r Rights) None() bool {
	return len(r.follow)+len(r.publish) == 0 && (r.anyone == nil || r.anyone.None())
}

// Operate reports whether the rights allow operating the hub.
func (r Rights) Operate() bool { return r.operate || r.anyone != nil && r.anyone.operate }

// matchesAny reports whether the name of a set matches one of the patterns.
func matchesAny(patterns []string, set string) bool {
	for _, p := range patterns {
		if prefix, ok := strings.CutSuffix(p, "*"); ok && strings.HasPrefix(set, prefix) || p == set {
			return true
		}
	}
	return false
}

// Immutable returns the Cache-Control header of a response to r that never changes. A response that
// requires rights must not be stored in shared caches.
func Immutable(r *http.Request) string {
	if r.Header.Get("Authorization") != "" || FromContext(r.Context()).Name != "" {
		return "private, max-age=31536000, immutable"
	}
	return "public, max-age=31536000, immutable"
}

type contextKey struct{}

// NewContext returns ctx with the caller of a request.
func NewContext(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, contextKey{}, c)
}

// FromContext returns the caller of a request. If ctx has none, the caller has no name and no
// rights.
func FromContext(ctx context.Context) Caller {
	c, _ := ctx.Value(contextKey{}).(Caller)
	return c
}

// MayPublish returns nil if the caller in ctx may publish to a set. Otherwise it returns the
// problem for the response: 401 if the caller has no token, or 403 if the token does not have the
// right. If only the rights of anyone allow it, MayPublish calls Caller.IsPrivate, and returns
// feed.ErrNoSet for a private set.
func MayPublish(ctx context.Context, set string) error {
	if err := checkPublish(ctx, set); !errors.Is(err, errAbsent) {
		return err
	}
	return nil // publishing creates the set
}

// MayPing is like MayPublish, but for a request that does not create the set. A nonexistent set is
// treated like a private one.
func MayPing(ctx context.Context, set string) error {
	if err := checkPublish(ctx, set); !errors.Is(err, errAbsent) {
		return err
	}
	return feed.ErrNoSet
}

// checkPublish is like MayPublish, but may return errAbsent.
func checkPublish(ctx context.Context, set string) error {
	c := FromContext(ctx)
	if matchesAny(c.Rights.publish, set) {
		return nil
	}
	if err := c.require(c.Rights.Publish(set), "publish:"+set); err != nil {
		return err
	}
	return c.requirePublic(ctx, set)
}

// MayFollow is like MayPublish, but for following a set and reading its documents. For a private
// set, a caller with only the rights of anyone gets feed.ErrNoSet, as for a nonexistent set. A
// caller that may publish to the set gets the problem that names the missing right.
func MayFollow(ctx context.Context, set string) error {
	c := FromContext(ctx)
	if c.Rights.FollowPrivate(set) {
		return nil
	}
	if err := c.require(c.Rights.Follow(set), "follow:"+set); err != nil {
		return err
	}
	switch err := c.requirePublic(ctx, set); {
	case errors.Is(err, errAbsent):
		return feed.ErrNoSet
	case errors.Is(err, feed.ErrNoSet) && matchesAny(c.Rights.publish, set):
		return c.require(false, "follow:"+set) // a caller that may publish to a private set knows that it exists
	default:
		return err
	}
}

// errAbsent is the feed.ErrNoSet of a set that does not exist.
var errAbsent = fmt.Errorf("absent: %w", feed.ErrNoSet)

// requirePublic returns nil if a set exists and is not private. It returns feed.ErrNoSet if the set
// is private, errAbsent if it does not exist, and other errors of Caller.IsPrivate unchanged.
func (c Caller) requirePublic(ctx context.Context, set string) error {
	if c.IsPrivate == nil {
		return nil
	}
	private, err := c.IsPrivate(ctx, set)
	switch {
	case errors.Is(err, feed.ErrNoSet):
		return errAbsent
	case err == nil && private:
		return feed.ErrNoSet
	}
	return err
}

// MayOperate is like MayPublish, but for operating the hub.
func MayOperate(ctx context.Context) error {
	c := FromContext(ctx)
	return c.require(c.Rights.Operate(), "operate")
}

// require returns nil if allowed is true, and otherwise the problem that names the missing right.
// For a caller with a JWT, the problem also shows the claim that should have the right.
func (c Caller) require(allowed bool, right string) error {
	switch {
	case allowed:
		return nil
	case c.Name == "":
		return unauthorized("", "this request requires a token with the right "+right+"; send Authorization: Bearer TOKEN")
	}
	detail := "your token does not have the right " + right
	if c.Claim != "" {
		detail += ": " + c.Claim + "; want " + right
		if kind, _, ok := strings.Cut(right, ":"); ok {
			detail += " or " + kind + ":*"
		}
	}
	return problem.New(http.StatusForbidden, "forbidden", detail)
}

// unauthorized returns the problem of a request without a valid token. code is an error code of RFC
// 6750 section 3.1, or empty if the request had no token.
func unauthorized(code, detail string) *feed.Problem {
	p := problem.New(http.StatusUnauthorized, "unauthorized", detail)
	challenge := `Bearer realm="rshub"`
	if code != "" {
		challenge += `, error="` + code + `"`
	}
	p.Header = http.Header{"Www-Authenticate": {challenge}}
	return p
}
