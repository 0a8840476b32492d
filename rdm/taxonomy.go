package rdm

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/problem"
	"github.com/rshub/rshub/rdm/soif"
	"github.com/rshub/rshub/resourcesync"
)

// A class is a classification of a taxonomy. Parents come before their children.
type class struct{ id, parent, description string }

// root is the parent of the topmost classes. It is no class itself.
const root = "ROOT"

// setsTaxonomy is the identifier of the taxonomy of a hub: its sets are its classes, and none
// is below another.
const setsTaxonomy = "sets"

// maxSets bounds the sets of a taxonomy or a server description.
const maxSets = 10_000

// setRoom is about what a set takes in such an answer, in bytes, and its title may take more.
const setRoom = 2000

// taxonomy answers a request for the taxonomy of a hub, or of one set of it.
func (s *Server) taxonomy(ctx context.Context, w http.ResponseWriter, r *http.Request, m *message, set string) error {
	sc, err := parseBelow(m.scope)
	if err != nil {
		return err
	}
	states, err := s.sets(ctx, set)
	if err != nil {
		return err
	}
	if len(states) > maxSets {
		return &resourcesync.Error{Err: resourcesync.ErrTooLarge, Rule: "the hub has more than " + strconv.Itoa(maxSets) + " sets: name one with Catalog-Service-ID"}
	}
	share, err := s.opts.Streams.Take(ctx, int64(len(states))*setRoom)
	if err != nil {
		return err
	}
	defer share.Release()
	all := make([]class, len(states))
	for i := range states {
		all[i] = class{states[i].Set, root, states[i].Title}
	}
	chosen, ok := sc.choose(all)
	if !ok {
		return problem.New(http.StatusNotFound, "no-such-set", "the taxonomy has no classification "+resourcesync.Shorten(sc.of)+" that you may see")
	}
	h := newHeader(replies[m.kind])
	if set != "" {
		h.Add("Catalog-Service-ID", s.csid(set))
	}
	w.Header().Set("Expires", date(time.Now()))
	send(w, r, http.StatusOK, appendTaxonomy(write(nil, h), setsTaxonomy, "The sets of this hub", chosen, &m.view))
	return nil
}

// sets returns one set, or all sets that the caller may follow.
func (s *Server) sets(ctx context.Context, set string) ([]feed.State, error) {
	if set == "" {
		return s.hub.Sets(ctx)
	}
	st, err := s.hub.State(ctx, set)
	return []feed.State{st}, err
}

// appendTaxonomy appends a taxonomy with classes, as a view shows these.
func appendTaxonomy(dst []byte, id, description string, all []class, v *view) []byte {
	o := &soif.Object{Type: "TAXONOMY"}
	o.Add("Id", id)
	o.Add("Description", description)
	dst = write(dst, o)
	for i := range all {
		if i == v.hits && i > 0 {
			break
		}
		o := &soif.Object{Type: "CLASSIFICATION"}
		o.Add("Id", all[i].id)
		o.Add("Parent-Id", all[i].parent)
		o.Add("Taxonomy-Id", id)
		if all[i].description != "" {
			o.Add("Description", all[i].description)
		}
		v.filter(o)
		dst = write(dst, o)
	}
	return dst
}

// A below is a scope of the query language taxonomy-basic: a class, and what is below it.
type below struct {
	of     string
	levels int // how far below; negative: without an end
}

// parseBelow reads "descendant CLASS", "descendant/N CLASS", "children CLASS" or
// "anklebiter CLASS". A class may have spaces in its name.
func parseBelow(scope string) (b below, err error) {
	word, of, _ := strings.Cut(strings.TrimSpace(scope), " ")
	b.of = strings.TrimSpace(of)
	command, number, given := strings.Cut(strings.ToLower(word), "/")
	switch {
	case b.of == "":
	case command == "descendant" && !given:
		b.levels = -1
		return b, nil
	case command == "descendant":
		if b.levels, err = strconv.Atoi(number); err == nil && b.levels >= 0 {
			return b, nil
		}
	case (command == "children" || command == "anklebiter") && !given:
		b.levels = 1
		return b, nil
	}
	return b, resourcesync.Invalid("the scope is %q; the query language taxonomy-basic knows descendant CLASS, descendant/N CLASS and children CLASS, where CLASS may be %s", resourcesync.Shorten(scope), root)
}

// choose returns the class and those below it, in their order. ok is false if there is no
// such class.
func (b below) choose(all []class) (chosen []class, ok bool) {
	level := map[string]int{}
	if ok = strings.EqualFold(b.of, root); ok {
		level[root] = 0
	}
	for _, c := range all {
		above, in := level[c.parent]
		switch {
		case c.id == b.of:
			level[c.id], ok = 0, true
		case !in || b.levels >= 0 && above >= b.levels:
			continue
		default:
			level[c.id] = above + 1
		}
		chosen = append(chosen, c)
	}
	return chosen, ok
}
