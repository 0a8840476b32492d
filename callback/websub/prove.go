package websub

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/jsonbody"
	"github.com/rshub/rshub/problem"
	"github.com/rshub/rshub/resourcesync"
)

// A Held is what a set held at a cursor, or a part of it: count and digests, as an audit has
// them.
type Held struct {
	Complete          bool // the hub knew all resources of the set
	Count             uint64
	Position, Content string // 32 hexadecimal digits each, in lower case
}

// What is proved: see Held. Proofs by position also prove that every change was applied.
const (
	byPosition = "position"
	byContent  = "content"
)

// A claimed is what a subscriber says that it holds at a cursor: the members of an answer of
// the set's audit.
type claimed struct {
	At       string  `json:"at"`
	Count    *uint64 `json:"count"`
	Position string  `json:"position"`
	Content  string  `json:"content"`
}

// A comparison answers whether a subscriber holds what the hub does.
type comparison struct {
	Equal    bool       `json:"equal"`
	At       string     `json:"at"`
	Complete bool       `json:"complete"`         // the hub knows all resources of the set
	By       string     `json:"by"`               // what was compared
	Proved   *time.Time `json:"proved,omitempty"` // when; it is kept with the subscription
	Audit    string     `json:"audit,omitempty"`  // where to find out what differs
}

// maxClaimed bounds the body that asks for a proof, in bytes.
const maxClaimed = 4 << 10

// prove compares what a subscriber says that it holds with what the hub holds at the same
// cursor, within the prefix of the subscription. If both are equal, the hub keeps that as a
// proof. Whoever owns the subscription's shard writes it, so it is shown a moment later.
//
// It is as much worth as the subscriber's digests: one that sends back what the hub's audit
// has told it deceives only itself and its operators.
func (s *Server) prove(w http.ResponseWriter, r *http.Request, record *subscription.Record) error {
	ctx, now := r.Context(), s.opts.Now().UTC()
	if !record.Ended.IsZero() {
		return problem.New(http.StatusConflict, "subscription-ended", "the subscription has ended: "+record.Why)
	}
	if err := s.rates.take(now, limit{"to prove what subscription " + record.ID().String() + " holds", maxAgain}); err != nil {
		return err
	}
	said, at, err := readClaimed(http.MaxBytesReader(w, r.Body, maxClaimed))
	if err != nil {
		return err
	}
	if record.Filter.Partial() {
		return problem.New(http.StatusConflict, "filtered",
			"the subscription leaves out changes by rs.change, rs.type, rs.tag or rs.rel, so its destination cannot hold what the set does: there is nothing to prove. A subscription with rs.prefix alone can")
	}
	set := feed.LogOf(record.Set)
	held, err := s.opts.Held(ctx, set, at, record.Filter.Prefix)
	if errors.Is(err, feed.ErrGone) {
		p := *problem.From(err)
		p.Detail = "the hub cannot make the state at " + at.String() + " any more: look again (GET " + s.base.Audit(set) + "), and compare at the cursor of the answer"
		return &p
	}
	if err != nil {
		return fmt.Errorf("compare what set %q holds: %w", set, err)
	}
	c := comparison{Equal: said.fits(&held), At: at.String(), Complete: held.Complete, By: said.by()}
	if !c.Equal {
		c.Audit = s.base.Audit(set)
		jsonbody.Write(w, http.StatusOK, c)
		return nil
	}
	now = now.Truncate(time.Microsecond) // as registries keep it
	proof := subscription.Proof{At: now, Cursor: at, By: c.By, Complete: c.Complete}
	request := subscription.Request{Mode: subscription.Prove, Set: record.Set, Callback: record.Callback, Filter: feed.Filter{Prefix: record.Filter.Prefix}, Proof: proof, At: now}
	if err := s.send(ctx, request); err != nil {
		return err
	}
	c.Proved = &now
	jsonbody.Write(w, http.StatusOK, c)
	return nil
}

// readClaimed reads what a subscriber says that it holds, and at which cursor.
func readClaimed(body io.Reader) (c claimed, at feed.Cursor, err error) {
	err = jsonbody.Read(body, &c)
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return c, at, err
	}
	switch {
	case err != nil:
	case c.At == "":
		err = errors.New("at is missing: the cursor of the answer of the audit")
	case c.Count == nil:
		err = errors.New("count is missing: how many resources you hold")
	case c.Position == "" && c.Content == "":
		err = errors.New("there is no digest: position, content, or both")
	case c.Position != "" && !isDigest(c.Position):
		err = errors.New("position is a digest: 32 hexadecimal digits in lower case")
	case c.Content != "" && !isDigest(c.Content):
		err = errors.New("content is a digest: 32 hexadecimal digits in lower case")
	}
	if err != nil {
		return c, at, resourcesync.Invalid(`the body is not {"at": CURSOR, "count": NUMBER, "position": "DIGEST", "content": "DIGEST"}, with one digest or both: %v`, err)
	}
	if at, err = feed.ParseCursor(c.At); err != nil {
		err = resourcesync.About("at", err)
	}
	return c, at, err
}

// isDigest reports whether a text is a digest as audits write it.
func isDigest(s string) bool {
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(s) == 32
}

// fits reports whether all that the subscriber says is what the hub holds.
func (c *claimed) fits(h *Held) bool {
	return *c.Count == h.Count && (c.Position == "" || c.Position == h.Position) && (c.Content == "" || c.Content == h.Content)
}

// by returns what is compared. Equal positions prove more than equal contents do.
func (c *claimed) by() string {
	if c.Position != "" {
		return byPosition
	}
	return byContent
}
