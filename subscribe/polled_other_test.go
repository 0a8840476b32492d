//go:build !linux

package subscribe

func (c *conn) waits(*poller) bool { return false }
