// Package access says who may do what: publish to a set, follow it, or operate
// the hub. Who calls is told by a bearer token.
package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/rshub/rshub/changelog"
)

// Rights are what a caller may do. The zero Rights allow nothing.
type Rights struct {
	publish, follow []string // names of sets, or beginnings of names that end in "*"
	operate         bool
}

// All are the rights to everything.
func All() Rights {
	return Rights{publish: []string{"*"}, follow: []string{"*"}, operate: true}
}

// ParseRights reads "publish:SET", "follow:SET" and "operate", separated by
// commas or spaces. SET is a set's name, or the beginning of names followed by
// "*", so "*" alone is every set. There must be one right at least.
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
			if changelog.CheckSet(name) != nil {
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

// Publish reports whether they allow publishing to a set.
func (r Rights) Publish(set string) bool { return match(r.publish, set) }

// Follow reports whether they allow following a set, and reading its documents.
func (r Rights) Follow(set string) bool { return match(r.follow, set) }

// Operate reports whether they allow operating the hub.
func (r Rights) Operate() bool { return r.operate }

func match(patterns []string, set string) bool {
	for _, p := range patterns {
		if prefix, ok := strings.CutSuffix(p, "*"); ok && strings.HasPrefix(set, prefix) || p == set {
			return true
		}
	}
	return false
}

// with returns the rights of both.
func (r Rights) with(o Rights) Rights {
	return Rights{
		publish: append(r.publish[:len(r.publish):len(r.publish)], o.publish...),
		follow:  append(r.follow[:len(r.follow):len(r.follow)], o.follow...),
		operate: r.operate || o.operate,
	}
}

// A Caller is who makes a request.
type Caller struct {
	Name   string // empty: nobody in particular
	Rights Rights
}

type contextKey struct{}

// NewContext returns ctx with the caller of its request.
func NewContext(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, contextKey{}, c)
}

// FromContext returns the caller of a request; without one, nobody with no rights.
func FromContext(ctx context.Context) Caller {
	c, _ := ctx.Value(contextKey{}).(Caller)
	return c
}

// MayPublish returns nil, or the problem to answer with: 401 to nobody in
// particular, who might have a token, and 403 to a caller who lacks the right.
func MayPublish(ctx context.Context, set string) error {
	c := FromContext(ctx)
	return c.need(c.Rights.Publish(set), "publish:"+set)
}

// MayFollow is MayPublish's twin for following and reading.
func MayFollow(ctx context.Context, set string) error {
	c := FromContext(ctx)
	return c.need(c.Rights.Follow(set), "follow:"+set)
}

// MayOperate is MayPublish's twin for operating the hub.
func MayOperate(ctx context.Context) error {
	c := FromContext(ctx)
	return c.need(c.Rights.Operate(), "operate")
}

func (c Caller) need(allowed bool, right string) error {
	switch {
	case allowed:
		return nil
	case c.Name == "":
		return unauthorized("", "this needs a token with the right "+right+": Authorization: Bearer TOKEN")
	}
	return changelog.NewStatus(http.StatusForbidden, "forbidden", "your token does not have the right "+right)
}

// unauthorized is the problem of a request without a good token. code is one of
// RFC 6750, section 3.1, or empty where there was no token at all.
func unauthorized(code, detail string) *changelog.Problem {
	p := changelog.NewStatus(http.StatusUnauthorized, "unauthorized", detail)
	challenge := `Bearer realm="rshub"`
	if code != "" {
		challenge += `, error="` + code + `"`
	}
	p.Header = http.Header{"Www-Authenticate": {challenge}}
	return p
}
