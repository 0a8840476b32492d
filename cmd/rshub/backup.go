package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/rshub/rshub/internal/backup"
)

// runBackup copies the change memory of the running hub to a new data directory.
func runBackup(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) != 1 || strings.HasPrefix(args[0], "-") {
		return usageError("rshub backup DIR")
	}
	dir := filepath.Clean(args[0])
	c, err := readConfig()
	if err != nil {
		return err
	}
	files, bytes, err := backup.Fetch(ctx, c.OpsListen, os.Getenv("RSHUB_TOKEN"), dir, uint64(c.DiskReserve))
	if err != nil {
		return withVariableNames(err)
	}
	fmt.Fprintf(stdout, "%s: copied the change memory, %d files, %d bytes; start a hub from it with RSHUB_DATA=%s\n", dir, files, bytes, dir)
	return nil
}
