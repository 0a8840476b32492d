package access

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/internal/reread"
	"github.com/rshub/rshub/internal/testutil"
)

// A fileBench is a watched tokens file in fake time.
type fileBench struct {
	*testing.T
	path string
	file *TokensFile
	log  testutil.Log
}

func watchFile(t *testing.T, lines ...string) *fileBench {
	b := &fileBench{T: t, path: filepath.Join(t.TempDir(), "tokens")}
	b.write(lines...)
	var err error
	if b.file, err = OpenTokensFile(b.path, slog.New(slog.NewTextHandler(&b.log, nil))); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); b.file.Watch(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return b
}

// write replaces the file atomically, as editors and Kubernetes do.
func (b *fileBench) write(lines ...string) {
	b.Helper()
	if err := os.WriteFile(b.path+".new", []byte(tokensFile(lines...)), 0o600); err != nil {
		b.Fatal(err)
	}
	if err := os.Rename(b.path+".new", b.path); err != nil {
		b.Fatal(err)
	}
}

func (b *fileBench) caller(token string) (Caller, error) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return b.file.Caller(r)
}

func TestTokensFileReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := watchFile(t, "alice ALICE publish:a")
		if c, err := b.caller(alicesToken); err != nil || c.Name != "alice" {
			t.Fatalf("Caller(alice) = %+v, %v, want alice", c, err)
		}
		b.write("alice ALICE publish:a,follow:b", "bob BOB follow:b", "anyone - follow:c")
		time.Sleep(reread.DefaultPause + 1)
		synctest.Wait()
		if c, err := b.caller(alicesToken); err != nil || !c.Rights.Follow("b") || !c.Rights.Follow("c") {
			t.Errorf("Caller(alice) after the reload = %+v, %v, want the rights to follow b and c", c, err)
		}
		if c, err := b.caller(bobsToken); err != nil || c.Name != "bob" {
			t.Errorf("Caller(bob) = %+v, %v, want bob", c, err)
		}
		if c, err := b.caller(""); err != nil || !c.Rights.Follow("c") || c.Rights.Follow("b") {
			t.Errorf("Caller() without a token = %+v, %v, want only the right to follow c", c, err)
		}
		version := b.file.Version()

		for _, bad := range []func(){
			func() { b.write("alice ALICE publish:a,nonsense") },
			func() { _ = os.Remove(b.path) },
			func() { b.write("alice rshub_THESECRET publish:a") },
		} {
			before := len(b.log.String())
			logged := func() string { return b.log.String()[before:] }
			bad()
			time.Sleep(reread.DefaultPause + 1)
			synctest.Wait()
			if c, err := b.caller(bobsToken); err != nil || !c.Rights.Follow("b") {
				t.Errorf("Caller(bob) with an invalid file = %+v, %v, want the previous rights", c, err)
			}
			if b.file.Err() == nil || b.file.Version() != version {
				t.Error("with an invalid file: got no error or another version, want an error and the same version")
			}
			if once := logged(); strings.Count(once, "remains in effect") != 1 || strings.Contains(once, "THESECRET") {
				t.Errorf("got the log %q, want one warning without the token", once)
			}
			time.Sleep(10 * reread.DefaultPause)
			synctest.Wait()
			if strings.Count(logged(), "remains in effect") != 1 {
				t.Errorf("got the log %q, want only one warning", logged())
			}
		}
		b.write("bob BOB follow:b")
		time.Sleep(reread.DefaultPause + 1)
		synctest.Wait()
		if _, err := b.caller(alicesToken); err == nil || b.file.Err() != nil {
			t.Errorf("Caller(alice) = %v, Err() = %v, want an error, nil", err, b.file.Err())
		}
	})
}

// follows returns a function that checks whether a caller may follow a set.
func follows(set string) func(Caller) error {
	return func(c Caller) error { return MayFollow(NewContext(context.Background(), c), set) }
}

// A token expires at its time, and streams of its caller end within a second.
func TestWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := time.Now().Add(time.Minute).UTC().Format(time.RFC3339)
		b := watchFile(t, "alice ALICE follow:a expires="+end, "bob BOB follow:a", "anyone - follow:c")
		w := NewWatch(b.file)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); w.Run(ctx) }()
		hold := func(token, set string) context.Context {
			c, err := b.caller(token)
			if err != nil {
				t.Fatal(err)
			}
			held, end := context.WithCancelCause(NewContext(t.Context(), c))
			t.Cleanup(w.While(held, follows(set), end))
			return held
		}
		ended := func(what string, ctx context.Context, why string) {
			t.Helper()
			synctest.Wait()
			if cause := context.Cause(ctx); (cause == nil) != (why == "") || cause != nil && !strings.Contains(cause.Error(), why) {
				t.Errorf("%s: got the cause %v, want %q", what, cause, why)
			}
		}
		alice, bob, anyone, public := hold(alicesToken, "a"), hold(bobsToken, "a"), hold("", "c"), hold(bobsToken, "c")
		count := func() int {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.rights)
		}
		w.While(t.Context(), func(Caller) error { return nil }, func(err error) { t.Error(err) })()
		if count() != 4 {
			t.Errorf("got %d registrations", count())
		}
		time.Sleep(59 * time.Second)
		ended("alice", alice, "")
		time.Sleep(2 * time.Second)
		ended("alice", alice, "expired")
		ended("bob", bob, "")
		if _, err := b.caller(alicesToken); err == nil || !strings.Contains(err.Error(), "expired") {
			t.Errorf("Caller(alice) after the expiry = %v, want an expiry error", err)
		}

		b.write("bob BOB follow:other", "anyone - follow:c")
		time.Sleep(reread.DefaultPause + sweepInterval)
		ended("bob", bob, "does not have the right")
		ended("bob in a public set", public, "")
		late := hold(bobsToken, "other")
		early, err := b.caller(bobsToken)
		if err != nil {
			t.Fatal(err)
		}
		b.write("alice ALICE follow:a")
		time.Sleep(reread.DefaultPause + sweepInterval)
		ended("bob without a token", late, "the token is unknown")
		ended("bob in a public set", public, "the token is unknown")
		ended("anyone", anyone, "this request requires a token")

		// The request started before the change, and calls While after it.
		held, cut := context.WithCancelCause(NewContext(t.Context(), early))
		w.While(held, follows("other"), cut)()
		ended("late", held, "the token is unknown")
		cancel()
		<-done
		if count() != 0 {
			t.Errorf("got %d registrations", count())
		}
	})
}
