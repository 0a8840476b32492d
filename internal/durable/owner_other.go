//go:build !unix

package durable

import "os"

// KeepOwner does nothing: a file inherits its permissions from its directory.
func KeepOwner(*os.File, string) error { return nil }
