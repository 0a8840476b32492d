package redisconn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil/redistest"
)

func TestAnswer(t *testing.T) {
	a := Answer{"word", int64(7), nil, []byte{1}}
	if a.Word() != "word" || a.Text(0) != "word" || a.Text(1) != "7" || a.Text(2) != "" || a.Text(3) != "" || a.Text(4) != "" || Answer(nil).Word() != "" {
		t.Errorf("Text() = %q, %q, %q, %q", a.Text(1), a.Text(2), a.Text(3), a.Text(4))
	}
	if a.Number(0) != 0 || a.Number(1) != 7 || a.Number(4) != 0 {
		t.Errorf("Number() = %d, %d, %d", a.Number(0), a.Number(1), a.Number(4))
	}
}

// A script runs even if Redis does not know it yet or has forgotten it.
func TestRun(t *testing.T) {
	onBoth(t, func(t *testing.T, s *redistest.Server, url string) {
		c := connect(t, url, Options{})
		for _, flush := range []bool{true, false, true} {
			if flush {
				ok(t, s.Client().ScriptFlush(t.Context()).Err())
			}
			ok(t, c.WriteCall().Do(t.Context(), func(try *Try) error {
				a, err := try.Run(set, []string{"key"}, "value")
				if a.Word() != "ok" || a.Text(1) != "value" || a.Number(2) != 7 {
					t.Errorf("Run() = %q", a)
				}
				return err
			}))
		}
		for source, want := range map[string]Answer{
			`return 'text'`: {"text"}, `return 5`: {int64(5)}, `return false`: {nil}, `return { 'a', false, 3 }`: {"a", nil, int64(3)}, `return {}`: {},
		} {
			ok(t, c.ReadCall().Do(t.Context(), func(try *Try) error {
				a, err := try.Run(NewScript(source, nil), []string{"key"})
				if !slices.Equal(a, want) {
					t.Errorf("Run(%s) = %q", source, a)
				}
				return err
			}))
		}
	})
}

// Each of many runs has its answer, wherever its key is, and whether or not Redis knows the script.
func TestRunAll(t *testing.T) {
	twice := NewScript(`if ARGV[1] == '3' then error('not three') end return ARGV[1] * 2`, nil)
	onBoth(t, func(t *testing.T, s *redistest.Server, url string) {
		c := connect(t, url, Options{})
		const n = 100
		run := func(no int) (answers map[int]int64, err error) {
			answers = make(map[int]int64)
			err = c.WriteCall().Once(t.Context(), func(try *Try) error {
				return try.RunAll(twice, n, func(i int) ([]string, []any) {
					if i == no {
						return []string{fmt.Sprint(i)}, []any{3}
					}
					return []string{fmt.Sprint(i)}, []any{1000 + i}
				}, func(i int, a Answer) { answers[i] = a.Number(0) })
			})
			return answers, err
		}
		for _, flush := range []bool{true, false, true} {
			if flush {
				ok(t, s.Client().ScriptFlush(t.Context()).Err())
			}
			answers, err := run(n)
			if err != nil || len(answers) != n {
				t.Errorf("RunAll() gave %d answers, %v", len(answers), err)
			}
			answers, err = run(17)
			if err == nil || !strings.Contains(err.Error(), "not three") || len(answers) != n-1 {
				t.Errorf("RunAll() gave %d answers, %v", len(answers), err)
			}
			for i, a := range answers {
				if a != int64(2*(1000+i)) {
					t.Errorf("answer of run %d = %d", i, a)
				}
			}
		}
		ok(t, c.WriteCall().Once(t.Context(), func(try *Try) error { return try.RunAll(twice, 0, nil, nil) }))
	})
}

// Without replicas, a write that waits for them ends with ErrUnknown. A script that writes nothing
// does not, nor does one that does not wait.
func TestWait(t *testing.T) {
	onBoth(t, func(t *testing.T, s *redistest.Server, url string) {
		c := connect(t, url, Options{Wait: 1, WaitTimeout: 20 * time.Millisecond})
		patient := connect(t, url, Options{Wait: 1, WaitTimeout: time.Minute})
		ctx := t.Context()
		wait := func(c *Conn, value string) (a Answer, err error) {
			steps := 0
			err = c.WriteCall().Do(ctx, func(try *Try) (err error) {
				steps++
				a, err = try.RunWait(set, []string{"key"}, value)
				return err
			})
			if steps != 1 {
				t.Errorf("got %d tries", steps)
			}
			return a, err
		}
		for range 2 {
			ok(t, s.Client().ScriptFlush(ctx).Err())
			_, err := wait(c, "value")
			if !errors.Is(err, feed.ErrUnknown) || strings.Count(err.Error(), feed.ErrUnknown.Error()) != 1 || !strings.Contains(err.Error(), "confirmed by 0 replicas, want 1") {
				t.Errorf("got error %v", err)
			}
			if a, err := wait(c, ""); err != nil || a.Word() != "no" {
				t.Errorf("RunWait() of a script that wrote nothing = %q, %v", a, err)
			}
		}
		steps := 0
		ok(t, c.WriteCall().Do(ctx, step(&steps)))
		ok(t, connect(t, url, Options{}).WriteCall().Do(ctx, func(try *Try) error {
			_, err := try.RunWait(set, []string{"key"}, "value")
			return err
		}))
		if c.Cluster() {
			return
		}
		host, port, _ := strings.Cut(s.Addr, ":")
		replica := redistest.Start(t, "--replicaof", host+" "+port)
		until(t, func() bool { _, err := wait(c, "replicated"); return err == nil })
		if v := replica.Client().Get(ctx, "key").Val(); v != "replicated" {
			t.Errorf("value at the replica = %q", v)
		}
		ok(t, s.Client().ScriptFlush(ctx).Err())
		if a, err := wait(patient, "again"); err != nil || a.Text(1) != "again" {
			t.Errorf("RunWait() = %q, %v", a, err)
		}
	})
}

// until waits until so returns true.
func until(t testing.TB, so func() bool) {
	t.Helper()
	limit, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for n := 1; !so(); n++ {
		if limit.Err() != nil {
			t.Fatal("timeout")
		}
	}
}
