// Package sourcetest makes random changes of one log for tests, and a map as the simplest model of
// a set.
//
// It does not import package inventory, so that the tests of inventory can use it.
package sourcetest

import (
	"crypto/md5"
	"crypto/sha256"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A Source makes the entries of one log.
type Source struct {
	*rand.Rand
	Head feed.Cursor // of the newest entry
	locs int         // how many locs there are
}

// New returns a Source of random changes to locs locs. The same seed gives the
// same changes.
func New(seed uint64, locs int) *Source {
	return &Source{Rand: rand.New(rand.NewPCG(seed, 1)), locs: locs, Head: feed.Cursor{Micros: 1_700_000_000_000_000}}
}

// Loc returns one of the locs.
func (s *Source) Loc() string {
	n := s.IntN(s.locs)
	switch {
	case n%50 == 49:
		return fmt.Sprintf("https://example.org/%s/%d", strings.Repeat("long", 500), n)
	case n%7 == 0:
		return fmt.Sprintf("https://example.org/%d/%s", n%5, strings.Repeat("x", n%40))
	}
	return fmt.Sprintf("https://example.org/pep-%04d/", n)
}

// Next returns the next entry of the log, about one of the locs.
func (s *Source) Next() feed.Entry { return s.Change(s.Loc()) }

// Change returns the next entry of the log, about a loc.
func (s *Source) Change(loc string) feed.Entry {
	s.Head.Position++
	s.Head.Micros += 1 + s.Int64N(1000)
	length := s.Int64N(100_000)
	e := feed.Entry{Cursor: s.Head, Change: resourcesync.Change{Loc: loc, Change: resourcesync.Updated}}
	c := &e.Change
	switch s.IntN(10) {
	case 0, 1:
		c.Change = resourcesync.Deleted
		return e
	case 2:
		c.Change = resourcesync.Created
		c.Lastmod = time.UnixMicro(s.Head.Micros).UTC()
	case 3:
		c.Hash = fmt.Sprintf("md5:%032x", s.Uint64())
	case 4:
		c.Datetime = time.Unix(1_700_000_000, 5).UTC()
		c.Links = []resourcesync.Link{{Rel: "describedby", Href: "https://example.org/about", Hash: "md5:00"}}
		c.Attrs = []resourcesync.Attr{{Namespace: "https://example.org/ns", Name: "a", Value: strings.Repeat("v", s.IntN(900))}}
		c.Changefreq, c.Encoding, c.Path = "daily", "gzip", "/p"
	default:
		c.Hash, c.Length, c.Type = fmt.Sprintf("md5:%032x sha-256:%064x", s.Uint64(), s.Uint64()), &length, "text/html"
	}
	return e
}

// Existing returns the next entry of the log, about a resource that exists, with a hash
// that no other has.
func (s *Source) Existing(loc string) feed.Entry {
	e := s.Change(loc)
	e.Change = resourcesync.Change{Loc: loc, Change: resourcesync.Updated, Hash: fmt.Sprintf("md5:%032x sha-256:%064x", s.Uint64(), s.Uint64())}
	return e
}

// A Set is what a set holds: the newest change of each resource that exists, by loc.
type Set map[string]feed.Entry

// Add adds the next entry of the log.
func (s Set) Add(e feed.Entry) {
	if delete(s, e.Change.Loc); e.Change.Change != resourcesync.Deleted {
		s[e.Change.Loc] = e
	}
}

// Entries returns the entries in the order of loc.
func (s Set) Entries() []feed.Entry {
	return slices.SortedFunc(maps.Values(s), func(a, b feed.Entry) int { return strings.Compare(a.Change.Loc, b.Change.Loc) })
}

// PEPs returns n resources of the shape of Python's PEPs, in the order of loc:
// two digests, a length and a type. Their newest changes are in another order.
func PEPs(n int) []feed.Entry {
	all := make([]feed.Entry, n)
	at := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range all {
		position := uint64(i)*7_368_787%uint64(n) + 1
		body := fmt.Appendf(nil, "resource %d", i)
		length := int64(1000 + i*7919%50_000)
		all[i] = feed.Entry{
			Cursor: feed.Cursor{Position: position, Micros: at.UnixMicro() + int64(position)*317_000 + int64(i%1000)},
			Change: resourcesync.Change{
				Loc:     PEP(i),
				Change:  resourcesync.Updated,
				Lastmod: at.Add(time.Duration(position) * 300 * time.Millisecond).Truncate(time.Second),
				Hash:    fmt.Sprintf("md5:%x sha-256:%x", md5.Sum(body), sha256.Sum256(body)),
				Length:  &length,
				Type:    "text/plain",
			},
		}
	}
	return all
}

// PEP returns the loc of a resource of PEPs.
func PEP(i int) string {
	return fmt.Sprintf("https://raw.githubusercontent.com/python/peps/main/pep-%07d.txt", i)
}
