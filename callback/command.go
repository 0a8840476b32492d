package callback

import (
	"cmp"
	"slices"
	"time"

	"github.com/rshub/rshub/callback/subscription"
)

// A command is a request for a subscription, with the results of earlier attempts to execute it. A command of
// an operator is executed before others, and cancels the call in flight.
type command struct {
	subscription.Request
	older     uint64        // number of the earliest request that this one replaced, whose Start it has; zero if none
	attempts  int           // verifications without a final answer
	confirmed *confirmation // what the callback has confirmed and the registry does not have yet, or nil
	due       time.Time     // time of the next attempt
}

// replaces reports whether c makes an earlier command unnecessary, which is not being executed.
//
//	earlier      replaced by
//	confirmed    Remove
//	any          Remove
//	Retry, Move  the same
//	Unsubscribe  Unsubscribe of the same subscriber
//	Subscribe    Subscribe of the same subscriber, if both move the cursor or neither does
func (c *command) replaces(earlier *command) bool {
	switch {
	case c.Mode == subscription.Remove:
		return true
	case earlier.confirmed != nil, c.Mode != earlier.Mode, c.Move != earlier.Move:
		return false
	}
	return c.Mode.ByOperator() || c.By == earlier.By || c.Shows(&subscription.Subscription{Terms: earlier.Terms, By: earlier.By})
}

// replace lets c replace an earlier command, and returns the numbers of the requests that are done. c
// has the start of the earlier one, because the hub has accepted that start, unless an unsubscription
// is in between. Then the earlier request stays in the inbox until c is executed, so that a crash does
// not lose the start.
func (c *command) replace(earlier *command, unsubscribed bool) (done []uint64) {
	if c.Mode == subscription.Subscribe && !c.Move && !unsubscribed && c.older == 0 {
		c.Start, c.Diverged = earlier.Start, earlier.Diverged
		c.older, earlier.older = cmp.Or(earlier.older, earlier.Number), 0
	}
	return slices.DeleteFunc(earlier.numbers(), func(n uint64) bool { return n == c.older })
}

// numbers returns the numbers of the requests that are completed with c.
func (c *command) numbers() (numbers []uint64) {
	for _, n := range []uint64{c.Number, c.older} {
		if n > 0 {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// A commandList is the commands of a subscription in the order of execution, except the one that is
// being executed.
type commandList []*command

// add adds a command, and returns the numbers of the requests that it replaces.
func (l *commandList) add(c *command) (done []uint64) {
	var rest commandList
	for i, o := range *l {
		if c.replaces(o) {
			done = append(done, c.replace(o, (*l)[i:].unsubscribes())...)
		} else {
			rest = append(rest, o)
		}
	}
	*l = rest
	if c.Mode.ByOperator() {
		l.insert(rest.operators(), c)
	} else {
		l.insert(len(rest), c)
	}
	return done
}

// putBack adds a command that could not be executed, unless a later one replaces it. It returns the
// numbers of the requests that are replaced.
func (l *commandList) putBack(c *command) (done []uint64) {
	for i, o := range *l {
		if o.replaces(c) {
			return o.replace(c, (*l)[:i].unsubscribes())
		}
	}
	if c.Mode.ByOperator() {
		l.insert(0, c)
	} else {
		l.insert(l.operators(), c)
	}
	return nil
}

func (l *commandList) insert(i int, c *command) { *l = slices.Insert(*l, i, c) }

// operators returns the number of commands by operators, which are first.
func (l commandList) operators() (n int) {
	for n < len(l) && l[n].Mode.ByOperator() {
		n++
	}
	return n
}

func (l commandList) unsubscribes() bool { return l.contains(subscription.Unsubscribe) }

func (l commandList) contains(m subscription.Mode) bool {
	return slices.ContainsFunc(l, func(c *command) bool { return c.Mode == m })
}

// next returns the command to execute next, or nil. A confirmed one is first: the callback has been
// told where deliveries start, so no other command may come in between.
func (l commandList) next() *command {
	for _, c := range l {
		if c.confirmed != nil {
			return c
		}
	}
	if len(l) == 0 {
		return nil
	}
	return l[0]
}

// remove removes a command.
func (l *commandList) remove(c *command) {
	i := slices.Index(*l, c)
	*l = slices.Delete(*l, i, i+1)
}
