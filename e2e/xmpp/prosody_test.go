package xmpp

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// A prosody is an XMPP server, with the components that docs/xmpp.md describes and an account
// for a subscriber.
type prosody struct {
	*hubtest.Process
	config     string
	clients    string // address for subscribers
	components string // address for hubs
}

// snippet returns the configuration for Prosody in docs/xmpp.md.
func snippet(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/xmpp.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```lua\n(.*?)```").FindSubmatch(page)
	if found == nil {
		t.Fatal("docs/xmpp.md has no configuration for Prosody")
	}
	return string(found[1])
}

func startProsody(t *testing.T) *prosody {
	t.Helper()
	p := &prosody{clients: hubtest.FreePort(t), components: hubtest.FreePort(t)}
	dir := t.TempDir()
	p.config = filepath.Join(dir, "prosody.cfg.lua")
	_, port, _ := net.SplitHostPort(p.clients)
	_, componentPort, _ := net.SplitHostPort(p.components)
	described := snippet(t)
	if !strings.Contains(described, "5347") {
		t.Fatalf("the configuration has no port: %s", described)
	}
	text := fmt.Sprintf(`
run_as_root = true
pidfile = %q
data_path = %q
log = { info = "*console" }
modules_enabled = { "roster", "saslauth", "disco" }
modules_disabled = { "s2s", "tls" }
interfaces = { "127.0.0.1" }
c2s_ports = { %s }
s2s_ports = {}
authentication = "internal_plain"
c2s_require_encryption = false
allow_unencrypted_plain_auth = true
storage = "internal"

VirtualHost "example.org"
`, filepath.Join(dir, "pid"), filepath.Join(dir, "data"), port)
	globals, components, ok := strings.Cut(described, "\nComponent ")
	if !ok {
		t.Fatalf("the configuration has no component: %s", described)
	}
	text = strings.Replace(globals, "5347", componentPort, 1) + text + "\nComponent " + components
	accounts := filepath.Join(dir, "data", "example%2eorg", "accounts")
	if err := os.MkdirAll(accounts, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(accounts, "reader.dat"), []byte(`return { ["password"] = "reader's" };`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p.start(t)
	return p
}

// start starts a Prosody that does not run.
func (p *prosody) start(t *testing.T) {
	t.Helper()
	p.Process = hubtest.Start(t, nil, nil, "prosody", "--config", p.config, "-F")
	for _, address := range []string{p.clients, p.components} {
		hubtest.Until(t, "prosody listens on "+address, func() error {
			if p.Ended() {
				return errors.New("it has ended")
			}
			conn, err := net.Dial("tcp", address)
			if err == nil {
				_ = conn.Close()
			}
			return err
		})
	}
}

// variables returns the variables of a hub that publishes sets there.
func (p *prosody) variables(sets string) []string {
	return []string{
		"RSHUB_XMPP_SERVER=" + p.components, "RSHUB_XMPP_DOMAIN=rshub.example.org", "RSHUB_XMPP_SECRET=change-me",
		"RSHUB_XMPP_SERVICE=pubsub.example.org", "RSHUB_XMPP_SETS=" + sets,
	}
}
