package clients

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/resourcesync"
)

// A prosody is an XMPP server with a pubsub service and two users. It can be stopped and restarted.
type prosody struct {
	*hubtest.Process
	program, config string
	addr, cert      string
}

func startProsody(t *testing.T) *prosody {
	t.Helper()
	p := &prosody{program: interpreter(t, "prosody", "prosody"), addr: hubtest.FreePort(t)}
	dir := t.TempDir()
	p.config = filepath.Join(dir, "prosody.cfg.lua")
	cert, key := hubtest.Certificate(t)
	p.cert = cert
	_, port, _ := net.SplitHostPort(p.addr)
	accounts := filepath.Join(dir, "localhost", "accounts")
	if err := os.MkdirAll(accounts, 0o700); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{
		filepath.Join(accounts, "bridge.dat"): `return { ["password"] = "secret"; }`,
		filepath.Join(accounts, "reader.dat"): `return { ["password"] = "secret"; }`,
		p.config: fmt.Sprintf(`
			run_as_root = true
			data_path = %[1]q
			pidfile = %[1]q .. "/pid"
			log = { info = "*console" }
			interfaces = { "127.0.0.1" }
			c2s_ports = { %[2]s }
			modules_enabled = { "saslauth", "tls" }
			modules_disabled = { "s2s" }
			authentication = "internal_plain"
			ssl = { certificate = %[3]q, key = %[4]q }
			VirtualHost "localhost"
			Component "pubsub.localhost" "pubsub"
				admins = { "bridge@localhost" }
			`, dir, port, cert, key),
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.start(t)
	return p
}

func (p *prosody) start(t *testing.T) {
	t.Helper()
	p.Process = hubtest.Start(t, nil, nil, p.program, "-F", "--config", p.config)
	hubtest.Until(t, "Prosody listens", func() error {
		c, err := net.Dial("tcp", p.addr)
		if err == nil {
			err = c.Close()
		}
		return err
	})
}

func (p *prosody) stop() {
	p.Signal(syscall.SIGTERM)
	p.Wait()
}

// A subscriber is a process that prints the items of the node in order of arrival.
type subscriber struct{ *hubtest.Process }

// locs returns the locs of the received items in order. Each payload must be an entry of a Change
// List.
func (s subscriber) locs(t *testing.T) (all []string) {
	t.Helper()
	for _, it := range s.items(t) {
		all = append(all, strings.TrimPrefix(it.Loc, "https://example.org/"))
	}
	return all
}

func (s subscriber) items(t *testing.T) []resourcesync.Item {
	t.Helper()
	text := bytes.NewBufferString(`<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="changelist"/>`)
	for line := range strings.Lines(s.Stdout.String()) {
		if _, payload, ok := strings.Cut(line, "\t"); ok && strings.HasSuffix(payload, "\n") { // otherwise incomplete
			text.WriteString(payload)
		}
	}
	text.WriteString("</urlset>")
	d, err := resourcesync.ReadXML(text, resourcesync.Limits{})
	if err != nil {
		t.Fatalf("parse payloads as entries: %v", err)
	}
	return d.Items
}

// waitItems waits until the subscriber has received exactly these items in this order.
func (s subscriber) waitItems(t *testing.T, want []string) {
	t.Helper()
	var got []string
	hubtest.Until(t, fmt.Sprintf("the subscriber has %d items", len(want)), func() error {
		if got = s.locs(t); len(got) < len(want) {
			return fmt.Errorf("got %d", len(got))
		}
		return nil
	})
	for i := range got {
		if i == len(want) || got[i] != want[i] {
			t.Fatalf("items from %d on = %q, want %q", i, got[i:], want[i:])
		}
	}
}

// withSlixmpp returns the path of a Python that has slixmpp, or skips the test. The packages of Debian
// are for its own Python, which may not be the first one in PATH.
func withSlixmpp(t *testing.T) string {
	t.Helper()
	for _, program := range []string{python(t), "/usr/bin/python3"} {
		if exec.Command(program, "-c", "import slixmpp").Run() == nil {
			return program
		}
	}
	t.Skip("slixmpp is not installed: apt-get install python3-slixmpp")
	return ""
}

// TestXMPP runs examples/xmpp/bridge.py, which publishes the changes of a set at a pubsub node, while
// it, the hub and the XMPP server are killed. No change is lost, and the order is kept.
func TestXMPP(t *testing.T) {
	t.Parallel()
	program := withSlixmpp(t)
	server := startProsody(t)
	h := hubtest.StartHub(t)
	cursor := filepath.Join(t.TempDir(), "cursor")
	env := append(withClient(t), "SSL_CERT_FILE="+server.cert, "XMPP_JID=bridge@localhost", "XMPP_PASSWORD=secret", "XMPP_ADDRESS="+server.addr, "XMPP_ITEMS=80")
	bridge := func(more ...string) *hubtest.Process {
		return hubtest.Start(t, append(env, more...), nil, program, root(t, "examples", "xmpp", "bridge.py"), h.URL, "demo", "pubsub.localhost", "changes", cursor)
	}
	subscribe := func() subscriber {
		return subscriber{hubtest.Start(t, env, nil, program, root(t, "e2e", "clients", "testdata", "subscriber.py"), "reader@localhost", "secret", server.addr, "pubsub.localhost", "changes")}
	}
	var want []string
	publish := func(name string, n int) {
		t.Helper()
		hubtest.Publish(t, h, "demo", hubtest.Changes(name, n))
		for i := range n {
			want = append(want, fmt.Sprintf("%s/%d", name, i+1))
		}
	}

	hubtest.Publish(t, h, "demo", []byte(`{"loc":"https://example.org/whole?a=1&b=2","change":"updated","lastmod":"2026-11-01T00:00:00Z","hash":"md5:1584abdf8ebdc9802ac0c6a7402c03b6",`+
		`"length":7,"type":"text/html","ln":[{"rel":"duplicate","href":"https://mirror.example.org/whole","pri":1}]}`+"\n"))
	want = append(want, "whole?a=1&b=2")
	b := bridge("XMPP_PASSWORD=wrong")
	b.WaitLog("refused the JID or the password")
	b.Kill()

	b = bridge()
	s := subscribe()
	s.waitItems(t, want)
	whole := s.items(t)[0]
	if whole.Change.Change != resourcesync.Updated || whole.Lastmod.IsZero() || whole.Datetime.IsZero() || whole.Hash != "md5:1584abdf8ebdc9802ac0c6a7402c03b6" ||
		whole.Length == nil || *whole.Length != 7 || whole.Type != "text/html" || len(whole.Links) != 1 || whole.Links[0].Pri != 1 ||
		!strings.Contains(s.Stdout.String(), `:position="1"`) {
		t.Errorf("got entry %+v, want all members", whole)
	}

	publish("killed", 100)
	hubtest.Until(t, "the bridge has published items", func() error {
		if len(s.locs(t)) < 10 {
			return errors.New("not yet")
		}
		return nil
	})
	b.Kill()
	if n := len(s.locs(t)); n == len(want) {
		t.Log("the bridge was killed after it had published everything")
	}
	b = bridge()
	s.waitItems(t, want)

	server.stop()
	publish("offline", 50)
	b.WaitLog("to XMPP: ")
	server.start(t)
	s.waitItems(t, want)

	h.Kill()
	h.Start(t)
	publish("hub", 10)
	s.waitItems(t, want)

	// The node keeps the configured number of items.
	subscribe().waitItems(t, want[len(want)-80:])

	b.Signal(syscall.SIGTERM)
	if code := b.Wait(); code != 0 {
		t.Errorf("exit status of the bridge after SIGTERM = %d, want 0", code)
	}
	hubtest.Must(t, http.StatusNoContent, http.MethodDelete, h.URL+"/sets/demo", nil)
	hubtest.Publish(t, h, "demo", hubtest.Changes("again", 1))
	b = bridge()
	if code := b.Wait(); code != 3 || !strings.Contains(b.Stderr.String(), "remove "+cursor) {
		t.Errorf("exit status of the bridge with a gone cursor = %d, want 3 and advice: %s", code, b.Stderr.String())
	}
}
