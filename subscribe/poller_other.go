//go:build !linux

package subscribe

// A poller waits for input of many connections. On this system there is none. So each
// connection has a goroutine that reads, all the time.
type poller struct{}

func newPoller() *poller { return nil }

func (*poller) close() {}

func (*poller) wait(*conn) (waits bool) { return false }

func (*poller) leave(*conn) {}
