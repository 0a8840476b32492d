package callback

import "time"

// A task is what needs a slot for its requests to a callback, one at a time: a sub, or a
// queue of requests.
type task struct {
	timer

	// Set when the task is made, never changed.
	host  *host
	shard *shard

	stage    stage
	standing standing // what the last request to the callback says of it
	waiter   *waiter  // on its way to a slot, or with a slot; nil: it is idle or dead
}

// A stage is where a task is on its way to a slot.
//
//	idle    → queued   slots.queue: the task may have something to do
//	queued  → running  slots.next: the task gets a slot
//	queued  → idle     slots.cancel: the lease ended while the sub waited for a slot
//	running → idle     slots.done: the slot is free again
//	any     → dead     slots.leave: the task is forgotten, and stays dead
type stage uint8

const (
	idle    stage = iota // waits for a time or an event
	queued               // waits for a slot
	running              // has a slot
	dead                 // is forgotten
)

// A doer is what a task is for: a sub, or a queue of requests.
type doer interface {
	// takeTurn is called when the task has got a slot. It returns what is to be done there,
	// or nil when there is nothing.
	takeTurn(st *state) turn

	// owner says whose task it is: tasks of different owners take turns.
	owner() string
}

// A turn is what a task does with its slot. The results that do leaves in the turn for
// settle need no mutex, because do has returned before settle is called.
type turn interface {
	// do makes the request. It blocks, and the mutex is not held.
	do()

	// settle brings the result of the request into the task. It is called after do, when
	// the slot is free again.
	settle(st *state)
}

// fill gives slots to the tasks whose turn it is, as long as there are both.
func (st *state) fill() {
	e := st.engine
	for w := st.nextTurn(); w != nil; w = st.nextTurn() {
		select {
		case e.turns <- w:
		default: // no goroutine lingers
			e.wg.Go(func() { e.work(w) })
		}
	}
}

// nextTurn gives the next task its slot and its turn. It returns nil when there is no such
// task, or no slot.
func (st *state) nextTurn() *waiter {
	for !st.draining {
		w := st.slots.next()
		if w == nil {
			break
		}
		if s := w.task.shard; !s.leaving {
			if w.turn = w.doer.takeTurn(st); w.turn != nil {
				s.busy++
				return w
			}
		}
		st.slots.done(w.task) // the task has nothing to do, or its shard is another hub's soon
	}
	return nil
}

// lingerTime is how long a goroutine without a turn waits for the next one. A new
// goroutine would have to grow its stack for each request.
const lingerTime = time.Second

// work does a turn, and then the next one for which there is a slot. When there is none,
// it lingers for a turn that it is handed.
func (e *Engine) work(w *waiter) {
	linger := time.NewTimer(lingerTime)
	defer linger.Stop()
	for {
		w.turn.do()
		st := e.lock()
		st.slots.done(w.task)
		s := w.task.shard
		if s.busy--; s.busy == 0 && s.leaving {
			close(s.rested)
		}
		w.turn.settle(st)
		w = st.nextTurn()
		st.fill()
		st.unlock()
		if w != nil {
			continue
		}
		linger.Reset(lingerTime)
		select {
		case w = <-e.turns:
		case <-linger.C:
			return
		case <-e.ctx.Done():
			return
		}
	}
}
