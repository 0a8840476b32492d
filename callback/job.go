package callback

import "time"

// A job is a task that has got a slot, and the turn that it takes there.
type job struct {
	*task
	turn
}

// fillLocked gives slots to the tasks whose turn it is, as long as there are both.
func (e *Engine) fillLocked() {
	for {
		j, ok := e.nextLocked()
		if !ok {
			return
		}
		select {
		case e.hands <- j:
		default: // no goroutine lingers
			e.wg.Go(func() { e.work(j) })
		}
	}
}

// nextLocked gives the next task its slot. ok is false when there is no such task, or
// no slot.
func (e *Engine) nextLocked() (j job, ok bool) {
	for !e.draining {
		t := e.slots.next()
		if t == nil {
			break
		}
		if !t.shard.leaving {
			if turn := t.work.turnLocked(); turn != nil {
				t.shard.busy++
				return job{t, turn}, true
			}
		}
		e.slots.done(t) // the task has nothing to do, or its shard is another hub's soon
	}
	return job{}, false
}

// lingerTime is how long a goroutine without a job waits for the next one. A new
// goroutine would have to grow its stack for each request.
const lingerTime = time.Second

// work does a job. After each job it does the next one for which there is a slot. When
// there is none, it lingers for a job that it is handed.
func (e *Engine) work(j job) {
	linger := time.NewTimer(lingerTime)
	defer linger.Stop()
	for {
		j.do()
		e.mu.Lock()
		e.slots.done(j.task)
		if j.shard.busy--; j.shard.busy == 0 && j.shard.leaving {
			close(j.shard.rested)
		}
		j.settleLocked()
		var ok bool
		j, ok = e.nextLocked()
		e.fillLocked()
		e.mu.Unlock()
		if ok {
			continue
		}
		linger.Reset(lingerTime)
		select {
		case j = <-e.hands:
		case <-linger.C:
			return
		case <-e.ctx.Done():
			return
		}
	}
}
