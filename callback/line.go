package callback

// A line is where tasks wait for slots: those of a host, or those of the lines below.
// The type slots says what lines there are. Engine.mu guards it.
type line struct {
	above *line // nil: there is none
	key   string
	most  int // slots that its tasks may have
	below map[string]*line

	tasks   [lanes][]*task // that wait here, also some that wait no more
	ready   [lanes][]*line // lines below that have a task and may start it, in the order of their turns
	listed  [lanes]bool    // whether the line is in ready of the one above
	running [lanes]int     // slots that its tasks have
}

// taken returns how many slots the tasks of a line have.
func (n *line) taken() (all int) {
	for _, some := range n.running {
		all += some
	}
	return all
}

// may reports whether a line has a slot left for a task of a lane.
func (n *line) may(l lane) bool { return n.running[l] < share(l, n.most) && n.taken() < n.most }

// list puts a line, and those above it, at the end of ready of the next one above, in
// those lanes in which they may start a task.
func (n *line) list() {
	for ; n.above != nil; n = n.above {
		for l := range lanes {
			if !n.listed[l] && len(n.tasks[l])+len(n.ready[l]) > 0 && n.may(l) {
				n.listed[l] = true
				n.above.ready[l] = append(n.above.ready[l], n)
			}
		}
	}
}

// unused reports whether a line can be forgotten.
func (n *line) unused() bool {
	for l := range lanes {
		if n.running[l] > 0 || n.listed[l] || len(n.tasks[l])+len(n.ready[l]) > 0 {
			return false
		}
	}
	return len(n.below) == 0
}
