package subscribe

func (c *conn) waits(p *poller) bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hasLocked(c)
}
