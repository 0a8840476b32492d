package mirror

import "os"

// interrupt ends a process: Windows has no way to ask for it.
func interrupt(p *os.Process) error { return p.Kill() }
