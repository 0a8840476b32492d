package mirror

import "os"

// syncDirectory does nothing: Windows cannot sync a directory.
func syncDirectory(*os.File) error { return nil }

// interrupt ends a process: Windows has no way to ask for it.
func interrupt(p *os.Process) error { return p.Kill() }
