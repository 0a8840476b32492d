package smoke

import (
	"context"
	"errors"
	"testing"

	"github.com/rshub/rshub/e2e/internal/browser"
	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestPage opens the hub's page in a browser, goes from the list of sets to one, and sees a
// change that is published then.
func TestPage(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t)
	hubtest.Publish(t, h, "demo", hubtest.Change("before"))
	tab := browser.Open(t, browser.Start(t), h.URL+"/")
	isTrue(t, tab, `document.querySelector('tbody a').textContent.includes('demo')`)
	isTrue(t, tab, `(document.querySelector('tbody a').click(), true)`)
	isTrue(t, tab, `document.querySelector('.status.live')`)
	isTrue(t, tab, `document.body.innerText.includes('https://example.org/before')`)
	hubtest.Publish(t, h, "demo", hubtest.Change("while-it-is-open"))
	isTrue(t, tab, `document.body.innerText.includes('https://example.org/while-it-is-open')`)
	isTrue(t, tab, `document.querySelectorAll('.tail .change').length === 2`)
}

// isTrue waits until a JavaScript expression is true of the page.
func isTrue(t *testing.T, tab context.Context, expression string) {
	t.Helper()
	hubtest.Until(t, expression, func() error {
		if !browser.Evaluate[bool](t, tab, "(() => { try { return Boolean("+expression+") } catch { return false } })()") {
			return errors.New("the page says: " + browser.Evaluate[string](t, tab, "String(document.body?.innerText).slice(0, 2000)"))
		}
		return nil
	})
}
