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

// TestSubmitProof checks that an audit without differences returns a proof, which the hub compares
// with its own resources, and that an audit with differences returns none.
func TestSubmitProof(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, newClock().options())
	h := newLocalCopy(t, s, 30)
	d := newDestination(t, c, inventory.NewMemory(), client.ReplicaOptions{Prefix: "urn:1"})
	d.catchUp(c, 0)
	var proofs []client.Proof
	onProof := func(p client.Proof) { proofs = append(proofs, p) }
	differences(t, d.replica.Audit(t.Context(), client.AuditOptions{OnProof: onProof}))
	differences(t, c.Audit(t.Context(), "demo", h.all, client.AuditOptions{OnProof: onProof}))
	if len(proofs) != 2 || proofs[0].Count != 11 || proofs[0].Prefix != "urn:1" || proofs[1].Count != 30 || proofs[1].By != client.ByContent {
		t.Fatalf("got proofs %+v, want one by position and one by content", proofs)
	}
	h.set(resourcesync.Change{Loc: "urn:3", Hash: "md5:00"})
	if found := differences(t, c.Audit(t.Context(), "demo", h.all, client.AuditOptions{OnProof: onProof})); len(found) != 1 || len(proofs) != 2 {
		t.Errorf("Audit yields %v, and the proofs are %+v, want one difference and no new proof", found, proofs)
	}
	for _, p := range proofs {
		if err := c.SubmitProof(t.Context(), "mirror & more", p); err != nil {
			t.Error(err)
		}
		requests := s.received()
		if r := requests[len(requests)-1]; r.Method != "POST" || r.URL.Query().Get("name") != "mirror & more" {
			t.Errorf("SubmitProof sends %s %s, want a POST with the name", r.Method, r.URL)
		}
		p.Digest = strings.Repeat("0", 32)
		if err := c.SubmitProof(t.Context(), "mirror", p); !errors.Is(err, client.ErrProofMismatch) {
			t.Errorf("SubmitProof with another digest = %v, want %v", err, client.ErrProofMismatch)
		}
		p.Cursor.Position += 100
		if err := c.SubmitProof(t.Context(), "mirror", p); !errors.Is(err, feed.ErrGone) {
			t.Errorf("SubmitProof with another cursor = %v, want %v", err, feed.ErrGone)
		}
	}
}
