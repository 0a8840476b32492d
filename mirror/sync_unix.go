//go:build !windows

package mirror

import "os"

// syncDirectory makes the names in a directory durable.
func syncDirectory(f *os.File) error { return f.Sync() }
