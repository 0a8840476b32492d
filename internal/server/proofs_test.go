package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/internal/activity"
)

// The hub records proofs of followers, and shows them to operators and to the follower itself.
func TestProofs(t *testing.T) {
	known, texts := tokens(t, "publish:*,follow:*,operate", "follow:a", "follow:a")
	h := start(t, Config{Callers: known})
	h.Publish("a", bearer(texts[0])...)
	c, err := client.New(h.URL, client.Options{Token: texts[1]})
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.OpenReplica(t.Context(), "a", client.ReplicaOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range r.CatchUp(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
	}
	prove := func() {
		t.Helper()
		for d, err := range r.Audit(t.Context(), client.AuditOptions{OnProof: func(p client.Proof) {
			if err := c.SubmitProof(t.Context(), "mirror", p); err != nil {
				t.Error(err)
			}
			p.Count++
			if err := c.SubmitProof(t.Context(), "other", p); err == nil {
				t.Error("SubmitProof of a wrong proof = nil, want an error")
			}
		}}) {
			t.Fatalf("Audit: got %+v, %v, want no differences", d, err)
		}
	}
	prove()
	wantProof := func(want string) {
		t.Helper()
		for who, text := range texts {
			var answer struct{ Proofs []activity.ProofView }
			h.getJSON(&answer, "/sets/a/proofs", bearer(text)...)
			got := ""
			for _, p := range answer.Proofs {
				got += fmt.Sprintf("%s by %s, %d by %s at %s", p.Name, p.Compared, p.Count, strings.Fields(p.By)[0], strings.SplitN(p.Cursor, "-", 2)[0])
			}
			if who == 2 && got != "" || who != 2 && got != want {
				t.Errorf("proofs for caller %d = %q, want %q", who, got, want)
			}
		}
	}
	wantProof("mirror by position, 1 by token at 1")
	h.wantStatus(http.StatusNoContent, "DELETE", "/sets/a", "", bearer(texts[0])...)
	h.Publish("a", bearer(texts[0])...)
	wantProof("") // the proof was of the deleted set
}
