//go:build linux

package main

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
)

// natsServer builds and starts a NATS server. Its code is a requirement of the
// end-to-end tests' module, which keeps it out of rshub's own.
func (b *bench) natsServer() (*server, error) {
	root, err := exec.CommandContext(b.ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/rshub/rshub").Output()
	if err != nil {
		return nil, fmt.Errorf("find the module of the end-to-end tests: %w", err)
	}
	path := filepath.Join(b.work, "nats-server")
	cmd := exec.CommandContext(b.ctx, "go", "build", "-o", path, "github.com/nats-io/nats-server/v2")
	cmd.Dir = filepath.Join(strings.TrimSpace(string(root)), "e2e")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build nats-server: %w\n%s", err, out)
	}
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(addr)
	return startAt(addr, exec.Command(path, "--addr", host, "--port", port))
}
