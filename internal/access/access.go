// Package access decides who may do what: publish to a set, follow it, or operate the hub. A bearer
// token identifies the caller, and the caller's rights travel in the context of a request.
//
// Tokens come from a file (this package) or an identity provider (package jwt); package ticket lets
// browsers follow. The package knows no store, and does not limit how much a caller does: package
// internal/limit does.
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

// Rights are what a caller may do. The zero Rights allow nothing.
type Rights struct {
	publish, follow []string // names of sets, or prefixes of names that end in "*"
	operate         bool
	anyone          *Rights // what callers without a token may do, too; nil: nothing
}

// All returns the rights to everything.
func All() Rights {
	return Rights{publish: []string{"*"}, follow: []string{"*"}, operate: true}
}

// ParseRights reads "publish:SET", "follow:SET" and "operate", separated by
// commas or spaces. SET is the name of a set, or the beginning of names
// followed by "*"; "*" alone means every set. There must be at least one right.
func ParseRights(s string) (Rights, error) {
	var r Rights
	for right := range strings.FieldsFuncSeq(s, func(c rune) bool { return c == ',' || c == ' ' || c == '\t' }) {
		what, set, ok := strings.Cut(right, ":")
		name, star := strings.CutSuffix(set, "*")
		switch {
		case right == "operate":
			r.operate = true
			continue
		case what != "publish" && what != "follow" || !ok:
			return Rights{}, fmt.Errorf("right %s: a right is publish:SET, follow:SET or operate", quote(right))
		case !star || name != "":
			if feed.CheckSet(name) != nil {
				return Rights{}, fmt.Errorf("right %s: SET is the name of a set, or the beginning of names and a *", quote(right))
			}
		}
		if what == "publish" {
			r.publish = append(r.publish, set)
		} else {
			r.follow = append(r.follow, set)
		}
	}
	if !r.operate && r.publish == nil && r.follow == nil {
		return Rights{}, errors.New("there is no right: a right is publish:SET, follow:SET or operate")
	}
	return r, nil
}

// Publish reports whether the rights allow publishing to a set.
func (r Rights) Publish(set string) bool {
	return match(r.publish, set) || r.anyone != nil && match(r.anyone.publish, set)
}

// Follow reports whether the rights allow following a set and reading its
// documents.
func (r Rights) Follow(set string) bool {
	return match(r.follow, set) || r.anyone != nil && match(r.anyone.follow, set)
}

// FollowPrivate reports whether the rights allow following a set that is private. The
// rights of callers without a token count only for sets that are not private.
func (r Rights) FollowPrivate(set string) bool { return match(r.follow, set) }

// Sees reports whether the rights allow following a set, private or not.
func (r Rights) Sees(st feed.State) bool {
	return r.FollowPrivate(st.Set) || !st.Private && r.Follow(st.Set)
}

// None reports whether the rights allow nothing with any set.
func (r Rights) None() bool {
	return len(r.follow)+len(r.publish) == 0 && (r.anyone == nil || r.anyone.None())
}

// Operate reports whether the rights allow operating the hub.
func (r Rights) Operate() bool { return r.operate || r.anyone != nil && r.anyone.operate }

// match reports whether a set's name fits one of the patterns.
func match(patterns []string, set string) bool {
	for _, p := range patterns {
		if prefix, ok := strings.CutSuffix(p, "*"); ok && strings.HasPrefix(set, prefix) || p == set {
			return true
		}
	}
	return false
}

// Immutable returns the Cache-Control of an answer to r that stays the same for ever. What needs
// rights is not for caches that several clients share.
func Immutable(r *http.Request) string {
	if r.Header.Get("Authorization") != "" || FromContext(r.Context()).Name != "" {
		return "private, max-age=31536000, immutable"
	}
	return "public, max-age=31536000, immutable"
}

type contextKey struct{}

// NewContext returns ctx with the caller of the request.
func NewContext(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, contextKey{}, c)
}

// FromContext returns the caller of a request. If ctx has none, the caller has
// no name and no rights.
func FromContext(ctx context.Context) Caller {
	c, _ := ctx.Value(contextKey{}).(Caller)
	return c
}

// MayPublish returns nil when the caller in ctx may publish to a set. Otherwise
// it returns the problem to answer with: 401 to a caller without a token, 403
// to a caller whose token does not have the right. If only anyone's rights allow
// it, MayPublish asks Caller.Private, and returns feed.ErrNoSet for a private set.
func MayPublish(ctx context.Context, set string) error {
	if err := mayPublish(ctx, set); !errors.Is(err, errNotThere) {
		return err
	}
	return nil // a publish makes the set
}

// MayPing is MayPublish for a request that does not make a set. A missing set is treated
// like a private one.
func MayPing(ctx context.Context, set string) error {
	if err := mayPublish(ctx, set); !errors.Is(err, errNotThere) {
		return err
	}
	return feed.ErrNoSet
}

// mayPublish is MayPublish, but may return errNotThere.
func mayPublish(ctx context.Context, set string) error {
	c := FromContext(ctx)
	if match(c.Rights.publish, set) {
		return nil
	}
	if err := c.need(c.Rights.Publish(set), "publish:"+set); err != nil {
		return err
	}
	return c.public(ctx, set)
}

// MayFollow does the same as MayPublish for following a set and reading its documents.
// For a private set, a caller that has only anyone's rights gets feed.ErrNoSet, as for a
// set that does not exist. A caller that may publish to the set gets the problem that
// names the missing right.
func MayFollow(ctx context.Context, set string) error {
	c := FromContext(ctx)
	if c.Rights.FollowPrivate(set) {
		return nil
	}
	if err := c.need(c.Rights.Follow(set), "follow:"+set); err != nil {
		return err
	}
	switch err := c.public(ctx, set); {
	case errors.Is(err, errNotThere):
		return feed.ErrNoSet
	case errors.Is(err, feed.ErrNoSet) && match(c.Rights.publish, set):
		return c.need(false, "follow:"+set) // a caller that may publish to a private set knows that it exists
	default:
		return err
	}
}

// errNotThere is the feed.ErrNoSet for a set that does not exist.
var errNotThere = fmt.Errorf("not there: %w", feed.ErrNoSet)

// public returns nil if a set exists and is not private. It returns feed.ErrNoSet if
// the set is private, errNotThere if it does not exist, and any other error of
// Caller.Private.
func (c Caller) public(ctx context.Context, set string) error {
	if c.Private == nil {
		return nil
	}
	private, err := c.Private(ctx, set)
	switch {
	case errors.Is(err, feed.ErrNoSet):
		return errNotThere
	case err == nil && private:
		return feed.ErrNoSet
	}
	return err
}

// MayOperate does the same as MayPublish for operating the hub.
func MayOperate(ctx context.Context) error {
	c := FromContext(ctx)
	return c.need(c.Rights.Operate(), "operate")
}

// need returns nil when the caller is allowed, or else the problem that names
// the missing right. To a caller with a JWT, the problem also shows the claim in which
// its rights were expected.
func (c Caller) need(allowed bool, right string) error {
	switch {
	case allowed:
		return nil
	case c.Name == "":
		return unauthorized("", "this needs a token with the right "+right+": Authorization: Bearer TOKEN")
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

// unauthorized returns the problem of a request without a valid token. code is
// an error code of RFC 6750 section 3.1, or empty when the request had no token
// at all.
func unauthorized(code, detail string) *feed.Problem {
	p := problem.New(http.StatusUnauthorized, "unauthorized", detail)
	challenge := `Bearer realm="rshub"`
	if code != "" {
		challenge += `, error="` + code + `"`
	}
	p.Header = http.Header{"Www-Authenticate": {challenge}}
	return p
}
