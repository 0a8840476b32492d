package mirror

import "os"

// interrupt kills a process: Windows cannot ask it to exit.
func interrupt(p *os.Process) error { return p.Kill() }
