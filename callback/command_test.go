package callback

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
)

// testCommand returns a command from a text: the mode, then its subscriber, and flags after a slash.
//
//	S subscribe, U unsubscribe, X remove, R retry, M move
//	m moves the cursor, k knows the secret of alice, c is confirmed
func testCommand(text string, number uint64) *command {
	modes := map[byte]subscription.Mode{'S': subscription.Subscribe, 'U': subscription.Unsubscribe, 'X': subscription.Remove, 'R': subscription.Retry, 'M': subscription.Move}
	name, flags, _ := strings.Cut(text[1:], "/")
	c := &command{Request: subscription.Request{Number: number, Mode: modes[text[0]], By: name, Start: feed.Cursor{Position: number}}}
	c.Move = strings.Contains(flags, "m")
	if name == "alice" || strings.Contains(flags, "k") {
		c.Secret = "secret"
	}
	if strings.Contains(flags, "c") {
		c.confirmed = &confirmation{}
	}
	return c
}

// Which command replaces which, where the new one is inserted, which start it has, and which requests are
// completed. Commands have the numbers 1, 2, 3, and so on; each result is number:start.
func TestCommandListAdd(t *testing.T) {
	for _, tt := range []struct {
		name, add, want, done string
	}{
		{"subscribe twice", "Salice Salice", "2:1", ""},
		{"subscribe three times", "Salice Salice Salice", "3:1", "2"},
		{"subscribe, unsubscribe", "Salice Ualice", "1:1 2:2", ""},
		{"subscribe after unsubscribe", "Salice Ualice Salice", "2:2 3:3", "1"},
		{"unsubscribe twice", "Ualice Ualice", "2:2", "1"},
		{"another subscriber", "Salice Sbob", "1:1 2:2", ""},
		{"another subscriber with the same terms", "Sbob Scarol", "1:1 2:2", ""},
		{"the secret shows the subscriber", "Salice Sbob/k", "2:1", ""},
		{"a move of the cursor", "Salice Salice/m", "1:1 2:2", ""},
		{"two moves of the cursor", "Salice/m Salice/m", "2:2", "1"},
		{"confirmed", "Salice/c Salice", "1:1 2:2", ""},
		{"operators first", "Salice Ualice R M", "3:3 4:4 1:1 2:2", ""},
		{"operators in order", "R M R", "2:2 3:3", "1"},
		{"remove", "Salice Ualice R Sbob X", "5:5", "1 2 3 4"},
		{"remove and confirmed", "Salice/c X", "2:2", "1"},
		{"subscribe after remove", "X Salice", "1:1 2:2", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var l commandList
			var done []uint64
			for i, text := range strings.Fields(tt.add) {
				done = append(done, l.add(testCommand(text, uint64(i+1)))...)
			}
			checkCommands(t, l, done, tt.want, tt.done)
		})
	}
}

// A command that could not be executed is next again, unless a later one replaces it.
func TestCommandListPutBack(t *testing.T) {
	for _, tt := range []struct {
		name, failed, later, want, done string
	}{
		{"alone", "Salice", "", "1:1", ""},
		{"before other commands of subscribers", "Ualice", "Salice", "1:1 2:2", ""},
		{"after those of operators", "Salice", "R", "2:2 1:1", ""},
		{"replaced", "Salice", "Salice", "2:1", ""},
		{"an unsubscription is in between", "Salice", "Ualice Salice", "2:2 3:3", "1"},
		{"confirmed", "Salice/c", "Salice", "1:1 2:2", ""},
		{"confirmed and removed", "Salice/c", "X", "2:2", "1"},
		{"a later move", "M", "M", "2:2", "1"},
		{"a move before a retry", "M", "R Salice", "1:1 2:2 3:3", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var l commandList
			for i, text := range strings.Fields(tt.later) {
				l.add(testCommand(text, uint64(i+2)))
			}
			done := l.putBack(testCommand(tt.failed, 1))
			checkCommands(t, l, done, tt.want, tt.done)
		})
	}
}

// A confirmed command is next: the callback has been told where deliveries start.
func TestCommandListNext(t *testing.T) {
	var l commandList
	for i, text := range []string{"Salice/c", "R", "Ualice"} {
		l.add(testCommand(text, uint64(i+1)))
	}
	for _, want := range []uint64{1, 2, 3} {
		c := l.next()
		if c.Number != want {
			t.Errorf("next() = command %d, want %d", c.Number, want)
		}
		l.remove(c)
	}
	if c := l.next(); c != nil {
		t.Errorf("next() of an empty list = %v, want nil", c)
	}
}

func checkCommands(t *testing.T, l commandList, done []uint64, want, wantDone string) {
	t.Helper()
	var got []string
	for _, c := range l {
		got = append(got, fmt.Sprintf("%d:%d", c.Number, c.Start.Position))
	}
	slices.Sort(done)
	if strings.Join(got, " ") != want || strings.Trim(fmt.Sprint(done), "[]") != wantDone {
		t.Errorf("got commands %v, completed %v; want %s, completed %s", got, done, want, wantDone)
	}
}
