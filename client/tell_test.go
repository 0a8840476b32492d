package client_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/resourcesync"
)

// An audit that finds nothing gives a proof, which the hub compares with what it holds. One that
// finds something gives none.
func TestTell(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, newClock().options())
	h := holdingOf(t, s, 30)
	d := newDestination(t, c, inventory.NewMemory(), client.ReplicaOptions{Prefix: "urn:1"})
	d.catchUp(c, 0)
	var proofs []client.Proof
	proved := func(p client.Proof) { proofs = append(proofs, p) }
	differences(t, d.replica.Audit(t.Context(), client.AuditOptions{Proved: proved}))
	differences(t, c.Audit(t.Context(), "demo", h.all, client.AuditOptions{Proved: proved}))
	if len(proofs) != 2 || proofs[0].Count != 11 || proofs[0].Prefix != "urn:1" || proofs[1].Count != 30 || proofs[1].By != client.ByContent {
		t.Fatalf("the proofs are %+v", proofs)
	}
	h.set(resourcesync.Change{Loc: "urn:3", Hash: "md5:00"})
	if found := differences(t, c.Audit(t.Context(), "demo", h.all, client.AuditOptions{Proved: proved})); len(found) != 1 || len(proofs) != 2 {
		t.Errorf("it finds %v, and proves %+v", found, proofs)
	}
	for _, p := range proofs {
		if err := c.Tell(t.Context(), "mirror & more", p); err != nil {
			t.Error(err)
		}
		asked := s.asked()
		if r := asked[len(asked)-1]; r.Method != "POST" || r.URL.Query().Get("name") != "mirror & more" {
			t.Errorf("it tells %s %s", r.Method, r.URL)
		}
		p.Digest = strings.Repeat("0", 32)
		if err := c.Tell(t.Context(), "mirror", p); !errors.Is(err, client.ErrOther) {
			t.Errorf("with another digest it is %v", err)
		}
		p.Cursor.Position += 100
		if err := c.Tell(t.Context(), "mirror", p); !errors.Is(err, feed.ErrGone) {
			t.Errorf("at another cursor it is %v", err)
		}
	}
}
