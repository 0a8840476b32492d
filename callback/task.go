package callback

import "time"

// A task is what has its turn at a host: a subscription that may have something
// to be delivered, or an errand.
type task struct {
	// Set when the task is made, never changed.
	work  work
	host  *host
	shard *shard

	// Guarded by Engine.mu.
	state    state
	standing standing // what the last request to the callback says of it
	waiter   *waiter  // on its way to a slot, or with a slot; nil: it is idle or dead

	// Guarded by Engine.mu, kept by the schedule.
	due   time.Time
	index int // in the schedule; -1: the task is not in it
}

// A work is what a task is for: a sub, an errand or a shard.
type work interface {
	// turnLocked is called when the task has got a slot. It returns what is to be done
	// there, or nil when there is nothing.
	turnLocked() turn

	// ringLocked is called when the task is due.
	ringLocked()

	// owner says whose task it is: tasks of different owners take turns.
	owner() string
}

// A turn is what a task does with its slot. The results that do leaves in the turn for
// settleLocked need no mutex, because do has returned before settleLocked is called.
type turn interface {
	// do makes the request. It blocks, and Engine.mu is not held.
	do()

	// settleLocked brings the result of the request into the task. It is called after
	// do, when the slot is free again.
	settleLocked()
}

// A state is where a task is on its way to a slot.
//
//	idle    → queued   slots.queue: the task may have something to do
//	queued  → running  slots.next: the task gets a slot
//	queued  → idle     slots.cancel: the lease ended while the sub waited for a slot
//	running → idle     slots.done: the slot is free again
//	any     → dead     slots.leave: the task is forgotten, and stays dead
type state uint8

const (
	idle    state = iota // waits for a time or an event
	queued               // waits for a slot
	running              // has a slot
	dead                 // is forgotten
)
