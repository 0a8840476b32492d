package xmpp

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func pathTo(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPublish has a subscriber get what one hub publishes, while Prosody and the hub are killed.
func TestPublish(t *testing.T) {
	t.Parallel()
	p := startProsody(t)
	h := hubtest.StartHub(t, p.variables("demo")...)
	s := subscribe(t, p, "demo") // the node is there before the set
	hubtest.Publish(t, h, "demo", hubtest.Changes("first", 3))
	if again := s.took(t, h, "demo", hubtest.Memory(t, h, "demo")); again != 0 {
		t.Errorf("%d changes came again, although nothing failed", again)
	}
	first := s.items(t)[0]
	if len(first.Ln) != 2 || first.Ln[0].Rel != "up" || first.Ln[0].Href != h.URL+"/sets/demo/capabilitylist.xml" || first.Ln[1].Href != h.Topic("demo") || first.URL[0].Md.Change != "updated" {
		t.Errorf("the first item is %s", first.Payload)
	}

	// A set that is not named is not published.
	hubtest.Publish(t, h, "other", hubtest.Change("a"))

	// Prosody is killed, and changes go on. A large backlog comes in few items.
	publisher := hubtest.Publishing(t, h, "demo", "one", true)
	hubtest.GoesOn(t, 50, publisher)
	p.Kill()
	metric(t, h, "rshub_xmpp_connected 0")
	hubtest.GoesOn(t, 200, publisher)
	hubtest.Publish(t, h, "demo", hubtest.Changes("backlog", 3000))
	p.start(t)
	s.ready(t, 2)
	metric(t, h, "rshub_xmpp_failing 0")

	// The hub is killed while it publishes.
	hubtest.GoesOn(t, 50, publisher)
	h.Kill()
	h.Start(t)
	hubtest.GoesOn(t, 50, publisher)
	h.Kill()
	h.Start(t)
	hubtest.GoesOn(t, 10, publisher)
	publisher.Finish()
	memory := hubtest.Memory(t, h, "demo")
	again := s.took(t, h, "demo", memory)
	t.Logf("%d changes came in %d items, %d of them again", len(memory), len(s.items(t)), again)
	metric(t, h, `rshub_follower_lag_changes{kind="xmpp"} 0`)
	for _, text := range []string{s.Stdout.String(), h.Stderr.String()} {
		if strings.Contains(text, "change-me") || strings.Contains(text, "example.org/a<") {
			t.Error("the secret or the other set is where it must not be")
		}
	}
}

// TestCluster has two hubs share the work. One is killed, and one is stopped; the other goes on.
func TestCluster(t *testing.T) {
	t.Parallel()
	p := startProsody(t)
	env := append(p.variables("demo"), "RSHUB_XMPP_NODES=topic")
	c := hubtest.StartCluster(t, 2, env...)
	topic := c.Hubs[0].Topic("demo")
	s := subscribe(t, p, topic)
	publisher := &hubtest.Publisher{Name: "one", Keyed: true}
	// Publishing goes to a hub that does not publish over XMPP, as long as there is another.
	one, other := c.Hubs[0], c.Hubs[1]
	hubtest.Until(t, "one hub publishes", func() error {
		if claims(t, c.Hubs[1]) {
			one, other = c.Hubs[1], c.Hubs[0]
		}
		if !claims(t, one) {
			return errors.New("none")
		}
		return nil
	})
	if claims(t, other) {
		t.Error("both hubs publish")
	}
	publisher.Start(t, other, "demo")
	hubtest.GoesOn(t, 50, publisher)
	one.Kill()
	metric(t, other, "rshub_xmpp_connected 1")
	hubtest.GoesOn(t, 50, publisher)
	one.Start(t)
	other.Signal(15)
	other.Wait()
	metric(t, one, "rshub_xmpp_connected 1")
	other.Start(t)
	hubtest.GoesOn(t, 50, publisher)
	publisher.Finish()
	memory := hubtest.Memory(t, one, "demo")
	again := s.took(t, one, "demo", memory)
	t.Logf("%d changes came in %d items, %d of them again", len(memory), len(s.items(t)), again)
}

func claims(t *testing.T, h *hubtest.Hub) bool {
	t.Helper()
	a, err := hubtest.Request("GET", h.Ops+"/metrics", nil)
	return err == nil && strings.Contains(string(a.Body), "\nrshub_xmpp_claims 1\n")
}

// TestRefused has a hub with a wrong secret, and one that may not publish. Both say so.
func TestRefused(t *testing.T) {
	t.Parallel()
	p := startProsody(t)
	wrong := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(wrong, []byte("wrong\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{}
	for _, v := range p.variables("demo") {
		if !strings.HasPrefix(v, "RSHUB_XMPP_SECRET=") {
			env = append(env, v)
		}
	}
	h := hubtest.StartHub(t, append(env, "RSHUB_XMPP_SECRET_FILE="+wrong)...)
	h.Says("the secret of the component is the same there")
	metric(t, h, `rshub_xmpp_failures_total{reason="refused"} 1`)
	h.Kill()

	text, err := os.ReadFile(p.config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.config, bytes.Replace(text, []byte("admins = {"), []byte("others = {"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Kill()
	p.start(t)
	h = hubtest.StartHub(t, p.variables("demo")...)
	hubtest.Publish(t, h, "demo", hubtest.Change("a"))
	h.Says("let the component create nodes there, and publish to them")
	metric(t, h, "rshub_xmpp_failing 1")
}
