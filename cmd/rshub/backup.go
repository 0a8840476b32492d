package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/rshub/rshub/server"
)

// backup fetches the change memory of the running hub into a new data directory.
func backup(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) != 1 || strings.HasPrefix(args[0], "-") {
		return usageError("rshub backup DIR")
	}
	dir := filepath.Clean(args[0])
	c, err := readConfig()
	if err != nil {
		return err
	}
	ops, err := opsAddress(c.OpsListen)
	if err != nil {
		return err
	}
	files, bytes, err := server.FetchBackup(ctx, ops, os.Getenv("RSHUB_TOKEN"), dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s holds the change memory, %d files, %d bytes; start from it with RSHUB_DATA=%s\n", dir, files, bytes, dir)
	return nil
}

// opsAddress returns the address by which this machine reaches a hub that listens on
// the address listen. If the hub listens on all addresses, this is loopback.
func opsAddress(listen string) (string, error) {
	if listen == "" {
		return "", errors.New("RSHUB_OPS_LISTEN is empty; a backup is fetched from there")
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("RSHUB_OPS_LISTEN: %w", err)
	}
	ip := net.ParseIP(host)
	switch {
	case host == "" || ip.Equal(net.IPv4zero):
		host = "127.0.0.1"
	case ip.Equal(net.IPv6unspecified):
		host = "::1"
	}
	return net.JoinHostPort(host, port), nil
}
