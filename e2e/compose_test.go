package e2e

import (
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// compose reads deploy/compose.yaml as Docker Compose does.
func compose(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"../deploy/compose.yaml"})
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
	text, err := os.ReadFile("../deploy/Dockerfile")
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

// The services of the compose file run here as processes with the commands and
// the variables that it gives them, only the names of hosts are others: what is
// published to the one hub is followed at the other.
func TestCompose(t *testing.T) {
	p := compose(t)
	image := dockerfileEnv(t)
	if !slices.Contains(image, "RSHUB_LISTEN=:8080") {
		t.Fatalf("the image sets %v", image)
	}
	redis, err := p.GetService("redis")
	if err != nil {
		t.Fatal(err)
	}
	addr := freePort(t)
	host, port, _ := net.SplitHostPort(addr)
	server := start(t, nil, nil, redis.Command[0], append(redis.Command[1:], "--bind", host, "--port", port)...)
	check := redis.HealthCheck.Test // of the form CMD redis-cli ping
	until(t, "Redis is healthy", func() error {
		if server.ended() {
			t.Fatalf("redis-server ended: %s", server.stdout.String())
		}
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	if code, out, _ := run(t, nil, nil, check[1], append([]string{"-p", port}, check[2:]...)...); code != 0 || strings.TrimSpace(out) != "PONG" {
		t.Errorf("%v: %d, %q", check, code, out)
	}
	nats := &natsServer{addr: freePort(t)}
	nats.start(t)
	t.Cleanup(nats.stop)

	var hubs []*hub
	for _, name := range []string{"hub1", "hub2"} {
		service, err := p.GetService(name)
		if err != nil {
			t.Fatal(err)
		}
		h := newHub(t)
		env := slices.Clone(image)
		for key, value := range service.Environment {
			v := strings.NewReplacer("redis:6379", addr, "nats:4222", nats.addr).Replace(*value)
			env = append(env, key+"="+v)
		}
		h.env = append(env, h.env...) // its own addresses come last, and count
		h.start(t)
		hubs = append(hubs, h)
	}
	f := follow(t, hubs[1], byWebSocket, "demo", "")
	f.begins(t)
	publish(t, hubs[0], "demo", changes("composed", 3))
	f.has(t, 3)
}
