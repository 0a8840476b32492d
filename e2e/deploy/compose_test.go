package deploy

import (
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// compose loads deploy/compose.yaml as Docker Compose does.
func compose(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"../../deploy/compose.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatalf("deploy/compose.yaml: %v", err)
	}
	return p
}

// dockerfileEnv returns the variables that the image sets.
func dockerfileEnv(t *testing.T) (env []string) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if vars, ok := strings.CutPrefix(line, "ENV "); ok {
			env = append(env, strings.Fields(vars)...)
		}
	}
	return env
}

// TestCompose runs the services of the Compose file as processes, with its commands and variables
// except for host names. A change published at one hub is followed at the other.
func TestCompose(t *testing.T) {
	p := compose(t)
	image := dockerfileEnv(t)
	if !slices.Contains(image, "RSHUB_LISTEN=:8080") {
		t.Fatalf("variables of the image = %v, want RSHUB_LISTEN=:8080", image)
	}
	redis, err := p.GetService("redis")
	if err != nil {
		t.Fatal(err)
	}
	addr := hubtest.FreePort(t)
	host, port, _ := net.SplitHostPort(addr)
	server := hubtest.Start(t, nil, nil, redis.Command[0], append(redis.Command[1:], "--bind", host, "--port", port)...)
	check := redis.HealthCheck.Test // of the form CMD redis-cli ping
	hubtest.Until(t, "Redis is healthy", func() error {
		if server.Exited() {
			t.Fatalf("redis-server exited: %s", server.Stdout.String())
		}
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	if code, out, _ := hubtest.Run(t, nil, nil, check[1], append([]string{"-p", port}, check[2:]...)...); code != 0 || strings.TrimSpace(out) != "PONG" {
		t.Errorf("health check %v = %d, %q, want 0, PONG", check, code, out)
	}
	nats := &hubtest.NATSServer{Addr: hubtest.FreePort(t)}
	nats.Start(t)
	t.Cleanup(nats.Stop)

	var hubs []*hubtest.Hub
	for _, name := range []string{"hub1", "hub2"} {
		service, err := p.GetService(name)
		if err != nil {
			t.Fatal(err)
		}
		if service.ReadOnly && !slices.Contains(service.Tmpfs, "/tmp") { // a hub with Redis spools sources there
			t.Errorf("tmpfs of %s = %v, want /tmp", name, service.Tmpfs)
		}
		h := hubtest.NewHub(t)
		env := slices.Clone(image)
		for key, value := range service.Environment {
			v := strings.NewReplacer("redis:6379", addr, "nats:4222", nats.Addr).Replace(*value)
			env = append(env, key+"="+v)
		}
		h.Env = append(env, h.Env...) // its own addresses come last, and take precedence
		h.Start(t)
		hubs = append(hubs, h)
	}
	f := hubtest.Follow(t, hubs[1], hubtest.ByWebSocket, "demo", "")
	f.WaitStart(t)
	hubtest.Publish(t, hubs[0], "demo", hubtest.Changes("composed", 3))
	f.WaitEntries(t, 3)
}
